package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Meta is what the metadata document of a guest says.
type Meta struct {
	// InstanceID changes with the server; empty means HostName. cloud-init runs again when it changes.
	InstanceID string
	// HostName of the guest.
	HostName string
	// NICs in the order of the guest's interfaces.
	NICs []NIC
	// Routes of the whole server; they are repeated on every interface.
	Routes []Route
	// LegacyGateways writes gateway4 and gateway6, which netplan deprecated, instead of default routes: for images with an
	// old cloud-init.
	LegacyGateways bool
}

// NIC is one interface, recognised by its MAC address.
type NIC struct {
	MAC string
	// DeviceName in the guest; empty means eth<position>.
	DeviceName string
	DHCP4      bool
	DHCP6      bool
	// DHCP4Overrides and DHCP6Overrides are netplan's dhcp4-overrides and dhcp6-overrides, written when not nil.
	DHCP4Overrides *DHCPOverrides
	DHCP6Overrides *DHCPOverrides
	// AcceptRA is written when not nil.
	AcceptRA *bool
	// Addresses in CIDR form.
	Addresses []string
	Gateway4  string
	Gateway6  string
	// MTU in bytes; 0 leaves it to the guest.
	MTU           int64
	Routes        []Route
	Nameservers   []string
	SearchDomains []string
}

// Route is a static route.
type Route struct {
	// To is a CIDR, Via an address.
	To, Via string
	Metric  int32
}

// DHCPOverrides are the knobs netplan has for what DHCP brings; nil fields are not written.
type DHCPOverrides struct {
	Hostname     *string `yaml:"hostname,omitempty"`
	RouteMetric  *int    `yaml:"route-metric,omitempty"`
	SendHostname *bool   `yaml:"send-hostname,omitempty"`
	UseDNS       *bool   `yaml:"use-dns,omitempty"`
	UseDomains   *string `yaml:"use-domains,omitempty"`
	UseHostname  *bool   `yaml:"use-hostname,omitempty"`
	UseMTU       *bool   `yaml:"use-mtu,omitempty"`
	UseNTP       *bool   `yaml:"use-ntp,omitempty"`
	UseRoutes    *string `yaml:"use-routes,omitempty"`
}

type metaDoc struct {
	InstanceID    string     `yaml:"instance-id"`
	LocalHostname string     `yaml:"local-hostname"`
	Hostname      string     `yaml:"hostname"`
	WaitOnNetwork waitDoc    `yaml:"wait-on-network"`
	Network       networkDoc `yaml:"network"`
}

type waitDoc struct {
	IPv4 bool `yaml:"ipv4"`
	IPv6 bool `yaml:"ipv6"`
}

type networkDoc struct {
	Version   int                    `yaml:"version"`
	Ethernets map[string]ethernetDoc `yaml:"ethernets"`
}

type ethernetDoc struct {
	Match          matchDoc        `yaml:"match"`
	SetName        string          `yaml:"set-name"`
	WakeOnLAN      bool            `yaml:"wakeonlan"`
	DHCP4          bool            `yaml:"dhcp4"`
	DHCP4Overrides *DHCPOverrides  `yaml:"dhcp4-overrides,omitempty"`
	DHCP6          bool            `yaml:"dhcp6"`
	DHCP6Overrides *DHCPOverrides  `yaml:"dhcp6-overrides,omitempty"`
	AcceptRA       *bool           `yaml:"accept-ra,omitempty"`
	Addresses      []string        `yaml:"addresses,omitempty"`
	Gateway4       string          `yaml:"gateway4,omitempty"`
	Gateway6       string          `yaml:"gateway6,omitempty"`
	MTU            int64           `yaml:"mtu,omitempty"`
	Routes         []routeDoc      `yaml:"routes,omitempty"`
	Nameservers    *nameserversDoc `yaml:"nameservers,omitempty"`
}

type matchDoc struct {
	MACAddress string `yaml:"macaddress"`
}

type routeDoc struct {
	To     string `yaml:"to"`
	Via    string `yaml:"via"`
	Metric int32  `yaml:"metric,omitempty"`
}

type nameserversDoc struct {
	Addresses []string `yaml:"addresses,omitempty"`
	Search    []string `yaml:"search,omitempty"`
}

// Metadata renders the metadata document (VS-V17): instance ID, host name under the three names that templates ask for, and
// the network in netplan's version 2. wait-on-network is true for every family that a NIC has a static address or DHCP in.
func Metadata(m Meta) ([]byte, error) {
	if m.HostName == "" {
		return nil, errors.New("metadata: no host name")
	}
	doc := metaDoc{
		InstanceID:    m.InstanceID,
		LocalHostname: m.HostName,
		Hostname:      m.HostName,
		Network:       networkDoc{Version: 2, Ethernets: map[string]ethernetDoc{}},
	}
	if doc.InstanceID == "" {
		doc.InstanceID = m.HostName
	}
	for i, nic := range m.NICs {
		name := nic.DeviceName
		if name == "" {
			name = fmt.Sprintf("eth%d", i)
		}
		if _, taken := doc.Network.Ethernets[name]; taken {
			return nil, fmt.Errorf("metadata: two interfaces are named %q", name)
		}
		eth, v4, v6, err := ethernet(nic, name, m)
		if err != nil {
			return nil, fmt.Errorf("metadata: interface %d (%s): %w", i, name, err)
		}
		doc.WaitOnNetwork.IPv4 = doc.WaitOnNetwork.IPv4 || v4
		doc.WaitOnNetwork.IPv6 = doc.WaitOnNetwork.IPv6 || v6
		doc.Network.Ethernets[name] = eth
	}
	return yaml.Marshal(doc)
}

func ethernet(nic NIC, name string, m Meta) (eth ethernetDoc, v4, v6 bool, err error) {
	if nic.MAC == "" {
		return eth, false, false, errors.New("no MAC address")
	}
	v4, v6 = nic.DHCP4, nic.DHCP6
	for _, a := range nic.Addresses {
		prefix, err := netip.ParsePrefix(a)
		if err != nil {
			return eth, false, false, fmt.Errorf("address %q is not in CIDR form", a)
		}
		if prefix.Addr().Unmap().Is4() {
			v4 = true
		} else {
			v6 = true
		}
	}
	eth = ethernetDoc{
		Match:          matchDoc{MACAddress: strings.ToLower(nic.MAC)},
		SetName:        name,
		WakeOnLAN:      true,
		DHCP4:          nic.DHCP4,
		DHCP4Overrides: nic.DHCP4Overrides,
		DHCP6:          nic.DHCP6,
		DHCP6Overrides: nic.DHCP6Overrides,
		AcceptRA:       nic.AcceptRA,
		Addresses:      nic.Addresses,
		MTU:            nic.MTU,
	}
	if m.LegacyGateways {
		eth.Gateway4, eth.Gateway6 = nic.Gateway4, nic.Gateway6
	} else {
		if nic.Gateway4 != "" {
			eth.Routes = append(eth.Routes, routeDoc{To: "0.0.0.0/0", Via: nic.Gateway4})
		}
		if nic.Gateway6 != "" {
			eth.Routes = append(eth.Routes, routeDoc{To: "::/0", Via: nic.Gateway6})
		}
	}
	for _, r := range append(append([]Route{}, nic.Routes...), m.Routes...) {
		eth.Routes = append(eth.Routes, routeDoc(r))
	}
	if len(nic.Nameservers) > 0 || len(nic.SearchDomains) > 0 {
		eth.Nameservers = &nameserversDoc{Addresses: nic.Nameservers, Search: nic.SearchDomains}
	}
	return eth, v4, v6, nil
}
