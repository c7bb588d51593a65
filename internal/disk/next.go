package disk

import (
	"fmt"
	"strings"
	"time"
)

// Purpose is what the pool wants of a disk at the moment.
type Purpose string

const (
	// Keep it as it is: an operation in flight is followed, a deletion that was decided and not begun is taken back.
	Keep Purpose = "Keep"
	// Use it for the server of its slot's holder.
	Use Purpose = "Use"
	// Reclaim deletes it with its data.
	Reclaim Purpose = "Reclaim"
)

// Want is the wish in full. SizeGiB, OwnerName and OwnerMark are read for Use only.
type Want struct {
	Purpose              Purpose
	SizeGiB              int32
	OwnerName, OwnerMark string
}

// Progress of the operation in flight, as the platform reports it.
type Progress string

const (
	// NotAsked: the platform was not asked yet.
	NotAsked Progress = ""
	// Running: it works.
	Running Progress = "Running"
	// Succeeded: it ended well.
	Succeeded Progress = "Succeeded"
	// Failed: it ended badly.
	Failed Progress = "Failed"
	// Forgotten: the platform does not know the operation any more; only a look at the volume tells.
	Forgotten Progress = "Forgotten"
)

// Observation is what was seen in this pass. Its zero value says that nothing was asked yet.
type Observation struct {
	// Planned is the address that the platform chose.
	Planned string
	// Progress of Record.Operation and, when Failed, why.
	Progress Progress
	Failure  string
	// Created: our own create was seen to succeed in this pass, so nobody can have attached the volume yet.
	Created bool
	// Exists: our create was refused because something is at the address already.
	Exists bool
	// Looked: the volume was read; the following say what was there.
	Looked   bool
	Found    bool
	Identity string
	SizeGiB  int32
	// Marked: the mark beside the volume names exactly this disk of this place.
	Marked bool
	// Scanned: every server was asked, live, whether it has the volume; Holder is the one that has.
	Scanned bool
	Holder  string
}

// Act is what to do next. Before an act with an effect (Create, Delete) the record must be durable.
type Act string

const (
	// Idle: nothing to do.
	Idle Act = "Idle"
	// Plan: ask the platform for an address (Observation.Planned).
	Plan Act = "Plan"
	// Poll: ask for the operation in flight (Progress, Failure).
	Poll Act = "Poll"
	// Look: read the volume (Looked ...).
	Look Act = "Look"
	// Scan: ask, live, who has it attached (Scanned, Holder).
	Scan Act = "Scan"
	// Create the volume.
	Create Act = "Create"
	// Delete the volume.
	Delete Act = "Delete"
	// Wait: an operation runs, somebody else has the disk, or RetryAfter has not come.
	Wait Act = "Wait"
	// Stop: reality contradicts the record and a human must decide; it is looked at again after RetryAfter.
	Stop Act = "Stop"
	// Ready: the volume exists, its identity is on record, it is this owner's and nobody else has it.
	Ready Act = "Ready"
	// Gone: there is no volume (any more).
	Gone Act = "Gone"
)

// Pauses after failures; the published behaviour of the three cases.
const (
	retryFailed        = time.Minute
	retryStillAttached = 30 * time.Second
	retryStopped       = 5 * time.Minute
)

// Live reports whether a volume exists, or may exist, for the record.
func (r Record) Live() bool { return r.Phase != Absent && r.Phase != Reclaimed }

// Next decides the next step of one disk. It is called until it answers Idle, Wait, Stop, Ready or Gone; every other act adds
// to the observation. The record returned replaces the one given.
func Next(rec Record, want Want, seen Observation, now time.Time) (Record, Act) {
	if rec.Operation != "" {
		switch seen.Progress {
		case NotAsked:
			return rec, Poll
		case Running:
			return rec, Wait
		case Failed:
			rec.Operation = ""
			return Fail(rec, seen.Failure, retryFailed, now), Wait
		case Succeeded, Forgotten:
			rec.Operation = ""
		}
	}
	if rec.Phase == Error {
		if rec.RetryAfter != nil && now.Before(*rec.RetryAfter) {
			return rec, Wait
		}
		if want.Purpose == Keep {
			return recheck(rec, seen, now)
		}
		rec = resume(rec, now)
	}
	switch want.Purpose {
	case Use:
		return use(rec, want, seen, now)
	case Reclaim:
		return reclaim(rec, seen, now)
	case Keep:
		if rec.Phase == Reclaiming {
			return spare(rec, seen, now)
		}
	}
	return rec, Idle
}

// spare takes back the decision to delete a disk: what is left of it stays. Whether anything is left, only a look tells.
func spare(rec Record, seen Observation, now time.Time) (Record, Act) {
	switch {
	case !seen.Looked:
		return rec, Look
	case !seen.Found:
		return gone(rec, now), Gone
	case !same(rec, seen):
		return Fail(rec, foreign(rec, seen), retryStopped, now), Stop
	}
	rec.Phase, rec.Interrupted, rec.LastError, rec.RetryAfter, rec.Changed = Available, Absent, "", nil, now
	return rec, Idle
}

