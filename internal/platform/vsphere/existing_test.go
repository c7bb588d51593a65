package vsphere_test

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// setDatastore changes a datastore's summary, which no API does.
func (c *cloud) setDatastore(t *testing.T, name string, change func(*types.DatastoreSummary)) {
	t.Helper()
	service := *c.Service().Context
	ctx := &service
	for _, entity := range ctx.Map.All("Datastore") {
		ds, ok := entity.(*simulator.Datastore)
		if !ok || ds.Name != name {
			continue
		}
		ctx.WithLock(ds, func() {
			summary := ds.Summary
			change(&summary)
			ctx.Update(ds, []types.PropertyChange{{Name: "summary", Val: summary}})
		})
		return
	}
	t.Fatalf("no datastore %s", name)
}

// Decision D17, hazard H9, hazard H16: when all records are lost, a disk is found on whatever datastore it lies, even if nothing is left
// that says which that could be; and as long as a datastore cannot be looked at, nothing is said to be absent.
func TestExistingVolumeIsFoundWithoutAnyDescription(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	spec := volumeSpec("pool")
	var err error
	if spec.Address, err = s.PlanVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	op, err := s.CreateVolume(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	there := func(change ...func(*machine.VolumeSpec)) (string, error) {
		t.Helper()
		search := volumeSpec("pool")
		search.Existing, search.Shape, search.Want.StoragePolicy = true, nil, "no-such-policy"
		for _, do := range change {
			do(&search)
		}
		return c.dial(t).PlanVolume(t.Context(), search)
	}
	nowhere := func(v *machine.VolumeSpec) { v.Location = "" }
	other := func(v *machine.VolumeSpec) { v.Key.HostName = "worker-2" }
	for name, change := range map[string][]func(*machine.VolumeSpec){"in its datacenter": nil, "in any datacenter": {nowhere}} {
		if got, err := there(change...); err != nil || got != spec.Address {
			t.Errorf("%s: %q, %v; it lies at %q", name, got, err, spec.Address)
		}
	}
	if got, err := there(other); !machine.Is(err, machine.NotFound) {
		t.Errorf("a disk that never was: %q, %v", got, err)
	}
	home, _, _ := strings.Cut(strings.TrimPrefix(spec.Address, "["), "]")
	c.setDatastore(t, home, func(s *types.DatastoreSummary) {
		s.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateInMaintenance)
	})
	if got, err := there(); err != nil || got != spec.Address {
		t.Errorf("in maintenance: %q, %v", got, err)
	}
	c.setDatastore(t, home, func(s *types.DatastoreSummary) { s.Accessible = false })
	if got, err := there(); !machine.Is(err, machine.Busy) || !strings.Contains(err.Error(), home) {
		t.Errorf("on a datastore that cannot be looked at: %q, %v", got, err)
	}
}

// Decision D17, decision D19, hazard H9: a disk to be used is not planned anew on the datastore that the declaration names today while
// another one, which may keep it, cannot be looked at. A blank disk would take the place of the data.
func TestNoBlankDiskWhileADatastoreCannotBeLookedAt(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	spec := volumeSpec("pool")
	var err error
	if spec.Address, err = s.PlanVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	op, err := s.CreateVolume(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	home, _, _ := strings.Cut(strings.TrimPrefix(spec.Address, "["), "]")
	edited := volumeSpec("pool")
	edited.Want.Datastore = "ds-shared-a2"
	if home == edited.Want.Datastore {
		t.Fatalf("the disk lies on %s already", home)
	}
	c.setDatastore(t, home, func(s *types.DatastoreSummary) { s.Accessible = false })
	if got, err := c.dial(t).PlanVolume(t.Context(), edited); !machine.Is(err, machine.Busy) || !strings.Contains(err.Error(), home) {
		t.Errorf("its datastore cannot be looked at: %q, %v", got, err)
	}
	c.setDatastore(t, home, func(s *types.DatastoreSummary) { s.Accessible = true })
	if got, err := c.dial(t).PlanVolume(t.Context(), edited); err != nil || got != spec.Address {
		t.Errorf("its datastore is back: %q, %v; it lies at %q", got, err, spec.Address)
	}
}
