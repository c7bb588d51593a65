package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// result is one case.
type result struct {
	VCenter  string `json:"vcenter"`
	Machines int    `json:"machines"`
	// CPUs of the machine that measured.
	CPUs int `json:"cpus"`
	// Create is from the creation of the first VSphereMachine until all are ready and the manager rests.
	Create *phase `json:"create,omitempty"`
	// Rest is a time in which nothing happens.
	Rest *phase `json:"rest,omitempty"`
	// Restart is from the start of a new manager process beside the ready machines until it rests.
	Restart *phase `json:"restart,omitempty"`
	// Resync is one resync; Resyncs says how often each machine was looked at in it.
	Resync  *phase  `json:"resync,omitempty"`
	Resyncs float64 `json:"resyncs,omitempty"`
	// Delete is from the deletion of the first machine until all are gone, their slots free and the manager rests.
	Delete *phase `json:"delete,omitempty"`

	// Ready is from a machine's creation until Cluster API would see it ready, Gone from its deletion until it is gone.
	Ready *spread `json:"ready,omitempty"`
	Gone  *spread `json:"gone,omitempty"`
	// SlotsFree is from the first deletion until all slots are free, in seconds.
	SlotsFree float64 `json:"slotsFree,omitempty"`
	// Connections are all that the manager opened to vCenter from its start until the machines were ready.
	Connections int64 `json:"connections"`
	// PeakMemory of the process that created the machines (VmHWM), in bytes.
	PeakMemory int64 `json:"peakMemory"`
	// Violations are what the simulated vCenter saw that must never happen.
	Violations []string `json:"violations,omitempty"`
}

// phase is the difference of two samples; totals, not per machine.
type phase struct {
	Seconds float64 `json:"seconds"`
	// Calls to vCenter by method, the long poll included.
	Calls       counts `json:"calls"`
	Connections int64  `json:"connections"`
	// Writes are the manager's requests that change something, Conflicts those answered with 409; Events are not among either.
	Writes    int64 `json:"writes"`
	Conflicts int64 `json:"conflicts"`
	Events    int64 `json:"events"`
	// Reads are the manager's GET requests.
	Reads int64 `json:"reads"`
	// Objects are requests to the API server that change something, by verb and resource, from whomever but this program.
	Objects counts `json:"objects"`
	// Looks are the other requests to the API server likewise, watches not among them.
	Looks counts `json:"looks"`
	// Conflicted are those of Objects that were answered with 409.
	Conflicted counts  `json:"conflicted"`
	Reconciles counts  `json:"reconciles"`
	CPUSeconds float64 `json:"cpuSeconds"`
	// OtherCPUSeconds are those of the environment's other processes: API server, etcd, simulated vCenter, guests.
	OtherCPUSeconds map[string]float64 `json:"otherCPUSeconds"`
}

func between(a, b *sample) *phase {
	p := &phase{
		Seconds: b.at.Sub(a.at).Seconds(), Calls: b.calls.less(a.calls), Connections: b.connections - a.connections,
		Objects: counts{}, Looks: counts{}, Conflicted: b.conflicts.less(a.conflicts), Reconciles: b.reconciles.less(a.reconciles), CPUSeconds: b.cpu - a.cpu, OtherCPUSeconds: map[string]float64{},
	}
	for name, used := range b.others {
		p.OtherCPUSeconds[name] = used - a.others[name]
	}
	for kind, n := range b.resources.less(a.resources) {
		verb, resource, _ := strings.Cut(kind, " ")
		switch {
		case isWrite(kind) && resource != "":
			p.Objects[kind] = n
			if resource == "events" && verb != http.MethodDelete {
				p.Events += n
			}
		case (verb == http.MethodGet || verb == "LIST") && resource != "":
			p.Looks[kind] = n
		}
	}
	requests := b.requests.less(a.requests)
	p.Writes = requests.where(isWrite) - p.Events
	p.Conflicts = requests.where(isConflict) - p.Conflicted.where(func(kind string) bool { return strings.HasSuffix(kind, " events") })
	p.Reads = requests.where(func(kind string) bool { return strings.HasPrefix(kind, "GET ") })
	return p
}

// spread of durations, in seconds.
type spread struct {
	P50  float64 `json:"p50"`
	Last float64 `json:"last"`
}

// spreadOf pairs the times of two events. Last is the slowest machine's own time.
func spreadOf(from, to map[string]time.Time) *spread {
	var all []float64
	for name, begun := range from {
		if end, ok := to[name]; ok {
			all = append(all, end.Sub(begun).Seconds())
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return &spread{P50: all[(len(all)-1)/2], Last: all[len(all)-1]}
}

// measure runs one case from nothing to nothing. A case that fails on its way returns what it has measured so far.
func measure(ctx context.Context, o options, c cloud, n int, progress io.Writer) (r *result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within %s", o.timeout))
	defer cancel()
	w, err := newWorld(ctx, o, c, n, progress)
	defer func() { err = errors.Join(err, w.end(ctx, o.keep)) }()
	if err != nil {
		return nil, err
	}
	p, err := newProbe(ctx, w)
	if err != nil {
		return nil, err
	}
	r = &result{VCenter: c.Name, Machines: n, CPUs: runtime.NumCPU()}
	actor := newClusterAPI(w, n)
	for _, part := range []func(context.Context, options, *probe, *clusterAPI) error{r.create, r.rest, r.restart, r.delete} {
		if err := part(ctx, o, p, actor); err != nil {
			return r, err
		}
	}
	return r, r.check(ctx, w)
}

func (r *result) create(ctx context.Context, _ options, p *probe, actor *clusterAPI) error {
	if err := actor.watch(ctx); err != nil {
		return err
	}
	actor.say("making the cluster, a pool of %d slots and %d Machines", actor.count, actor.count)
	if err := actor.surroundings(ctx); err != nil {
		return err
	}
	before, err := p.settled(ctx)
	if err != nil {
		return err
	}
	actor.say("creating %d VSphereMachines", actor.count)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return actor.machines(inner) })
	group.Go(func() error { return actor.all(inner, actor.ready, "ready") })
	if err := group.Wait(); err != nil {
		for _, line := range actor.stuck(ctx) {
			actor.say("  %s", line)
		}
		return err
	}
	r.Ready = spreadOf(actor.created, actor.ready)
	actor.say("all are ready; the slowest took %.1f s", r.Ready.Last)
	after, err := p.settled(ctx)
	if err != nil {
		return err
	}
	r.Create, r.Connections = between(before, after), after.connections
	r.PeakMemory, err = actor.peakMemory(ctx)
	return err
}