// recheck looks again at a disk in Error that nobody uses at the moment, so that a repaired one frees its slot.
func recheck(rec Record, seen Observation, now time.Time) (Record, Act) {
	if !seen.Looked && rec.Volume != "" {
		return rec, Look
	}
	if rec.Identity != "" || rec.Interrupted == Available {
		switch {
		case !seen.Found && rec.Interrupted != Reclaiming:
			return Fail(rec, lost(rec), retryStopped, now), Stop
		case seen.Found && !same(rec, seen):
			return Fail(rec, foreign(rec, seen), retryStopped, now), Stop
		}
	}
	rec = resume(rec, now)
	if rec.Phase == Reclaiming {
		return spare(rec, seen, now)
	}
	rec.LastError = ""
	return rec, Idle
}

func use(rec Record, want Want, seen Observation, now time.Time) (Record, Act) {
	switch rec.Phase {
	case Absent, Reclaimed:
		return intend(rec, want, seen, now)
	case Creating:
		switch {
		case rec.Volume == "":
			return intend(rec, want, seen, now)
		case rec.Identity == "":
			return create(rec, want, seen, now)
		case rec.OwnerMark == want.OwnerMark:
			return rec, Ready
		}
		return reuse(rec, want, seen, now)
	case Available:
		if rec.OwnerMark == want.OwnerMark && want.OwnerMark != "" {
			return rec, Ready
		}
		return reuse(rec, want, seen, now)
	case Attached:
		if rec.OwnerMark == want.OwnerMark {
			return rec, Ready
		}
		return rec, Wait
	case Reclaiming, Error:
	}
	return rec, Wait
}

// intend writes down where the volume will be, before it is created (VS-D3).
func intend(rec Record, want Want, seen Observation, now time.Time) (Record, Act) {
	if seen.Planned == "" {
		return rec, Plan
	}
	return Record{
		HostName: rec.HostName, Name: rec.Name, Volume: seen.Planned, SizeGiB: want.SizeGiB,
		Phase: Creating, OwnerName: want.OwnerName, OwnerMark: want.OwnerMark, Changed: now,
	}, Create
}

// create finishes a creation that was written down, whatever happened since (VS-D14). What is found at the address is taken
// only if the mark beside it says that it is this disk and no server has it.
func create(rec Record, want Want, seen Observation, now time.Time) (Record, Act) {
	switch {
	case !seen.Looked:
		return rec, Look
	case !seen.Found && (seen.Created || seen.Exists):
		return Fail(rec, fmt.Sprintf("the platform says that %s was created or exists, and does not find it", rec.Volume), retryFailed, now), Wait
	case !seen.Found:
		return rec, Create
	case !seen.Marked:
		return Fail(rec, fmt.Sprintf("something is at %s already and nothing says that it is this disk: move it away or mark it; it is not overwritten", rec.Volume), retryStopped, now), Stop
	case seen.Identity == "":
		return Fail(rec, fmt.Sprintf("the platform reports no identity of %s", rec.Volume), retryFailed, now), Wait
	case !seen.Created && !seen.Scanned:
		return rec, Scan
	case seen.Holder != "":
		return Fail(rec, stillAttached(rec, seen.Holder), retryStillAttached, now), Wait
	}
	return own(rec, want, seen, now), Ready
}

// reuse takes an existing volume for a new holder of the place: it must be there, be the
// one on record, and be attached to nobody.
func reuse(rec Record, want Want, seen Observation, now time.Time) (Record, Act) {
	switch {
	case !seen.Looked:
		return rec, Look
	case !seen.Found:
		return Fail(rec, lost(rec), retryStopped, now), Stop
	case !same(rec, seen):
		return Fail(rec, foreign(rec, seen), retryStopped, now), Stop
	case !seen.Scanned:
		return rec, Scan
	case seen.Holder != "":
		return Fail(rec, stillAttached(rec, seen.Holder), retryStillAttached, now), Wait
	}
	return own(rec, want, seen, now), Ready
}

func reclaim(rec Record, seen Observation, now time.Time) (Record, Act) {
	switch {
	case !rec.Live():
		return rec, Gone
	case rec.Phase == Attached || rec.OwnerMark != "" || rec.OwnerName != "":
		return rec, Wait
	case rec.Volume == "":
		return Record{HostName: rec.HostName, Name: rec.Name, Phase: Reclaimed, Changed: now}, Gone
	}
	if rec.Phase != Reclaiming {
		rec.Phase, rec.Changed = Reclaiming, now
	}
	switch {
	case !seen.Looked:
		return rec, Look
	case !seen.Found:
		return gone(rec, now), Gone
	case !same(rec, seen):
		return Fail(rec, foreign(rec, seen), retryStopped, now), Stop
	case !seen.Scanned:
		return rec, Scan
	case seen.Holder != "":
		return Fail(rec, stillAttached(rec, seen.Holder), retryStillAttached, now), Wait
	}
	return rec, Delete
}

