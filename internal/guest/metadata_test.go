package guest

import (
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

// VS-V17, VS-V19, VS-V20: one document with identity and network.
func TestMetadata(t *testing.T) {
	g := NewWithT(t)
	out, err := Metadata(Meta{
		InstanceID: "uid-1", HostName: "demo-1",
		NICs: []NIC{
			{MAC: "00:50:56:AA:bb:01", Addresses: []string{"192.0.2.21/24", "2001:db8::21/64"}, Gateway4: "192.0.2.1", Gateway6: "2001:db8::1", Nameservers: []string{"192.0.2.53"}, SearchDomains: []string{"example.test"}},
			{MAC: "00:50:56:aa:bb:02", DeviceName: "stor0", Addresses: []string{"198.51.100.21/24"}, MTU: 9000},
		},
		Routes: []Route{{To: "203.0.113.0/24", Via: "192.0.2.254", Metric: 10}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(Equal(`instance-id: uid-1
local-hostname: demo-1
hostname: demo-1
wait-on-network:
    ipv4: true
    ipv6: true
network:
    version: 2
    ethernets:
        eth0:
            match:
                macaddress: 00:50:56:aa:bb:01
            set-name: eth0
            wakeonlan: true
            dhcp4: false
            dhcp6: false
            addresses:
                - 192.0.2.21/24
                - 2001:db8::21/64
            routes:
                - to: 0.0.0.0/0
                  via: 192.0.2.1
                - to: ::/0
                  via: 2001:db8::1
                - to: 203.0.113.0/24
                  via: 192.0.2.254
                  metric: 10
            nameservers:
                addresses:
                    - 192.0.2.53
                search:
                    - example.test
        stor0:
            match:
                macaddress: 00:50:56:aa:bb:02
            set-name: stor0
            wakeonlan: true
            dhcp4: false
            dhcp6: false
            addresses:
                - 198.51.100.21/24
            mtu: 9000
            routes:
                - to: 203.0.113.0/24
                  via: 192.0.2.254
                  metric: 10
`))
}

func TestMetadataOfAGuestWithDHCP(t *testing.T) {
	g := NewWithT(t)
	out, err := Metadata(Meta{HostName: "demo-1", LegacyGateways: true, NICs: []NIC{{MAC: "00:50:56:00:00:01", DHCP4: true, Gateway4: "192.0.2.1"}}})
	g.Expect(err).NotTo(HaveOccurred())
	var doc metaDoc
	g.Expect(yaml.Unmarshal(out, &doc)).To(Succeed())
	g.Expect(doc.InstanceID).To(Equal("demo-1"))
	g.Expect(doc.WaitOnNetwork).To(Equal(waitDoc{IPv4: true}))
	g.Expect(doc.Network.Ethernets["eth0"].Gateway4).To(Equal("192.0.2.1"))
	g.Expect(doc.Network.Ethernets["eth0"].Routes).To(BeEmpty())
}

// VS-V19, VS-B27: wait-on-network is set for a family with an address in CIDR form or with DHCP, and for no other: a guest that
// waits for a family it never gets, never boots.
func TestWaitOnNetwork(t *testing.T) {
	g := NewWithT(t)
	for name, tc := range map[string]struct {
		nics []NIC
		want waitDoc
	}{
		"static IPv4":                 {[]NIC{{Addresses: []string{"192.0.2.21/24"}}}, waitDoc{IPv4: true}},
		"static IPv6":                 {[]NIC{{Addresses: []string{"2001:db8::1/64"}}}, waitDoc{IPv6: true}},
		"DHCP for IPv6":               {[]NIC{{DHCP6: true}}, waitDoc{IPv6: true}},
		"on the second interface too": {[]NIC{{}, {Addresses: []string{"192.0.2.21/24"}}}, waitDoc{IPv4: true}},
		"none":                        {[]NIC{{}}, waitDoc{}},
	} {
		for i := range tc.nics {
			tc.nics[i].MAC = "00:50:56:00:00:01"
		}
		out, err := Metadata(Meta{HostName: "demo-1", NICs: tc.nics})
		g.Expect(err).NotTo(HaveOccurred())
		var doc metaDoc
		g.Expect(yaml.Unmarshal(out, &doc)).To(Succeed())
		g.Expect(doc.WaitOnNetwork).To(Equal(tc.want), name)
	}
}

// VS-V20a: values that YAML would read as something else stay strings.
func TestMetadataQuotes(t *testing.T) {
	g := NewWithT(t)
	out, err := Metadata(Meta{HostName: "0123", InstanceID: "1e3"})
	g.Expect(err).NotTo(HaveOccurred())
	var doc map[string]any
	g.Expect(yaml.Unmarshal(out, &doc)).To(Succeed())
	g.Expect(doc["local-hostname"]).To(Equal("0123"))
	g.Expect(doc["instance-id"]).To(Equal("1e3"))
}

func TestMetadataRefuses(t *testing.T) {
	g := NewWithT(t)
	for want, m := range map[string]Meta{
		"no host name":           {},
		"no MAC address":         {HostName: "h", NICs: []NIC{{}}},
		"is not in CIDR form":    {HostName: "h", NICs: []NIC{{MAC: "00:50:56:00:00:01", Addresses: []string{"192.0.2.1"}}}},
		"two interfaces are nam": {HostName: "h", NICs: []NIC{{MAC: "a", DeviceName: "eth1"}, {MAC: "b"}}},
	} {
		_, err := Metadata(m)
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	}
}
