package guest

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/internal/sim/node"
)

// providerPrefix starts the provider IDs of vSphere's cloud provider; the BIOS UUID follows.
const providerPrefix = "vsphere://"

// clouds runs one simulated cloud provider per workload cluster, as long as the cluster has a control plane.
type clouds struct {
	ctx       context.Context //nolint:containedctx // the life of the daemon
	log       logr.Logger
	instances node.Instances

	mu      sync.Mutex
	cancels map[string]context.CancelFunc
	running sync.WaitGroup
}

func newClouds(ctx context.Context, log logr.Logger, instances node.Instances) *clouds {
	return &clouds{ctx: ctx, log: log, instances: instances, cancels: map[string]context.CancelFunc{}}
}

// ensure starts the cloud provider of the cluster behind an endpoint, with the credentials of one of its control planes.
func (c *clouds) ensure(endpoint string, kubeconfig []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancels[endpoint] != nil {
		return false
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		c.log.Error(err, "a control plane's admin.conf is of no use to the cloud provider", "endpoint", endpoint)
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.cancels[endpoint] = cancel
	provider := &node.CloudProvider{
		Cluster: config, Prefix: providerPrefix, Instances: c.instances, Log: c.log.WithValues("endpoint", endpoint),
	}
	c.running.Go(func() {
		for ctx.Err() == nil {
			if err := provider.Run(ctx); err != nil && ctx.Err() == nil {
				c.log.Error(err, "the cloud provider ended; starting it again", "endpoint", endpoint)
			}
			wait(ctx, time.Second)
		}
	})
	return true
}

// drop ends the cloud provider of a cluster that is gone.
func (c *clouds) drop(endpoint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.cancels[endpoint]; cancel != nil {
		cancel()
		delete(c.cancels, endpoint)
	}
}

func (c *clouds) close() {
	c.mu.Lock()
	for _, cancel := range c.cancels {
		cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
}
