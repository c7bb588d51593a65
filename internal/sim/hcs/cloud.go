package hcs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// cloud is the simulated world. Everything in it is touched with mu held.
type cloud struct {
	opts   Options
	mu     sync.Mutex
	nextID int

	zones   []Zone
	flavors []Flavor
	images  []Image
	types   []VolumeType
	vpcs    []VPC
	subnets []Subnet
	groups  []SecurityGroup

	servers   map[string]*server
	volumes   map[string]*volume
	ports     map[string]*port
	affinity  map[string]*serverGroup
	jobs      map[string]*job
	balancers map[string]*balancer
	listeners map[string]*listener
	pools     map[string]*memberPool
	// tokens are creations that can be asked for again.
	tokens map[string]*job

	violations []Violation
	// changed wakes whoever waits for the world to change; version counts the changes.
	changed chan struct{}
	version int64
}

type server struct {
	id, name string
	status   string
	zone     string
	host     int
	flavor   Flavor
	image    Image
	vpc      string
	metadata map[string]string
	userData []byte
	groupID  string
	security []string
	keyName  string
	created  time.Time
	fault    string
	ports    []*port
	// volumes in the order of attachment; the first is the root volume.
	volumes []*attachment
	// busy is the attach or detach job under way, "" for none.
	busy string
	// before is what readers see for the next lag reads.
	before string
	lag    int
	// gone: it is only shown as deleted any more, for the next lag reads.
	gone bool
}

type attachment struct {
	volume *volume
	device string
	// created with the server.
	own bool
}

type volume struct {
	id, name string
	status   string
	size     int
	kind     string
	zone     string
	metadata map[string]string
	created  time.Time
	server   *server
	device   string
	root     bool
	// busy is the job under way, "" for none.
	busy   string
	before *volumeView
	lag    int
}

// volumeView is what readers see of a volume.
type volumeView struct {
	status, server, device string
}

type port struct {
	id, network string
	address     netip.Addr
	mac         string
	// device and owner say what has it.
	device, owner string
}

type serverGroup struct {
	id, name, policy string
}

// Violation is something that a careful client does not do.
type Violation struct {
	Kind   string    `json:"kind"`
	Detail string    `json:"detail"`
	Time   time.Time `json:"time"`
}

// Kinds of Violation.
const (
	// HotAttach: a volume was attached to a running server.
	HotAttach = "HotAttach"
	// HotDetach: a volume was detached from a running server.
	HotDetach = "HotDetach"
	// VolumeDestroyed: a server was deleted with a volume that had not come with it.
	VolumeDestroyed = "VolumeDestroyed"
	// RunningDeleted: a server was deleted while it ran.
	RunningDeleted = "RunningDeleted"
	// StartedTwice: a server that had been started was started again.
	StartedTwice = "StartedTwice"
	// DuplicateServer: two servers with the same mark exist.
	DuplicateServer = "DuplicateServer"
)

func newCloud(opts Options) *cloud {
	c := &cloud{
		opts: opts, servers: map[string]*server{}, volumes: map[string]*volume{}, ports: map[string]*port{}, affinity: map[string]*serverGroup{},
		jobs: map[string]*job{}, balancers: map[string]*balancer{}, listeners: map[string]*listener{}, pools: map[string]*memberPool{},
		tokens: map[string]*job{}, changed: make(chan struct{}),
	}
	inv := opts.Inventory
	c.zones = slices.Clone(inv.Zones)
	named := func(id *string, kind, name string) {
		if *id == "" {
			*id = uuidOf(kind, name)
		}
	}
	for _, f := range inv.Flavors {
		named(&f.ID, "flavor", f.Name)
		c.flavors = append(c.flavors, f)
	}
	for _, i := range inv.Images {
		named(&i.ID, "image", i.Name)
		c.images = append(c.images, i)
	}
	for _, t := range inv.VolumeTypes {
		named(&t.ID, "type", t.Name)
		c.types = append(c.types, t)
	}
	for _, v := range inv.VPCs {
		named(&v.ID, "vpc", v.Name)
		c.vpcs = append(c.vpcs, v)
	}
	for _, s := range inv.Subnets {
		named(&s.ID, "network", s.VPC+"/"+s.Name)
		named(&s.NeutronSubnetID, "subnet", s.VPC+"/"+s.Name)
		c.subnets = append(c.subnets, s)
	}
	for _, g := range inv.SecurityGroups {
		named(&g.ID, "security-group", g.Name)
		c.groups = append(c.groups, g)
	}
	return c
}