func (r *result) rest(ctx context.Context, o options, p *probe, actor *clusterAPI) error {
	actor.say("watching them at rest for %s", o.rest)
	before, err := p.sample(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, o.rest); err != nil {
		return err
	}
	after, err := p.sample(ctx)
	if err != nil {
		return err
	}
	r.Rest = between(before, after)
	return nil
}

// restart measures a new process of the manager twice: while it starts, and through a resync.
func (r *result) restart(ctx context.Context, o options, p *probe, actor *clusterAPI) error {
	actor.say("restarting the manager")
	before, err := p.sample(ctx)
	if err != nil {
		return err
	}
	if err := actor.restartManager(ctx); err != nil {
		return err
	}
	// A process's own counters begin at nothing.
	before.requests, before.reconciles, before.cpu = nil, nil, 0
	if err := p.lookedAt(ctx, actor.count); err != nil {
		return err
	}
	after, err := p.settled(ctx)
	if err != nil {
		return err
	}
	r.Restart = between(before, after)

	actor.say("watching a resync, every %s instead of every 10 minutes", o.period)
	if err := actor.restartManager(ctx, "--sync-period="+o.period.String()); err != nil {
		return err
	}
	if err := p.lookedAt(ctx, actor.count); err != nil {
		return err
	}
	if before, err = p.settled(ctx); err != nil {
		return err
	}
	// An informer's first resync can be its second turn, and its period is lengthened or shortened by up to a tenth: wait for
	// the event itself.
	if err := p.passes(ctx, before, actor.count); err != nil {
		return err
	}
	if after, err = p.settled(ctx); err != nil {
		return err
	}
	r.Resync = between(before, after)
	r.Resyncs = float64(r.Resync.Reconciles[machineController]) / float64(actor.count)
	return actor.restartManager(ctx)
}

// machineController is the name of the controller of VSphereMachines in the manager's metrics.
const machineController = "vspheremachine"

// lookedAt waits until a new process has looked at every machine.
func (p *probe) lookedAt(ctx context.Context, machines int) error {
	return p.passes(ctx, &sample{}, machines)
}

// passes waits until the controller has made so many passes since a sample.
func (p *probe) passes(ctx context.Context, since *sample, machines int) error {
	return until(ctx, 200*time.Millisecond, "the manager has looked at every machine", func(ctx context.Context) (bool, error) {
		s, err := p.glance(ctx)
		return err == nil && s.reconciles[machineController]-since.reconciles[machineController] >= int64(machines), err
	})
}

func (r *result) delete(ctx context.Context, _ options, p *probe, actor *clusterAPI) error {
	if err := p.lookedAt(ctx, actor.count); err != nil {
		return err
	}
	before, err := p.settled(ctx)
	if err != nil {
		return err
	}
	actor.say("deleting the machines")
	begun := time.Now()
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return actor.remove(inner) })
	group.Go(func() error { return actor.release(inner) })
	if err := group.Wait(); err != nil {
		for _, line := range actor.stuck(ctx) {
			actor.say("  %s", line)
		}
		return err
	}
	r.Gone = spreadOf(actor.asked, actor.gone)
	if err := until(ctx, 100*time.Millisecond, "all slots are free", actor.slotsFree); err != nil {
		return err
	}
	r.SlotsFree = time.Since(begun).Seconds()
	actor.say("all are gone; the slowest took %.1f s", r.Gone.Last)
	after, err := p.settled(ctx)
	if err != nil {
		return err
	}
	r.Delete = between(before, after)
	return nil
}

// check asks the simulated vCenter whether it saw anything that must not happen, and whether anything is left.
func (r *result) check(ctx context.Context, w *world) error {
	seen, err := w.vcenter.Violations(ctx)
	if err != nil {
		return err
	}
	for _, v := range seen {
		r.Violations = append(r.Violations, fmt.Sprintf("%s: %s", v.Kind, v.Detail))
	}
	if len(seen) > 0 {
		return fmt.Errorf("the simulated vCenter saw %d violations, the first: %s", len(seen), r.Violations[0])
	}
	all, err := w.vcenter.World(ctx)
	if err != nil {
		return err
	}
	for _, vm := range all.VMs {
		if !vm.Template {
			return fmt.Errorf("virtual machine %s is left after its machine was deleted", vm.Path)
		}
	}
	return nil
}
