package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// node is one named thing of the inventory.
type node struct {
	ref    types.ManagedObjectReference
	name   string
	parent types.ManagedObjectReference
	// props are the further properties of its type (see inventoryProperties).
	props map[string]any
}

// inventory is the skeleton of a vCenter: everything that has a path except virtual machines and hosts. It is read in one
// call, kept for Limits.PathTTL and thrown away when something it names turns out to be gone.
type inventory struct {
	nodes map[types.ManagedObjectReference]*node
	read  time.Time
}

var inventoryProperties = []types.PropertySpec{
	{Type: "Datacenter", PathSet: []string{"name", "parent", "vmFolder", "hostFolder", "datastoreFolder", "networkFolder"}},
	{Type: "Folder", PathSet: []string{"name", "parent"}},
	{Type: "StoragePod", PathSet: []string{"name", "parent"}},
	{Type: "ComputeResource", PathSet: []string{"name", "parent", "resourcePool", "host"}},
	{Type: "ResourcePool", PathSet: []string{"name", "parent"}},
	{Type: "Datastore", PathSet: []string{"name", "parent", "browser", "summary", "host"}},
	{Type: "Network", PathSet: []string{"name", "parent"}},
	{Type: "DistributedVirtualPortgroup", PathSet: []string{"name", "parent", "key", "config.distributedVirtualSwitch", "config.uplink"}},
	{Type: "OpaqueNetwork", PathSet: []string{"name", "parent", "summary"}},
	{Type: "DistributedVirtualSwitch", PathSet: []string{"name", "parent", "uuid"}},
}

var inventoryTypes = []string{
	"Datacenter", "Folder", "StoragePod", "ComputeResource", "ResourcePool", "Datastore", "Network", "DistributedVirtualSwitch",
}

// inventories reads and keeps the inventory of one session.
type inventories struct {
	c   *client
	ttl time.Duration

	mu   sync.Mutex
	view types.ManagedObjectReference
	now  *inventory
}

// get returns the inventory, read at most ttl ago.
func (i *inventories) get(ctx context.Context) (*inventory, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.now != nil && time.Since(i.now.read) < i.ttl {
		return i.now, nil
	}
	content, err := i.readView(ctx)
	if err != nil {
		return nil, failed(err, "reading the inventory of vCenter %s", i.c.cfg.Server)
	}
	inv := &inventory{nodes: map[types.ManagedObjectReference]*node{}, read: time.Now()}
	for _, o := range content {
		n := &node{ref: o.Obj, props: map[string]any{}}
		for _, p := range o.PropSet {
			switch p.Name {
			case "name":
				n.name, _ = p.Val.(string)
				n.name = decoded(n.name)
			case "parent":
				n.parent, _ = p.Val.(types.ManagedObjectReference)
			default:
				n.props[p.Name] = p.Val
			}
		}
		inv.nodes[o.Obj] = n
	}
	i.now = inv
	return inv, nil
}

// inventorySettled is how old an inventory may be when something is not found in it; older ones are read anew before a refusal.
const inventorySettled = 5 * time.Second

// with runs do on the inventory, and once more on a fresh one if something was not found in an older one: what an
// administrator has just added counts.
func (i *inventories) with(ctx context.Context, do func(*inventory) error) error {
	inv, err := i.get(ctx)
	if err != nil {
		return err
	}
	err = do(inv)
	var refusal *machine.Error
	if !errors.As(err, &refusal) || !slices.Contains(missingReasons, refusal.Reason) || time.Since(inv.read) < inventorySettled {
		return err
	}
	i.forget()
	if inv, err = i.get(ctx); err != nil {
		return err
	}
	return do(inv)
}

var missingReasons = []string{ReasonDatacenter, ReasonFolder, ReasonResourcePool, ReasonDatastore, ReasonNetwork, ReasonStoragePolicy, ReasonComputeCluster}

// readView reads through a container view that is made once per login.
func (i *inventories) readView(ctx context.Context) ([]types.ObjectContent, error) {
	if i.view.Value != "" {
		content, err := i.c.retrieve(ctx, through(i.view, "view", inventoryProperties...))
		if !isFault[*types.ManagedObjectNotFound](err) {
			return content, err
		}
	}
	view, err := i.c.containerView(ctx, i.c.vim.ServiceContent.RootFolder, inventoryTypes)
	if err != nil {
		return nil, err
	}
	i.view = view
	return i.c.retrieve(ctx, through(i.view, "view", inventoryProperties...))
}

// forget makes the next get read again.
func (i *inventories) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = nil
}

