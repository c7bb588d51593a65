package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/chance"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/machine/memcloud"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

func TestMain(m *testing.M) { chance.Main(m) }

// body is a machine as it is, whatever is on record. It does what the engine does, in the engine's order.
type body struct {
	slot.Holder
	// place is the machine's own record of its slot, nil before it is written.
	place *slot.Slot
	// infra, capi: its objects exist. leaving: it is being deleted. vacated: it gave its place back.
	infra, capi, leaving, vacated bool
	// forgotten: its VSphereVM is gone by force, too, so that nothing but the slot's record tells of its server; lost: that went.
	forgotten, lost bool
	server          string
	deployment      string
}

// pond is a pool with its writer, an API server, a cloud, and machines that live and die.
type pond struct {
	store    *store
	facts    *facts
	cloud    *memcloud.Cloud
	writer   *pool.Writer
	clock    time.Time
	machines []*body
	born     int
	// content is what must be on a place's disk: what its first server wrote. known: on record at the time.
	content map[string]string
	// due: the places whose data may go now.
	blind error
}

func newPond() *pond {
	p := &pond{
		store: &store{}, cloud: memcloud.New(), clock: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC), content: map[string]string{},
		facts: &facts{machines: map[string]bool{}, holders: map[string]bool{}, node: slot.NodeGone, shape: "a server"},
	}
	p.store.state = pool.State{Namespace: "ns", Name: "workers", Cluster: "demo", ReleaseDelay: 24 * time.Hour}
	for i := range 3 {
		p.store.state.Slots = append(p.store.state.Slots, place(fmt.Sprintf("w-%d", i+1)))
	}
	p.restart()
	return p
}

func (p *pond) restart() {
	p.writer = pool.NewWriter(p.store, p.facts, func(context.Context) (machine.Platform, error) {
		return p.cloud, p.blind
	}, pool.Options{Now: func() time.Time { return p.clock }, Linger: -1})
}

func (p *pond) some(t *rapid.T, filter func(*body) bool) *body {
	var fit []*body
	for _, m := range p.machines {
		if filter(m) {
			fit = append(fit, m)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such machine")
	}
	return rapid.SampledFrom(fit).Draw(t, "machine")
}

// know tells the facts what is true.
func (p *pond) know() {
	p.facts.machines, p.facts.holders = map[string]bool{}, map[string]bool{}
	p.facts.occupants, p.facts.leaving = map[string]slot.Holder{}, map[string]slot.Holder{}
	for _, m := range p.machines {
		if m.capi {
			p.facts.machines[m.OwnerUID] = true
		}
		// While its server is there, an object of ours stands for it, unless somebody has removed that by force.
		stands := m.infra || m.server != "" && !m.forgotten
		if stands {
			p.facts.holders[m.Mark] = true
		}
		switch {
		case m.place == nil || !p.declared(m.place.HostName):
		case stands:
			p.facts.occupants[m.place.HostName] = m.Holder
		case m.capi:
			p.facts.leaving[m.place.HostName] = m.Holder
		}
	}
}

func (p *pond) declared(hostName string) bool {
	return slices.ContainsFunc(p.store.state.Slots, func(s slot.Slot) bool { return s.HostName == hostName })
}

func (p *pond) create(t *rapid.T) {
	if len(p.machines) > 7 {
		t.Skip("enough")
	}
	p.born++
	id := fmt.Sprintf("m-%d", p.born)
	p.machines = append(p.machines, &body{
		Holder: slot.Holder{Name: id, UID: "uid-" + id, Mark: "mark-" + id, OwnerName: id, OwnerUID: "owner-" + id}, infra: true, capi: true,
		deployment: rapid.SampledFrom([]string{"md-0", "md-0", "md-1"}).Draw(t, "deployment"),
	})
}

func (p *pond) request(m *body) slot.Request {
	r := slot.Request{
		Holder: m.Holder, Cluster: "demo",
		Consumer: &slot.Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: m.deployment},
	}
	if m.place != nil {
		r.HostName = m.place.HostName
	}
	return r
}

