package hcs

import "net/netip"

// Inventory is what exists when the simulated platform starts. IDs are made from names where they are left out.
type Inventory struct {
	Zones       []Zone
	Flavors     []Flavor
	Images      []Image
	VolumeTypes []VolumeType
	VPCs        []VPC
	Subnets     []Subnet
	// SecurityGroups by name.
	SecurityGroups []SecurityGroup
	KeyPairs       []string
}

// Zone is an availability zone.
type Zone struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
}

// Flavor is a size of server. Its name is what API users give; portals show something else.
type Flavor struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	VCPUs    int    `json:"vcpus"`
	MemoryMB int    `json:"memoryMB"`
	// Zones where it is offered, with the platform's word: "normal", "sellout", "abandon". Empty means normal everywhere.
	Zones    map[string]string `json:"zones,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`
}

// Image is what servers are made from.
type Image struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MinDiskGB int    `json:"minDiskGB"`
	// KubernetesVersion of the node software on it, "v1.36.3"; "" for an image without an operating system.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
}

// VolumeType is a kind of storage.
type VolumeType struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Zones that have it; empty means all.
	Zones   []string `json:"zones,omitempty"`
	SoldOut []string `json:"soldOut,omitempty"`
}

// VPC is a virtual private cloud.
type VPC struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	CIDR string `json:"cidr"`
}

// Subnet is a network with one IPv4 range.
type Subnet struct {
	// ID is the network's.
	ID string `json:"id"`
	// NeutronSubnetID is the range's.
	NeutronSubnetID string       `json:"neutronSubnetID"`
	Name            string       `json:"name"`
	VPC             string       `json:"vpc"`
	CIDR            netip.Prefix `json:"cidr"`
	Gateway         netip.Addr   `json:"gateway"`
	PrimaryDNS      string       `json:"primaryDNS"`
	SecondaryDNS    string       `json:"secondaryDNS"`
}

// SecurityGroup of servers.
type SecurityGroup struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// DefaultInventory is two zones (az1.dc1, az2.dc1), a VPC vpc-prod with the subnets subnet-node (127.64.1.0/24) and subnet-stor
// (127.64.2.0/24), a security group sg-node, flavors, volume types and images.
func DefaultInventory() *Inventory { return InventoryAt(netip.MustParseAddr("127.64.0.0")) }

// InventoryAt is the default inventory with its subnets in the /16 of base.
func InventoryAt(base netip.Addr) *Inventory {
	b := base.As4()
	at := func(third, fourth byte) netip.Addr { return netip.AddrFrom4([4]byte{b[0], b[1], third, fourth}) }
	return &Inventory{
		Zones: []Zone{{Name: "az1.dc1", Available: true}, {Name: "az2.dc1", Available: true}},
		Flavors: []Flavor{
			{Name: "c3.large.2", VCPUs: 2, MemoryMB: 4096},
			{Name: "c3.xlarge.2", VCPUs: 4, MemoryMB: 8192},
			{Name: "c3.2xlarge.2", VCPUs: 8, MemoryMB: 16384},
			{Name: "c3.sold-out", VCPUs: 4, MemoryMB: 8192, Zones: map[string]string{"az1.dc1": "sellout", "az2.dc1": "normal"}},
		},
		Images: []Image{
			{Name: "os-v136-3", MinDiskGB: 40, KubernetesVersion: "v1.36.3"},
			{Name: "os-v137-0", MinDiskGB: 40, KubernetesVersion: "v1.37.0"},
			{Name: "os-no-boot", MinDiskGB: 40},
			{Name: "os-twice", MinDiskGB: 40, ID: "11111111-1111-4111-8111-111111111111", KubernetesVersion: "v1.36.3"},
			{Name: "os-twice", MinDiskGB: 40, ID: "22222222-2222-4222-8222-222222222222", KubernetesVersion: "v1.36.3"},
		},
		VolumeTypes: []VolumeType{{Name: "SSD"}, {Name: "SATA"}, {Name: "hcs_global_ssd", Zones: []string{"az1.dc1"}}},
		VPCs:        []VPC{{Name: "vpc-prod", CIDR: netip.PrefixFrom(base, 16).String()}, {Name: "vpc-other", CIDR: "127.240.0.0/16"}},
		Subnets: []Subnet{
			{Name: "subnet-node", VPC: "vpc-prod", CIDR: netip.PrefixFrom(at(1, 0), 24), Gateway: at(1, 1), PrimaryDNS: at(1, 53).String()},
			{Name: "subnet-stor", VPC: "vpc-prod", CIDR: netip.PrefixFrom(at(2, 0), 24), Gateway: at(2, 1)},
			{Name: "subnet-other", VPC: "vpc-other", CIDR: netip.MustParsePrefix("127.240.1.0/24"), Gateway: netip.MustParseAddr("127.240.1.1")},
		},
		SecurityGroups: []SecurityGroup{{Name: "sg-node"}, {Name: "sg-other"}},
		KeyPairs:       []string{"ops"},
	}
}
