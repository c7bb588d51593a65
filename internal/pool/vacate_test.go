package pool_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/berth-dev/berth/internal/slot"
)

// VS-A24: giving a place back is one write with the slot and its disks in it, and doing it again, as after a crash, changes nothing:
// neither while the slot waits, nor when it is free, nor when the next machine has it.
func TestGivingBackTwice(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, "w-1")
	b.inhabit("a")
	again := func(when string) {
		t.Helper()
		before, saves := b.store.state, b.store.saves
		b.restart()
		_ = b.pool.Vacate(ctx, holder("a"))
		if b.store.saves != saves || !reflect.DeepEqual(before, b.store.state) {
			t.Errorf("%s: it was %+v and is %+v", when, before, b.store.state)
		}
	}
	saves := b.store.saves
	if err := b.pool.Vacate(ctx, holder("a")); err != nil {
		t.Fatal(err)
	}
	if r, d := b.store.record("w-1"), b.store.disk("w-1"); b.store.saves != saves+1 || r.State != slot.Vacating || d.OwnerMark != "" {
		t.Fatalf("%d writes, slot %+v, disk %+v", b.store.saves-saves, r, d)
	}
	again("vacated")
	delete(b.facts.machines, "owner-uid-a")
	delete(b.facts.holders, "mark-a")
	b.reconcile()
	again("released")
	b.inhabit("b")
	again("the next one's")
}
