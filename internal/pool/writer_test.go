package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// VS-A15, promise 1: many machines claim at once while others change the pool; nobody gets a slot twice, everybody is answered,
// and one write serves many.
func TestConcurrentClaims(t *testing.T) {
	const slots, machines = 40, 60
	names := make([]string, slots)
	for i := range names {
		names[i] = fmt.Sprintf("w-%02d", i)
	}
	b := newBench(t, names...)
	meddled := 0
	b.store.meddle = func(s *store) {
		if meddled < 10 {
			meddled++
			s.version++
		}
	}
	given := make([]string, machines)
	errs := make([]error, machines)
	var all sync.WaitGroup
	for i := range machines {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 5 {
				place, err := b.pool.Claim(context.Background(), request(fmt.Sprintf("m-%02d", i)))
				given[i], errs[i] = place.HostName, err
				if err == nil || reasonOf(err) == machine.ReasonNoAvailableSlots {
					return
				}
			}
		}()
	}
	all.Wait()
	holders := map[string]string{}
	for i, name := range given {
		switch {
		case errs[i] != nil && reasonOf(errs[i]) != machine.ReasonNoAvailableSlots:
			t.Errorf("machine %d: %v", i, errs[i])
		case errs[i] == nil && holders[name] != "":
			t.Errorf("slot %s was given to %s and machine %d", name, holders[name], i)
		case errs[i] == nil:
			holders[name] = fmt.Sprintf("m-%02d", i)
			if r := b.store.record(name); r.State != slot.Held || r.Holder.Name != holders[name] {
				t.Errorf("slot %s is on record as %+v, given to %s", name, r, holders[name])
			}
		}
	}
	if len(holders) != slots {
		t.Errorf("%d slots were given, wanted %d", len(holders), slots)
	}
	if b.store.saves > 20 {
		t.Errorf("%d writes for %d machines: they were not coalesced", b.store.saves, machines)
	}
	t.Logf("%d writes, %d conflicts, %d reads", b.store.saves, b.store.refused, b.store.loads)
}

// VS-A3, VS-A14: the claim is durable when it is given, with the consumer, and idempotent.
func TestClaimIsDurable(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.store.fail = errors.New("the API server is down")
	if got, err := b.pool.Claim(context.Background(), request("a")); err == nil {
		t.Fatalf("%s was given although nothing was written", got.HostName)
	}
	if got, err := b.pool.Claim(context.Background(), request("a")); err == nil {
		t.Fatalf("asked again, %s was given although nothing was written", got.HostName)
	}
	b.store.fail = nil
	first := b.claim("a")
	b.restart()
	again := b.claim("a")
	if first.HostName != "w-1" || again.HostName != "w-1" || b.store.state.Consumer == nil || b.store.state.Consumer.Name != "md-0" || b.store.saves != 1 {
		t.Errorf("given %s, then %s; consumer %+v; %d writes", first.HostName, again.HostName, b.store.state.Consumer, b.store.saves)
	}
	other := request("b")
	other.Consumer = &slot.Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: "md-1"}
	if _, err := b.pool.Claim(context.Background(), other); reasonOf(err) != machine.ReasonPoolBound || !strings.Contains(err.Error(), "md-0") {
		t.Errorf("VS-A4: %v", err)
	}
	b.claim("b")
	if _, err := b.pool.Claim(context.Background(), request("c")); reasonOf(err) != machine.ReasonNoAvailableSlots || !machine.Is(err, machine.Busy) {
		t.Errorf("VS-A9: %v", err)
	}
	b.store.edit(func(s *pool.State) { s.Deleting = true; s.Slots = append(s.Slots, place("w-3")) })
	if _, err := b.pool.Claim(context.Background(), request("c")); reasonOf(err) != machine.ReasonPoolDeleting {
		t.Errorf("a pool being deleted gives slots: %v", err)
	}
	b.store.gone = true
	b.restart()
	if _, err := b.pool.Claim(context.Background(), request("c")); !machine.Is(err, machine.NotFound) {
		t.Errorf("a pool that is gone: %v", err)
	}
}

