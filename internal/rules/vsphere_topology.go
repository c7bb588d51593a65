package rules

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// VSpherePlacement is a deployment zone, by the name that a Machine has in failureDomain, with what it leads to.
type VSpherePlacement struct {
	Zone string
	// Domain of the zone, nil if the zone or its failure domain does not exist.
	Domain *v1beta1.VSphereFailureDomain
}

// NoMachine is part of every sentence about a placement in which no machine can be made.
const NoMachine = "no machine is made"

// networks that the failure domain names, in the order of the interfaces.
func (p VSpherePlacement) networks() []string {
	t := p.Domain.Spec.Topology
	if len(t.Networks) > 0 {
		return t.Networks
	}
	var names []string
	for _, n := range t.NetworkConfigurations {
		names = append(names, n.NetworkName)
	}
	return names
}

// quarrels says in what a failure domain contradicts a template, or the slots of the pool that a machine could get there. Interface
// for interface the three describe one thing (VS-R43); where they disagree, no machine is made. pool may be nil.
func (p VSpherePlacement) quarrels(t *v1beta1.VSphereMachineTemplate, pool *v1beta1.VSphereMachineConfigPool) []string {
	if p.Domain == nil {
		return nil
	}
	var out []string
	networks := p.networks()
	if n := len(t.Spec.Template.Spec.Network.Devices); len(networks) > 0 && len(networks) != n {
		out = append(out, fmt.Sprintf("failure domain %s of zone %s names %d network(s) %v, template %s has %d device(s): "+NoMachine+" until both are the same",
			p.Domain.Name, p.Zone, len(networks), networks, t.Name, n))
	}
	if pool == nil {
		return out
	}
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		if !p.fits(pool, slot) {
			continue
		}
		if i, named := elsewhere(slot, networks); i >= 0 {
			out = append(out, fmt.Sprintf("slot %s of pool %s/%s names network %q for interface %d (0 is the primary), failure domain %s of zone %s names %q: "+NoMachine+" there until both are the same",
				slot.Hostname, pool.Namespace, pool.Name, named, i, p.Domain.Name, p.Zone, networks[i]))
			break
		}
	}
	return out
}

// elsewhere finds the first interface of a slot, 0 is the primary, that names another network than the failure domain does for it; -1
// if there is none. An interface without a network takes the failure domain's.
func elsewhere(slot *v1beta1.VSphereMachineConfig, networks []string) (at int, named string) {
	if slot.Network == nil {
		return -1, ""
	}
	for i, network := range networks {
		device := slot.Network.Primary
		if i > 0 {
			if i > len(slot.Network.Additional) {
				break
			}
			device = slot.Network.Additional[i-1]
		}
		if device.NetworkName != "" && device.NetworkName != network {
			return i, device.NetworkName
		}
	}
	return -1, ""
}

// fits reports whether a slot lies in the failure domain's datacenter.
func (p VSpherePlacement) fits(pool *v1beta1.VSphereMachineConfigPool, slot *v1beta1.VSphereMachineConfig) bool {
	where := cmp.Or(slot.Datacenter, pool.Spec.Datacenter)
	return where == "" || where == v1beta1.AnyDatacenter || where == p.Domain.Spec.Topology.Datacenter
}

// deserted says that a pool has no slot in the failure domain, "" if it has. Slots may be added later.
func (p VSpherePlacement) deserted(pool *v1beta1.VSphereMachineConfigPool) string {
	if p.Domain == nil || pool == nil {
		return ""
	}
	for i := range pool.Spec.Configs {
		if p.fits(pool, &pool.Spec.Configs[i]) {
			return ""
		}
	}
	return fmt.Sprintf("no slot of pool %s/%s is in datacenter %q of failure domain %s, zone %s: machines there wait until one is added",
		pool.Namespace, pool.Name, p.Domain.Spec.Topology.Datacenter, p.Domain.Name, p.Zone)
}

// consumerPlacements checks an owner of machines against the failure domains that its machines may go to. What it names itself, when
// it is new, must fit; a control plane is spread over what there is, and a change may be a way back to what worked before.
func consumerPlacements(old, c *Consumer, w VSphereConsumerWorld) Verdict {
	var v Verdict
	at := cmp.Or(c.Paths.FailureDomain, c.Paths.Template)
	for _, p := range w.Placements {
		if p.Domain == nil {
			v.warn(at, "zone %s, or the VSphereFailureDomain that it names, does not exist: machines of %s wait until both do", p.Zone, c)
			continue
		}
		for _, text := range p.quarrels(w.Template, w.Pool) {
			if old == nil && c.FailureDomain == p.Zone {
				v.refuse(field.Invalid(at, p.Zone, text+"; correct the one that is wrong"))
				continue
			}
			v.warn(at, "%s", text)
		}
		if text := p.deserted(w.Pool); text != "" {
			v.warn(at, "%s", text)
		}
	}
	return v
}
