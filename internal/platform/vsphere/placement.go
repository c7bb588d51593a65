package vsphere

import (
	"context"
	"fmt"
)

// Placement names the inventory that a failure domain and its deployment zone refer to. Empty fields are not checked.
type Placement struct {
	Datacenter     string
	ComputeCluster string
	Datastore      string
	Networks       []string
	Folder         string
	ResourcePool   string
}

// ReasonComputeCluster: the compute cluster of a failure domain does not exist.
const ReasonComputeCluster = "ComputeClusterNotFound"

var kindComputeCluster = kind{
	"compute cluster", "spec.topology.computeCluster", ReasonComputeCluster, []string{"ComputeResource", "ClusterComputeResource"}, "host",
}

// CheckPlacement looks for everything that a placement names, as a clone would look for it. Errors: Refused, with the reason
// and the field of what does not exist and a list of what there is.
func (s *Session) CheckPlacement(ctx context.Context, p Placement) error {
	inv, err := s.inventory.get(ctx)
	if err != nil {
		return err
	}
	dc, err := inv.find(kindDatacenter.called("spec.topology.datacenter"), nil, p.Datacenter)
	if err != nil {
		return err
	}
	for _, look := range []struct {
		kind  kind
		value string
	}{
		{kindComputeCluster, p.ComputeCluster},
		{kindDatastore.called("spec.topology.datastore"), p.Datastore},
		{kindFolder.called("spec.placementConstraint.folder"), p.Folder},
	} {
		if look.value == "" {
			continue
		}
		if _, err := inv.find(look.kind, dc, look.value); err != nil {
			return err
		}
	}
	for i, name := range p.Networks {
		if _, err := inv.find(kindNetwork.called(fmt.Sprintf("spec.topology.networks[%d]", i)), dc, name); err != nil {
			return err
		}
	}
	if p.ResourcePool != "" {
		if _, err := inv.resourcePool(dc, p.ResourcePool); err != nil {
			return err
		}
	}
	return nil
}
