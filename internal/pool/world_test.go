package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/machine/memcloud"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// store is an API server with one pool: versions count, and an old version is refused. Before a save, meddle may do what
// others do meanwhile.
type store struct {
	mu      sync.Mutex
	state   pool.State
	version int
	saves   int
	loads   int
	refused int
	meddle  func(s *store)
	fail    error
	gone    bool
}

func (s *store) Load(context.Context) (pool.State, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if s.gone {
		return pool.State{}, "", pool.ErrGone
	}
	return s.state, fmt.Sprint(s.version), nil
}

func (s *store) Save(_ context.Context, state pool.State, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meddle != nil {
		s.meddle(s)
	}
	if s.fail != nil {
		return s.fail
	}
	if version != fmt.Sprint(s.version) {
		s.refused++
		return pool.ErrStale
	}
	s.state = state
	s.version++
	s.saves++
	return nil
}

func (s *store) record(hostName string) slot.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.state.Records {
		if r.HostName == hostName {
			return r
		}
	}
	return slot.Record{}
}

func (s *store) disk(hostName string) disk.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.state.Disks {
		if d.HostName == hostName {
			return d
		}
	}
	return disk.Record{}
}

func (s *store) edit(change func(*pool.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
	s.version++
}

// facts say what the test wants them to.
type facts struct {
	machines  map[string]bool // Machines that exist, by UID
	holders   map[string]bool // infrastructure machines that exist, by mark
	node      slot.NodeFact
	err       error
	occupants map[string]slot.Holder
	leaving   map[string]slot.Holder
	asked     atomic.Int32
	shape     any
}

func (f *facts) MachineGone(_ context.Context, h slot.Holder) (bool, error) {
	return !f.machines[h.OwnerUID], f.err
}

func (f *facts) HolderGone(_ context.Context, h slot.Holder) (bool, error) {
	return !f.holders[h.Mark], f.err
}

func (f *facts) Node(context.Context, string, slot.Holder) (slot.NodeFact, error) {
	return f.node, f.err
}

func (f *facts) Occupants(context.Context) (map[string]slot.Holder, error) {
	f.asked.Add(1)
	return f.occupants, f.err
}

func (f *facts) Leaving(context.Context) (map[string]slot.Holder, error) { return f.leaving, f.err }

func (f *facts) Shape(context.Context) (any, error) { return f.shape, nil }

// bench is a pool with everything around it.
type bench struct {
	t      *testing.T
	store  *store
	facts  *facts
	cloud  *memcloud.Cloud
	clock  time.Time
	events []machine.Event
	pool   *pool.Writer
	down   error
}

func newBench(t *testing.T, hostNames ...string) *bench {
	t.Helper()
	b := &bench{
		t: t, store: &store{}, cloud: memcloud.New(), clock: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC),
		facts: &facts{machines: map[string]bool{}, holders: map[string]bool{}, node: slot.NodeGone},
	}
	b.store.state = pool.State{Namespace: "ns", Name: "workers", Cluster: "demo", ReleaseDelay: 24 * time.Hour}
	for _, name := range hostNames {
		b.store.state.Slots = append(b.store.state.Slots, place(name))
	}
	b.restart()
	return b
}

// restart forgets everything that only the process knew.
func (b *bench) restart() {
	b.pool = pool.NewWriter(b.store, b.facts, func(context.Context) (machine.Platform, error) {
		if b.down != nil {
			return nil, b.down
		}
		return b.cloud, nil
	}, pool.Options{
		Now:  func() time.Time { return b.clock },
		Emit: func(e machine.Event) { b.events = append(b.events, e) },
	})
}

func place(hostName string) slot.Slot {
	return slot.Slot{
		HostName: hostName, Location: "dc-a",
		NICs:  []slot.NIC{{Network: "nodes", Addresses: []string{"10.0.0.1/24"}}},
		Disks: []slot.Disk{{Name: "data", SizeGiB: 10}, {Name: "scratch", SizeGiB: 1, Ephemeral: true}},
	}
}

func holder(name string) slot.Holder {
	return slot.Holder{Name: name, UID: "uid-" + name, Mark: "mark-" + name, OwnerName: "owner-" + name, OwnerUID: "owner-uid-" + name}
}

func request(name string) slot.Request {
	return slot.Request{
		Holder: holder(name), Cluster: "demo",
		Consumer: &slot.Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: "md-0"},
	}
}

// claim gives a machine a place, which must work.
func (b *bench) claim(name string) slot.Slot {
	b.t.Helper()
	b.facts.machines["owner-uid-"+name] = true
	b.facts.holders["mark-"+name] = true
	got, err := b.pool.Claim(context.Background(), request(name))
	if err != nil {
		b.t.Fatalf("claim for %s: %v", name, err)
	}
	return got
}

func (b *bench) ensure(name string, place slot.Slot) ([]machine.Volume, error) {
	return b.pool.Ensure(context.Background(), holder(name), machine.ServerSpec{Name: "vm-" + name, Place: &place, Location: "dc-a"})
}

// inhabit claims a place and makes its volumes.
func (b *bench) inhabit(name string) slot.Slot {
	b.t.Helper()
	got := b.claim(name)
	if _, err := b.ensure(name, got); err != nil {
		b.t.Fatalf("disks for %s: %v", name, err)
	}
	return got
}

// leave vacates a machine's place and lets its Machine go.
func (b *bench) leave(name string) {
	b.t.Helper()
	if err := b.pool.Vacate(context.Background(), holder(name)); err != nil {
		b.t.Fatal(err)
	}
	delete(b.facts.machines, "owner-uid-"+name)
	delete(b.facts.holders, "mark-"+name)
}

func (b *bench) reconcile() pool.Summary {
	b.t.Helper()
	s, err := b.pool.Reconcile(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) happened(reason string) (machine.Event, bool) {
	for _, e := range b.events {
		if e.Reason == reason {
			return e, true
		}
	}
	return machine.Event{}, false
}

func reasonOf(err error) string {
	var e *machine.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}
