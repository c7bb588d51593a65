package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/vapi/cluster"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// ReasonModule: a cluster module does not exist, or the VM is not in its compute cluster.
const ReasonModule = "ClusterModuleSetupFailed"

// ComputeCluster is a compute cluster that a module can be made for.
type ComputeCluster struct {
	// Ref is vCenter's reference, Path the inventory path.
	Ref, Path string
}

// ClusterOf returns the compute cluster that owns a resource pool; an empty pool is the only one of the datacenter. Errors:
// Refused, also if it is owned by a single host.
func (s *Session) ClusterOf(ctx context.Context, datacenter, resourcePool string) (ComputeCluster, error) {
	var out ComputeCluster
	err := s.inventory.with(ctx, func(inv *inventory) error {
		dc, err := inv.datacenter(datacenter, "")
		if err != nil {
			return err
		}
		pool, err := inv.resourcePool(dc, resourcePool)
		if err != nil {
			return err
		}
		owner := inv.ownerOf(pool)
		if owner == nil || owner.ref.Type != "ClusterComputeResource" {
			return refused(ReasonModule, "resource pool %q belongs to a single host and not to a compute cluster, which alone has modules", resourcePool)
		}
		out = ComputeCluster{Ref: owner.ref.Value, Path: inv.path(owner)}
		return nil
	})
	return out, err
}

// ownerOf is the compute resource that a resource pool belongs to.
func (inv *inventory) ownerOf(pool types.ManagedObjectReference) *node {
	for n := inv.nodes[pool]; n != nil; n = inv.nodes[n.parent] {
		if slices.Contains(kindComputeCluster.types, n.ref.Type) {
			return n
		}
	}
	return nil
}

// Modules lists the cluster modules that exist: UUID to the reference of the compute cluster.
func (s *Session) Modules(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := s.rest(ctx, "listing cluster modules", func(ctx context.Context, c *rest.Client) error {
		list, err := cluster.NewManager(c).ListModules(ctx)
		for _, m := range list {
			out[m.Module] = m.Cluster
		}
		return err
	})
	return out, err
}

// CreateModule makes an anti-affinity module in a compute cluster (its Ref) and returns its UUID. Modules have no names: whoever
// makes one must write the UUID down.
func (s *Session) CreateModule(ctx context.Context, computeCluster string) (id string, err error) {
	err = s.rest(ctx, "creating a cluster module", func(ctx context.Context, c *rest.Client) error {
		id, err = cluster.NewManager(c).CreateModule(ctx, types.ManagedObjectReference{Type: "ClusterComputeResource", Value: computeCluster})
		return err
	})
	return id, err
}

// DeleteModule deletes a module; its members only leave it. One that is gone is no error.
func (s *Session) DeleteModule(ctx context.Context, id string) error {
	err := s.rest(ctx, "deleting cluster module "+id, func(ctx context.Context, c *rest.Client) error {
		return cluster.NewManager(c).DeleteModule(ctx, id)
	})
	if machine.Is(err, machine.NotFound) {
		return nil
	}
	return err
}

// joinModule makes a VM a member of a module. vCenter answers false both for a member and for a VM of another compute cluster.
func (s *Session) joinModule(ctx context.Context, v vm, id string) error {
	err := s.rest(ctx, "adding virtual machine "+v.name+" to cluster module "+id, func(ctx context.Context, c *rest.Client) error {
		m := cluster.NewManager(c)
		members, err := m.ListModuleMembers(ctx, id)
		if err != nil || slices.Contains(members, v.ref) {
			return err
		}
		if added, err := m.AddModuleMembers(ctx, id, v.ref); err != nil || added {
			return err
		}
		return refused(ReasonModule, "virtual machine %s cannot join cluster module %s: it is not in the module's compute cluster", v.name, id)
	})
	if machine.Is(err, machine.NotFound) {
		return refused(ReasonModule, "cluster module %s does not exist any more; the VSphereCluster makes another", id)
	}
	return err
}

// LeaveModule takes a server out of a module. No module, no server and no membership are no error.
func (s *Session) LeaveModule(ctx context.Context, id, serverID string) error {
	ref, ok := parseRef(serverID)
	if !ok {
		return nil
	}
	err := s.rest(ctx, "taking "+ref.Value+" out of cluster module "+id, func(ctx context.Context, c *rest.Client) error {
		_, err := cluster.NewManager(c).RemoveModuleMembers(ctx, id, ref)
		return err
	})
	if machine.Is(err, machine.NotFound) {
		return nil
	}
	return err
}