// up carries a machine as far towards its start as it goes; it may die after every step.
func (p *pond) up(t *rapid.T) {
	ctx := context.Background()
	m := p.some(t, func(m *body) bool { return m.infra && m.capi && !m.leaving && m.server == "" && !m.vacated })
	dies := func() bool { return rapid.IntRange(0, 7).Draw(t, "dies") == 0 }
	got, err := p.writer.Claim(ctx, p.request(m))
	if err != nil || dies() {
		return
	}
	if m.place == nil {
		m.place = &got
	}
	p.know()
	if m.place.HostName != got.HostName {
		t.Fatalf("%s lives in %s and was given %s", m.Name, m.place.HostName, got.HostName)
	}
	if dies() {
		return
	}
	spec := machine.ServerSpec{Name: "vm-" + m.Name, Mark: machine.Mark(m.Mark), Place: m.place, Location: "dc-a"}
	p.cloud.Async = rapid.Bool().Draw(t, "volumes take their time")
	volumes, err := p.writer.Ensure(ctx, m.Holder, spec)
	p.cloud.Async = false
	if err != nil || dies() {
		return
	}
	host := m.place.HostName
	for _, v := range volumes {
		if want, had := p.content[host], p.cloud.Contents()[v.Volume]; want != had {
			t.Fatalf("hazard H9: %s gets a disk with %q in place of %q", host, had, want)
		}
	}
	if _, err := p.cloud.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	m.server = spec.Name
	p.know()
	server, err := p.cloud.LookupLive(ctx, machine.Identity{Mark: spec.Mark})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.cloud.Fit(ctx, server, machine.Fit{Spec: spec, Volumes: volumes}); err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	if _, err := p.cloud.PowerOn(ctx, server); err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes {
		p.content[host] = p.cloud.Contents()[v.Volume]
	}
	if dies() {
		return
	}
	if server, err = p.cloud.LookupLive(ctx, machine.Identity{Mark: spec.Mark}); err != nil {
		t.Fatal(err)
	}
	_ = p.writer.Attached(ctx, m.Holder, server) // a machine that cannot record it now does so in its next pass
}

// down ends a machine's server as the engine does, and gives its place back.
func (p *pond) down(t *rapid.T) {
	ctx := context.Background()
	m := p.some(t, func(m *body) bool { return m.leaving && m.infra && !m.vacated })
	if m.server != "" {
		server, err := p.cloud.LookupLive(ctx, machine.Identity{Mark: machine.Mark(m.Mark)})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.cloud.PowerOff(ctx, server, machine.PowerOffMode{}, p.clock)
		recorded, err := p.writer.Volumes(ctx, m.Holder)
		if err != nil {
			return // nothing is destroyed on a record that cannot be read
		}
		var take []machine.AttachedVolume
		for _, v := range server.Volumes {
			if !v.Own || slices.ContainsFunc(recorded, func(r machine.Volume) bool { return r.Volume == v.Volume }) {
				take = append(take, v)
			}
		}
		if _, err := p.cloud.Detach(ctx, server, take); err != nil {
			t.Fatal(err)
		}
		if _, err := p.cloud.Destroy(ctx, server); err != nil {
			t.Fatal(err)
		}
		m.server = ""
		p.know()
	}
	if rapid.IntRange(0, 5).Draw(t, "dies") == 0 {
		return
	}
	if err := p.writer.Vacate(ctx, m.Holder); err == nil || machine.Is(err, machine.NotFound) {
		m.vacated = true
	}
}

// reconcile is one pass over the pool. What it deletes must have been due.
func (p *pond) reconcile(t *rapid.T) {
	p.know()
	before := p.cloud.Contents()
	p.cloud.Async = rapid.Bool().Draw(t, "deletions take their time")
	_, err := p.writer.Reconcile(context.Background())
	p.cloud.Async = false
	if err != nil {
		return
	}
	p.gone(t, before)
}

// gone judges what has disappeared from the cloud.
func (p *pond) gone(t *rapid.T, before map[string]string) {
	now := p.cloud.Contents()
	for volume := range before {
		if _, still := now[volume]; still {
			continue
		}
		host := hostOf(volume)
		r := p.store.record(host)
		due := r.ReleasedAt != nil && p.clock.Sub(*r.ReleasedAt) >= p.store.state.ReleaseDelay
		if r.State != slot.Available && (r.State != slot.Reclaiming || !due) {
			t.Fatalf("promise 2: %s was deleted, its slot is %+v", volume, r)
		}
		delete(p.content, host)
	}
}

// hostOf is the place that memcloud puts into a volume's address.
func hostOf(volume string) string {
	_, host, _ := strings.Cut(volume, "workers-")
	host, _, _ = strings.Cut(host, "/")
	return host
}

