// Package pool keeps one pool of places: it is the only writer of the pool's status in the process. Claims, disk intents and
// observations of all machines are queued, merged and written in one go with a version precondition; disks are created,
// adopted and reclaimed here, over machine.Platform; slots become claimable here, from facts.
//
// Nothing in it knows a platform or Kubernetes: a Store loads and saves the state, Facts answer what only the cluster knows.
package pool

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// ErrStale is what Store.Save answers when the pool changed since it was loaded.
var ErrStale = errors.New("the pool changed since it was read")

// ErrGone is what a Store answers when the pool does not exist.
var ErrGone = errors.New("the pool does not exist")

// State is one pool: what its spec declares (read only) and what its status records.
type State struct {
	Namespace, Name string
	// Cluster is the name of the cluster that the pool belongs to.
	Cluster string
	// Slots as declared, in order of preference. The Store resolves their location: the slot's, else the pool's, else that of
	// the template in use.
	Slots []slot.Slot
	// Invalid are slots that must not be given to a machine because their declaration is refused, by host name, with the sentence
	// that says why.
	Invalid map[string]string
	// ReleaseDelay is how long a released slot keeps its disks; the Store resolves the default (24 h).
	ReleaseDelay time.Duration
	// Deleting: the pool itself is being deleted, its disks go whatever the delay.
	Deleting bool
	// Retain: at deletion the volumes stay, marked, for a later pool of the same key.
	Retain bool

	// Lost: the pool was in use before, and its status is gone. Its slots may have data that no record speaks of.
	Lost bool
	// Inherited are the records of disks that older versions kept in other places. Each counts once: as soon as the disk is on
	// record, tombstone or not, its old record means nothing any more (VS-D51).
	Inherited []disk.Record

	// Everything below is status.

	Consumer  *slot.Consumer
	Records   []slot.Record
	Disks     []disk.Record
	Ephemeral []Ephemeral
}

// Ephemeral is what is known of one ephemeral disk of the current server of a slot.
type Ephemeral struct {
	HostName, Name string
	Unit           *int32
	Identity       string
}

// Key names the pool in messages.
func (s *State) Key() string { return s.Namespace + "/" + s.Name }

// Counters as published: slots declared, never used or emptied, and the rest.
func (s *State) Counters() (total, available, allocated int32) {
	for i := range s.Slots {
		total++
		if r := s.record(s.Slots[i].HostName); r == nil || r.State == slot.Available {
			available++
		}
	}
	return total, available, total - available
}

// Store reads and writes one pool. Load is a fresh, uncached read. Save replaces the status part and fails with ErrStale when
// version is not the current one; it returns after the write is durable.
type Store interface {
	Load(ctx context.Context) (state State, version string, err error)
	Save(ctx context.Context, state State, version string) error
}

// Facts answer what only the management and the workload cluster know. Every method is a live read; an error means "cannot
// tell", and nothing is freed on it.
type Facts interface {
	// MachineGone: the Cluster API Machine named by the holder's OwnerName and OwnerUID does not exist any more (another one of
	// the same name has another UID). A holder without owner is judged by its infrastructure machine.
	MachineGone(ctx context.Context, holder slot.Holder) (bool, error)
	// HolderGone: the infrastructure machine (by mark) does not exist any more, nor any object of ours that stands for its
	// server. Used to repair a slot whose holder vanished without giving it back. It is asked for every slot in use in every
	// pass, so a cache may answer no; only a yes must come from a live read.
	HolderGone(ctx context.Context, holder slot.Holder) (bool, error)
	// Node asks for the workload Node with the slot's host name, the holder's server being proven gone, and deletes a stale one
	// with a UID precondition.
	Node(ctx context.Context, hostName string, holder slot.Holder) (slot.NodeFact, error)
	// Occupants lists the machines whose own record says that they have a slot of this pool, by host name: from it a lost
	// status is rebuilt.
	Occupants(ctx context.Context) (map[string]slot.Holder, error)
	// Leaving lists, by the host name that their Nodes had, the Machines that still exist although their infrastructure machine is
	// gone: the slots they had are vacating, also when the pool's status was lost. OwnerName and OwnerUID name the Machine, UID is
	// any that tells the holder apart.
	Leaving(ctx context.Context) (map[string]slot.Holder, error)
	// Shape is the platform's description of servers in this pool, nil if none is known; it names default locations of volumes.
	Shape(ctx context.Context) (any, error)
}

// Summary is what one Reconcile of a pool found, for its conditions.
type Summary struct {
	State State
	// Vacating, with the reason why each is not free yet.
	Vacating map[string]string
	// Quarantined slots with the contradiction.
	Quarantined map[string]string
	// Reclaiming, Provisioning: disks ("host/disk") in these phases. DiskErrors: with the error.
	Reclaiming, Provisioning []string
	DiskErrors               map[string]string
	// Interrupted is what the disks in DiskErrors were doing; StillAttached names those that only wait for a detach.
	Interrupted   map[string]disk.Phase
	StillAttached []string
	// Held: slots in use. KeptBack: released ones whose declaration is refused, so that no machine gets them.
	Held, KeptBack []string
	// Troubles: what could not be told or done this time, each in one sentence.
	Troubles []string
	// Empty: no volume of the pool exists any more (or all are retained): a pool being deleted may go.
	Empty bool
	// Next is when the pool wants to be looked at again without an event, 0 for never.
	Next time.Duration
}

// PlatformFor gives the platform of a pool. Its error says why it cannot be reached.
type PlatformFor func(ctx context.Context) (machine.Platform, error)
