package pool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// inherit gives the pool what an older version left: a slot's record in the state, and a disk that only the declaration names.
func (b *bench) inherit(rec slot.Record, volume string, edit ...func(*disk.Record)) {
	old := disk.Record{HostName: rec.HostName, Name: "data", Volume: volume, Phase: disk.Available, SizeGiB: 10}
	for _, e := range edit {
		e(&old)
	}
	b.store.edit(func(s *pool.State) {
		s.Inherited = append(s.Inherited, old)
		if rec.State != "" {
			s.Records = append(s.Records, rec)
		}
	})
}

// legacy puts a disk without a mark into the cloud and returns its identity.
func (b *bench) legacy(address string) func(*disk.Record) {
	b.cloud.AddVolume(address, "years of data", "")
	identity := b.cloud.Identity(address)
	return func(r *disk.Record) { r.Identity = identity }
}

// VS-D51, VS-B13, hazard H9: a released slot's disk that only an older version recorded is taken over, handed to the next machine, and its
// record is never read from there again.
func TestOlderRecordsAreTakenOverOnce(t *testing.T) {
	for _, first := range []string{"pool", "machine"} {
		t.Run(first+" first", func(t *testing.T) {
			b := newBench(t, "w-1", "w-2")
			at := b.clock
			b.inherit(slot.Record{HostName: "w-1", State: slot.Released, ReleasedAt: &at}, "old/w-1/data", b.legacy("old/w-1/data"))
			if first == "pool" {
				b.reconcile()
			}
			got := b.claim("a")
			volumes, err := b.ensure("a", got)
			if err != nil || got.HostName != "w-1" || len(volumes) != 1 || volumes[0].Volume != "old/w-1/data" {
				t.Fatalf("%s, %+v, %v", got.HostName, volumes, err)
			}
			b.leave("a")
			b.reconcile()
			b.clock = b.clock.Add(25 * time.Hour)
			b.reconcile()
			if d := b.store.disk("w-1"); d.Phase != disk.Reclaimed {
				t.Fatalf("%+v", d)
			}
			// The declaration still names it. The tombstone knows better.
			got = b.claim("b")
			if volumes, err := b.ensure("b", got); err != nil || volumes[0].Volume == "old/w-1/data" {
				t.Errorf("%+v, %v", volumes, err)
			}
		})
	}
}

// VS-D51: what an older version said is held against the platform: there and free, there and in use, deleted, lost, another's.
func TestOlderRecordsAreHeldAgainstThePlatform(t *testing.T) {
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	held := slot.Record{HostName: "w-1", State: slot.Held, Holder: slot.Holder{Name: "a", UID: "mark-a"}}
	released := slot.Record{HostName: "w-1", State: slot.Released, ReleasedAt: &at}
	available := slot.Record{HostName: "w-1", State: slot.Available}
	for _, c := range []struct {
		name  string
		slot  slot.Record
		edit  func(*disk.Record)
		cloud func(*bench)
		state slot.State
		phase disk.Phase
		owner string
	}{
		{"attached", held, nil, func(b *bench) { b.cloud.Move("old/data", "vm-a"); b.cloud.Remark("vm-a", "mark-a") }, slot.Held, disk.Attached, "mark-a"},
		{"in use, not attached yet", held, nil, nil, slot.Held, disk.Available, "mark-a"},
		{"released", released, nil, nil, slot.Released, disk.Available, ""},
		{"slot said to be new, disk there", available, nil, nil, slot.Released, disk.Available, ""},
		{"deleted, and the address left", available, nil, func(b *bench) { b.cloud.RemoveVolume("old/data") }, slot.Available, disk.Reclaimed, ""},
		{"deleted, and recorded so", available, func(r *disk.Record) { r.Phase = disk.Reclaimed }, nil, slot.Available, disk.Reclaimed, ""},
		{"lost", released, nil, func(b *bench) { b.cloud.RemoveVolume("old/data") }, slot.Released, disk.Available, ""},
		{"no slot record at all", slot.Record{HostName: "w-1"}, nil, nil, slot.Released, disk.Available, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "w-1")
			b.facts.holders[""] = true // that version knew no marks
			identity := b.legacy("old/data")
			if c.cloud != nil {
				c.cloud(b)
			}
			b.inherit(c.slot, "old/data", func(r *disk.Record) {
				if identity(r); c.edit != nil {
					c.edit(r)
				}
			})
			b.reconcile()
			r, d := b.store.record("w-1"), b.store.disk("w-1")
			if r.State != c.state || d.Phase != c.phase || d.OwnerMark != c.owner {
				t.Errorf("slot %+v, disk %+v", r, d)
			}
			if c.name == "lost" {
				if _, err := b.ensure("a", b.claim("a")); err == nil || !strings.Contains(err.Error(), "gone") {
					t.Errorf("VS-D25: it is used: %v", err)
				}
				if len(b.cloud.Contents()) != 0 {
					t.Errorf("hazard H9: a blank one was made: %v", b.cloud.Contents())
				}
			}
		})
	}
}

// VS-D51, VS-D49: a deletion that an older version began goes on; meanwhile nobody gets the slot.
func TestOlderReclaimGoesOn(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	at := b.clock
	identity := b.legacy("old/data")
	b.inherit(slot.Record{HostName: "w-1", State: slot.Reclaiming, ReleasedAt: &at}, "old/data", func(r *disk.Record) {
		identity(r)
		r.Phase, r.Operation = disk.Reclaiming, "a task of long ago"
	})
	if got := b.claim("a"); got.HostName != "w-2" {
		t.Errorf("a was given %s", got.HostName)
	}
	b.reconcile()
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); r.State != slot.Available || d.Phase != disk.Reclaimed || len(b.cloud.Contents()) != 0 {
		t.Errorf("slot %+v, disk %+v, left %v", r, d, b.cloud.Contents())
	}
}

// Without a UUID on record and without our mark nothing proves that what lies there is the disk: it is neither used nor deleted.
func TestOlderRecordWithoutProof(t *testing.T) {
	b := newBench(t, "w-1")
	at := b.clock.Add(-100 * time.Hour)
	b.cloud.AddVolume("old/data", "somebody's", "")
	b.inherit(slot.Record{HostName: "w-1", State: slot.Released, ReleasedAt: &at}, "old/data")
	s := b.reconcile()
	if why := s.DiskErrors["w-1/data"]; !strings.Contains(why, "nothing proves") || b.cloud.Contents()["old/data"] != "somebody's" {
		t.Errorf("%q, %v", why, b.cloud.Contents())
	}
	if _, err := b.pool.Claim(context.Background(), request("a")); err == nil {
		t.Error("the slot was given away")
	}
}
