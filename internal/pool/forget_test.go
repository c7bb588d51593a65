package pool_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// Hazard H16, VS-D45, VS-D46: a place's directory that could not be removed keeps the slot until it is, and does not stay behind for ever.
func TestPlaceIsForgottenBeforeTheSlotIsNew(t *testing.T) {
	b := newBench(t, "w-1")
	b.store.edit(func(s *pool.State) {
		s.Slots[0].Disks = append(s.Slots[0].Disks, slot.Disk{Name: "other", SizeGiB: 1, Datastore: "elsewhere"})
	})
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.clock = b.clock.Add(25 * time.Hour)
	b.cloud.Unforgettable = errors.New("the platform does not answer")
	s := b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Reclaiming || !strings.Contains(strings.Join(s.Troubles, ""), "does not answer") || s.Next > time.Minute {
		t.Errorf("%+v, troubles %q, again in %s", r, s.Troubles, s.Next)
	}
	b.cloud.Unforgettable = nil
	b.restart()
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Available {
		t.Errorf("%+v", r)
	}
	if slices.Sort(b.cloud.Forgotten); len(b.cloud.Forgotten) != 2 {
		t.Errorf("disks may lie in several places, forgotten was asked for %q", b.cloud.Forgotten)
	}
}

// A stranger's file in the directory is a matter for a human and keeps nobody back.
func TestStrangersFileKeepsNoSlotBack(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.clock = b.clock.Add(25 * time.Hour)
	b.cloud.Unforgettable = &machine.Error{Kind: machine.Refused, Message: "notes.txt is in it"}
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Available {
		t.Errorf("%+v", r)
	}
	if e, ok := b.happened(machine.EventReclaimFailed); !ok || !e.Warning || !strings.Contains(e.Message, "notes.txt") {
		t.Errorf("nobody was told: %+v", b.events)
	}
}

// A pool that names a location which the platform does not have never had a disk there: its end waits for no look. What cannot be
// told for another reason keeps it, and is said.
func TestPoolOfAPlaceThatCannotExistMayGo(t *testing.T) {
	b := newBench(t, "w-1")
	b.facts.shape = "what servers of this pool look like"
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Deleting = true })
	b.down = errors.New("the platform does not answer")
	if s := b.reconcile(); s.Empty || !strings.Contains(strings.Join(s.Troubles, ""), "does not answer") {
		t.Errorf("empty %v, troubles %q", s.Empty, s.Troubles)
	}
	b.down, b.cloud.Missing = nil, []string{"dc-a"}
	if s := b.reconcile(); !s.Empty || len(s.Troubles) != 0 {
		t.Errorf("empty %v, troubles %q", s.Empty, s.Troubles)
	}
}

// A disk on record is not forgotten because its location has disappeared.
func TestDiskOnRecordOutlivesItsLocation(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	got := b.inhabit("a")
	b.leave("a")
	volume := b.store.disk(got.HostName).Volume
	b.cloud.Missing = []string{"dc-a"}
	b.cloud.Move(volume, "thief")
	b.store.edit(func(s *pool.State) { s.Deleting = true })
	if s := b.reconcile(); s.Empty || b.store.disk(got.HostName).Volume != volume {
		t.Errorf("empty %v, %+v", s.Empty, b.store.disk(got.HostName))
	}
}
