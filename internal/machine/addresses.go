package machine

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/berth-dev/berth/internal/slot"
)

// planned compares the addresses that a place declares with those that the guest reports, interface by interface in device
// order. found lists all usable addresses without prefix; missing says what is not there yet. An address that was planned is
// always usable; others only if they can be reached from outside (VS-V23).
func planned(place *slot.Slot, server *Server) (found, missing []string) {
	wanted := map[netip.Addr]bool{}
	var nics []slot.NIC
	if place != nil {
		nics = place.NICs
	}
	for i, nic := range nics {
		var has []netip.Addr
		if i < len(server.NICs) {
			has = parsed(server.NICs[i].Addresses)
		}
		usable := false
		for _, a := range has {
			usable = usable || reachable(a)
		}
		if len(nic.Addresses) == 0 && !usable {
			missing = append(missing, fmt.Sprintf("an address on interface %d (%s)", i, nic.Network))
		}
		for _, text := range nic.Addresses {
			want, ok := address(text)
			if !ok {
				missing = append(missing, fmt.Sprintf("%q on interface %d (%s), which is no address", text, i, nic.Network))
				continue
			}
			wanted[want] = true
			if !contains(has, want) {
				missing = append(missing, fmt.Sprintf("%s on interface %d (%s)", want, i, nic.Network))
			}
		}
	}
	for _, nic := range server.NICs {
		for _, a := range parsed(nic.Addresses) {
			if wanted[a] || reachable(a) {
				found = append(found, a.String())
			}
		}
	}
	if len(nics) == 0 && len(found) == 0 {
		missing = append(missing, "any address")
	}
	return found, missing
}

func parsed(texts []string) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, t := range texts {
		if a, ok := address(t); ok {
			out = append(out, a)
		}
	}
	return out
}

// address reads an address with or without prefix.
func address(text string) (netip.Addr, bool) {
	text, _, _ = strings.Cut(text, "/")
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

func contains(all []netip.Addr, a netip.Addr) bool {
	for _, b := range all {
		if a == b {
			return true
		}
	}
	return false
}

func reachable(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast() && !a.IsInterfaceLocalMulticast()
}
