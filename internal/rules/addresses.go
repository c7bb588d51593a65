package rules

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Family of an address.
type Family int

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Address checks a static address in CIDR form of the given family, with its gateway, and returns the address. endpoint is the
// host of the control plane endpoint, "" if unknown. An empty value is fine; then there must be no gateway.
func Address(path *field.Path, value string, gatewayPath *field.Path, gateway string, family Family, endpoint string) (netip.Addr, field.ErrorList) {
	if value == "" {
		if gateway != "" {
			return netip.Addr{}, field.ErrorList{field.Invalid(gatewayPath, gateway, fmt.Sprintf("a gateway needs a static %s address beside it, and %s is empty; set it, or remove the gateway and leave it to DHCP", family, path))}
		}
		return netip.Addr{}, nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		hint := "write address and prefix length"
		if a, parseErr := netip.ParseAddr(value); parseErr == nil {
			example := 24
			if !a.Is4() {
				example = 64
			}
			hint = fmt.Sprintf("the prefix length is missing; write for example \"%s/%d\"", value, example)
		}
		return netip.Addr{}, field.ErrorList{field.Invalid(path, value, "must be an address in CIDR form: "+hint)}
	}
	addr := prefix.Addr()
	if familyOf(addr) != family || addr.Is4In6() {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be an %s address; the other family has a field of its own", family))}
	}

	var errs field.ErrorList
	host := true
	reserved := func(what string) {
		host = false
		errs = append(errs, field.Invalid(path, value, fmt.Sprintf("is %s, which no machine can have; choose another address of %s", what, prefix.Masked())))
	}
	switch {
	case addr.IsUnspecified(), addr.IsMulticast():
		reserved("not the address of a host")
	case prefix.IsSingleIP() || (addr.Is4() && prefix.Bits() == 31) || (addr.Is6() && prefix.Bits() == 127):
		// Point-to-point links and host routes have no network or broadcast address.
	case addr == prefix.Masked().Addr():
		reserved("the network's own address")
	case addr.Is4() && addr == lastAddress(prefix):
		reserved("the network's broadcast address")
	}
	if endpoint != "" && host {
		if e, err := netip.ParseAddr(endpoint); err == nil && e == addr {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("is the control plane endpoint %s of the cluster; a machine needs an address of its own", endpoint)))
		}
	}
	errs = append(errs, checkGateway(gatewayPath, gateway, family, path, prefix)...)
	return addr, errs
}

func checkGateway(path *field.Path, gateway string, family Family, addressPath *field.Path, prefix netip.Prefix) field.ErrorList {
	if gateway == "" {
		return nil
	}
	gw, err := netip.ParseAddr(gateway)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, gateway, "must be an IP address without a prefix length")}
	case familyOf(gw) != family:
		return field.ErrorList{field.Invalid(path, gateway, fmt.Sprintf("must be an %s address, like %s", family, addressPath))}
	case family == IPv6 && gw.IsLinkLocalUnicast():
		return nil // routers are commonly reached by their link-local address
	case !prefix.Contains(gw):
		return field.ErrorList{field.Invalid(path, gateway, fmt.Sprintf("lies outside %s, the network of %s=%s; correct the gateway or the prefix length", prefix.Masked(), addressPath, prefix))}
	case gw == prefix.Addr():
		return field.ErrorList{field.Invalid(addressPath, prefix.String(), fmt.Sprintf("is the gateway of its own network (%s); choose another address", path))}
	}
	return nil
}

// lastAddress of an IPv4 prefix.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes)
}

// NameServers checks a list of name servers.
func NameServers(path *field.Path, servers []string) field.ErrorList {
	var errs field.ErrorList
	for i, s := range servers {
		if _, err := netip.ParseAddr(s); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), s, "must be the IP address of a name server"))
		}
	}
	return errs
}