// Writes that conflict beyond the budget are given up, not lost.
func TestConflictBudget(t *testing.T) {
	b := newBench(t, "w-1")
	b.store.meddle = func(s *store) { s.version++ }
	if _, err := b.pool.Claim(context.Background(), request("a")); !machine.Is(err, machine.Busy) {
		t.Errorf("%v", err)
	}
	b.store.meddle = nil
	if got := b.claim("a"); got.HostName != "w-1" {
		t.Errorf("given %s", got.HostName)
	}
}

// VS-D13, VS-D15, VS-D16: written down, created, identity read back, observed.
func TestDisksOfAPlace(t *testing.T) {
	b := newBench(t, "w-1")
	b.cloud.Async = true
	got := b.claim("a")
	if _, err := b.ensure("a", got); reasonOf(err) != machine.ReasonDisksProvisioning || !machine.Is(err, machine.Busy) {
		t.Fatalf("while it is being created: %v", err)
	}
	if d := b.store.disk("w-1"); d.Phase != disk.Creating || d.Volume == "" || d.Operation == "" || d.OwnerMark != "mark-a" {
		t.Errorf("written down: %+v", d)
	}
	b.restart()
	b.cloud.Tick()
	volumes, err := b.ensure("a", got)
	if err != nil || len(volumes) != 1 || volumes[0].Identity == "" || volumes[0].Disk != "data" {
		t.Fatalf("created: %+v, %v", volumes, err)
	}
	unit := int32(2)
	server := &machine.Server{Volumes: []machine.AttachedVolume{
		{Volume: volumes[0].Volume, Identity: volumes[0].Identity, Unit: &unit},
		{Volume: "vm-a/system", Identity: "s", Own: true},
		{Volume: "vm-a/scratch", Identity: "e", Own: true, Name: "scratch", Unit: &unit},
	}}
	if err := b.pool.Attached(context.Background(), holder("a"), server); err != nil {
		t.Fatal(err)
	}
	saves := b.store.saves
	if err := b.pool.Attached(context.Background(), holder("a"), server); err != nil || b.store.saves != saves {
		t.Errorf("the same observation was written twice: %v", err)
	}
	d := b.store.disk("w-1")
	if d.Phase != disk.Attached || *d.Unit != 2 || len(b.store.state.Ephemeral) != 1 || b.store.state.Ephemeral[0].Identity != "e" {
		t.Errorf("observed: %+v, %+v", d, b.store.state.Ephemeral)
	}
	if err := b.pool.Attached(context.Background(), holder("b"), server); !machine.Is(err, machine.NotFound) {
		t.Errorf("somebody without a slot recorded disks: %v", err)
	}
	if _, err := b.ensure("b", got); !machine.Is(err, machine.NotFound) {
		t.Errorf("somebody without the slot got its disks: %v", err)
	}
}

// VS-D6, VS-D4: a copy of a disk has its identity. Attached in place of the original it is not taken for the disk that was moved, or the original
// would be forgotten with its data; once nothing is at the old address, the disk is followed.
func TestCopyIsNoMove(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	b.cloud.Tick()
	volumes, err := b.ensure("a", got)
	if err != nil {
		t.Fatal(err)
	}
	original := volumes[0].Volume
	server := &machine.Server{Identity: machine.Identity{Name: "vm-a"}, Volumes: []machine.AttachedVolume{{Volume: "copies/data", Identity: volumes[0].Identity}}}
	err = b.pool.Attached(context.Background(), holder("a"), server)
	if !machine.Is(err, machine.Conflict) || !strings.Contains(err.Error(), original) || !strings.Contains(err.Error(), "copies/data") {
		t.Errorf("a copy is attached: %v", err)
	}
	if d := b.store.disk("w-1"); d.Volume != original {
		t.Errorf("the copy at %s went on record", d.Volume)
	}
	b.cloud.RemoveVolume(original)
	if err := b.pool.Attached(context.Background(), holder("a"), server); err != nil || b.store.disk("w-1").Volume != "copies/data" {
		t.Errorf("it was moved: %v, on record is %s", err, b.store.disk("w-1").Volume)
	}
}

