package vsphere

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/vmware/govmomi/vim25/types"
)

// freeTTL is how long a datastore's free space is believed. vCenter itself refreshes it far less often.
const freeTTL = 10 * time.Second

// spaces remembers free space, and what we have since promised of it.
type spaces struct {
	reads singleflight.Group

	mu   sync.Mutex
	free map[types.ManagedObjectReference]space
}

type space struct {
	bytes    int64
	promised int64
	read     time.Time
}

// datastore picks the datastore for a disk (VS-V12 and 5.2): the named one, else the policy's with most free space, else the
// given default, else the only one. policyID is the policy's identifier where one is named.
func (s *Session) datastore(ctx context.Context, inv *inventory, dc *node, k kind, name, policy, fallback string) (ds *node, policyID string, err error) {
	var allowed []*node
	if policy != "" {
		if policyID, allowed, err = s.compatible(ctx, inv, dc, policy); err != nil {
			return nil, "", err
		}
	}
	switch {
	case name != "":
		ds, err = inv.find(k, dc, name)
		if err == nil && policy != "" && !slices.Contains(allowed, ds) {
			err = refused(ReasonStoragePolicy, "%s %q is not compatible with storage policy %q in %s; compatible: %s", k.field,
				name, policy, inv.where(dc), inv.list(allowed, dc, kindDatastore))
		}
	case policy != "":
		ds, err = s.roomiest(ctx, allowed)
		if err == nil && ds == nil {
			err = refused(ReasonStoragePolicy, "storage policy %q: no compatible datastore in %s that is accessible and not in "+
				"maintenance mode", policy, inv.where(dc))
		}
	case fallback != "":
		ds, err = inv.find(kindDatastore, dc, fallback)
	default:
		all := inv.all(kindDatastore, dc)
		if len(all) != 1 {
			unnamed := refused(ReasonDatastore, "%s is empty and %s has %d datastores: %s; name one", kindDatastore.field,
				inv.where(dc), len(all), inv.list(all, dc, kindDatastore))
			// With failure domains a template names none: where a disk lies is only known by looking for its mark.
			unnamed.Nowhere = true
			return nil, "", unnamed
		}
		ds = all[0]
	}
	return ds, policyID, err
}

// usable: not in maintenance, reachable.
func usable(ds *node) bool {
	summary, ok := ds.props["summary"].(types.DatastoreSummary)
	if !ok {
		return true
	}
	return summary.Accessible && (summary.MaintenanceMode == "" ||
		summary.MaintenanceMode == string(types.DatastoreSummaryMaintenanceModeStateNormal))
}

// readable: reachable; what lies on a datastore in maintenance mode can be looked at.
func readable(ds *node) bool {
	summary, ok := ds.props["summary"].(types.DatastoreSummary)
	return !ok || summary.Accessible
}

func (s *Session) roomiest(ctx context.Context, list []*node) (*node, error) {
	var best *node
	var most int64 = -1
	for _, ds := range list {
		if !usable(ds) {
			continue
		}
		free, err := s.freeSpace(ctx, ds, false)
		if err != nil {
			return nil, err
		}
		if free > most {
			best, most = ds, free
		}
	}
	return best, nil
}

// freeSpace is a datastore's free space in bytes, less what was promised since it was read.
func (s *Session) freeSpace(ctx context.Context, ds *node, fresh bool) (int64, error) {
	s.spaces.mu.Lock()
	known, ok := s.spaces.free[ds.ref]
	s.spaces.mu.Unlock()
	if ok && !fresh && time.Since(known.read) < freeTTL {
		return known.bytes - known.promised, nil
	}
	read, err, _ := s.spaces.reads.Do(ds.ref.Value, func() (any, error) {
		content, err := s.client.retrieve(context.WithoutCancel(ctx), properties("Datastore", []string{"summary.freeSpace"}, ds.ref))
		if err != nil {
			return nil, err
		}
		var free int64
		for _, o := range content {
			for _, p := range o.PropSet {
				free, _ = p.Val.(int64)
			}
		}
		s.spaces.mu.Lock()
		s.spaces.free[ds.ref] = space{bytes: free, read: time.Now()}
		s.spaces.mu.Unlock()
		return free, nil
	})
	if err != nil {
		return 0, failed(err, "reading free space of datastore %s", ds.name)
	}
	return read.(int64), nil
}

// promise checks that a new disk fits (VS-D7) and counts it against the space believed to be free.
func (s *Session) promise(ctx context.Context, ds *node, what string, giB int32) error {
	if !usable(ds) {
		return refused(ReasonDatastore, "datastore %s for %s is in maintenance mode or not accessible", ds.name, what)
	}
	need := int64(giB) << 30
	free, err := s.freeSpace(ctx, ds, false)
	if err != nil {
		return err
	}
	if free < need {
		if free, err = s.freeSpace(ctx, ds, true); err != nil {
			return err
		}
	}
	if free < need {
		return refused(ReasonDatastoreFull, "datastore %s has %d GiB free and %s needs %d GiB: make room or choose another "+
			"datastore", ds.name, free>>30, what, giB)
	}
	s.spaces.mu.Lock()
	known := s.spaces.free[ds.ref]
	known.promised += need
	s.spaces.free[ds.ref] = known
	s.spaces.mu.Unlock()
	return nil
}

// storageProfile is a policy as a device or file spec wants it.
func storageProfile(id string) []types.BaseVirtualMachineProfileSpec {
	if id == "" {
		return nil
	}
	return []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: id}}
}
