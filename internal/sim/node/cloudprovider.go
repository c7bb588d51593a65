package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Instance is the virtual machine behind a Node.
type Instance struct {
	// ID completes the provider ID.
	ID string
	// Addresses of the machine as the cloud knows them; they become the Node's where it has none.
	Addresses []string
}

// Instances tells the cloud provider which virtual machine is behind a Node: by its name and the product UUID that its
// kubelet reports. False: no such machine, the Node stays uninitialised and is looked at again.
type Instances func(nodeName, systemUUID string) (Instance, bool)

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

const cloudRetry = time.Second

// Run initialises Nodes until the context ends: a Node with the taint node.cloudprovider.kubernetes.io/uninitialized gets
// the providerID of its machine, unless it has one, and loses the taint. An unreachable cluster is tried again quietly.
func (p *CloudProvider) Run(ctx context.Context) error {
	client, err := newClient(p.Cluster)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := p.follow(ctx, client); err != nil && ctx.Err() == nil {
			p.Log.V(1).Info("cloud provider cannot follow the nodes", "error", err.Error())
		}
		pause(ctx, cloudRetry)
	}
	return ctx.Err()
}

// follow handles all Nodes, then their changes, until the watch ends. Nodes whose machine is not known yet are looked at again
// by the list that follows.
func (p *CloudProvider) follow(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	open := false
	for i := range list.Items {
		open = !p.handle(ctx, client, &list.Items[i]) || open
	}
	if open {
		return nil
	}
	w, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		n, ok := event.Object.(*corev1.Node)
		if !ok {
			return nil // an expired version
		}
		if !p.handle(ctx, client, n) {
			return nil
		}
	}
	return nil
}

// handle returns false when the Node must be looked at again.
func (p *CloudProvider) handle(ctx context.Context, client kubernetes.Interface, n *corev1.Node) bool {
	if !uninitialized(n) || n.DeletionTimestamp != nil {
		return true
	}
	machine, ok := p.Instances(n.Name, n.Status.NodeInfo.SystemUUID)
	if !ok || machine.ID == "" {
		return false
	}
	id, err := p.initialize(ctx, client, n, machine)
	if apierrors.IsNotFound(err) {
		return true
	}
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsConflict(err) {
			p.Log.Info("cloud provider cannot initialise node", "node", n.Name, "error", err.Error())
		}
		return false
	}
	p.Log.Info("cloud provider initialised node", "node", n.Name, "providerID", id)
	return true
}

func (p *CloudProvider) initialize(ctx context.Context, client kubernetes.Interface, n *corev1.Node, machine Instance) (string, error) {
	if err := p.setAddresses(ctx, client, n, machine); err != nil {
		return "", err
	}
	taints := []corev1.Taint{}
	for _, t := range n.Spec.Taints {
		if t.Key != taintUninitialized {
			taints = append(taints, t)
		}
	}
	spec := map[string]any{"taints": taints}
	id := n.Spec.ProviderID
	if id == "" {
		id = p.Prefix + machine.ID
		spec["providerID"] = id
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, "spec": spec})
	if err != nil {
		return "", err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return id, err
}

// setAddresses gives a Node whose kubelet left its addresses to the provider those of the machine.
func (p *CloudProvider) setAddresses(ctx context.Context, client kubernetes.Interface, n *corev1.Node, machine Instance) error {
	if len(n.Status.Addresses) > 0 || len(machine.Addresses) == 0 {
		return nil
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}
	for _, a := range machine.Addresses {
		addresses = append(addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a}, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": addresses}})
	if err != nil {
		return err
	}
	updated, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing addresses: %w", err)
	}
	if equality.Semantic.DeepEqual(n.Spec, updated.Spec) {
		n.ResourceVersion = updated.ResourceVersion
	}
	return nil
}

func uninitialized(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == taintUninitialized {
			return true
		}
	}
	return false
}