// VS-D14, D17: what is at the address is adopted when its mark proves it, and left alone when nothing does.
func TestAdoptionNeedsProof(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	was := b.store.disk("w-1")
	b.store.edit(func(s *pool.State) { s.Disks = nil })
	b.restart()
	volumes, err := b.ensure("a", got)
	if err != nil || volumes[0].Identity != was.Identity {
		t.Errorf("the marked volume was not found again: %+v, %v", volumes, err)
	}
	if _, ok := b.happened(machine.EventVolumeAdopted); !ok {
		t.Errorf("events %+v", b.events)
	}

	c := newBench(t, "w-1")
	c.cloud.AddVolume("ns/demo-workers-w-1/data", "a stranger's", "")
	got = c.claim("a")
	if _, err := c.ensure("a", got); reasonOf(err) != machine.ReasonDiskError || !strings.Contains(err.Error(), "not overwritten") {
		t.Errorf("an unmarked volume: %v", err)
	}
	if c.cloud.Contents()["ns/demo-workers-w-1/data"] != "a stranger's" {
		t.Error("it was overwritten")
	}
	// Moved away by a human, the disk heals without further ado.
	c.cloud.RemoveVolume("ns/demo-workers-w-1/data")
	c.clock = c.clock.Add(10 * time.Minute)
	if _, err := c.ensure("a", got); err != nil {
		t.Errorf("after the stranger was moved away: %v", err)
	}
}

// A refusal of the platform is kept where people look.
func TestDiskTroublesAreTold(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.inhabit("a")
	b.leave("a")
	b.reconcile()
	lost := b.store.disk("w-1")
	b.cloud.RemoveVolume(lost.Volume)
	got := b.claim("b")
	if got.HostName != "w-1" {
		t.Fatalf("b was given %s", got.HostName)
	}
	if _, err := b.ensure("b", got); reasonOf(err) != machine.ReasonDiskError || !strings.Contains(err.Error(), "gone") {
		t.Errorf("VS-D25: %v", err)
	}
	b.leave("b")
	s := b.reconcile()
	if why := s.DiskErrors["w-1/data"]; !strings.Contains(why, "gone") {
		t.Errorf("the summary does not tell: %+v", s.DiskErrors)
	}
	// The next machine gets the other place; this one is held back and says why.
	if got := b.claim("c"); got.HostName != "w-2" {
		t.Errorf("c was given %s", got.HostName)
	}
	if _, err := b.pool.Claim(context.Background(), request("d")); err == nil || !strings.Contains(err.Error(), "w-1: disk data") {
		t.Errorf("%v", err)
	}
	// Reclaimed after the grace period, the place starts anew.
	b.clock = b.clock.Add(25 * time.Hour)
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Available {
		t.Errorf("after the reclaim: %+v, %+v", r, b.store.disk("w-1"))
	}
}

