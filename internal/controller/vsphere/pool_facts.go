package vsphere

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// poolFacts is pool.Facts for one pool. A yes that frees something is always a live read.
type poolFacts struct {
	*pools
	key types.NamespacedName
}

var _ pool.Facts = (*poolFacts)(nil)

// MachineGone implements pool.Facts.
func (f *poolFacts) MachineGone(ctx context.Context, holder slot.Holder) (bool, error) {
	if holder.OwnerName == "" {
		return f.HolderGone(ctx, holder)
	}
	m := &clusterv1.Machine{}
	err := f.reader.Get(ctx, client.ObjectKey{Namespace: f.key.Namespace, Name: holder.OwnerName}, m)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Machine %s: %w", holder.OwnerName, err)
	}
	return holder.OwnerUID != "" && string(m.UID) != holder.OwnerUID, nil
}

// HolderGone implements pool.Facts.
func (f *poolFacts) HolderGone(ctx context.Context, holder slot.Holder) (bool, error) {
	m := &infrav1.VSphereMachine{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: f.key.Namespace, Name: holder.Name}, m); err == nil && isHolder(m, holder) {
		return false, nil
	}
	machines := &infrav1.VSphereMachineList{}
	if err := f.reader.List(ctx, machines, client.InNamespace(f.key.Namespace)); err != nil {
		return false, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	for i := range machines.Items {
		if isHolder(&machines.Items[i], holder) {
			return false, nil
		}
	}
	vms := &infrav1.VSphereVMList{}
	if err := f.reader.List(ctx, vms, client.InNamespace(f.key.Namespace)); err != nil {
		return false, fmt.Errorf("listing VSphereVMs: %w", err)
	}
	for i := range vms.Items {
		if isHolder(&vms.Items[i], holder) {
			return false, nil
		}
	}
	return true, nil
}

// isHolder says whether an object is the holder: by mark, or by UID where an old record has no mark.
func isHolder(obj client.Object, holder slot.Holder) bool {
	if holder.Mark != "" {
		return obj.GetAnnotations()[infrav1.MarkAnnotation] == holder.Mark
	}
	return holder.UID != "" && string(obj.GetUID()) == holder.UID
}

// Node implements pool.Facts.
func (f *poolFacts) Node(ctx context.Context, hostName string, _ slot.Holder) (slot.NodeFact, error) {
	p, cluster, _, err := f.surroundings(ctx)
	if err != nil {
		return slot.NodeUnknown, err
	}
	controlPlane := p.Status.ConsumerRef != nil && p.Status.ConsumerRef.Kind != "MachineDeployment"
	return f.nodes.clear(ctx, cluster, hostName, "", controlPlane)
}

