package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// planned compares the addresses that a server is to have with those that its guest reports, interface by interface in device
// order. found lists all usable addresses without prefix; missing says what is not there yet. An address that was planned is
// always usable; others only if they can be reached from outside (VS-V23).
func planned(spec ServerSpec, server *Server) (found, missing []string) {
	wanted := map[netip.Addr]bool{}
	for i, nic := range spec.interfaces() {
		var has []netip.Addr
		if i < len(server.NICs) {
			has = parsed(server.NICs[i].Addresses)
		}
		if len(nic.Addresses) == 0 && !nic.Optional && !slices.ContainsFunc(has, reachable) {
			missing = append(missing, fmt.Sprintf("an address on interface %d (%s)", i, nic.Network))
		}
		for _, text := range nic.Addresses {
			want, ok := address(text)
			if !ok {
				missing = append(missing, fmt.Sprintf("%q on interface %d (%s), which is no address", text, i, nic.Network))
				continue
			}
			wanted[want] = true
			if !slices.Contains(has, want) {
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
	if len(found) == 0 && len(missing) == 0 {
		missing = append(missing, "any address")
	}
	return found, missing
}

func (s ServerSpec) interfaces() []Interface {
	if s.Interfaces != nil || s.Place == nil {
		return s.Interfaces
	}
	var out []Interface
	for _, nic := range s.Place.NICs {
		out = append(out, Interface{Network: nic.Network, Addresses: nic.Addresses})
	}
	return out
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

func reachable(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast() && !a.IsInterfaceLocalMulticast()
}
