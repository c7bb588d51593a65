package pool_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// lose is a loss of status with two machines in the pool: a runs with its disk, b's disk was made and not attached yet.
func (b *bench) lose() (volumes map[string]string) {
	b.t.Helper()
	volumes = map[string]string{}
	b.facts.occupants = map[string]slot.Holder{}
	for _, name := range []string{"a", "b"} {
		got := b.inhabit(name)
		volumes[got.HostName] = b.store.disk(got.HostName).Volume
		b.facts.occupants[got.HostName] = holder(name)
	}
	b.cloud.Move(volumes["w-1"], "vm-a")
	b.cloud.Remark("vm-a", "mark-a")
	b.store.edit(func(s *pool.State) { s.Records, s.Disks, s.Consumer = nil, nil, nil })
	b.restart()
	return volumes
}

// Promise 5, D17: places and disks are found again by what the machines and the marks say, and nobody is in anybody's way.
func TestLostStatusIsRebuilt(t *testing.T) {
	for _, first := range []string{"pool", "machine"} {
		t.Run(first+" first", func(t *testing.T) {
			b := newBench(t, "w-1", "w-2", "w-3")
			volumes := b.lose()
			if first == "machine" {
				if got := b.claim("c"); got.HostName != "w-3" {
					t.Fatalf("c was given %s", got.HostName)
				}
			}
			b.reconcile()
			for host, want := range map[string]disk.Record{
				"w-1": {Phase: disk.Attached, OwnerMark: "mark-a"}, "w-2": {Phase: disk.Available, OwnerMark: "mark-b"},
			} {
				r, d := b.store.record(host), b.store.disk(host)
				if r.State != slot.Held || r.Holder.Mark != want.OwnerMark {
					t.Errorf("%s: %+v", host, r)
				}
				if d.Volume != volumes[host] || d.Identity == "" || d.Phase != want.Phase || d.OwnerMark != want.OwnerMark {
					t.Errorf("%s: %+v", host, d)
				}
			}
			for _, name := range []string{"a", "b"} {
				if _, err := b.ensure(name, b.claim(name)); err != nil {
					t.Errorf("%s does not get its disks back: %v", name, err)
				}
			}
			b.store.edit(func(s *pool.State) { s.Deleting = true })
			b.clock = b.clock.Add(100 * time.Hour)
			if s := b.reconcile(); s.Empty || len(b.cloud.Contents()) != 2 || len(b.cloud.Violations()) != 0 {
				t.Errorf("disks in use were deleted: %v", b.cloud.Contents())
			}
		})
	}
}

// What cannot be looked up is not taken for absent: nothing is recorded and nobody gets a place.
func TestLostStatusNeedsThePlatform(t *testing.T) {
	b := newBench(t, "w-1", "w-2", "w-3")
	b.lose()
	b.down = errors.New("the platform does not answer")
	s := b.reconcile()
	if len(b.store.state.Records) != 0 || !strings.Contains(strings.Join(s.Troubles, ""), "does not answer") || s.Next == 0 {
		t.Errorf("records %+v, troubles %q, next %s", b.store.state.Records, s.Troubles, s.Next)
	}
	if _, err := b.pool.Claim(context.Background(), request("c")); err == nil {
		t.Error("a place was given away")
	}
}

// A slot that was vacating when the status was lost goes to nobody while the old Machine stands: Cluster API would delete the Node
// of its successor by name.
func TestLostStatusKeepsVacatingSlots(t *testing.T) {
	b := newBench(t, "w-1")
	volume := b.store.disk(b.inhabit("a").HostName).Volume
	if err := b.pool.Vacate(context.Background(), holder("a")); err != nil {
		t.Fatal(err)
	}
	left := holder("a")
	b.facts.leaving = map[string]slot.Holder{"w-1": {Name: left.Name, UID: left.OwnerUID, OwnerName: left.OwnerName, OwnerUID: left.OwnerUID}}
	b.store.edit(func(s *pool.State) { s.Records, s.Disks, s.Consumer = nil, nil, nil })
	b.restart()
	if s := b.reconcile(); s.Vacating["w-1"] == "" || b.store.record("w-1").State != slot.Vacating {
		t.Fatalf("%+v, waiting %v", b.store.record("w-1"), s.Vacating)
	}
	if _, err := b.pool.Claim(context.Background(), request("b")); err == nil {
		t.Fatal("the slot was given away")
	}
	delete(b.facts.machines, left.OwnerUID)
	b.reconcile()
	if _, err := b.ensure("b", b.claim("b")); err != nil || b.store.disk("w-1").Volume != volume {
		t.Errorf("%v, %+v", err, b.store.disk("w-1"))
	}
}

// A stranger's server that has a disk of an occupied slot does not make it the occupant's: it is told, and waited for.
func TestLostStatusAndAStolenDisk(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.lose()
	b.cloud.Remark("vm-a", "somebody else's")
	b.reconcile()
	if d := b.store.disk("w-1"); d.Phase == disk.Attached || d.OwnerMark != "" {
		t.Errorf("%+v", d)
	}
	if _, err := b.ensure("a", b.claim("a")); err == nil || !strings.Contains(err.Error(), "still attached to server vm-a") {
		t.Errorf("%v", err)
	}
}
