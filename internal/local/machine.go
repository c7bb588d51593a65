package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// Machine is what a person wants to know about one machine of a cluster.
type Machine struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Name      string `json:"name"`
	// Role is "control plane" or "worker".
	Role string `json:"role"`
	// Phase as Cluster API says it: Pending, Provisioning, Provisioned, Running, Updating, Deleting, Failed.
	Phase   string `json:"phase"`
	Version string `json:"version,omitempty"`
	// Slot is the host name of its place.
	Slot string `json:"slot,omitempty"`
	// Address is its first address, an internal one if it has any.
	Address string `json:"address,omitempty"`
	Node    string `json:"node,omitempty"`
	// Ready says that it runs and its Node is ready.
	Ready bool `json:"ready"`
	// Waiting is what it waits for, in the words of its conditions; empty if Ready.
	Waiting string `json:"waiting,omitempty"`
}

const (
	labelCluster      = "cluster.x-k8s.io/cluster-name"
	labelControlPlane = "cluster.x-k8s.io/control-plane"
	kindInfraMachine  = "VSphereMachine"
	phaseRunning      = "Running"
)

// Machines lists the machines of all clusters, ordered by cluster, role and slot.
func (e *Environment) Machines(ctx context.Context) ([]Machine, error) {
	client, err := e.client()
	if err != nil {
		return nil, err
	}
	lists := map[schema.GroupVersionResource][]*unstructured.Unstructured{}
	for _, resource := range []schema.GroupVersionResource{machineResource, vsphereMachineResource, vsphereVMResource} {
		list, err := client.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			lists[resource] = append(lists[resource], &list.Items[i])
		}
	}
	return machinesOf(lists[machineResource], lists[vsphereMachineResource], lists[vsphereVMResource]), nil
}

// machineResources are the kinds that tell about a machine.
var machineResources = []schema.GroupVersionResource{machineResource, vsphereMachineResource, vsphereVMResource, clusterResource}

// machinesOf joins the objects that describe each machine.
func machinesOf(machines, infra, vms []*unstructured.Unstructured) []Machine {
	key := func(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }
	slots := map[string]string{}
	for _, vm := range vms {
		owner := vm.GetName()
		for _, ref := range vm.GetOwnerReferences() {
			if ref.Kind == kindInfraMachine {
				owner = ref.Name
			}
		}
		slots[vm.GetNamespace()+"/"+owner] = vm.GetAnnotations()[infrav1.SlotHostnameAnnotation]
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, i := range infra {
		byName[key(i)] = i
	}
	all := make([]Machine, 0, len(machines))
	for _, m := range machines {
		text := func(path ...string) string {
			s, _, _ := unstructured.NestedString(m.Object, path...)
			return s
		}
		row := Machine{
			Namespace: m.GetNamespace(), Cluster: text("spec", "clusterName"), Name: m.GetName(), Role: "worker",
			Phase: text("status", "phase"), Version: text("spec", "version"), Node: text("status", "nodeRef", "name"),
			Address: addressOf(m),
		}
		if _, ok := m.GetLabels()[labelControlPlane]; ok {
			row.Role = "control plane"
		}
		i := byName[m.GetNamespace()+"/"+text("spec", "infrastructureRef", "name")]
		if i != nil {
			row.Slot = cmp.Or(slots[key(i)], i.GetAnnotations()[infrav1.SlotHostnameAnnotation])
			row.Address = cmp.Or(row.Address, addressOf(i))
		}
		row.Ready = row.Phase == phaseRunning && conditionStatus(m, "NodeReady") == "True"
		if !row.Ready {
			row.Waiting = waitsFor(m, i)
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b Machine) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Role, b.Role),
			cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Name, b.Name),
		)
	})
	return all
}

func addressOf(object *unstructured.Unstructured) string {
	addresses, _, _ := unstructured.NestedSlice(object.Object, "status", "addresses")
	for _, kind := range []string{"InternalIP", "ExternalIP"} {
		for _, a := range addresses {
			if fields, ok := a.(map[string]any); ok && fields["type"] == kind {
				s, _ := fields["address"].(string)
				return s
			}
		}
	}
	return ""
}

// waitsFor finds the earliest thing on a machine's way that is not there yet, and what is said about it.
func waitsFor(machine, infra *unstructured.Unstructured) string {
	if c := conditionOf(machine, "Deleting"); c.status == "True" {
		return oneLine(c.message)
	}
	if c := conditionOf(machine, "BootstrapConfigReady"); c.status != "True" && c.message != "" {
		return oneLine(c.message)
	}
	if infra != nil {
		// The machine's own condition repeats the message, without the reason, and later.
		if c := conditionOf(infra, "Ready"); c.status == "False" && c.message != "" {
			return oneLine(c.reason + ": " + c.message)
		}
	}
	for _, kind := range []string{"InfrastructureReady", "NodeReady", "Ready"} {
		if c := conditionOf(machine, kind); c.status != "True" && c.message != "" {
			return oneLine(c.message)
		}
	}
	return ""
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// watchMachines calls seen with all clusters and their machines, first with those that exist and then whenever one of them
// changes, until seen returns true or an error, or the context ends.
func (e *Environment) watchMachines(ctx context.Context, seen func(clusters []*unstructured.Unstructured, machines []Machine) (bool, error)) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// One pending change is enough: whoever takes it looks at everything.
	changed := make(chan struct{}, 1)
	var synced atomic.Bool
	wake := func() {
		if synced.Load() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client.dynamic, 0)
	stores := map[schema.GroupVersionResource]cache.Store{}
	for _, resource := range machineResources {
		informer := factory.ForResource(resource).Informer()
		stores[resource] = informer.GetStore()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
		})
		if err != nil {
			return err
		}
	}
	factory.Start(watching.Done())
	defer factory.Shutdown()
	defer cancel()
	for resource, ok := range factory.WaitForCacheSync(watching.Done()) {
		if !ok {
			return fmt.Errorf("watching %s: %w", resource.Resource, context.Cause(ctx))
		}
	}
	synced.Store(true)
	wake()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		done, err := seen(
			objectsIn(stores[clusterResource]),
			machinesOf(objectsIn(stores[machineResource]), objectsIn(stores[vsphereMachineResource]), objectsIn(stores[vsphereVMResource])),
		)
		if done || err != nil {
			return err
		}
	}
}

func objectsIn(store cache.Store) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, item := range store.List() {
		if object, ok := item.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
	}
	return all
}
