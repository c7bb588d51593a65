package pool_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// The two holes of the Cluster API contract: a vacated slot is nobody's until the Machine and then the Node are gone, and a
// machine that already waits does not grab it before.
func TestWhoFreesASlot(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	if err := b.pool.Vacate(context.Background(), holder("a")); err != nil {
		t.Fatal(err)
	}
	delete(b.facts.holders, "mark-a")
	waits := func(why string) {
		t.Helper()
		s := b.reconcile()
		if !strings.Contains(s.Vacating["w-1"], why) {
			t.Errorf("w-1 waits because of %q, wanted %q", s.Vacating["w-1"], why)
		}
		if _, err := b.pool.Claim(context.Background(), request("b")); reasonOf(err) != machine.ReasonNoAvailableSlots {
			t.Errorf("b: %v", err)
		}
	}
	waits("Machine owner-a still exists")
	b.facts.err = errors.New("the API server does not answer")
	waits("cannot tell whether Machine owner-a still exists: the API server does not answer")
	b.facts.err = nil
	delete(b.facts.machines, "owner-uid-a")
	b.facts.node = slot.NodeStale
	waits("old Node w-1 is being deleted")
	b.facts.node = slot.NodeUnknown
	waits("cannot be asked")
	b.facts.node = slot.NodeGone
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Released || r.Holder.Name != "a" {
		t.Errorf("record %+v", r)
	}
	if got := b.claim("b"); got.HostName != "w-1" {
		t.Errorf("b was given %s", got.HostName)
	}
}

// Hazard H7, VS-A16, VS-A22, VS-A23, VS-B10: a holder that vanished is repaired only after the proofs of a normal deletion.
func TestOrphanRepair(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	spec := machine.ServerSpec{Name: "vm-a", Mark: "mark-a", Place: &got}
	if _, err := b.cloud.Create(context.Background(), spec); err != nil {
		t.Fatal(err)
	}
	b.leaveWithoutAWord("a")
	s := b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Held || !strings.Contains(s.Vacating["w-1"], "vm-a") {
		t.Errorf("its server lives: %+v, %q", r, s.Vacating["w-1"])
	}
	b.cloud.Kill("vm-a")
	b.cloud.AddServer("vm-x", "x")
	b.cloud.SetUnreadable("vm-x", "disconnected")
	s = b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Held || !strings.Contains(s.Vacating["w-1"], "disconnected") {
		t.Errorf("VS-A23: %+v, %q", r, s.Vacating["w-1"])
	}
	b.cloud.SetUnreadable("vm-x", "")
	b.down = errors.New("unreachable")
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Held {
		t.Errorf("repaired without asking the platform: %+v", r)
	}
	b.down = nil
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Released || d.Phase != disk.Available || d.OwnerMark != "" {
		t.Errorf("repaired: %+v, %+v", r, d)
	}
}

// leaveWithoutAWord removes a machine's objects as a person with a finalizer patch does.
func (b *bench) leaveWithoutAWord(name string) {
	delete(b.facts.machines, "owner-uid-"+name)
	delete(b.facts.holders, "mark-"+name)
}

// VS-D42 to D48: after the grace period the disks go, told before it happens, and the slot is new.
func TestGracePeriod(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.cloud.Async = true
	got := b.claim("a")
	_, _ = b.ensure("a", got)
	b.cloud.Tick()
	if _, err := b.ensure("a", got); err != nil {
		t.Fatal(err)
	}
	b.leave("a")
	s := b.reconcile()
	if s.Next < 23*time.Hour || s.Next > 24*time.Hour {
		t.Errorf("looks again in %s", s.Next)
	}
	b.clock = b.clock.Add(24*time.Hour - time.Second)
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Released {
		t.Fatalf("a second early it is %s", r.State)
	}
	b.clock = b.clock.Add(time.Second)
	volume := b.store.disk("w-1").Volume
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Reclaiming || d.Phase != disk.Reclaiming || d.Operation == "" {
		t.Errorf("while it is being deleted: %+v, %+v", r, d)
	}
	if e, ok := b.happened(machine.EventReclaimAnnounced); !ok || !strings.Contains(e.Message, volume) {
		t.Errorf("it was not announced: %+v", b.events)
	}
	if got := b.claim("b"); got.HostName != "w-2" {
		t.Errorf("VS-A12: b was given %s", got.HostName)
	}
	b.restart()
	b.cloud.Tick()
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Available || r.Holder.Name != "" || d.Phase != disk.Reclaimed {
		t.Errorf("reclaimed: %+v, %+v", r, d)
	}
	if len(b.cloud.Contents()) != 0 {
		t.Errorf("left over: %v", b.cloud.Contents())
	}
	if b.store.state.Consumer == nil {
		t.Error("VS-A5: unbound with a slot in use")
	}
}

// Promise 2: the successor of a machine waits for a slot that no machine gets as it is declared. The data that it waits for is not deleted
// meanwhile, unless the pool goes.
func TestSlotKeptBackKeepsItsData(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Invalid = map[string]string{"w-1": "not so"} })
	b.restart()
	b.clock = b.clock.Add(25 * time.Hour)
	s := b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Released || len(b.cloud.Contents()) != 1 {
		t.Fatalf("it is %s, with %v", r.State, b.cloud.Contents())
	}
	if !slices.Equal(s.KeptBack, []string{"w-1"}) || s.Next != 0 {
		t.Errorf("said to be kept back: %v, looks again in %s", s.KeptBack, s.Next)
	}
	b.store.edit(func(s *pool.State) { s.Deleting = true })
	b.restart()
	b.reconcile()
	if _, told := b.happened(machine.EventReclaimAnnounced); !told || len(b.cloud.Contents()) != 0 {
		t.Errorf("the pool goes, and its disks stay: %v", b.cloud.Contents())
	}
}

