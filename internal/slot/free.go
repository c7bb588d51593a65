package slot

import (
	"fmt"
	"time"
)

// NodeFact is what the workload cluster says about the Node of a slot's host name.
type NodeFact string

const (
	// NodeGone: there is none, or it belongs to the server that now has the place.
	NodeGone NodeFact = "Gone"
	// NodeStale: one is there; its deletion was asked for.
	NodeStale NodeFact = "Stale"
	// NodeUnknown: the workload cluster cannot be asked. A worker's slot waits.
	NodeUnknown NodeFact = "Unknown"
	// NodeUnaskable: it cannot be asked because no other control plane is left to ask; the slot goes on.
	NodeUnaskable NodeFact = "Unaskable"
	// NodeIrrelevant: the whole Cluster is being deleted.
	NodeIrrelevant NodeFact = "Irrelevant"
)

// Vacate gives up a slot whose server is gone. Both facts must come from live reads that fail closed (VS-A22, VS-A23); wait
// says what is missing, and then the record is unchanged.
func Vacate(rec Record, serverAbsent, disksDetached bool, now time.Time) (next Record, wait string) {
	switch {
	case rec.State != Held && rec.State != Quarantined:
		return rec, ""
	case !serverAbsent:
		return rec, "the server is not proven gone"
	case !disksDetached:
		return rec, "a disk of the slot is still attached to a server"
	}
	next = rec
	next.VacatedAt = &now
	if rec.State == Held {
		next.State = Vacating
	}
	return next, ""
}

// FreeFacts are what must be known before somebody else may have a slot.
type FreeFacts struct {
	// MachineGone: the previous holder's Machine, by name and UID, does not exist.
	MachineGone bool
	Node        NodeFact
}

// Free makes a vacated slot claimable: the previous Machine must be gone (until then Cluster API deletes the Node of this name)
// and the Node, too (otherwise the next kubelet registers into it). wait says what is missing.
func Free(rec Record, f FreeFacts, now time.Time) (next Record, wait string) {
	if rec.State != Vacating {
		return rec, ""
	}
	if !f.MachineGone {
		return rec, fmt.Sprintf("Machine %s still exists", rec.Holder.OwnerName)
	}
	switch f.Node {
	case NodeGone, NodeUnaskable, NodeIrrelevant:
	case NodeStale:
		return rec, fmt.Sprintf("the old Node %s is being deleted", rec.HostName)
	case NodeUnknown:
		return rec, fmt.Sprintf("the workload cluster cannot be asked whether the old Node %s is gone", rec.HostName)
	default:
		return rec, fmt.Sprintf("nothing is known about the old Node %s", rec.HostName)
	}
	next = rec
	next.State = Released
	next.VacatedAt = nil
	next.ReleasedAt = &now
	return next, ""
}

// ReclaimAt is when a released slot's disks go (VS-D42); false while the slot is not released.
func ReclaimAt(rec Record, delay time.Duration) (time.Time, bool) {
	if rec.State != Released || rec.ReleasedAt == nil {
		return time.Time{}, false
	}
	return rec.ReleasedAt.Add(delay), true
}

// Reclaim takes a released slot out of allocation before its disks are deleted (VS-D43): the write of this record, with a
// version precondition, decides between a claim and the reclaim.
func Reclaim(rec Record, now time.Time, delay time.Duration) (next Record, due bool) {
	at, released := ReclaimAt(rec, delay)
	if !released || now.Before(at) {
		return rec, false
	}
	next = rec
	next.State = Reclaiming
	return next, true
}

// Empty makes a slot new again after its last disk is gone (VS-D48).
func Empty(rec Record) Record {
	if rec.State != Reclaiming {
		return rec
	}
	return Record{HostName: rec.HostName, State: Available}
}

// Spare takes back the decision to delete a slot's disks, because somebody wants them kept: whatever is left of them waits for a
// successor again (VS-A12).
func Spare(rec Record, now time.Time) Record {
	if rec.State != Reclaiming {
		return rec
	}
	rec.State = Released
	if rec.ReleasedAt == nil {
		rec.ReleasedAt = &now
	}
	return rec
}

// Prunable reports whether the record of a slot that is not declared any more may be forgotten, once none of its disks has
// anything behind it (VS-A17).
func Prunable(rec Record) bool { return rec.State == Available || rec.State == Released }

// Quarantine takes a slot out of everything until a human has looked.
func Quarantine(rec Record, contradiction string) Record {
	rec.State = Quarantined
	rec.Contradiction = contradiction
	return rec
}

// Unbindable reports whether a pool may forget its consumer (VS-A5): no slot in use, vacating, released or in trouble, and no
// volume left.
func Unbindable(records []Record, liveVolumes int) bool {
	if liveVolumes > 0 {
		return false
	}
	for _, r := range records {
		if r.State != Available && r.State != "" {
			return false
		}
	}
	return true
}

// Evidence is what is true of slots without a record, by host name: all that is left when a pool's status was lost.
type Evidence struct {
	// Occupants are the machines whose own record names the slot.
	Occupants map[string]Holder
	// Leaving are last holders that are gone while their Machines still stand: Cluster API deletes the Node of this name with
	// the Machine.
	Leaving map[string]Holder
	// Data: a persistent disk of the slot exists.
	Data map[string]bool
}

// Rebuild completes the records of a pool: one for every declared slot, in the order of the declaration. A slot without a
// record is held by its occupant, else vacating while its last holder is leaving, else released if it has data (its grace
// period starts anew, because nobody knows when it began), else new. Records of slots that are not declared any more are kept
// at the end; who prunes them must prove first that nothing is left of them (VS-A17).
func Rebuild(slots []Slot, records []Record, seen Evidence, now time.Time) (next []Record, changed bool) {
	known := make(map[string]Record, len(records))
	for _, r := range records {
		known[r.HostName] = r
	}
	next = make([]Record, 0, len(slots))
	declared := make(map[string]bool, len(slots))
	for _, s := range slots {
		declared[s.HostName] = true
		r, ok := known[s.HostName]
		if !ok {
			r = seen.record(s.HostName, now)
			changed = true
		}
		next = append(next, r)
	}
	for _, r := range records {
		if !declared[r.HostName] {
			next = append(next, r)
		}
	}
	return next, changed
}

func (e Evidence) record(hostName string, now time.Time) Record {
	if h, occupied := e.Occupants[hostName]; occupied {
		return Record{HostName: hostName, State: Held, Holder: h}
	}
	if h, left := e.Leaving[hostName]; left {
		return Record{HostName: hostName, State: Vacating, Holder: h, VacatedAt: &now}
	}
	if e.Data[hostName] {
		return Record{HostName: hostName, State: Released, ReleasedAt: &now}
	}
	return Record{HostName: hostName, State: Available}
}

// Complete reports whether every declared slot has a record, so that no look at the occupants is needed.
func Complete(slots []Slot, records []Record) bool {
	known := make(map[string]bool, len(records))
	for _, r := range records {
		known[r.HostName] = true
	}
	for _, s := range slots {
		if !known[s.HostName] {
			return false
		}
	}
	return true
}
