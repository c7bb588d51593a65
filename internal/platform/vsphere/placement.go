package vsphere

import (
	"context"
	"fmt"
)

// FailureDomain names the inventory that a failure domain refers to, and the resource pool of the zone that makes it available.
// Empty fields are not checked.
type FailureDomain struct {
	Region, Zone Tag

	Datacenter     string
	ComputeCluster string
	Datastore      string
	Networks       []string
	// NetworksField is where the networks are declared.
	NetworksField string
	// HostGroup and VMGroup restrict the domain to some hosts of the compute cluster.
	HostGroup, VMGroup string

	// ResourcePool must belong to ComputeCluster, if there is one.
	ResourcePool string
}

// Constraint names where in a datacenter machines go. Empty fields are not checked.
type Constraint struct {
	Datacenter, Folder, ResourcePool string
}

// Reasons of failure domains, as published.
const (
	ReasonComputeCluster = "ComputeClusterNotFound"
	ReasonRegion         = "FailureDomainRegionMisconfigured"
	ReasonZone           = "FailureDomainZoneMisconfigured"
)

var kindComputeCluster = kind{
	"compute cluster", "spec.topology.computeCluster", ReasonComputeCluster, []string{"ComputeResource", "ClusterComputeResource"}, "host",
}

// CheckConstraint looks for folder and resource pool as a clone would. Errors: Refused, with the reason and the field of what does
// not exist and a list of what there is.
func (s *Session) CheckConstraint(ctx context.Context, c Constraint) error {
	return s.inventory.with(ctx, func(inv *inventory) error {
		dc, err := inv.find(kindDatacenter.called("spec.topology.datacenter"), nil, c.Datacenter)
		if err != nil {
			return err
		}
		if c.Folder != "" {
			if _, err := inv.find(kindFolder.called("spec.placementConstraint.folder"), dc, c.Folder); err != nil {
				return err
			}
		}
		if c.ResourcePool == "" {
			return nil
		}
		_, err = inv.pool(kindResourcePool.called("spec.placementConstraint.resourcePool"), dc, c.ResourcePool)
		return err
	})
}

// CheckFailureDomain looks for everything that a failure domain names and, where it says so, makes and attaches its tags. warning
// is a sentence about what is there and does not work at the moment. Errors: Refused, as CheckConstraint's.
func (s *Session) CheckFailureDomain(ctx context.Context, d FailureDomain) (warning string, err error) {
	var dc, cluster *node
	err = s.inventory.with(ctx, func(inv *inventory) error {
		if dc, err = inv.find(kindDatacenter.called("spec.topology.datacenter"), nil, d.Datacenter); err != nil {
			return err
		}
		if d.ComputeCluster != "" {
			if cluster, err = inv.find(kindComputeCluster, dc, d.ComputeCluster); err != nil {
				return err
			}
			if err := inv.owned(dc, cluster, d.ResourcePool); err != nil {
				return err
			}
		}
		if d.Datastore != "" {
			if _, err := inv.find(kindDatastore.called("spec.topology.datastore"), dc, d.Datastore); err != nil {
				return err
			}
		}
		for i, name := range d.Networks {
			if _, err := inv.find(kindNetwork.called(fmt.Sprintf(d.NetworksField, i)), dc, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	var groups *affinity
	if d.HostGroup != "" || d.VMGroup != "" {
		if cluster == nil {
			return "", refused(ReasonHosts, "spec.topology.hosts needs spec.topology.computeCluster: groups of hosts belong to a compute cluster")
		}
		if groups, err = s.affinityOf(ctx, cluster); err != nil {
			return "", err
		}
		if warning, err = groups.checkHosts(cluster, d.HostGroup, d.VMGroup); err != nil {
			return "", err
		}
	}
	for _, check := range []struct {
		tag    Tag
		reason string
	}{{d.Region, ReasonRegion}, {d.Zone, ReasonZone}} {
		if check.tag.Name == "" {
			continue
		}
		carriers, err := carriersOf(check.tag, check.reason, dc, cluster, groups, d.HostGroup)
		if err != nil {
			return "", err
		}
		if err := s.checkTag(ctx, check.tag, check.reason, carriers); err != nil {
			return "", err
		}
	}
	return warning, nil
}

// owned refuses a resource pool that belongs to another compute cluster than the failure domain's.
func (inv *inventory) owned(dc, cluster *node, value string) error {
	if value == "" {
		return nil
	}
	ref, err := inv.pool(kindResourcePool.called("spec.placementConstraint.resourcePool"), dc, value)
	if err != nil {
		return err
	}
	if owner := inv.ownerOf(ref); owner != cluster {
		name := "none"
		if owner != nil {
			name = owner.name
		}
		return refused(ReasonResourcePool, "spec.placementConstraint.resourcePool %q belongs to compute cluster %s, spec.topology.computeCluster "+
			"is %s: name a resource pool of %s; there is %s", value, name, cluster.name, cluster.name, inv.list(inv.poolsOf(dc, cluster), dc, kindResourcePool))
	}
	return nil
}

func (inv *inventory) poolsOf(dc, cluster *node) []*node {
	var out []*node
	for _, n := range inv.all(kindResourcePool, dc) {
		if inv.ownerOf(n.ref) == cluster {
			out = append(out, n)
		}
	}
	return out
}
