package slot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/chance"
)

func TestMain(m *testing.M) { chance.Main(m) }

// body is a machine as it really is, whatever any record says.
type body struct {
	Holder
	consumer int
	// place is what the machine's own record says, "" until that is written after the claim.
	place string
	// infra, capi, server, node: its objects, its server and its Node exist. leaving: it is being deleted.
	infra, capi, server, node, leaving bool
	// vacated: the pool was told that the server is proven gone.
	vacated bool
}

// lives is a pool, its machines and what is really on the platform. Decisions are made by the package on what the facts say; the
// test knows the truth and compares.
type lives struct {
	clock    time.Time
	slots    []Slot
	removed  []Slot
	records  []Record
	consumer *Consumer
	machines []*body
	// data: a persistent disk of the host name exists. busy: its deletion runs.
	data, busy map[string]bool
	born       int
}

const delay = 24 * time.Hour

func newLives() *lives {
	l := &lives{clock: now, data: map[string]bool{}, busy: map[string]bool{}}
	for i, location := range []string{"dc-a", "dc-a", "dc-b", ""} {
		l.slots = append(l.slots, Slot{HostName: fmt.Sprintf("w-%d", i+1), Location: location})
	}
	l.records, _ = Rebuild(l.slots, nil, Evidence{}, l.clock)
	return l
}

func (l *lives) record(hostName string) *Record {
	for i := range l.records {
		if l.records[i].HostName == hostName {
			return &l.records[i]
		}
	}
	return nil
}

func (l *lives) declared(hostName string) bool {
	return slices.ContainsFunc(l.slots, func(s Slot) bool { return s.HostName == hostName })
}

