package disk

import (
	"strings"
	"testing"
	"time"
)

var (
	now    = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	past   = now.Add(-time.Second)
	future = now.Add(time.Minute)
)

func rec(phase Phase, edit ...func(*Record)) Record {
	r := Record{HostName: "w-1", Name: "data", Volume: "shared/w-1/data", SizeGiB: 10, Phase: phase}
	if phase == Absent {
		r.Volume = ""
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func identity(id string) func(*Record) { return func(r *Record) { r.Identity = id } }
func owner(mark string) func(*Record) {
	return func(r *Record) { r.OwnerName, r.OwnerMark = "m-"+mark, mark }
}
func operation(ref string) func(*Record) { return func(r *Record) { r.Operation = ref } }
func failed(from Phase, retry time.Time) func(*Record) {
	return func(r *Record) { r.Phase, r.Interrupted, r.RetryAfter, r.LastError = Error, from, &retry, "before" }
}

var (
	toUse     = Want{Purpose: Use, SizeGiB: 10, OwnerName: "m-a", OwnerMark: "a"}
	toReclaim = Want{Purpose: Reclaim}
	toKeep    = Want{Purpose: Keep}
)

func found(id string, marked bool) Observation {
	return Observation{Looked: true, Found: true, Identity: id, SizeGiB: 10, Marked: marked}
}

func scanned(o Observation, holder string) Observation {
	o.Scanned, o.Holder = true, holder
	return o
}

func TestNext(t *testing.T) {
	lookedNothing := Observation{Looked: true}
	for _, c := range []struct {
		name  string
		rec   Record
		want  Want
		seen  Observation
		phase Phase
		act   Act
		// says is part of the error left in the record.
		says string
	}{
		// VS-D3: the address is chosen and written down before the volume is created.
		{"absent is planned", rec(Absent), toUse, Observation{}, Absent, Plan, ""},
		{"planned is written down, then created", rec(Absent), toUse, Observation{Planned: "shared/x"}, Creating, Create, ""},
		{"a tombstone starts anew", rec(Reclaimed, identity("u1")), toUse, Observation{Planned: "shared/x"}, Creating, Create, ""},
		// VS-D14: after a crash the record says Creating and the volume may or may not exist.
		{"creating looks first", rec(Creating, owner("a")), toUse, Observation{}, Creating, Look, ""},
		{"creating and nothing there", rec(Creating, owner("a")), toUse, lookedNothing, Creating, Create, ""},
		{"something unmarked is never taken", rec(Creating, owner("a")), toUse, found("u1", false), Error, Stop, "not overwritten"},
		{"marked is taken after a scan", rec(Creating, owner("a")), toUse, found("u1", true), Creating, Scan, ""},
		{"marked and free is ours", rec(Creating, owner("a")), toUse, scanned(found("u1", true), ""), Creating, Ready, ""},
		{"marked and attached elsewhere waits", rec(Creating, owner("a")), toUse, scanned(found("u1", true), "vm-x"), Error, Wait, "vm-x"},
		{"our own create needs no scan", rec(Creating, owner("a")), toUse, Observation{Created: true, Looked: true, Found: true, Identity: "u1", Marked: true}, Creating, Ready, ""},
		{"created and not there contradicts itself", rec(Creating, owner("a")), toUse, Observation{Created: true, Looked: true}, Error, Wait, "does not find"},
		{"no identity, no use (VS-D18)", rec(Creating, owner("a")), toUse, Observation{Created: true, Looked: true, Found: true, Marked: true}, Error, Wait, "no identity"},
		{"created before, waits to be attached", rec(Creating, owner("a"), identity("u1")), toUse, Observation{}, Creating, Ready, ""},
		// VS-D49: operations are asynchronous and survive restarts.
		{"operation is asked for", rec(Creating, operation("t1")), toUse, Observation{}, Creating, Poll, ""},
		{"operation runs", rec(Creating, operation("t1")), toUse, Observation{Progress: Running}, Creating, Wait, ""},
		{"operation failed (VS-B15)", rec(Creating, operation("t1")), toUse, Observation{Progress: Failed, Failure: "no space"}, Error, Wait, "no space"},
		{"operation succeeded", rec(Creating, operation("t1")), toUse, Observation{Progress: Succeeded, Created: true}, Creating, Look, ""},
		{"operation forgotten", rec(Creating, operation("t1")), toUse, Observation{Progress: Forgotten}, Creating, Look, ""},
		// Re-attach on replacement (5.8).
		{"available is looked at", rec(Available, identity("u1")), toUse, Observation{}, Available, Look, ""},
		{"available and scanned", rec(Available, identity("u1")), toUse, found("u1", true), Available, Scan, ""},
		{"available and free", rec(Available, identity("u1")), toUse, scanned(found("u1", false), ""), Available, Ready, ""},
		{"available and attached elsewhere", rec(Available, identity("u1")), toUse, scanned(found("u1", true), "vm-x"), Error, Wait, "vm-x"},
		{"another identity is another disk (VS-D4)", rec(Available, identity("u1")), toUse, found("u2", true), Error, Stop, "another disk"},
		// VS-D25: a lost disk is never replaced by a blank one.
		{"available and lost", rec(Available, identity("u1")), toUse, lookedNothing, Error, Stop, "gone"},
		{"created and lost", rec(Creating, identity("u1"), owner("b")), toUse, lookedNothing, Error, Stop, "gone"},
		{"attached is its owner's", rec(Attached, identity("u1"), owner("a")), toUse, Observation{}, Attached, Ready, ""},
		{"attached is nobody else's", rec(Attached, identity("u1"), owner("b")), toUse, Observation{}, Attached, Wait, ""},
		{"reclaiming is not used (VS-A12)", rec(Reclaiming, identity("u1")), toUse, Observation{}, Reclaiming, Wait, ""},
		// Errors wait, then go on where they were interrupted.
		{"error rests", rec(Error, failed(Creating, future)), toUse, Observation{}, Error, Wait, "before"},
		{"error resumes", rec(Error, failed(Creating, past)), toUse, Observation{}, Creating, Look, "before"},
		// Reclaim (5.10).
		{"nothing to reclaim", rec(Absent), toReclaim, Observation{}, Absent, Gone, ""},
		{"never while attached", rec(Attached, identity("u1"), owner("a")), toReclaim, Observation{}, Attached, Wait, ""},
		{"never while owned", rec(Available, identity("u1"), owner("a")), toReclaim, scanned(found("u1", true), ""), Available, Wait, ""},
		{"reclaim is written down first (VS-D43)", rec(Available, identity("u1")), toReclaim, Observation{}, Reclaiming, Look, ""},
		{"reclaim scans (VS-D44)", rec(Available, identity("u1")), toReclaim, found("u1", true), Reclaiming, Scan, ""},
		{"still attached (VS-D44)", rec(Reclaiming, identity("u1")), toReclaim, scanned(found("u1", true), "vm-x"), Error, Wait, "still attached to server vm-x"},
		{"reclaim deletes", rec(Reclaiming, identity("u1")), toReclaim, scanned(found("u1", true), ""), Reclaiming, Delete, ""},
		{"another disk is not deleted", rec(Reclaiming, identity("u1")), toReclaim, scanned(found("u2", true), ""), Error, Stop, "another disk"},
		{"an unproven disk is not deleted", rec(Reclaiming), toReclaim, scanned(found("u1", false), ""), Error, Stop, "nothing proves"},
		{"not found counts as gone (VS-D47)", rec(Reclaiming, identity("u1")), toReclaim, lookedNothing, Reclaimed, Gone, ""},
		{"delete failed (VS-B14)", rec(Reclaiming, identity("u1"), operation("t1")), toReclaim, Observation{Progress: Failed, Failure: "cannot delete file"}, Error, Wait, "cannot delete"},
		{"a lost disk can be reclaimed", rec(Error, identity("u1"), failed(Available, past)), toReclaim, lookedNothing, Reclaimed, Gone, ""},
		// Keep: a repaired disk frees its slot.
		{"kept as it is", rec(Available, identity("u1")), toKeep, Observation{}, Available, Idle, ""},
		{"error is looked at again", rec(Error, identity("u1"), failed(Available, past)), toKeep, Observation{}, Error, Look, "before"},
		{"repaired", rec(Error, identity("u1"), failed(Available, past)), toKeep, found("u1", true), Available, Idle, ""},
		// A deletion that was decided is taken back (VS-A12, decision D19).
		{"spared after a look", rec(Reclaiming, identity("u1")), toKeep, Observation{}, Reclaiming, Look, ""},
		{"spared", rec(Reclaiming, identity("u1")), toKeep, found("u1", true), Available, Idle, ""},
		{"spared after an error", rec(Error, identity("u1"), failed(Reclaiming, past)), toKeep, found("u1", true), Available, Idle, ""},
		{"spared too late", rec(Reclaiming, identity("u1")), toKeep, lookedNothing, Reclaimed, Gone, ""},
		{"another disk is not spared as this one", rec(Reclaiming, identity("u1")), toKeep, found("u2", true), Error, Stop, "another disk"},
		{"a deletion under way is followed", rec(Reclaiming, identity("u1"), operation("t1")), toKeep, Observation{Progress: Running}, Reclaiming, Wait, ""},
		{"still lost", rec(Error, identity("u1"), failed(Available, past)), toKeep, lookedNothing, Error, Stop, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, act := Next(c.rec, c.want, c.seen, now)
			if got.Phase != c.phase || act != c.act || !strings.Contains(got.LastError, c.says) {
				t.Errorf("got %s, %s, %q; wanted %s, %s, %q", got.Phase, act, got.LastError, c.phase, c.act, c.says)
			}
			if got.Phase == Error && c.rec.Phase != Error && (got.RetryAfter == nil || !got.RetryAfter.After(now)) {
				t.Errorf("an error without a pause: %+v", got)
			}
			if act == Ready && (got.Identity == "" || got.OwnerMark != "a" || got.LastError != "") {
				t.Errorf("ready as %+v", got)
			}
		})
	}
}

func TestAttachAndRelease(t *testing.T) {
	unit := int32(1)
	r, err := Attach(rec(Creating, identity("u1"), owner("a")), "m-a", "a", "shared/w-1/data", "u1", &unit, now)
	if err != nil || r.Phase != Attached || *r.Unit != 1 {
		t.Fatalf("attach: %+v, %v", r, err)
	}
	// VS-D4: a move of the volume changes its address, its identity stays.
	moved, err := Attach(r, "m-a", "a", "other/data", "u1", &unit, now)
	if err != nil || moved.Volume != "other/data" {
		t.Errorf("moved: %+v, %v", moved, err)
	}
	if _, err := Attach(r, "m-a", "a", "shared/w-1/data", "u2", &unit, now); err == nil {
		t.Error("another identity was recorded as attached")
	}
	for _, c := range []struct {
		from Record
		to   Phase
	}{
		{r, Available},
		{rec(Creating, identity("u1"), owner("a")), Available},
		{rec(Creating, owner("a")), Creating},
		{rec(Error, owner("a"), failed(Attached, future)), Error},
	} {
		got := Release(c.from, now)
		if got.Phase != c.to || got.OwnerMark != "" || got.OwnerName != "" {
			t.Errorf("released %+v is %+v, wanted %s", c.from, got, c.to)
		}
	}
}