func (p *pond) check(t *rapid.T) {
	chance.Step()
	if v := p.cloud.Violations(); len(v) > 0 {
		t.Fatalf("the cloud saw: %v", v)
	}
	state := p.store.state
	if len(state.Records) == 0 {
		return // lost, and not looked at yet
	}
	holds := map[string]string{}
	for _, r := range state.Records {
		switch r.State {
		case slot.Held, slot.Vacating, slot.Quarantined:
			if other, twice := holds[r.Holder.Mark]; twice {
				t.Fatalf("promise 1: %s has %s and %s", r.Holder.Name, other, r.HostName)
			}
			holds[r.Holder.Mark] = r.HostName
		case slot.Available:
			for _, d := range state.Disks {
				if d.HostName == r.HostName && d.Live() {
					t.Fatalf("promise 2: %s is new and has disk %+v", r.HostName, d)
				}
			}
			if p.content[r.HostName] != "" {
				t.Fatalf("promise 2: %s is new and has data", r.HostName)
			}
		case slot.Released, slot.Reclaiming:
		}
	}
	for _, m := range p.machines {
		if r := p.store.record(hostOfPlace(m)); m.server != "" && !m.lost && (!r.Holder.Same(m.Holder) || r.State != slot.Held && r.State != slot.Quarantined) {
			t.Fatalf("hazard H7: the server of %s is in %s, on record is %+v", m.Name, hostOfPlace(m), r)
		}
	}
	total, available, allocated := state.Counters()
	if int(total) != len(state.Slots) || available+allocated != total {
		t.Fatalf("counters %d, %d, %d of %d slots", total, available, allocated, len(state.Slots))
	}
}

func hostOfPlace(m *body) string {
	if m.place == nil {
		return ""
	}
	return m.place.HostName
}

// lose empties the status; every claim and every disk must come back as it was.
func (p *pond) lose(t *rapid.T) {
	for _, r := range p.store.state.Records {
		if r.State == slot.Quarantined || r.State == slot.Reclaiming || !p.declared(r.HostName) {
			t.Skip("nothing but the record knows of it")
		}
	}
	p.know()
	p.store.edit(func(s *pool.State) { s.Records, s.Disks, s.Ephemeral, s.Consumer, s.Lost = nil, nil, nil, nil, true })
	p.restart()
	p.blind, p.facts.err, p.store.fail, p.store.meddle = nil, nil, nil, nil
	if _, err := p.writer.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.store.edit(func(s *pool.State) { s.Lost = false })
	for _, m := range p.machines {
		m.lost = m.lost || m.forgotten
		if m.place == nil || m.lost || !m.infra && m.server == "" || m.vacated && !m.infra {
			continue
		}
		r := p.store.record(m.place.HostName)
		if !r.Holder.Same(m.Holder) {
			t.Fatalf("promise 5: %s had %s, rebuilt is %+v", m.Name, m.place.HostName, r)
		}
	}
	for host, content := range p.content {
		d := p.store.disk(host)
		if content != "" && p.declared(host) && (!d.Live() || p.cloud.Contents()[d.Volume] != content) {
			t.Fatalf("promise 5: the disk of %s is %+v", host, d)
		}
	}
}