// uuidOf is the same for the same name, so that manifests for the simulator can be written down.
func uuidOf(kind, name string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + name))
	return formatUUID(sum[:16])
}

// newID is a random UUID: identities of things that come and go are never used again.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return formatUUID(b[:])
}

func formatUUID(b []byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (c *cloud) violate(kind, format string, args ...any) {
	v := Violation{Kind: kind, Detail: fmt.Sprintf(format, args...), Time: c.opts.Now()}
	c.violations = append(c.violations, v)
	c.opts.Log.Warn("violation", "kind", v.Kind, "detail", v.Detail)
}

// touch tells whoever waits that the world has changed.
func (c *cloud) touch() {
	c.version++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cloud) zone(name string) (Zone, bool) {
	for _, z := range c.zones {
		if z.Name == name {
			return z, true
		}
	}
	return Zone{}, false
}

func (c *cloud) subnet(network string) (Subnet, bool) {
	for _, s := range c.subnets {
		if s.ID == network {
			return s, true
		}
	}
	return Subnet{}, false
}

func (c *cloud) neutron(id string) (Subnet, bool) {
	for _, s := range c.subnets {
		if s.NeutronSubnetID == id {
			return s, true
		}
	}
	return Subnet{}, false
}

func (c *cloud) volumeType(name string) (VolumeType, bool) {
	for _, t := range c.types {
		if t.Name == name {
			return t, true
		}
	}
	return VolumeType{}, false
}

// portAt is who has an address of a network, nil if nobody.
func (c *cloud) portAt(network string, address netip.Addr) *port {
	for _, p := range c.ports {
		if p.network == network && p.address == address {
			return p
		}
	}
	return nil
}

// addPort takes an address, which must be free.
func (c *cloud) addPort(network string, address netip.Addr, device, owner string) *port {
	c.nextID++
	p := &port{
		id: newID(), network: network, address: address, device: device, owner: owner,
		mac: fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", byte(c.nextID>>16), byte(c.nextID>>8), byte(c.nextID)),
	}
	c.ports[p.id] = p
	return p
}

// freeAddress is the first of a network that nobody has, leaving out its first few.
func (c *cloud) freeAddress(s Subnet) netip.Addr {
	a := s.CIDR.Masked().Addr()
	for range 200 {
		a = a.Next()
	}
	for ; s.CIDR.Contains(a); a = a.Next() {
		if a != s.Gateway && c.portAt(s.ID, a) == nil {
			return a
		}
	}
	return netip.Addr{}
}

// members of a server group.
func (c *cloud) members(group string) []*server {
	var out []*server
	for _, s := range c.serversInOrder() {
		if s.groupID == group && !s.gone {
			out = append(out, s)
		}
	}
	return out
}

func (c *cloud) serversInOrder() []*server {
	return slices.SortedFunc(maps.Values(c.servers), func(a, b *server) int {
		if d := a.created.Compare(b.created); d != 0 {
			return d
		}
		return strings.Compare(a.id, b.id)
	})
}

func (c *cloud) volumesInOrder() []*volume {
	return slices.SortedFunc(maps.Values(c.volumes), func(a, b *volume) int {
		if d := a.created.Compare(b.created); d != 0 {
			return d
		}
		return strings.Compare(a.id, b.id)
	})
}

// dropVolume removes a volume and what is on it.
func (c *cloud) dropVolume(v *volume) {
	delete(c.volumes, v.id)
	if err := os.RemoveAll(c.content(v.id)); err != nil {
		c.opts.Log.Error("removing the content of a volume", "volume", v.id, "error", err)
	}
}

// content is the directory with the content of a volume.
func (c *cloud) content(id string) string {
	return filepath.Join(c.opts.DisksDir, strings.ReplaceAll(id, "-", ""))
}

func (c *cloud) hasContent(id string) bool {
	_, err := os.Stat(c.content(id))
	return err == nil
}
