package vsphere

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/slot"
)

// inventoryPrefix is the domain of annotations of Cluster and VSphereCluster that become custom attributes of their virtual
// machines.
const inventoryPrefix = "vsphere.cluster.x-k8s.io/"

// enrol adds to a machine's shape what does not come from its own specification: the VM group of its failure domain, the module
// of its owner, the custom attributes of its cluster.
func (s *scope) enrol(shape *vsphere.Shape) {
	if s.place != nil && s.place.domain.Spec.Topology.Hosts != nil {
		shape.VMGroup = s.place.domain.Spec.Topology.Hosts.VMGroupName
		shape.ComputeCluster = ptr.Deref(s.place.domain.Spec.Topology.ComputeCluster, "")
	}
	shape.Module, shape.Fields = s.module, s.customAttributes()
}

// customAttributes are the annotations that people put on a cluster to find its machines in vSphere; the Cluster's win.
func (s *scope) customAttributes() map[string]string {
	out := map[string]string{}
	if s.infra != nil {
		maps.Copy(out, inventoryAnnotations(s.infra))
	}
	if s.cluster != nil {
		maps.Copy(out, inventoryAnnotations(s.cluster))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func inventoryAnnotations(obj client.Object) map[string]string {
	out := map[string]string{}
	for key, value := range obj.GetAnnotations() {
		if name, ok := strings.CutPrefix(key, inventoryPrefix); ok && name != "" {
			out[name] = value
		}
	}
	return out
}

// elsewhere refuses, before vCenter is asked for anything, a machine that would be made on another vCenter than its cluster's
// although it must not be: failure domains are chosen for the cluster's vCenter, and the disks of a pool lie there.
func elsewhere(s *scope) *machine.Guard {
	if s.vm != nil || s.infra == nil || s.infra.Spec.Server == "" {
		return nil
	}
	home := fmt.Sprintf("VSphereCluster %s uses %q", client.ObjectKeyFromObject(s.infra), s.infra.Spec.Server)
	refuse := func(format string, args ...any) *machine.Guard {
		return &machine.Guard{Reason: infrav1.CloningFailedReason, Message: fmt.Sprintf(format, args...)}
	}
	if s.place != nil {
		if server := s.place.zone.Spec.Server; server != "" && server != s.infra.Spec.Server {
			return refuse("VSphereDeploymentZone %s is on vCenter %q (spec.server) and %s: a machine goes only into a zone of its cluster's "+
				"vCenter; give it another failure domain", s.place.zone.Name, server, home)
		}
		return nil // the zone's server counts, whatever the machine says
	}
	key, pooled := s.poolKey()
	if server := s.machine.Spec.Server; pooled && server != "" && server != s.infra.Spec.Server {
		return refuse("spec.server is %q and %s, where the disks of pool %s lie: a machine with a pool is made on its cluster's vCenter; "+
			"leave spec.server out of the machine template", server, home, key.Name)
	}
	return nil
}

// mergeNetworkConfigurations lays what a failure domain says of its networks, beside their names, over the devices. A slot knows
// better: where it gives an address, none is asked for, and where it names DNS servers, those count.
func mergeNetworkConfigurations(spec *infrav1.VirtualMachineCloneSpec, in *placement, place *slot.Slot) {
	for i, c := range in.domain.Spec.Topology.NetworkConfigurations {
		if i >= len(spec.Network.Devices) {
			return
		}
		d := &spec.Network.Devices[i]
		var nic slot.NIC
		if place != nil && i < len(place.NICs) {
			nic = place.NICs[i]
		}
		has4, has6 := false, false
		for _, address := range nic.Addresses {
			has6 = has6 || isIPv6(address)
			has4 = has4 || !isIPv6(address)
		}
		if c.DHCP4 != nil && !has4 {
			d.DHCP4 = *c.DHCP4
		}
		if c.DHCP6 != nil && !has6 {
			d.DHCP6 = *c.DHCP6
		}
		if c.DHCP4Overrides != nil {
			d.DHCP4Overrides = c.DHCP4Overrides.DeepCopy()
		}
		if c.DHCP6Overrides != nil {
			d.DHCP6Overrides = c.DHCP6Overrides.DeepCopy()
		}
		if len(c.Nameservers) > 0 && len(nic.DNS) == 0 {
			d.Nameservers = slices.Clone(c.Nameservers)
		}
		if len(c.SearchDomains) > 0 {
			d.SearchDomains = slices.Clone(c.SearchDomains)
		}
		if len(c.AddressesFromPools) > 0 && len(nic.Addresses) == 0 {
			d.AddressesFromPools = slices.Clone(c.AddressesFromPools)
		}
	}
}