// Occupants implements pool.Facts.
func (f *poolFacts) Occupants(ctx context.Context) (map[string]slot.Holder, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := f.reader.Get(ctx, f.key, p); err != nil {
		return nil, fmt.Errorf("reading pool %s: %w", f.key, err)
	}
	declared := map[string]bool{}
	for _, c := range p.Spec.Configs {
		declared[c.Hostname] = true
	}
	machines := &infrav1.VSphereMachineList{}
	if err := f.reader.List(ctx, machines, client.InNamespace(f.key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	vms := &infrav1.VSphereVMList{}
	if err := f.reader.List(ctx, vms, client.InNamespace(f.key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing VSphereVMs: %w", err)
	}
	byMark := map[string]*infrav1.VSphereMachine{}
	out := map[string]slot.Holder{}
	for i := range machines.Items {
		m := &machines.Items[i]
		mark := m.Annotations[infrav1.MarkAnnotation]
		if mark == "" {
			continue
		}
		byMark[mark] = m
		host := m.Annotations[infrav1.SlotHostnameAnnotation]
		if ref := m.Spec.MachineConfigPoolRef; ref != nil && ref.Name == f.key.Name && declared[host] {
			out[host] = holderFrom(m)
		}
	}
	for i := range vms.Items {
		vm := &vms.Items[i]
		mark, host := vm.Annotations[infrav1.MarkAnnotation], vm.Annotations[infrav1.SlotHostnameAnnotation]
		if mark == "" || !declared[host] || vm.Labels[clusterv1.ClusterNameLabel] != p.Spec.ClusterRef.Name {
			continue
		}
		switch m := byMark[mark]; {
		case m == nil:
			out[host] = slot.Holder{Name: vm.Name, UID: string(vm.UID), Mark: mark}
		case m.Spec.MachineConfigPoolRef != nil && m.Spec.MachineConfigPoolRef.Name == f.key.Name:
			out[host] = holderFrom(m)
		}
	}
	return out, nil
}

// Leaving implements pool.Facts: by the Node that a Machine had, or the host name in its addresses.
func (f *poolFacts) Leaving(ctx context.Context) (map[string]slot.Holder, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := f.reader.Get(ctx, f.key, p); err != nil {
		return nil, fmt.Errorf("reading pool %s: %w", f.key, err)
	}
	owners := &clusterv1.MachineList{}
	if err := f.reader.List(ctx, owners, client.InNamespace(f.key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterRef.Name}); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	out := map[string]slot.Holder{}
	for i := range owners.Items {
		owner := &owners.Items[i]
		ref := owner.Spec.InfrastructureRef
		if ref.Kind != "VSphereMachine" {
			continue
		}
		err := f.reader.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: ref.Name}, &infrav1.VSphereMachine{})
		if err == nil {
			continue
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading VSphereMachine %s: %w", ref.Name, err)
		}
		holder := slot.Holder{Name: ref.Name, UID: string(owner.UID), OwnerName: owner.Name, OwnerUID: string(owner.UID)}
		if owner.Status.NodeRef.Name != "" {
			out[owner.Status.NodeRef.Name] = holder
		}
		for _, address := range owner.Status.Addresses {
			if address.Type == clusterv1.MachineHostName {
				out[address.Address] = holder
			}
		}
	}
	return out, nil
}

func holderFrom(m *infrav1.VSphereMachine) slot.Holder {
	h := slot.Holder{Name: m.Name, UID: string(m.UID), Mark: m.Annotations[infrav1.MarkAnnotation]}
	for _, ref := range m.OwnerReferences {
		if ref.Kind == "Machine" {
			h.OwnerName, h.OwnerUID = ref.Name, string(ref.UID)
		}
	}
	return h
}

// Shape implements pool.Facts.
func (f *poolFacts) Shape(ctx context.Context) (any, error) {
	machines := &infrav1.VSphereMachineList{}
	if err := f.client.List(ctx, machines, client.InNamespace(f.key.Namespace), client.MatchingFields{poolField: f.key.Name}); err != nil {
		return nil, fmt.Errorf("listing VSphereMachines of pool %s: %w", f.key, err)
	}
	if len(machines.Items) > 0 {
		return shapeOf(&machines.Items[0].Spec.VirtualMachineCloneSpec), nil
	}
	templates := &infrav1.VSphereMachineTemplateList{}
	if err := f.client.List(ctx, templates, client.InNamespace(f.key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing VSphereMachineTemplates: %w", err)
	}
	for i := range templates.Items {
		spec := &templates.Items[i].Spec.Template.Spec
		if ref := spec.MachineConfigPoolRef; ref != nil && ref.Name == f.key.Name {
			return shapeOf(&spec.VirtualMachineCloneSpec), nil
		}
	}
	return f.shapeOfRecords(ctx)
}

// shapeOfRecords knows no more than where the pool's disks are: enough to look for others of them when machines and templates
// are gone.
func (f *poolFacts) shapeOfRecords(ctx context.Context) (any, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := f.reader.Get(ctx, f.key, p); err != nil {
		return nil, fmt.Errorf("reading pool %s: %w", f.key, err)
	}
	for _, d := range p.Status.PersistentDiskStatuses {
		if datastore, _, ok := strings.Cut(strings.TrimPrefix(d.VolumePath, "["), "]"); ok {
			return vsphere.Shape{Datacenter: p.Spec.Datacenter, Datastore: datastore}, nil
		}
	}
	return nil, nil
}

// platform is pool.PlatformFor.
func (f *poolFacts) platform(ctx context.Context) (machine.Platform, error) {
	_, _, infra, err := f.surroundings(ctx)
	if err != nil {
		return nil, err
	}
	if infra == nil {
		return nil, errNoCluster
	}
	session, err := f.access.session(ctx, infra, "", "", "")
	if err != nil {
		return nil, err
	}
	return session, nil
}

// surroundings are the pool, its Cluster and VSphereCluster; the latter two are nil when they are gone.
func (f *poolFacts) surroundings(ctx context.Context) (*infrav1.VSphereMachineConfigPool, *clusterv1.Cluster, *infrav1.VSphereCluster, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := f.client.Get(ctx, f.key, p); err != nil {
		return nil, nil, nil, fmt.Errorf("reading pool %s: %w", f.key, err)
	}
	var found *clusterv1.Cluster
	cluster := &clusterv1.Cluster{}
	err := f.client.Get(ctx, client.ObjectKey{Namespace: f.key.Namespace, Name: p.Spec.ClusterRef.Name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, nil, fmt.Errorf("reading Cluster %s: %w", p.Spec.ClusterRef.Name, err)
	} else if err == nil {
		found = cluster
	}
	infra, err := findVSphereCluster(ctx, f.client, f.key.Namespace, p.Spec.ClusterRef.Name, found)
	return p, found, infra, err
}
