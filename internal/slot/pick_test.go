package slot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	now = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	md0 = Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: "md-0", APIVersion: "cluster.x-k8s.io/v1beta1"}
	md1 = Consumer{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespace: "ns", Name: "md-1"}
)

func machine(name string) Holder {
	return Holder{Name: name, UID: "uid-" + name, Mark: "mark-" + name, OwnerName: name, OwnerUID: "owner-" + name}
}

func ask(name string, edit ...func(*Request)) Request {
	c := md0
	r := Request{Holder: machine(name), Consumer: &c, Cluster: "demo", Location: "dc-a"}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func view(records ...Record) View {
	c := md0
	return View{
		Pool: "ns/workers", Cluster: "demo", Consumer: &c,
		Slots:   []Slot{{HostName: "w-1", Location: "dc-a"}, {HostName: "w-2", Location: "dc-a"}, {HostName: "w-3", Location: "dc-b"}, {HostName: "w-4"}},
		Records: records,
	}
}

func record(hostName string, state State, holder string) Record {
	r := Record{HostName: hostName, State: state}
	if holder != "" {
		r.Holder = machine(holder)
	}
	return r
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		name    string
		view    View
		request Request
		gives   string
		changed bool
		// error is the type expected instead.
		error any
	}{
		{"VS-A9: released before available, in spec order", view(record("w-2", Released, "old")), ask("m"), "w-2", true, nil},
		{"available in spec order, no entry is available", view(record("w-1", Held, "x")), ask("m"), "w-2", true, nil},
		{"VS-A10, VS-B9: the slot it has", view(record("w-1", Held, "x"), record("w-2", Held, "m")), ask("m"), "w-2", false, nil},
		{"VS-A10: the slot it has, even outside its location", view(record("w-3", Held, "m")), ask("m"), "w-3", false, nil},
		{"VS-A10: its released slot is marked in use again", view(record("w-1", Released, "x"), record("w-2", Released, "m")), ask("m"), "w-2", true, nil},
		{"VS-A11: a name is no proof", view(Record{HostName: "w-2", State: Held, Holder: Holder{Name: "m", UID: "another"}}), ask("m"), "w-1", true, nil},
		{"VS-A11: a record without UID is not taken by name", view(Record{HostName: "w-1", State: Held, Holder: Holder{Name: "m"}}), ask("m"), "w-2", true, nil},
		{"a record without UID is taken when our own record names it", view(Record{HostName: "w-2", State: Held, Holder: Holder{Name: "m"}}), ask("m", named("w-2")), "w-2", true, nil},
		{"D16: after a move the UID differs, the mark does not", view(Record{HostName: "w-2", State: Held, Holder: Holder{Name: "m", UID: "before", Mark: "mark-m"}}), ask("m"), "w-2", true, nil},
		{"location decides", view(), ask("m", in("dc-b")), "w-3", true, nil},
		{"any location", view(record("w-1", Held, "x"), record("w-2", Held, "y")), ask("m", in("*")), "w-3", true, nil},
		{"failure domain decides", view(), ask("m", in(""), zone("z-b", "dc-b")), "w-3", true, nil},
		{"promise 5: lost status, own record names the slot", View{Pool: "p", Slots: view().Slots}, ask("m", named("w-3")), "w-3", true, nil},
		{"VS-A12: a slot being reclaimed is skipped", view(record("w-1", Reclaiming, "")), ask("m"), "w-2", true, nil},
		{"VS-A12: a slot whose disk is busy is skipped", held(view(), "w-1", "disk data is being deleted"), ask("m"), "w-2", true, nil},
		{"a vacating slot is not free", view(record("w-1", Vacating, "old")), ask("m"), "w-2", true, nil},
		{"a quarantined slot is not free", view(record("w-1", Quarantined, "old")), ask("m"), "w-2", true, nil},

		{"VS-A4: bound to another", view(), ask("m", from(&md1)), "", false, &PoolBoundToOtherConsumer{}},
		{"VS-A2: the API version is not part of identity", view(), ask("m", from(&Consumer{Group: md0.Group, Kind: md0.Kind, Namespace: "ns", Name: "md-0", APIVersion: "cluster.x-k8s.io/v1beta2"})), "w-1", true, nil},
		{"VS-A1: no consumer, no slot", view(), ask("m", from(nil)), "", false, &ConsumerUnknown{}},
		{"its own slot needs no consumer", view(record("w-1", Held, "m")), ask("m", from(nil)), "w-1", false, nil},
		{"VS-A8: another cluster's pool", view(), ask("m", func(r *Request) { r.Cluster = "other" }), "", false, &OtherCluster{}},
		{"own record and pool contradict", view(record("w-2", Held, "x")), ask("m", named("w-2")), "", false, &SlotHeldByOther{}},
		{"own slot is quarantined", view(record("w-2", Quarantined, "m")), ask("m"), "", false, &SlotQuarantined{}},
		{"own slot was removed", view(), ask("m", named("w-9")), "", false, &SlotGone{}},
		{"own slot was removed, own record lost", view(record("w-9", Held, "m")), ask("m"), "", false, &SlotGone{}},
		{"own slot is being reclaimed", view(record("w-2", Reclaiming, "")), ask("m", named("w-2")), "", false, &SlotBusy{}},
		{"full", view(record("w-1", Held, "a"), record("w-2", Held, "b"), record("w-4", Held, "c")), ask("m"), "", false, &NoAvailableSlots{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := Pick(c.view, c.request)
			if c.error != nil {
				if err == nil || fmt.Sprintf("%T", err) != fmt.Sprintf("%T", c.error) {
					t.Fatalf("answers %+v, %v; wanted %T", got, err, c.error)
				}
				if !strings.Contains(err.Error(), "pool") {
					t.Errorf("message %q does not name the pool", err)
				}
				return
			}
			if err != nil || got.Slot.HostName != c.gives || got.Changed != c.changed {
				t.Fatalf("gives %q (changed %v), %v; wanted %q (changed %v)", got.Slot.HostName, got.Changed, err, c.gives, c.changed)
			}
			if got.Record.State != Held || got.Record.Holder != c.request.Holder || got.Record.ReleasedAt != nil {
				t.Errorf("record %+v", got.Record)
			}
			if c.changed && got.Consumer.Name != "md-0" {
				t.Errorf("VS-A3: consumer %+v is not written with the claim", got.Consumer)
			}
		})
	}
}

