package pool_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// decision D19, VS-A12: the annotation keeps disks whose deletion was decided and could not be done yet; their slot is released
// again.
func TestRetainedInTheLastMoment(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	b.leave("a")
	b.reconcile()
	volume := b.store.disk(got.HostName).Volume
	b.cloud.Move(volume, "thief")
	b.clock = b.clock.Add(25 * time.Hour)
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Reclaiming {
		t.Fatalf("%+v", r)
	}
	b.store.edit(func(s *pool.State) { s.Retain = true })
	b.cloud.Move(volume, "")
	b.clock = b.clock.Add(time.Minute)
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Released || d.Phase != disk.Available || len(b.cloud.Contents()) != 1 {
		t.Errorf("slot %+v, disk %+v, volumes %v", r, d, b.cloud.Contents())
	}
	if e, ok := b.happened(machine.EventVolumesRetained); !ok || !strings.Contains(e.Message, volume) {
		t.Errorf("it was not told: %+v", b.events)
	}
	if next := b.inhabit("b"); next.HostName != "w-1" || b.store.disk("w-1").Volume != volume {
		t.Errorf("b was given %s with %s", next.HostName, b.store.disk("w-1").Volume)
	}
}

// A deletion that is under way cannot be taken back: it is followed to its end, and the slot is new then.
func TestRetainedTooLate(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.cloud.Async = true
	b.clock = b.clock.Add(25 * time.Hour)
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Retain = true })
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Reclaiming {
		t.Errorf("while it runs: %+v", r)
	}
	b.cloud.Tick()
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Available || d.Phase != disk.Reclaimed {
		t.Errorf("slot %+v, disk %+v", r, d)
	}
}

// Promise 5, hazard H16: a released slot whose record is lost is released again, its disk found by the mark: the next machine gets
// it, and without one it goes after a grace period that starts anew.
func TestReleasedSlotsSurviveALostStatus(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	got := b.inhabit("a")
	volume := b.store.disk(got.HostName).Volume
	b.leave("a")
	b.reconcile()
	b.store.edit(func(s *pool.State) {
		s.Records, s.Disks, s.Consumer, s.Lost = nil, nil, nil, true
		s.Slots[0], s.Slots[1] = s.Slots[1], s.Slots[0] // the order would give the other one first
	})
	b.restart()
	b.cloud.Full = true // what is looked for needs no space
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Released || r.ReleasedAt == nil || d.Volume != volume || d.Phase != disk.Available {
		t.Fatalf("slot %+v, disk %+v", r, d)
	}
	if r := b.store.record("w-2"); r.State != slot.Available {
		t.Errorf("slot %+v", r)
	}
	if next := b.inhabit("b"); next.HostName != "w-1" {
		t.Errorf("VS-A9: b was given %s", next.HostName)
	}
	b.leave("b")
	b.reconcile()
	b.clock = b.clock.Add(25 * time.Hour)
	if b.reconcile(); len(b.cloud.Contents()) != 0 {
		t.Errorf("left behind: %v", b.cloud.Contents())
	}
}

// A pool that nobody ever used asks the platform nothing.
func TestNewPoolLooksForNothing(t *testing.T) {
	b := newBench(t, "w-1")
	b.cloud.AddServer("vm-x", "x")
	b.cloud.SetUnreadable("vm-x", "disconnected")
	b.facts.shape = "what servers of this pool look like"
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Available {
		t.Errorf("%+v", r)
	}
}

// VS-D7 says when a disk cannot be made; a pool whose spare slots never had one goes all the same.
func TestPoolOnAFullDatastoreMayGo(t *testing.T) {
	b := newBench(t, "w-1")
	b.facts.shape = "what servers of this pool look like"
	b.cloud.Full = true
	b.reconcile()
	b.store.edit(func(s *pool.State) { s.Deleting = true })
	if s := b.reconcile(); !s.Empty || len(s.Troubles) > 0 {
		t.Errorf("empty %v, troubles %q", s.Empty, s.Troubles)
	}
}

// decision D19: every volume that is to be deleted is named before, however many there are: an event holds no more than 1024 bytes.
func TestEveryVolumeIsAnnounced(t *testing.T) {
	const disks = 29
	b := newBench(t, "w-1")
	b.store.edit(func(s *pool.State) {
		s.Slots[0].Disks = nil
		for i := range disks {
			s.Slots[0].Disks = append(s.Slots[0].Disks, slot.Disk{Name: fmt.Sprintf("%s-%02d", strings.Repeat("d", 60), i), SizeGiB: 1})
		}
	})
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	volumes := b.cloud.Contents()
	b.clock = b.clock.Add(25 * time.Hour)
	b.reconcile()
	for _, e := range b.events {
		if len(e.Message) > 1024 {
			t.Errorf("an event of %d bytes", len(e.Message))
		}
		if e.Reason != machine.EventReclaimAnnounced {
			continue
		}
		for volume := range volumes {
			if strings.Contains(e.Message, volume) {
				delete(volumes, volume)
			}
		}
	}
	if len(volumes) > 0 {
		t.Errorf("%d of %d volumes were deleted unannounced", len(volumes), disks)
	}
}

// Decision D19, promise 3: the process ends after the deletion of a slot's disks is on record, and before anybody was told. The next one
// tells it before it deletes anything, and once.
func TestDecisionOfAnEndedProcessIsAnnounced(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	volume := b.store.disk("w-1").Volume
	b.store.edit(func(s *pool.State) { s.Records[0].State = slot.Reclaiming })
	b.restart()
	b.down = errors.New("no platform")
	b.reconcile()
	b.reconcile()
	b.down = nil
	b.cloud.Async = true
	b.reconcile()
	b.reconcile()
	told := 0
	for _, e := range b.events {
		if e.Reason == machine.EventReclaimAnnounced && strings.Contains(e.Message, volume) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %+v", told, b.events)
	}
}
