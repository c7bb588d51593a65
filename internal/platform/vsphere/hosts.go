package vsphere

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// mounts are the hosts that reach a datastore; ok is false when vCenter does not say.
func mounts(ds *node) (hosts []types.ManagedObjectReference, ok bool) {
	list, ok := ds.props["host"].(types.ArrayOfDatastoreHostMount)
	if !ok {
		return nil, false
	}
	for _, m := range list.DatastoreHostMount {
		gone := m.MountInfo.Mounted != nil && !*m.MountInfo.Mounted || m.MountInfo.Accessible != nil && !*m.MountInfo.Accessible
		if !gone {
			hosts = append(hosts, m.Key)
		}
	}
	return hosts, true
}

// compute is the cluster or host that a resource pool belongs to, nil if it cannot be told.
func (inv *inventory) compute(pool types.ManagedObjectReference) *node {
	for n := inv.nodes[pool]; n != nil; n = inv.nodes[n.parent] {
		if _, ok := n.props["resourcePool"]; ok {
			return n
		}
	}
	return nil
}

// needed are the datastores that a virtual machine has to reach, and what for.
type needed struct {
	ds  *node
	why string
}

// hostFor chooses the host of a clone where that cannot be left to vCenter: not all hosts of the pool reach all datastores that the
// virtual machine needs. nil leaves it to vCenter; refusal is when no host does (5.2).
func (s *Session) hostFor(ctx context.Context, inv *inventory, dc *node, pool types.ManagedObjectReference, home *node, spec machine.ServerSpec) (*types.ManagedObjectReference, error) {
	cluster := inv.compute(pool)
	if cluster == nil {
		return nil, nil
	}
	all, ok := cluster.props["host"].(types.ArrayOfManagedObjectReference)
	if !ok || len(all.ManagedObjectReference) == 0 {
		return nil, nil
	}
	list := append([]needed{{home, "the system disk"}}, s.reach(inv, dc, spec)...)
	zone, err := s.zoneHosts(ctx, cluster, spec)
	if err != nil {
		return nil, err
	}
	fit := slices.Clone(all.ManagedObjectReference)
	if zone != nil {
		fit = zone
	}
	for _, n := range list {
		if hosts, known := mounts(n.ds); known {
			fit = slices.DeleteFunc(fit, func(h types.ManagedObjectReference) bool { return !slices.Contains(hosts, h) })
		}
	}
	switch {
	case zone == nil && len(fit) == len(all.ManagedObjectReference):
		return nil, nil
	case len(fit) == 0 && zone != nil:
		return nil, refused(ReasonDatastore, "no host of %s that the failure domain allows reaches all datastores that %s needs: %s; mount "+
			"the datastores there, or change the host group", cluster.name, spec.Name, s.whoReaches(ctx, list, all.ManagedObjectReference))
	case len(fit) == 0:
		return nil, refused(ReasonDatastore, "no host of %s reaches all datastores that %s needs: %s; choose a resource pool whose hosts "+
			"do, or mount the datastores there", cluster.name, spec.Name, s.whoReaches(ctx, list, all.ManagedObjectReference))
	}
	allowed := ""
	if zone != nil {
		allowed = "that the failure domain allows and "
	}
	return s.workingHost(ctx, fit, spec, cluster, allowed)
}

// reach lists the datastores of the persistent disks, which are where they are, and of ephemeral disks that name one.
func (s *Session) reach(inv *inventory, dc *node, spec machine.ServerSpec) []needed {
	var out []needed
	for _, address := range spec.Reach {
		if at, err := parseAddress(address); err == nil {
			if ds, err := inv.find(kindDatastore, dc, at.datastore); err == nil {
				out = append(out, needed{ds, "persistent disk " + address})
			}
		}
	}
	var disks []slot.Disk
	if spec.Place != nil {
		disks = spec.Place.Disks
	}
	for _, d := range disks {
		if d.Ephemeral && d.Datastore != "" {
			if ds, err := inv.find(kindDatastore, dc, d.Datastore); err == nil {
				out = append(out, needed{ds, "ephemeral disk " + d.Name})
			}
		}
	}
	return out
}

// whoReaches says for each datastore which of the hosts see it.
func (s *Session) whoReaches(ctx context.Context, list []needed, hosts []types.ManagedObjectReference) string {
	var parts []string
	for _, n := range list {
		seen, known := mounts(n.ds)
		if !known {
			continue
		}
		var names []string
		for _, h := range hosts {
			if slices.Contains(seen, h) {
				names = append(names, s.hostName(ctx, h))
			}
		}
		slices.Sort(names)
		parts = append(parts, fmt.Sprintf("%s (%s) is reached by %s", n.ds.name, n.why, listNames(names)))
	}
	return strings.Join(slices.Compact(parts), "; ")
}

// workingHost takes one of the hosts that take virtual machines, another one for each machine. allowed says in words what else
// limits the hosts. Errors: Busy while none of them works.
func (s *Session) workingHost(ctx context.Context, fit []types.ManagedObjectReference, spec machine.ServerSpec, cluster *node, allowed string) (*types.ManagedObjectReference, error) {
	content, err := s.client.retrieve(ctx, properties("HostSystem", []string{"runtime.connectionState", "runtime.inMaintenanceMode"}, fit...))
	if err != nil {
		return nil, failed(err, "reading the hosts of %s", cluster.name)
	}
	var working []types.ManagedObjectReference
	for _, o := range content {
		works := true
		for _, p := range o.PropSet {
			switch v := p.Val.(type) {
			case bool:
				works = works && !v
			case types.HostSystemConnectionState:
				works = works && v == types.HostSystemConnectionStateConnected
			}
		}
		if works {
			working = append(working, o.Obj)
		}
	}
	if len(working) == 0 {
		var names []string
		for _, h := range fit {
			names = append(names, s.hostName(ctx, h))
		}
		return nil, busy(ReasonNoHost, 30*time.Second, "the only hosts of %s %sthat reach all datastores of %s are not connected or in maintenance "+
			"mode: %s; bring one back", cluster.name, allowed, spec.Name, listNames(names))
	}
	slices.SortFunc(working, func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	digest := fnv.New32a()
	_, _ = digest.Write([]byte(spec.Mark))
	return &working[int(digest.Sum32())%len(working)], nil
}

// Pinned says which datastores of these volumes fewer hosts reach than the rest of their datacenter's: a machine whose disks lie
// there can be replaced only on those hosts (VS-D8). By datastore, a sentence each. It costs no call while the inventory is fresh.
func (s *Session) Pinned(ctx context.Context, location string, volumes []string) (map[string]string, error) {
	out := map[string]string{}
	err := s.inventory.with(ctx, func(inv *inventory) error {
		dc, err := inv.datacenter(location, "")
		if err != nil {
			return err
		}
		widest := 0
		for _, ds := range inv.all(kindDatastore, dc) {
			if hosts, known := mounts(ds); known {
				widest = max(widest, len(hosts))
			}
		}
		for _, address := range volumes {
			at, err := parseAddress(address)
			if err != nil {
				continue
			}
			ds, err := inv.find(kindDatastore, dc, at.datastore)
			if err != nil {
				continue
			}
			hosts, known := mounts(ds)
			if known && len(hosts) == 1 && widest > 1 {
				out[ds.name] = fmt.Sprintf("datastore %s is seen by one host only, %s: slots with disks on it run there and nowhere else; use a "+
					"shared datastore for new slots", ds.name, s.hostName(ctx, hosts[0]))
			}
		}
		return nil
	})
	return out, err
}