func (c *client) containerView(ctx context.Context, root types.ManagedObjectReference, kinds []string) (types.ManagedObjectReference, error) {
	res, err := methods.CreateContainerView(ctx, c.vim, &types.CreateContainerView{
		This: *c.vim.ServiceContent.ViewManager, Container: root, Type: kinds, Recursive: true,
	})
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return res.Returnval, nil
}

// decoded undoes vCenter's escapes of three characters in names.
func decoded(name string) string {
	return strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`, "%25", "%").Replace(name)
}

// path of a node from the root, "/dc-a/vm/k8s".
func (inv *inventory) path(n *node) string {
	var parts []string
	for ; n != nil; n = inv.nodes[n.parent] {
		parts = append(parts, n.name)
	}
	slices.Reverse(parts)
	return "/" + strings.Join(parts, "/")
}

// datacenterOf returns the datacenter that a node lies in, nil if in none.
func (inv *inventory) datacenterOf(n *node) *node {
	for ; n != nil; n = inv.nodes[n.parent] {
		if n.ref.Type == "Datacenter" {
			return n
		}
	}
	return nil
}

// kind is a sort of thing that a spec names.
type kind struct {
	// word is what people call it, field the path in the published spec, reason the condition's.
	word, field, reason string
	types               []string
	// root is the folder below a datacenter that paths start in.
	root string
}

var (
	kindDatacenter   = kind{"datacenter", "spec.datacenter", ReasonDatacenter, []string{"Datacenter"}, ""}
	kindFolder       = kind{"folder", "spec.folder", ReasonFolder, []string{"Folder"}, "vm"}
	kindResourcePool = kind{"resource pool", "spec.resourcePool", ReasonResourcePool, []string{"ResourcePool", "VirtualApp"}, "host"}
	kindDatastore    = kind{"datastore", "spec.datastore", ReasonDatastore, []string{"Datastore"}, "datastore"}
	kindNetwork      = kind{
		"network", "spec.network.devices[%d].networkName", ReasonNetwork,
		[]string{"Network", "DistributedVirtualPortgroup", "OpaqueNetwork"},
		"network",
	}
)

func (k kind) at(index int) kind {
	k.field = fmt.Sprintf(k.field, index)
	return k
}

// called renames the field of the spec that a value comes from.
func (k kind) called(field string) kind {
	k.field = field
	return k
}

// uplink: the port group is its switch's own way out, and no virtual machine can be connected to it. Versions that do not say so are
// known by the name that the switch gives it.
func (n *node) uplink() bool {
	says, _ := n.props["config.uplink"].(bool)
	return says || n.ref.Type == "DistributedVirtualPortgroup" && strings.Contains(n.name, "-DVUplinks-")
}

// all nodes of a kind in a datacenter (nil: anywhere), by path.
func (inv *inventory) all(k kind, dc *node) []*node {
	var out []*node
	for _, n := range inv.nodes {
		if !slices.Contains(k.types, n.ref.Type) {
			continue
		}
		if n.uplink() {
			continue
		}
		if dc != nil && inv.datacenterOf(n) != dc {
			continue
		}
		if dc != nil && k.root != "" && !strings.HasPrefix(inv.path(n), inv.path(dc)+"/"+k.root+"/") {
			continue // folders exist below all four roots
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return strings.Compare(inv.path(a), inv.path(b)) })
	return out
}

// find resolves a value of a spec: a whole path, a path below the datacenter's root for the kind, else a name or the end of
// a path. More than one match is refused, none too, with what there is.
func (inv *inventory) find(k kind, dc *node, value string) (*node, error) {
	candidates := inv.all(k, dc)
	value = strings.TrimSuffix(value, "/")
	var exact, loose []*node
	for _, n := range candidates {
		path := inv.path(n)
		switch {
		case path == value, dc != nil && path == inv.path(dc)+"/"+k.root+"/"+value, dc != nil && path == inv.path(dc)+"/"+value:
			exact = append(exact, n)
		case n.name == value, strings.HasSuffix(path, "/"+value) && !strings.HasPrefix(value, "/"):
			loose = append(loose, n)
		}
	}
	found := exact
	if len(found) == 0 {
		found = loose
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		missing := refused(k.reason, "%s %q: no such %s in %s; there is %s: name one of these, or create it", k.field, value, k.word,
			inv.where(dc), inv.list(candidates, dc, k))
		missing.Nowhere = k.reason == ReasonDatacenter || k.reason == ReasonDatastore
		return nil, missing
	default:
		return nil, refused(k.reason, "%s %q names %d %ss in %s: %s; give a whole path", k.field, value, len(found), k.word,
			inv.where(dc), inv.list(found, nil, k))
	}
}

func (inv *inventory) where(dc *node) string {
	if dc == nil {
		return "this vCenter"
	}
	return "datacenter " + dc.name
}

// list names up to 20 things, by the shortest text that finds them.
func (inv *inventory) list(nodes []*node, dc *node, k kind) string {
	var names []string
	for _, n := range nodes {
		text := inv.path(n)
		if dc != nil && k.root != "" {
			text = strings.TrimPrefix(text, inv.path(dc)+"/"+k.root+"/")
		} else if dc == nil && n.ref.Type == "Datacenter" {
			text = strings.TrimPrefix(text, "/")
		}
		names = append(names, text)
	}
	return listNames(names)
}

func listNames(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	default:
		return strings.Join(names, ", ")
	}
}

// datacenter resolves the place's location, or else the shape's; empty and "*" mean the only one.
func (inv *inventory) datacenter(location, shape string) (*node, error) {
	value := location
	if value == "" || value == "*" {
		value = shape
	}
	if value != "" && value != "*" {
		return inv.find(kindDatacenter, nil, value)
	}
	all := inv.all(kindDatacenter, nil)
	if len(all) == 1 {
		return all[0], nil
	}
	return nil, refused(ReasonDatacenter, "spec.datacenter is empty and this vCenter has %d datacenters: %s; name one",
		len(all), inv.list(all, nil, kindDatacenter))
}

func (inv *inventory) folder(dc *node, value string) (types.ManagedObjectReference, error) {
	if value == "" || strings.TrimSuffix(value, "/") == inv.path(dc)+"/vm" {
		ref, _ := dc.props["vmFolder"].(types.ManagedObjectReference)
		return ref, nil
	}
	n, err := inv.find(kindFolder, dc, value)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return n.ref, nil
}

// resourcePool resolves a value. Empty is the only root pool, and the name of a cluster means its root pool.
func (inv *inventory) resourcePool(dc *node, value string) (types.ManagedObjectReference, error) {
	if value == "" {
		var roots []*node
		for _, n := range inv.all(kindResourcePool, dc) {
			if parent := inv.nodes[n.parent]; parent != nil && parent.ref.Type != "ResourcePool" && parent.ref.Type != "VirtualApp" {
				roots = append(roots, n)
			}
		}
		if len(roots) == 1 {
			return roots[0].ref, nil
		}
		return types.ManagedObjectReference{}, refused(ReasonResourcePool, "spec.resourcePool is empty and %s has %d root "+
			"resource pools: %s; name one", inv.where(dc), len(roots), inv.list(roots, dc, kindResourcePool))
	}
	return inv.pool(kindResourcePool, dc, value)
}

// pool resolves the name of a resource pool, or of the compute cluster whose root pool is meant.
func (inv *inventory) pool(k kind, dc *node, value string) (types.ManagedObjectReference, error) {
	clusters := k
	clusters.types = []string{"ComputeResource", "ClusterComputeResource"}
	if n, err := inv.find(clusters, dc, value); err == nil {
		if ref, ok := n.props["resourcePool"].(types.ManagedObjectReference); ok {
			return ref, nil
		}
	}
	n, err := inv.find(k, dc, value)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return n.ref, nil
}

// network returns the backing of a network card.
func (inv *inventory) network(dc *node, index int, value string) (types.BaseVirtualDeviceBackingInfo, error) {
	n, err := inv.find(kindNetwork.at(index), dc, value)
	if err != nil {
		return nil, err
	}
	switch n.ref.Type {
	case "DistributedVirtualPortgroup":
		key, _ := n.props["key"].(string)
		ref, _ := n.props["config.distributedVirtualSwitch"].(types.ManagedObjectReference)
		id := ""
		if dvs := inv.nodes[ref]; dvs != nil {
			id, _ = dvs.props["uuid"].(string)
		}
		return &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
			Port: types.DistributedVirtualSwitchPortConnection{PortgroupKey: key, SwitchUuid: id},
		}, nil
	case "OpaqueNetwork":
		if summary, ok := n.props["summary"].(types.OpaqueNetworkSummary); ok {
			return &types.VirtualEthernetCardOpaqueNetworkBackingInfo{
				OpaqueNetworkId: summary.OpaqueNetworkId, OpaqueNetworkType: summary.OpaqueNetworkType,
			}, nil
		}
	}
	return &types.VirtualEthernetCardNetworkBackingInfo{
		VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: n.name},
	}, nil
}
