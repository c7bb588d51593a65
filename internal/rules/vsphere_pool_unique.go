package rules

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// place is a slot under examination.
type place struct {
	path      *field.Path
	slot      *v1beta1.VSphereMachineConfig
	untouched bool
	addresses []placedAddress
}

type placedAddress struct {
	path    *field.Path
	addr    netip.Addr
	network string
	primary bool
}

// clash reports whether two interfaces must not have the same address: primary addresses are node addresses and unique in
// the cluster; others are unique in their network.
func (a placedAddress) clash(b placedAddress) bool {
	return a.addr == b.addr && (a.primary && b.primary || a.network == b.network)
}

// uniquePlaces checks host names and addresses over the slots of a pool and of all other pools of its cluster.
func uniquePlaces(pool *v1beta1.VSphereMachineConfigPool, places []place, pools []v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	type known struct {
		place
		where string // in words
	}
	var seen []known
	for i := range pools {
		other := &pools[i]
		if other.Name == pool.Name || other.Namespace != pool.Namespace || !sameClusterRef(other, pool) {
			continue
		}
		for j := range other.Spec.Configs {
			slot := &other.Spec.Configs[j]
			path := field.NewPath("spec", "configs").Index(j)
			_, addresses := poolSlot(path, slot, "")
			seen = append(seen, known{
				place: place{path: path, slot: slot, untouched: true, addresses: addresses},
				where: fmt.Sprintf("slot %s of pool %s/%s of the same cluster", slot.Hostname, other.Namespace, other.Name),
			})
		}
	}

	for _, p := range places {
		for _, s := range seen {
			untouched := p.untouched && s.untouched
			at := p
			if p.untouched && !s.untouched {
				at = s.place // say it where the change is
			}
			switch {
			case p.slot.Hostname == "" || s.slot.Hostname == "":
			case p.slot.Hostname == s.slot.Hostname:
				v.add(untouched, field.ErrorList{duplicate(at.path.Child("hostname"), p.slot.Hostname, fmt.Sprintf("is used by %s already; a host name is a node's name, choose another", s.where))})
			case ShortName(p.slot.Hostname) == ShortName(s.slot.Hostname):
				v.add(untouched, field.ErrorList{duplicate(at.path.Child("hostname"), at.slot.Hostname, fmt.Sprintf("its first label %q is the short name of %s already; choose another", ShortName(p.slot.Hostname), s.where))})
			}
			for _, a := range p.addresses {
				for _, b := range s.addresses {
					if a.clash(b) {
						path := a.path
						if p.untouched && !s.untouched {
							path = b.path
						}
						v.add(untouched, field.ErrorList{duplicate(path, a.addr.String(), fmt.Sprintf("is used by %s already; two machines cannot share an address, choose another", s.where))})
					}
				}
			}
		}
		// Two interfaces of one slot are compared like those of two.
		for i, a := range p.addresses {
			for _, b := range p.addresses[:i] {
				if a.clash(b) {
					v.add(p.untouched, field.ErrorList{duplicate(a.path, a.addr.String(), fmt.Sprintf("is the address of another interface of slot %s (%s); choose another", p.slot.Hostname, b.path))})
				}
			}
		}
		seen = append(seen, known{place: p, where: fmt.Sprintf("slot %s of this pool (%s)", p.slot.Hostname, p.path)})
	}
	return v
}