// Hazard H6, VS-D44: what is attached anywhere is not deleted, and it is said.
func TestReclaimWaitsForStrangers(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.cloud.AddServer("thief", "t")
	thief, _ := b.cloud.LookupLive(context.Background(), machine.Identity{Mark: "t"})
	d := b.store.disk(got.HostName)
	if _, err := b.cloud.Fit(context.Background(), thief, machine.Fit{Volumes: []machine.Volume{{Volume: d.Volume, Identity: d.Identity}}}); err != nil {
		t.Fatal(err)
	}
	b.clock = b.clock.Add(25 * time.Hour)
	s := b.reconcile()
	if why := s.DiskErrors["w-1/data"]; !strings.Contains(why, "still attached to server thief") || len(b.cloud.Violations()) > 0 {
		t.Errorf("%q, %v", why, b.cloud.Violations())
	}
	if s.Next > 30*time.Second || s.Next <= 0 {
		t.Errorf("looks again in %s", s.Next)
	}
	observed, _ := b.cloud.LookupLive(context.Background(), machine.Identity{Mark: "t"})
	_, _ = b.cloud.Detach(context.Background(), observed, []machine.AttachedVolume{{Volume: d.Volume}})
	b.clock = b.clock.Add(31 * time.Second)
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Available {
		t.Errorf("after the detach: %+v", r)
	}
	if b.store.state.Consumer != nil {
		t.Error("VS-A5: an empty pool is still bound")
	}
	if _, ok := b.happened(machine.EventConsumerUnbound); !ok {
		t.Error("the unbinding was not told")
	}
}

// VS-D53, VS-D54, D19: deleting a pool waits for machines, ignores the delay, and spares what is to be retained.
func TestPoolDeletion(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.inhabit("a")
	b.inhabit("b")
	b.leave("b")
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Deleting = true })
	s := b.reconcile()
	if s.Empty || len(s.Held) != 1 || len(b.cloud.Contents()) != 1 {
		t.Errorf("with a machine in it: empty %v, held %v, volumes %v", s.Empty, s.Held, b.cloud.Contents())
	}
	b.leave("a")
	if s = b.reconcile(); !s.Empty || len(b.cloud.Contents()) != 0 {
		t.Errorf("after the last machine: %+v, volumes %v", s, b.cloud.Contents())
	}

	c := newBench(t, "w-1")
	c.inhabit("a")
	c.leave("a")
	c.reconcile()
	c.store.edit(func(s *pool.State) { s.Deleting, s.Retain = true, true })
	if s := c.reconcile(); !s.Empty || len(c.cloud.Contents()) != 1 {
		t.Errorf("retained: empty %v, volumes %v", s.Empty, c.cloud.Contents())
	}
	if e, ok := c.happened(machine.EventVolumesRetained); !ok || !strings.Contains(e.Message, "data") {
		t.Errorf("events %+v", c.events)
	}
	// The annotation holds the grace period off, too.
	c.store.edit(func(s *pool.State) { s.Deleting = false })
	c.clock = c.clock.Add(100 * time.Hour)
	c.reconcile()
	if len(c.cloud.Contents()) != 1 {
		t.Error("the grace period deleted what was to be retained")
	}
}

// D17, VS-D57: a pool that lost its status is not deleted with its volumes left behind, and not without its platform.
func TestDeletionFindsWhatIsNotOnRecord(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Records, s.Disks, s.Deleting = nil, nil, true })
	b.restart()
	b.down = errors.New("credentials are gone")
	if s := b.reconcile(); s.Empty || len(s.Troubles) == 0 || !strings.Contains(s.Troubles[0], "credentials are gone") {
		t.Errorf("VS-D57: %+v", s)
	}
	b.down = nil
	if s := b.reconcile(); !s.Empty || len(b.cloud.Contents()) != 0 {
		t.Errorf("%+v, volumes %v", s, b.cloud.Contents())
	}
}

// VS-A17: records of removed slots go when nothing is left of them, and not before.
func TestRemovedSlots(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.reconcile()
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Slots = s.Slots[:0:0] })
	b.reconcile()
	if b.store.record("w-2").HostName != "" || b.store.record("w-1").State != slot.Released || b.store.disk("w-1").Phase != disk.Available {
		t.Errorf("records %+v, disks %+v", b.store.state.Records, b.store.state.Disks)
	}
}

// VS-P13, VS-B6: a pool at rest costs one read and no write, however often it is looked at.
func TestPoolAtRest(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.inhabit("a")
	b.reconcile()
	saves, loads, asked := b.store.saves, b.store.loads, b.facts.asked.Load()
	s := b.reconcile()
	if b.store.saves != saves || b.store.loads != loads+1 || b.facts.asked.Load() != asked || s.Next != 0 {
		t.Errorf("%d writes, %d reads, next in %s", b.store.saves-saves, b.store.loads-loads, s.Next)
	}
	total, available, allocated := s.State.Counters()
	if total != 2 || available != 1 || allocated != 1 {
		t.Errorf("counters %d %d %d", total, available, allocated)
	}
}