func named(hostName string) func(*Request) { return func(r *Request) { r.HostName = hostName } }
func in(location string) func(*Request)    { return func(r *Request) { r.Location = location } }
func from(c *Consumer) func(*Request)      { return func(r *Request) { r.Consumer = c } }
func zone(name string, l ...string) func(*Request) {
	return func(r *Request) { r.Zone, r.ZoneLocations = name, l }
}

func held(v View, hostName, why string) View {
	v.Busy = map[string]string{hostName: why}
	return v
}

// The message names pool, location and zone, and counts the reasons.
func TestNoAvailableSlotsSaysWhy(t *testing.T) {
	v := held(view(record("w-1", Held, "a"), record("w-2", Vacating, "b")), "w-4", "disk data: no space")
	_, skipped, err := Pick(v, ask("m", zone("z-a", "dc-a")))
	var full *NoAvailableSlots
	if !errors.As(err, &full) || len(skipped) != 4 {
		t.Fatalf("%v, skipped %+v", err, skipped)
	}
	for _, word := range []string{
		"ns/workers", `"dc-a"`, `failure domain "z-a"`, "1 of 4 in use (w-1: a)", "1 of 4 waiting for the previous machine and node to go (w-2: b)",
		"1 of 4 held back by its disks (w-4: disk data: no space)", "1 of 4 in another location (w-3: dc-b)",
	} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("message %q lacks %q", err, word)
		}
	}
	var many []Record
	big := View{Pool: "ns/big", Cluster: "demo"}
	for i := range 300 {
		name := fmt.Sprintf("w-%d", i)
		big.Slots = append(big.Slots, Slot{HostName: name})
		many = append(many, record(name, Held, "m-"+name))
	}
	big.Records = many
	if _, _, err := Pick(big, ask("x")); len(err.Error()) > 400 {
		t.Errorf("a message of %d characters", len(err.Error()))
	}
}