// TestPoolLives: the promises over random lives of a whole pool: its one writer, its disks and its machines on a cloud that does what
// it is told. Machines of two owners come, go, and are forsaken at any step; writes are refused and questions not answered;
// deletions take their time and are taken back; slots are added and removed; the process starts anew; the status is lost.
func TestPoolLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPond()
		p.know()
		t.Repeat(map[string]func(*rapid.T){
			"":            p.check,
			"create":      p.create,
			"up":          p.up,
			"up too":      p.up,
			"down":        p.down,
			"reconcile":   p.reconcile,
			"reconcile 2": p.reconcile,
			"delete":      func(t *rapid.T) { p.some(t, func(m *body) bool { return m.infra && !m.leaving }).leaving = true },
			"infra goes": func(t *rapid.T) { // as its finalizer does, or by force
				m := p.some(t, func(m *body) bool { return m.infra && (m.vacated || m.leaving) })
				m.infra = false
				p.know()
			},
			"everything goes by force": func(t *rapid.T) {
				m := p.some(t, func(m *body) bool { return m.server != "" })
				m.infra, m.capi, m.leaving, m.forgotten = false, false, true, true
				p.know()
			},
			"machine goes": func(t *rapid.T) {
				p.some(t, func(m *body) bool { return m.capi && !m.infra }).capi = false
				p.know()
			},
			"bury": func(*rapid.T) {
				p.machines = slices.DeleteFunc(p.machines, func(m *body) bool {
					return !m.infra && !m.capi && m.server == "" && !slices.ContainsFunc(p.store.state.Records, func(r slot.Record) bool {
						return r.Holder.Same(m.Holder)
					})
				})
			},
			"a person removes a forsaken server": func(t *rapid.T) {
				m := p.some(t, func(m *body) bool { return !m.infra && m.server != "" })
				for volume := range p.cloud.Contents() {
					if hostOf(volume) == hostOfPlace(m) {
						p.cloud.Move(volume, "")
					}
				}
				p.cloud.Kill(m.server)
				m.server = ""
				p.know()
			},
			"node": func(t *rapid.T) {
				p.facts.node = rapid.SampledFrom([]slot.NodeFact{slot.NodeGone, slot.NodeStale, slot.NodeUnknown}).Draw(t, "node")
			},
			"facts": func(t *rapid.T) {
				if p.facts.err = nil; rapid.IntRange(0, 2).Draw(t, "cannot be had") == 0 {
					p.facts.err = errors.New("the API server does not answer")
				}
			},
			"platform": func(t *rapid.T) {
				if p.blind = nil; rapid.IntRange(0, 2).Draw(t, "unreachable") == 0 {
					p.blind = errors.New("the platform does not answer")
				}
			},
			"others write": func(t *rapid.T) {
				n := rapid.IntRange(1, 3).Draw(t, "times")
				p.store.meddle = func(s *store) {
					if n--; n >= 0 {
						s.version++
					}
				}
			},
			"writes fail": func(t *rapid.T) {
				if p.store.fail = nil; rapid.Bool().Draw(t, "they do") {
					p.store.fail = errors.New("etcd is full")
				}
			},
			"restart": func(*rapid.T) { p.restart() },
			"tick": func(t *rapid.T) {
				before := p.cloud.Contents()
				p.cloud.Tick()
				if rapid.Bool().Draw(t, "and forgets") {
					p.cloud.ForgetOperations()
				}
				p.gone(t, before)
			},
			"wait": func(t *rapid.T) {
				p.clock = p.clock.Add(time.Duration(rapid.IntRange(1, 30*60).Draw(t, "minutes")) * time.Minute)
			},
			"retain": func(t *rapid.T) {
				retain := rapid.IntRange(0, 3).Draw(t, "retain") == 0
				p.store.edit(func(s *pool.State) { s.Retain = retain })
			},
			"stranger": func(t *rapid.T) {
				d := p.store.disk(fmt.Sprintf("w-%d", rapid.IntRange(1, 3).Draw(t, "slot")))
				if d.Phase != disk.Available || d.OwnerMark != "" || d.Volume == "" || p.cloud.Identity(d.Volume) != d.Identity {
					t.Skip("no idle disk")
				}
				if slices.ContainsFunc(p.machines, func(m *body) bool { return m.lost && hostOfPlace(m) == d.HostName }) {
					t.Skip("a server that nothing knows of any more may have it")
				}
				p.cloud.Move(d.Volume, rapid.SampledFrom([]string{"thief", ""}).Draw(t, "to"))
			},
			"stranger lets go": func(*rapid.T) {
				for volume := range p.cloud.Contents() {
					if holders, _ := p.cloud.Holders(context.Background(), "dc-a", []machine.Volume{{Volume: volume}}); holders[volume] == "thief" {
						p.cloud.Move(volume, "")
					}
				}
			},
			"slots": func(t *rapid.T) { // what admission allows: a slot that was never used, or was emptied
				host := fmt.Sprintf("w-%d", rapid.IntRange(1, 4).Draw(t, "slot"))
				p.store.edit(func(s *pool.State) {
					i := slices.IndexFunc(s.Slots, func(have slot.Slot) bool { return have.HostName == host })
					switch state := slices.IndexFunc(s.Records, func(r slot.Record) bool { return r.HostName == host }); {
					case i < 0:
						s.Slots = append(slices.Clone(s.Slots), place(host))
					case len(s.Slots) > 1 && state >= 0 && s.Records[state].State == slot.Available:
						s.Slots = slices.Delete(slices.Clone(s.Slots), i, i+1)
					}
				})
				p.writer.Forget()
			},
			"lose": p.lose,
		})
	})
}
