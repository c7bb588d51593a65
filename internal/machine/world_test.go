package machine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/machine/memcloud"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// world is all that outlives a process of ours: the API server's objects, the cloud, the clock. Everything that a process does
// to it goes through its gate, which can kill the process or lose a message at any chosen step.
type world struct {
	t     *testing.T
	clock time.Time
	cloud *memcloud.Cloud
	gate  *gate

	mu       sync.Mutex
	objects  map[string]*object
	state    pool.State
	version  int
	machines map[string]bool // the Cluster API Machines that exist, by UID
	saves    int
}

// object is one infrastructure machine as the API server keeps it.
type object struct {
	name    string
	spec    *machine.ServerSpec
	notes   machine.Notes
	report  machine.Report
	deleted *time.Time
	gone    bool
	saves   int
}

// fault is what goes wrong at the chosen step.
type fault string

const (
	crashBefore fault = "crash before"
	crashAfter  fault = "crash after"
	failBefore  fault = "fail"
	loseReply   fault = "lose reply of"
	refuse      fault = "refuse"
)

var errDead = errors.New("the process is dead")

type gate struct {
	mu    sync.Mutex
	n     int
	at    int
	fault fault
	dead  bool
	where string
	trace []string
}

func (g *gate) do(what string, effect func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errDead
	}
	g.n++
	g.trace = append(g.trace, what)
	if g.n != g.at {
		return effect()
	}
	g.where = what
	broken := &machine.Error{Kind: machine.Broken, Message: "the network is down"}
	switch g.fault {
	case crashBefore:
		g.dead = true
		return errDead
	case crashAfter:
		_ = effect()
		g.dead = true
		return errDead
	case loseReply:
		_ = effect()
		return broken
	case refuse:
		return &machine.Error{Kind: machine.Refused, Message: "not today"}
	case failBefore:
	}
	return broken
}

// read is do for what has no effect. Dying before or after it is dying after or before the next thing that has one, and its reply
// is lost when it fails, so only a failure counts as a step.
func (g *gate) read(what string, call func() error) error {
	if g.fault == failBefore || g.fault == "" {
		return g.do(what, call)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errDead
	}
	return call()
}

func newWorld(t *testing.T, slots ...slot.Slot) *world {
	t.Helper()
	return &world{
		t: t, clock: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC), cloud: memcloud.New(), gate: &gate{},
		objects: map[string]*object{}, machines: map[string]bool{},
		state: pool.State{Namespace: "ns", Name: "workers", Cluster: "demo", Slots: slots, ReleaseDelay: 24 * time.Hour},
	}
}

func place(hostName, address string) slot.Slot {
	return slot.Slot{
		HostName: hostName, Location: "dc-a",
		NICs: []slot.NIC{{Network: "nodes", Addresses: []string{address}}},
		Disks: []slot.Disk{
			{Name: "data", SizeGiB: 10, MountPath: "/data", Filesystem: "ext4"},
			{Name: "raw", SizeGiB: 5},
			{Name: "scratch", SizeGiB: 1, Ephemeral: true},
		},
	}
}

func (w *world) now() time.Time { return w.clock }

// add creates an infrastructure machine and its Machine.
func (w *world) add(name string) *object {
	o := &object{name: name}
	w.objects[name] = o
	w.machines["owner-uid-"+name] = true
	return o
}

// process is one run of our program: an engine and a pool writer, nothing of which survives a crash.
type process struct {
	world  *world
	engine *machine.Engine
	pool   *pool.Writer
}

func (w *world) start() *process {
	w.gate.mu.Lock()
	w.gate.dead = false
	w.gate.mu.Unlock()
	p := &process{world: w, engine: &machine.Engine{Now: w.now}}
	p.pool = pool.NewWriter(store{w}, facts{w}, func(context.Context) (machine.Platform, error) { return gated{w.cloud, w.gate}, nil },
		pool.Options{Now: w.now, Linger: -1})
	return p
}

func (p *process) holder(name string) slot.Holder {
	return slot.Holder{Name: name, UID: "uid-" + name, Mark: "mark-" + name, OwnerName: "owner-" + name, OwnerUID: "owner-uid-" + name}
}

// life is what a controller would build for one pass.
func (p *process) life(o *object) (*machine.Life, error) {
	var notes machine.Notes
	var hint string
	err := p.world.gate.read("load "+o.name, func() error {
		p.world.mu.Lock()
		defer p.world.mu.Unlock()
		notes = o.notes
		if o.spec != nil {
			notes.Intended = true
			notes.Identity.Name, notes.Identity.Location = o.spec.Name, o.spec.Location
			hint = o.spec.Place.HostName
		}
		return nil
	})
	life := &machine.Life{
		Mark: machine.Mark("mark-" + o.name), Name: "ns/" + o.name, Platform: gated{p.world.cloud, p.world.gate}, Journal: journal{p.world, o},
		Notes: notes, Places: p.pool,
		Request: slot.Request{
			Holder: p.holder(o.name), Cluster: "demo", HostName: hint, Location: "dc-a",
			Consumer: &slot.Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: "md-0"},
		},
		UserData: func(context.Context) ([]byte, string, error) { return []byte("#cloud-config"), "cloud-config", nil },
	}
	if o.deleted != nil {
		life.DeletedAt = *o.deleted
	}
	return life, err
}

