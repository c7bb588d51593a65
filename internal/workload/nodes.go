// Package workload is access to workload clusters: the few reads and acts on their own API that the life of a machine needs.
package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrUnreachable says that a workload cluster could not be asked: nothing is known about what it holds.
var ErrUnreachable = errors.New("the workload cluster cannot be reached")

// Clusters reaches workload clusters through their kubeconfig Secrets.
type Clusters struct {
	// Cache is Cluster API's cache of connections. It may be nil.
	Cache clustercache.ClusterCache
	// Secrets reads the kubeconfig Secret live.
	Secrets client.Reader
	// Timeout bounds one question (default 5s).
	Timeout time.Duration
}

// Node is what a workload cluster says about one of its Nodes.
type Node struct {
	Name       string
	UID        types.UID
	ProviderID string
}

// Node reads a Node by name, live. nil without an error means that there is none. Every failure to ask wraps ErrUnreachable.
func (c *Clusters) Node(ctx context.Context, cluster client.ObjectKey, name string) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()

	node := &corev1.Node{}
	err := c.ask(ctx, cluster,
		func(w client.Client) error { return w.Get(ctx, client.ObjectKey{Name: name}, node) },
		func(w kubernetes.Interface) (err error) {
			node, err = w.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			return err
		})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Node{Name: node.Name, UID: node.UID, ProviderID: node.Spec.ProviderID}, nil
}

// DeleteNode deletes exactly the Node that was read: a successor of the same name has another UID and stays.
func (c *Clusters) DeleteNode(ctx context.Context, cluster client.ObjectKey, node Node) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()

	precondition := metav1.Preconditions{UID: &node.UID}
	err := c.ask(ctx, cluster,
		func(w client.Client) error {
			return w.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, client.Preconditions(precondition))
		},
		func(w kubernetes.Interface) error {
			return w.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &precondition})
		})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// ask uses the cached connection when there is one and dials otherwise: the cache retries a failed connection every half
// minute only, and a machine's first start need not wait for that.
func (c *Clusters) ask(ctx context.Context, cluster client.ObjectKey, cached func(client.Client) error, direct func(kubernetes.Interface) error) error {
	if c.Cache != nil {
		if w, err := c.Cache.GetUncachedClient(ctx, cluster); err == nil {
			return unreachable(cluster, cached(w))
		}
	}
	w, err := c.dial(ctx, cluster)
	if err != nil {
		return unreachable(cluster, err)
	}
	return unreachable(cluster, direct(w))
}

func (c *Clusters) dial(ctx context.Context, cluster client.ObjectKey) (kubernetes.Interface, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}
	if err := c.Secrets.Get(ctx, key, secret); err != nil {
		// A missing kubeconfig is no answer about a Node: keep it from looking like one.
		return nil, fmt.Errorf("reading Secret %s: %s", key, err.Error())
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig in Secret %s cannot be read: %w", key, err)
	}
	cfg.Timeout = c.timeout()
	return kubernetes.NewForConfig(cfg)
}

func (c *Clusters) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return 5 * time.Second
}

// unreachable keeps answers (not found, conflict) as they are and marks everything else as no answer.
func unreachable(cluster client.ObjectKey, err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, cluster, err)
}