// gone is the tombstone of a disk that is proven deleted.
func gone(rec Record, now time.Time) Record {
	rec.Phase, rec.Interrupted, rec.LastError, rec.RetryAfter, rec.Changed = Reclaimed, Absent, "", nil, now
	return rec
}

// same: by identity when one is on record, else by the mark beside the volume; never by size or unit (VS-D4).
func same(rec Record, seen Observation) bool {
	if rec.Identity != "" {
		return rec.Identity == seen.Identity
	}
	return seen.Marked && seen.Identity != ""
}

func own(rec Record, want Want, seen Observation, now time.Time) Record {
	rec.Identity = seen.Identity
	if seen.SizeGiB > 0 {
		rec.SizeGiB = seen.SizeGiB
	}
	rec.OwnerName, rec.OwnerMark = want.OwnerName, want.OwnerMark
	rec.LastError, rec.RetryAfter, rec.Interrupted = "", nil, Absent
	rec.Changed = now
	return rec
}

func stillAttached(rec Record, server string) string {
	return fmt.Sprintf("%s is still attached to server %s", rec.Volume, server)
}

// Attached reports whether a disk in Error only waits for a server to let go of it. The published record has no field for that;
// what is looked for is this package's own sentence.
func (r Record) Attached() bool {
	return r.Phase == Error && strings.HasPrefix(r.LastError, stillAttached(r, ""))
}

func lost(rec Record) string {
	return fmt.Sprintf("the data of this disk is gone: %s is on record and is not there. It is not replaced by a blank one: restore it, or release and reclaim the slot to start anew", rec.Volume)
}

func foreign(rec Record, seen Observation) string {
	if rec.Identity == "" {
		return fmt.Sprintf("something with the identity %q is at %s, and nothing proves that it is the disk on record: it is neither used nor deleted", seen.Identity, rec.Volume)
	}
	return fmt.Sprintf("%s is another disk than the one on record (identity %q, expected %q): it is neither used nor deleted", rec.Volume, seen.Identity, rec.Identity)
}

// Fail puts a record into Error for at least the given pause; the phase it came from is where it goes on.
func Fail(rec Record, why string, pause time.Duration, now time.Time) Record {
	if rec.Phase != Error {
		rec.Interrupted = rec.Phase
		rec.Changed = now
	}
	at := now.Add(pause)
	rec.Phase, rec.LastError, rec.RetryAfter = Error, why, &at
	return rec
}

// resume leaves Error for the interrupted phase.
func resume(rec Record, now time.Time) Record {
	rec.Phase, rec.Interrupted, rec.RetryAfter, rec.Changed = rec.Interrupted, Absent, nil, now
	if rec.Phase == Absent || rec.Phase == Error {
		rec.Phase = Creating
		if rec.Identity != "" {
			rec.Phase = Available
		}
	}
	return rec
}

// Attach records that the disk was observed on its owner's server (VS-D15). volume may differ from the address on record when
// the platform moved it; identity may not.
func Attach(rec Record, ownerName, ownerMark, volume, identity string, unit *int32, now time.Time) (Record, error) {
	if rec.Identity == "" || rec.Identity != identity {
		return rec, fmt.Errorf("disk %s of %s: identity %q observed, %q on record", rec.Name, rec.HostName, identity, rec.Identity)
	}
	if rec.Phase == Attached && rec.OwnerMark == ownerMark && rec.Volume == volume && sameUnit(rec.Unit, unit) {
		return rec, nil
	}
	rec.Phase, rec.Interrupted, rec.LastError, rec.RetryAfter = Attached, Absent, "", nil
	rec.OwnerName, rec.OwnerMark, rec.Volume, rec.Unit, rec.Changed = ownerName, ownerMark, volume, unit, now
	return rec, nil
}

func sameUnit(a, b *int32) bool { return a == b || a != nil && b != nil && *a == *b }

// Release takes the owner off a disk that is proven detached. A creation that was not finished stays one.
func Release(rec Record, now time.Time) Record {
	before := rec
	rec.OwnerName, rec.OwnerMark = "", ""
	if rec.Phase == Attached || rec.Phase == Creating && rec.Identity != "" {
		rec.Phase = Available
	}
	if rec.Phase == Error && rec.Interrupted == Attached {
		rec.Interrupted = Available
	}
	if rec.Phase != before.Phase || rec.OwnerMark != before.OwnerMark {
		rec.Changed = now
	}
	return rec
}
