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
	// gateway of its interface, not valid if it has none, and where that is declared.
	gateway     netip.Addr
	gatewayPath *field.Path
}

// clash reports whether two interfaces must not have the same address: primary addresses are node addresses and unique in
// the cluster; others are unique in their network.
func (a placedAddress) clash(b placedAddress) bool {
	return a.addr == b.addr && (a.primary && b.primary || a.network == b.network)
}

// known is a slot seen before, with where it is in words.
type known struct {
	place
	where string
}

func knownHere(p place) known {
	return known{place: p, where: fmt.Sprintf("slot %s of this pool (%s)", p.slot.Hostname, p.path)}
}

// uniquePlaces checks host names and addresses over the slots of a pool and of all other pools of its cluster.
func uniquePlaces(pool *v1beta1.VSphereMachineConfigPool, places []place, pools []v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	var seen []known
	for i := range pools {
		other := &pools[i]
		if other.Name == pool.Name || other.Namespace != pool.Namespace || !sameClusterRef(other, pool) {
			continue
		}
		for j := range other.Spec.Configs {
			slot := &other.Spec.Configs[j]
			path := field.NewPath("spec", "configs").Index(j)
			_, addresses := slotNetwork(path, slot, "")
			seen = append(seen, known{
				place: place{path: path, slot: slot, untouched: true, addresses: addresses},
				where: fmt.Sprintf("slot %s of pool %s/%s of the same cluster", slot.Hostname, other.Namespace, other.Name),
			})
		}
	}

	for _, p := range places {
		for _, s := range seen {
			at, against := p, s
			if p.untouched && !s.untouched {
				at, against = s.place, knownHere(p) // say it where the change is
			}
			v.add(p.untouched && s.untouched, samePlace(at, against))
		}
		// Two interfaces of one slot are compared like those of two.
		for i, a := range p.addresses {
			for _, b := range p.addresses[:i] {
				if a.clash(b) {
					v.add(p.untouched, field.ErrorList{duplicate(a.path, a.addr.String(), fmt.Sprintf("is the address of another interface of slot %s (%s); choose another", p.slot.Hostname, b.path))})
				}
			}
		}
		seen = append(seen, knownHere(p))
	}
	return v
}

// samePlace compares a slot with one seen before: name, short name and addresses are each one machine's.
func samePlace(p place, s known) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.slot.Hostname == "" || s.slot.Hostname == "":
	case p.slot.Hostname == s.slot.Hostname:
		errs = append(errs, duplicate(p.path.Child("hostname"), p.slot.Hostname, fmt.Sprintf("is used by %s already; a host name is a node's name, choose another", s.where)))
	case ShortName(p.slot.Hostname) == ShortName(s.slot.Hostname):
		errs = append(errs, duplicate(p.path.Child("hostname"), p.slot.Hostname, fmt.Sprintf("its first label %q is the short name of %s already; choose another", ShortName(p.slot.Hostname), s.where)))
	}
	for _, a := range p.addresses {
		for _, b := range s.addresses {
			switch {
			case a.clash(b):
				errs = append(errs, duplicate(a.path, a.addr.String(), fmt.Sprintf("slot %s cannot have it, it is used by %s already; two machines cannot share an address, choose another", p.slot.Hostname, s.where)))
			case a.network != b.network:
			case b.gateway.IsValid() && b.gateway == a.addr:
				errs = append(errs, field.Invalid(a.path, a.addr.String(), fmt.Sprintf("slot %s cannot have it, it is the gateway that %s has in network %q; choose another address, or correct that gateway", p.slot.Hostname, s.where, a.network)))
			case a.gateway.IsValid() && a.gateway == b.addr && b.addr != b.gateway:
				errs = append(errs, field.Invalid(a.gatewayPath, a.gateway.String(), fmt.Sprintf("slot %s has this gateway in network %q, and it is the address of %s; correct the gateway, or choose another address there", p.slot.Hostname, a.network, s.where)))
			}
		}
	}
	return errs
}