func TestFreeing(t *testing.T) {
	heldBy := record("w-1", Held, "a")
	if r, wait := Vacate(heldBy, false, true, now); r.State != Held || wait == "" {
		t.Errorf("VS-A22: vacated with the server not proven gone: %+v", r)
	}
	if r, wait := Vacate(heldBy, true, false, now); r.State != Held || wait == "" {
		t.Errorf("VS-A22: vacated with a disk attached: %+v", r)
	}
	vacating, wait := Vacate(heldBy, true, true, now)
	if vacating.State != Vacating || wait != "" || vacating.VacatedAt == nil || vacating.Holder != heldBy.Holder {
		t.Fatalf("vacated: %+v, %s", vacating, wait)
	}
	for _, c := range []struct {
		gone bool
		node NodeFact
		free bool
	}{
		{false, NodeGone, false},
		{true, NodeStale, false},
		{true, NodeUnknown, false},
		{true, "", false},
		{true, NodeGone, true},
		{true, NodeUnaskable, true},
		{true, NodeIrrelevant, true},
	} {
		r, wait := Free(vacating, FreeFacts{MachineGone: c.gone, Node: c.node}, now)
		if (r.State == Released) != c.free || (wait == "") != c.free {
			t.Errorf("machine gone %v, node %s: %s, %q; wanted free %v", c.gone, c.node, r.State, wait, c.free)
		}
		if c.free && (r.ReleasedAt == nil || r.VacatedAt != nil || r.Holder != heldBy.Holder) {
			t.Errorf("released record %+v", r)
		}
	}
	if r, _ := Free(heldBy, FreeFacts{MachineGone: true, Node: NodeGone}, now); r.State != Held {
		t.Errorf("a slot in use was freed: %+v", r)
	}
	if q, _ := Vacate(Quarantine(heldBy, "two servers"), true, true, now); q.State != Quarantined {
		t.Errorf("D20: a quarantined slot left quarantine: %+v", q)
	}
}

// VS-D42, VS-D43, VS-D48, VS-A5.
func TestReclaiming(t *testing.T) {
	at := now.Add(-24 * time.Hour)
	released := Record{HostName: "w-1", State: Released, ReleasedAt: &at, Holder: machine("a")}
	if _, due := Reclaim(released, now.Add(-time.Second), 24*time.Hour); due {
		t.Error("reclaimed a second early")
	}
	r, due := Reclaim(released, now, 24*time.Hour)
	if !due || r.State != Reclaiming {
		t.Errorf("not reclaimed when due: %+v", r)
	}
	if _, due := Reclaim(record("w-1", Held, "a"), now, 0); due {
		t.Error("a slot in use was reclaimed")
	}
	if kept := Spare(r, now); kept != released {
		t.Errorf("VS-A12: kept after all: %+v", kept)
	}
	if kept := Spare(record("w-1", Held, "a"), now); kept.State != Held {
		t.Errorf("a slot in use became %s", kept.State)
	}
	if e := Empty(r); e != (Record{HostName: "w-1", State: Available}) {
		t.Errorf("emptied: %+v", e)
	}
	if e := Empty(released); e.State != Released {
		t.Errorf("emptied without a reclaim: %+v", e)
	}
	for _, c := range []struct {
		state State
		live  int
		yes   bool
	}{{Available, 0, true}, {"", 0, true}, {Available, 1, false}, {Released, 0, false}, {Held, 0, false}, {Vacating, 0, false}, {Reclaiming, 0, false}, {Quarantined, 0, false}} {
		if Unbindable([]Record{{HostName: "w-1", State: c.state}}, c.live) != c.yes {
			t.Errorf("VS-A5: unbindable with a slot %s and %d volumes is not %v", c.state, c.live, c.yes)
		}
	}
}

// Promise 5 and VS-A17.
func TestRebuild(t *testing.T) {
	at := time.Unix(1, 0)
	slots := view().Slots
	records := []Record{record("gone", Released, "x"), record("w-2", Held, "b")}
	got, changed := Rebuild(slots, records, Evidence{
		Occupants: map[string]Holder{"w-3": machine("c"), "w-2": machine("z")},
		Leaving:   map[string]Holder{"w-3": machine("old"), "w-4": machine("d")},
		Data:      map[string]bool{"w-1": true, "w-2": true, "w-3": true, "w-4": true},
	}, at)
	want := []Record{{HostName: "w-1", State: Released, ReleasedAt: &at}, record("w-2", Held, "b"), record("w-3", Held, "c"), record("w-4", Vacating, "d"), record("gone", Released, "x")}
	want[3].VacatedAt = &at
	if !changed || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rebuilt %+v, wanted %+v", got, want)
	}
	if again, changed := Rebuild(slots, got, Evidence{}, at); changed || fmt.Sprint(again) != fmt.Sprint(want) {
		t.Errorf("rebuilt again: %+v, changed %v", again, changed)
	}
	if Complete(slots, records) || !Complete(slots, got) {
		t.Error("completeness is wrong")
	}
}
