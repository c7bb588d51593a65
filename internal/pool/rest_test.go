package pool_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// VS-V35: a disk in trouble that a machine has is not the pool's to retry; its retry time in the past must not make the pool
// look again every second.
func TestNoHotLoopForADiskOfAMachine(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.store.edit(func(s *pool.State) {
		past := b.clock.Add(-time.Minute)
		s.Disks[0].Interrupted, s.Disks[0].Phase = s.Disks[0].Phase, disk.Error
		s.Disks[0].LastError, s.Disks[0].RetryAfter = "the datastore is full", &past
	})
	if s := b.reconcile(); s.DiskErrors["w-1/data"] == "" || s.Next < 10*time.Second {
		t.Errorf("errors %v, looks again in %s", s.DiskErrors, s.Next)
	}
}

// The published reasons of PersistentDisksReady need to know what a disk was doing and whether it only waits for a detach.
func TestSummaryTellsReclaimsAndAttachmentsApart(t *testing.T) {
	b := newBench(t, "w-1")
	got := b.inhabit("a")
	b.leave("a")
	b.reconcile()
	b.cloud.Move(b.store.disk(got.HostName).Volume, "thief")
	b.clock = b.clock.Add(25 * time.Hour)
	s := b.reconcile()
	if s.Interrupted["w-1/data"] != disk.Reclaiming || !slices.Contains(s.StillAttached, "w-1/data") {
		t.Errorf("errors %v, interrupted %v, attached %v", s.DiskErrors, s.Interrupted, s.StillAttached)
	}
	b.cloud.Move(b.store.disk(got.HostName).Volume, "")
	b.cloud.RemoveVolume(b.store.disk(got.HostName).Volume)
	b.cloud.AddVolume(b.store.disk(got.HostName).Volume, "somebody else's", "")
	b.clock = b.clock.Add(time.Hour)
	if s = b.reconcile(); s.Interrupted["w-1/data"] != disk.Reclaiming || len(s.StillAttached) != 0 {
		t.Errorf("errors %v, interrupted %v, attached %v", s.DiskErrors, s.Interrupted, s.StillAttached)
	}
}

// What somebody else wrote counts at once when the writer was told to forget, without a second writer beside it.
func TestForgottenStateIsReadAnew(t *testing.T) {
	b := newBench(t, "w-1")
	b.inhabit("a")
	b.store.edit(func(s *pool.State) { s.Records = []slot.Record{slot.Quarantine(s.Records[0], "a person says so")} })
	if _, err := b.pool.Claim(context.Background(), request("a")); err != nil {
		t.Fatalf("the writer's memory is for this: %v", err)
	}
	b.pool.Forget()
	if _, err := b.pool.Claim(context.Background(), request("a")); reasonOf(err) != machine.ReasonSlotQuarantined {
		t.Errorf("after forgetting: %v", err)
	}
}
