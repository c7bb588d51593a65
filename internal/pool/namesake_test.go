package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Hazard H12, VS-A11: a new machine under an old one's name is another machine. It gets no say over the old one's slot, and the old
// one's slot is not given up, nor are its disks deleted, because of it.
func TestNamesakeHasNoSay(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "w-1", "w-2")
	b.inhabit("a")
	namesake := holder("a")
	namesake.UID, namesake.Mark, namesake.OwnerUID = "another", "another mark", "another owner"
	b.facts.holders["another mark"], b.facts.machines["another owner"] = true, true

	if v, err := b.pool.Volumes(ctx, namesake); !machine.Is(err, machine.NotFound) {
		t.Errorf("it is told of %v, %v", v, err)
	}
	_ = b.pool.Vacate(ctx, namesake)
	b.clock = b.clock.Add(100 * time.Hour)
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Held || r.Holder.Mark != "mark-a" || len(b.cloud.Contents()) != 1 {
		t.Fatalf("slot %+v, volumes %v", r, b.cloud.Contents())
	}
	asks := request("a")
	asks.Holder = namesake
	if got, err := b.pool.Claim(ctx, asks); err != nil || got.HostName != "w-2" {
		t.Errorf("it is given %s, %v", got.HostName, err)
	}
	// The old one is gone, the new one lives: that does not keep the old one's slot.
	b.leaveWithoutAWord("a")
	b.reconcile()
	if r := b.store.record("w-1"); r.State != slot.Released {
		t.Errorf("slot %+v", r)
	}
	if r := b.store.record("w-2"); r.State != slot.Held || r.Holder.Mark != "another mark" {
		t.Errorf("slot %+v", r)
	}
}