// Promise 1 and VS-D43 over random schedules: whatever order claims, vacations, reclaims, crashes and conflicts come in, a slot
// has one holder, and nobody holds a slot whose disks are going.
func TestRandomSchedules(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := newBench(t, "w-1", "w-2", "w-3")
		b.cloud.Async = rapid.Bool().Draw(r, "async")
		b.store.state.ReleaseDelay = time.Hour
		places := map[string]slot.Slot{}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			name := fmt.Sprintf("m-%d", rapid.IntRange(0, 4).Draw(r, "machine"))
			b.store.meddle = nil
			if left := rapid.IntRange(0, 3).Draw(r, "conflicts"); left > 0 {
				b.store.meddle = func(s *store) {
					if left--; left >= 0 {
						s.version++
					}
				}
			}
			switch rapid.SampledFrom([]string{"claim", "claim", "ensure", "leave", "reconcile", "tick", "hour", "restart"}).Draw(r, "event") {
			case "claim":
				b.facts.machines["owner-uid-"+name], b.facts.holders["mark-"+name] = true, true
				if got, err := b.pool.Claim(context.Background(), request(name)); err == nil {
					if have, had := places[name]; had && have.HostName != got.HostName {
						r.Fatalf("%s has %s and was given %s", name, have.HostName, got.HostName)
					}
					places[name] = got
				}
			case "ensure":
				if got, ok := places[name]; ok {
					_, _ = b.ensure(name, got)
				}
			case "leave":
				if _, ok := places[name]; ok {
					b.leave(name)
					delete(places, name)
				}
			case "reconcile":
				b.reconcile()
			case "tick":
				b.cloud.Tick()
			case "hour":
				b.clock = b.clock.Add(2 * time.Hour)
			case "restart":
				b.restart()
			}
			if v := b.cloud.Violations(); len(v) > 0 {
				r.Fatalf("%v", v)
			}
			for name, got := range places {
				rec := b.store.record(got.HostName)
				if rec.State != slot.Held || rec.Holder.Name != name {
					r.Fatalf("%s was given %s, on record is %+v", name, got.HostName, rec)
				}
				if d := b.store.disk(got.HostName); d.Phase == disk.Reclaiming {
					r.Fatalf("%s holds %s and its disk is being deleted: %+v", name, got.HostName, d)
				}
			}
		}
	})
}

// A place that is given back while its disks are being made gets no disk any more.
func TestNoDiskForAPlaceThatWasGivenBack(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.claim("a")
	b.store.meddle = func(s *store) {
		s.meddle = nil
		s.state.Records = []slot.Record{{HostName: "w-1", State: slot.Released, Holder: holder("a")}}
		s.version++
	}
	if _, err := b.ensure("a", got); !machine.Is(err, machine.NotFound) {
		t.Errorf("%v", err)
	}
	if len(b.cloud.Contents()) != 0 || len(b.store.state.Disks) != 0 {
		t.Errorf("volumes %v, records %+v", b.cloud.Contents(), b.store.state.Disks)
	}
}

func TestMarkNamesThePool(t *testing.T) {
	if namespace, name, ok := pool.Marked(pool.Mark("ns", "workers")); !ok || namespace != "ns" || name != "workers" {
		t.Errorf("%q, %q, %v", namespace, name, ok)
	}
	if _, _, ok := pool.Marked("0c6a5f7e-52d1-4f0e-8a41-000000000000"); ok {
		t.Error("a machine's mark was taken for a pool's")
	}
}

// D22: a place that two machines have on record is taken out of everything until a person has looked.
func TestContestedPlaceIsQuarantined(t *testing.T) {
	b := newBench(t, "w-1", "w-2")
	b.inhabit("a")
	ask := request("b")
	ask.HostName = "w-1"
	delete(b.facts.holders, "mark-a")
	if _, err := b.pool.Claim(context.Background(), ask); err == nil || b.store.record("w-1").State != slot.Held {
		t.Fatalf("a holder that is gone contests nothing: %v, %+v", err, b.store.record("w-1"))
	}
	b.facts.holders["mark-a"] = true
	for range 2 {
		_, err := b.pool.Claim(context.Background(), ask)
		if reasonOf(err) != machine.ReasonSlotQuarantined || strings.Count(err.Error(), "slot w-1") != 1 {
			t.Fatalf("b: %v", err)
		}
	}
	r := b.store.record("w-1")
	if r.State != slot.Quarantined || !strings.Contains(r.Contradiction, "machine a ") || !strings.Contains(r.Contradiction, "machine b") || r.Holder.Name != "a" {
		t.Errorf("%+v", r)
	}
	if s := b.reconcile(); s.Quarantined["w-1"] != r.Contradiction {
		t.Errorf("quarantined: %v", s.Quarantined)
	}
	if e, ok := b.happened(machine.ReasonSlotQuarantined); !ok || !e.Warning {
		t.Errorf("nobody was told: %+v", b.events)
	}
	b.leave("a")
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Quarantined || r.VacatedAt == nil {
		t.Errorf("given free without a person's word: %+v", r)
	}
	if got := b.claim("c"); got.HostName != "w-2" {
		t.Errorf("c was given %s", got.HostName)
	}
}