// pass lets the controller look at one machine once.
func (p *process) pass(o *object) machine.Report {
	ctx := context.Background()
	life, err := p.life(o)
	if err != nil {
		return machine.Report{Result: machine.Result{Outcome: machine.Wait}}
	}
	if o.deleted == nil {
		return p.engine.Create(ctx, life)
	}
	r := p.engine.Delete(ctx, life)
	if r.Outcome == machine.Done {
		_ = p.world.gate.do("finalizer "+o.name, func() error { o.gone = true; return nil })
	}
	return r
}

// journal keeps an object's notes as the API server would.
type journal struct {
	w *world
	o *object
}

func (j journal) Intend(_ context.Context, place *slot.Slot) (machine.ServerSpec, error) {
	if j.o.spec != nil {
		return *j.o.spec, nil
	}
	err := j.w.gate.do("intend "+j.o.name, func() error {
		j.o.spec = &machine.ServerSpec{Name: "vm-" + j.o.name, Mark: machine.Mark("mark-" + j.o.name), Location: "dc-a", Place: place}
		j.o.saves++
		return nil
	})
	if err != nil {
		return machine.ServerSpec{}, err
	}
	return *j.o.spec, nil
}

func (j journal) Save(_ context.Context, notes machine.Notes, report machine.Report) error {
	j.w.mu.Lock()
	same := notesEqual(j.o.notes, notes) && j.o.report.Reason == report.Reason && j.o.report.Message == report.Message
	j.w.mu.Unlock()
	if same {
		return nil
	}
	return j.w.gate.do("save "+j.o.name, func() error {
		j.w.mu.Lock()
		defer j.w.mu.Unlock()
		j.o.notes, j.o.report = notes, report
		j.o.saves++
		return nil
	})
}

func notesEqual(a, b machine.Notes) bool {
	return fmt.Sprintf("%+v", flat(a)) == fmt.Sprintf("%+v", flat(b))
}

func flat(n machine.Notes) string {
	text := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.String()
	}
	out := fmt.Sprint(n.Identity, n.Intended, n.CreateEnded, n.Operation, n.PoweredOn, n.Ready)
	return out + text(n.PowerOnAsked) + text(n.AbsentSince) + text(n.RetryAt)
}

// store keeps the pool as the API server would: a save with an old version is refused.
type store struct{ w *world }

func (s store) Load(context.Context) (pool.State, string, error) {
	var state pool.State
	var version string
	err := s.w.gate.read("load pool", func() error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		state, version = s.w.state, fmt.Sprint(s.w.version)
		return nil
	})
	return state, version, err
}

func (s store) Save(_ context.Context, state pool.State, version string) error {
	return s.w.gate.do("save pool", func() error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		if version != fmt.Sprint(s.w.version) {
			return pool.ErrStale
		}
		s.w.state = state
		s.w.version++
		s.w.saves++
		return nil
	})
}

// facts answer from the objects.
type facts struct{ w *world }

func (f facts) MachineGone(_ context.Context, h slot.Holder) (gone bool, err error) {
	err = f.w.gate.read("machine gone", func() error { gone = !f.w.machines[h.OwnerUID]; return nil })
	return gone, err
}

func (f facts) HolderGone(_ context.Context, h slot.Holder) (gone bool, err error) {
	err = f.w.gate.read("holder gone", func() error { o := f.w.objects[h.Name]; gone = o == nil || o.gone; return nil })
	return gone, err
}

func (f facts) Node(context.Context, string, slot.Holder) (fact slot.NodeFact, err error) {
	err = f.w.gate.read("node", func() error { fact = slot.NodeGone; return nil })
	return fact, err
}

func (f facts) Leaving(context.Context) (map[string]slot.Holder, error) { return nil, nil }

func (f facts) Occupants(context.Context) (map[string]slot.Holder, error) {
	out := map[string]slot.Holder{}
	err := f.w.gate.read("occupants", func() error {
		for _, o := range f.w.objects {
			if o.spec != nil && !o.gone {
				out[o.spec.Place.HostName] = (&process{}).holder(o.name)
			}
		}
		return nil
	})
	return out, err
}

func (f facts) Shape(context.Context) (any, error) { return nil, nil }