// some draws one of the machines that the filter lets through, or skips the step.
func (l *lives) some(t *rapid.T, filter func(*body) bool) *body {
	var fit []*body
	for _, m := range l.machines {
		if filter(m) {
			fit = append(fit, m)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such machine")
	}
	return rapid.SampledFrom(fit).Draw(t, "machine")
}

// someRecord draws a record in one of the states.
func (l *lives) someRecord(t *rapid.T, states ...State) *Record {
	var fit []int
	for i, r := range l.records {
		if slices.Contains(states, r.State) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such slot")
	}
	return &l.records[rapid.SampledFrom(fit).Draw(t, "slot")]
}

func (l *lives) body(h Holder) *body {
	for _, m := range l.machines {
		if m.Same(h) {
			return m
		}
	}
	return nil
}

var consumers = []Consumer{md0, md1}

func (l *lives) view() View {
	v := View{Pool: "ns/p", Cluster: "demo", Slots: l.slots, Records: slices.Clone(l.records), Busy: map[string]string{}}
	if l.consumer != nil {
		c := *l.consumer
		v.Consumer = &c
	}
	for host := range l.busy {
		v.Busy[host] = "a disk is being deleted"
	}
	return v
}

// create makes a machine, under a name that may have been another's before (VS-A11).
func (l *lives) create(t *rapid.T) {
	name := fmt.Sprintf("m-%d", rapid.IntRange(0, 5).Draw(t, "name"))
	if len(l.machines) > 12 || slices.ContainsFunc(l.machines, func(m *body) bool { return m.Name == name && (m.infra || m.capi) }) {
		t.Skip("the name is taken")
	}
	l.born++
	id := fmt.Sprintf("%s#%d", name, l.born)
	l.machines = append(l.machines, &body{
		Holder:   Holder{Name: name, UID: "uid-" + id, Mark: "uid-" + id, OwnerName: name, OwnerUID: "owner-" + id},
		consumer: rapid.IntRange(0, len(consumers)-1).Draw(t, "consumer"), infra: true, capi: true,
	})
}

// move restores a machine's objects from a copy: UIDs change, the mark does not (decision D16).
func (l *lives) move(t *rapid.T) {
	m := l.some(t, func(m *body) bool { return m.infra })
	l.born++
	m.UID = fmt.Sprintf("moved-%d", l.born)
}

func (l *lives) claim(t *rapid.T) {
	m := l.some(t, func(m *body) bool { return m.infra && m.capi && !m.leaving })
	before := l.view()
	consumer := consumers[m.consumer]
	if rapid.Bool().Draw(t, "re-created consumer") {
		consumer.APIVersion = "cluster.x-k8s.io/v1beta2" // same name, another object: VS-A2
	}
	request := Request{
		Holder: m.Holder, Consumer: &consumer, Cluster: "demo", HostName: m.place,
		Location: rapid.SampledFrom([]string{"", "*", "dc-a", "dc-b"}).Draw(t, "location"),
	}
	choice, skipped, err := Pick(before, request)
	if err != nil {
		if len(skipped) > 0 && len(skipped) != len(l.slots) {
			t.Fatalf("%v names %d of %d slots", err, len(skipped), len(l.slots))
		}
		return
	}
	l.judge(t, m, before, request, choice)
	*l.record(choice.Slot.HostName) = choice.Record
	c := choice.Consumer
	l.consumer = &c
	if rapid.IntRange(0, 3).Draw(t, "crash before the own record") > 0 {
		m.place = choice.Slot.HostName
	}
}

// judge holds a choice against the truth.
func (l *lives) judge(t *rapid.T, m *body, before View, request Request, choice Choice) {
	host := choice.Slot.HostName
	was := *l.record(host)
	if before.Consumer != nil && !was.Holder.Same(m.Holder) && !before.Consumer.Same(*request.Consumer) {
		t.Fatalf("VS-A4: %s of %s was given %s of a pool of %s", m.Name, request.Consumer, host, before.Consumer)
	}
	if l.busy[host] || was.State == Reclaiming {
		t.Fatalf("VS-A12: %s was given %s while its disks are being deleted", m.Name, host)
	}
	for _, other := range l.machines {
		if other != m && other.server && other.place == host {
			t.Fatalf("hazard H8: %s was given %s, where the server of %s is", m.Name, host, other.Name)
		}
	}
	if m.place != "" && m.place != host {
		t.Fatalf("%s is recorded in %s and was given %s", m.Name, m.place, host)
	}
	if was.Holder.Same(m.Holder) && was.State != Released {
		return
	}
	if was.State != Released && was.State != Available {
		t.Fatalf("%s was given %s, which is %s by %s", m.Name, host, was.State, was.Holder.Name)
	}
	if m.place != "" {
		return
	}
	if want := request.Location; want != "" && want != "*" && choice.Slot.Location != "" && choice.Slot.Location != want && !was.Holder.Same(m.Holder) {
		t.Fatalf("%s wants %s and was given %s in %s", m.Name, want, host, choice.Slot.Location)
	}
	if was.State == Available {
		for _, s := range l.slots {
			fits := anywhere(request.Location) || s.Location == "" || s.Location == request.Location
			if r := l.record(s.HostName); fits && r.State == Released && !l.busy[s.HostName] {
				t.Fatalf("VS-A9: %s was given the new slot %s although %s is released", m.Name, host, s.HostName)
			}
		}
	}
}

// start makes the server of a machine that has a place on record, as the engine does, and with it data.
func (l *lives) start(t *rapid.T) {
	m := l.some(t, func(m *body) bool {
		if m.server || m.vacated || m.leaving || m.place == "" {
			return false
		}
		r := l.record(m.place)
		return r != nil && r.State == Held && r.Holder.Same(m.Holder)
	})
	m.server, m.node = true, true
	if rapid.Bool().Draw(t, "with a persistent disk") {
		l.data[m.place] = true
	}
}

// vacate gives a slot back by the facts that could be had: what cannot be asked counts as there (VS-A22, VS-A23).
func (l *lives) vacate(t *rapid.T) {
	m := l.some(t, func(m *body) bool { return m.leaving || !m.infra })
	for i := range l.records {
		r := &l.records[i]
		if !r.Holder.Same(m.Holder) || r.State != Held && r.State != Quarantined {
			continue
		}
		absent := rapid.Bool().Draw(t, "can be asked for the server") && !m.server
		detached := rapid.Bool().Draw(t, "can be asked for the disks") && !m.server
		next, wait := Vacate(*r, absent, detached, l.clock)
		if (wait == "") != (absent && detached) {
			t.Fatalf("VS-A22: vacated %+v; server absent %v, disks detached %v", *r, absent, detached)
		}
		m.vacated = m.vacated || wait == ""
		*r = next
	}
}

// forsake ends the infrastructure machine: in order when its place is given back, or by force at any time.
func (l *lives) forsake(t *rapid.T) {
	m := l.some(t, func(m *body) bool { return m.infra })
	m.infra, m.leaving = false, true
}

func (l *lives) free(t *rapid.T) {
	r := l.someRecord(t, Vacating, Vacating, Held, Quarantined, Released, Reclaiming)
	facts := FreeFacts{Node: NodeUnknown}
	if m := l.body(r.Holder); rapid.Bool().Draw(t, "can be asked") {
		facts = FreeFacts{MachineGone: m == nil || !m.capi, Node: NodeGone}
		if m != nil && m.node {
			facts.Node = NodeStale
		}
	}
	next, wait := Free(*r, facts, l.clock)
	if m := l.body(r.Holder); wait == "" && next.State != r.State && m != nil && (m.capi || m.node || m.server) {
		t.Fatalf("hazard H7: freed %+v of %+v", *r, *m)
	}
	*r = next
}

// lose empties the status, and rebuilds it from what machines and platform say.
func (l *lives) lose(t *rapid.T) {
	seen := Evidence{Occupants: map[string]Holder{}, Leaving: map[string]Holder{}, Data: l.data}
	for _, m := range l.machines {
		switch {
		case m.place == "" || m.vacated && !m.infra && !m.capi:
		case m.infra || m.server: // its VSphereMachine, or the object that stands for its server
			seen.Occupants[m.place] = m.Holder
		case m.capi:
			seen.Leaving[m.place] = m.Holder
		}
	}
	l.records, _ = Rebuild(l.slots, nil, seen, l.clock)
	l.consumer = nil
	for _, m := range l.machines {
		if r := l.record(m.place); m.infra && m.place != "" && r != nil && (r.State != Held || !r.Holder.Same(m.Holder)) {
			t.Fatalf("promise 5: %s had %s, which was rebuilt as %+v", m.Name, m.place, *r)
		}
	}
}

func (l *lives) check(t *rapid.T) {
	chance.Step()
	holds, seen := map[string]string{}, map[string]bool{}
	for _, r := range l.records {
		if seen[r.HostName] {
			t.Fatalf("two records of %s", r.HostName)
		}
		seen[r.HostName] = true
		switch r.State {
		case Held, Vacating, Quarantined:
			if r.Holder.Mark == "" {
				break
			}
			if other, twice := holds[r.Holder.Mark]; twice {
				t.Fatalf("promise 1: %s has %s and %s", r.Holder.Name, other, r.HostName)
			}
			holds[r.Holder.Mark] = r.HostName
		case Available:
			if l.data[r.HostName] {
				t.Fatalf("promise 2: %s has data and became Available without a reclaim", r.HostName)
			}
		case Released, Reclaiming:
		}
		if r.State == Released && r.ReleasedAt == nil {
			t.Fatalf("%s is released and nobody knows since when", r.HostName)
		}
	}
	for _, m := range l.machines {
		if !m.server {
			continue
		}
		r := l.record(m.place)
		if r == nil || !r.Holder.Same(m.Holder) || r.State != Held && r.State != Quarantined {
			t.Fatalf("hazard H7: the server of %s is in %s, on record is %+v", m.Name, m.place, r)
		}
	}
	for host := range l.busy {
		if r := l.record(host); r == nil || r.State != Reclaiming {
			t.Fatalf("the disks of %s are being deleted, on record is %+v", host, r)
		}
	}
}

// TestLives: promise 1, hazard H7, hazard H8 and hazard H12 over random lives of a pool: machines of two owners that come, go, vanish by
// force and come back under old names; facts that cannot be had; slots added and removed; deletions of disks begun, ended and
// taken back; quarantines; a status that is lost and rebuilt.
func TestLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLives()
		t.Repeat(map[string]func(*rapid.T){
			"":          l.check,
			"create":    l.create,
			"move":      l.move,
			"claim":     l.claim,
			"claim too": l.claim,
			"start":     l.start,
			"delete":    func(t *rapid.T) { l.some(t, func(m *body) bool { return m.infra && !m.leaving }).leaving = true },
			"server goes": func(t *rapid.T) {
				l.some(t, func(m *body) bool { return m.server }).server = false
			},
			"vacate":  l.vacate,
			"forsake": l.forsake,
			"machine goes": func(t *rapid.T) {
				l.some(t, func(m *body) bool { return m.capi && !m.infra }).capi = false
			},
			"node goes": func(t *rapid.T) { l.some(t, func(m *body) bool { return m.node && !m.server }).node = false },
			"free":      l.free,
			"wait": func(t *rapid.T) {
				l.clock = l.clock.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour)
			},
			"reclaim": func(t *rapid.T) {
				r := l.someRecord(t, Released, Held, Vacating, Available)
				next, due := Reclaim(*r, l.clock, delay)
				if due && (r.State != Released || l.clock.Sub(*r.ReleasedAt) < delay) {
					t.Fatalf("VS-D42: reclaims %+v", *r)
				}
				if *r = next; due && l.data[r.HostName] {
					l.busy[r.HostName] = true
				}
			},
			"reclaim ends": func(t *rapid.T) {
				r := l.someRecord(t, Reclaiming)
				delete(l.data, r.HostName)
				delete(l.busy, r.HostName)
				*r = Empty(*r)
			},
			"spare": func(t *rapid.T) {
				r := l.someRecord(t, Reclaiming)
				delete(l.busy, r.HostName)
				*r = Spare(*r, l.clock)
			},
			"quarantine": func(t *rapid.T) {
				r := l.someRecord(t, Held)
				*r = Quarantine(*r, "two machines claim it")
			},
			"decide": func(t *rapid.T) {
				r := l.someRecord(t, Quarantined)
				r.State, r.Contradiction = Held, ""
				if r.VacatedAt != nil {
					r.State = Vacating
				}
			},
			"unbind": func(*rapid.T) {
				if Unbindable(l.records, len(l.data)) {
					l.consumer = nil
				}
			},
			"remove slot": func(t *rapid.T) { // whatever admission says: webhooks can be off
				if len(l.slots) < 2 {
					t.Skip("the last one")
				}
				i := rapid.IntRange(0, len(l.slots)-1).Draw(t, "which")
				l.removed = append(l.removed, l.slots[i])
				l.slots = slices.Delete(slices.Clone(l.slots), i, i+1)
			},
			"put slot back": func(t *rapid.T) {
				if len(l.removed) == 0 {
					t.Skip("none")
				}
				l.slots = append(slices.Clone(l.slots), l.removed[0])
				l.removed = l.removed[1:]
				l.records, _ = Rebuild(l.slots, l.records, Evidence{Data: l.data}, l.clock)
			},
			"prune": func(*rapid.T) { // VS-A17
				l.records = slices.DeleteFunc(l.records, func(r Record) bool {
					return !l.declared(r.HostName) && Prunable(r) && !l.data[r.HostName]
				})
			},
			"lose": func(t *rapid.T) {
				if len(l.removed) > 0 || len(l.busy) > 0 {
					t.Skip("the record of a removed slot is all that there is of it")
				}
				l.lose(t)
			},
			"bury": func(*rapid.T) { // nothing is left of these
				l.machines = slices.DeleteFunc(l.machines, func(m *body) bool {
					return !m.infra && !m.capi && !m.server && !m.node && !slices.ContainsFunc(l.records, func(r Record) bool {
						return r.Holder.Same(m.Holder) && r.State != Released && r.State != Reclaiming
					})
				})
			},
		})
	})
}
