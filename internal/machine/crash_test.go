package machine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine/memcloud"
	"github.com/berth-dev/berth/internal/slot"
)

// rounds bounds every wait of the story below; a healthy one needs fewer than ten per part.
const rounds = 60

// story is a replacement in a full pool: machine a lives in the only slot, is deleted while b already waits, and b comes up in
// its place; then b goes and the pool is deleted. It returns how far it came when it did not end.
func story(w *world) error {
	p := w.start()
	a := w.add("a")
	round := func(objects ...*object) {
		for _, o := range objects {
			if !o.gone {
				p.pass(o)
			}
		}
		_, _ = p.pool.Reconcile(context.Background())
		w.cloud.Tick()
		w.clock = w.clock.Add(time.Minute)
		if w.gate.dead {
			p = w.start()
		}
	}
	until := func(what string, reached func() bool, objects ...*object) error {
		for range rounds {
			if reached() {
				return nil
			}
			round(objects...)
			if v := w.cloud.Violations(); len(v) > 0 {
				return fmt.Errorf("%s: %s", what, strings.Join(v, "; "))
			}
		}
		states := []string{}
		for _, o := range objects {
			states = append(states, fmt.Sprintf("%s in %s: %s %s", o.name, o.report.Phase, o.report.Reason, o.report.Message))
		}
		return fmt.Errorf("%s: not within %d rounds: %s; pool %+v %+v", what, rounds, strings.Join(states, " | "), w.state.Records, w.state.Disks)
	}

	if err := until("a becomes ready", func() bool { return a.notes.Ready }, a); err != nil {
		return err
	}
	written := w.cloud.Contents()
	if len(written) != 2 {
		return fmt.Errorf("a has persistent volumes %v, wanted two", written)
	}
	b := w.add("b")
	round(a, b)
	if b.spec != nil {
		return fmt.Errorf("b was given a place while a has the only one")
	}
	a.deleted = ptr(w.clock)
	if err := until("a goes", func() bool { return a.gone }, a, b); err != nil {
		return err
	}
	for range 3 {
		round(b)
		if b.spec != nil {
			return fmt.Errorf("b was given the place while a's Machine still exists")
		}
	}
	delete(w.machines, "owner-uid-a")
	if err := until("b becomes ready", func() bool { return b.notes.Ready }, b); err != nil {
		return err
	}
	if err := settled(w, b, written); err != nil {
		return err
	}

	b.deleted = ptr(w.clock)
	if err := until("b goes", func() bool { return b.gone }, b); err != nil {
		return err
	}
	delete(w.machines, "owner-uid-b")
	if kept := w.cloud.Contents(); len(kept) != 2 {
		return fmt.Errorf("after b went the persistent volumes are %v", kept)
	}
	w.state.Deleting = true
	w.version++
	if err := until("the pool is emptied", func() bool { return len(w.cloud.Contents()) == 0 && w.state.Records[0].State == slot.Available }); err != nil {
		return err
	}
	if s := w.cloud.Servers(); len(s) > 0 {
		return fmt.Errorf("servers left over: %v", s)
	}
	return nil
}

// settled checks the promises at rest: one server, one holder, the data that a wrote, every disk on record.
func settled(w *world, o *object, written map[string]string) error {
	if s := w.cloud.Servers(); len(s) != 1 || s[0] != "vm-"+o.name {
		return fmt.Errorf("servers %v, wanted exactly vm-%s", s, o.name)
	}
	if got := fmt.Sprint(w.cloud.Contents()); got != fmt.Sprint(written) {
		return fmt.Errorf("volumes hold %s, wanted %v", got, written)
	}
	r := w.state.Records[0]
	if len(w.state.Records) != 1 || r.State != slot.Held || r.Holder.Mark != "mark-"+o.name {
		return fmt.Errorf("slot records %+v, wanted one held by %s", w.state.Records, o.name)
	}
	for _, d := range w.state.Disks {
		if d.Phase != disk.Attached || d.OwnerMark != "mark-"+o.name || d.Identity == "" {
			return fmt.Errorf("disk record %+v, wanted attached for %s", d, o.name)
		}
	}
	if len(w.state.Disks) != 2 || len(w.state.Ephemeral) != 1 {
		return fmt.Errorf("disk records %+v and %+v, wanted two and one", w.state.Disks, w.state.Ephemeral)
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

// clouds are the temperaments that every test of faults runs through.
var clouds = []struct {
	name string
	make func(*memcloud.Cloud)
}{
	{"instant", func(*memcloud.Cloud) {}},
	{"instant, watch behind", func(c *memcloud.Cloud) { c.Lagging = true }},
	{"slow", func(c *memcloud.Cloud) { c.Async, c.Slowness, c.Lagging = true, 1, true }},
	{"slow and hiding", func(c *memcloud.Cloud) { c.Async, c.Hidden, c.Slowness = true, true, 1 }},
}

// Promises 1 to 3 (VS-P11): the process is killed before and after every single call and write of the story, every call fails
// once, and the reply of every call is lost once; on a cloud that answers at once, on one that takes its time, and on one that
// does not show a server before it is complete.
func TestEveryStepMayBeTheLast(t *testing.T) {
	for _, cloud := range clouds {
		for _, f := range []fault{crashBefore, crashAfter, failBefore, loseReply, refuse} {
			t.Run(cloud.name+"/"+string(f), func(t *testing.T) {
				t.Parallel()
				steps := 0
				for at := 0; at <= steps; at++ {
					w := newWorld(t, place("w-1", "10.0.0.11/24"))
					cloud.make(w.cloud)
					w.gate.at, w.gate.fault = at, f
					if err := story(w); err != nil {
						t.Fatalf("%s step %d (%s): %v", f, at, w.gate.where, err)
					}
					if n := w.cloud.Overlaps(); f == failBefore && n > 0 {
						t.Fatalf("%s step %d (%s): %d operations were started while another one ran", f, at, w.gate.where, n)
					}
					if at == 0 {
						steps = w.gate.n
						t.Logf("the story has %d steps", steps)
					}
				}
			})
		}
	}
}

// aborted is a machine that is deleted while it comes up, after the given number of rounds, on a cloud whose creations take
// longer than a round. Nothing of it may be left, and what may still be coming must have been waited for.
func aborted(w *world, after int) error {
	const step = 10 * time.Second
	p := w.start()
	a := w.add("a")
	round := func() {
		p.pass(a)
		_, _ = p.pool.Reconcile(context.Background())
		w.cloud.Tick()
		w.clock = w.clock.Add(step)
		if w.gate.dead {
			p = w.start()
		}
	}
	for range after {
		round()
	}
	a.deleted = ptr(w.clock)
	for n := 0; !a.gone; n++ {
		if n > rounds {
			return fmt.Errorf("a does not go: %s in %s: %s", a.report.Reason, a.report.Phase, a.report.Message)
		}
		round()
	}
	for range 10 {
		w.cloud.Tick()
	}
	if s := w.cloud.Servers(); len(s) > 0 {
		return fmt.Errorf("orphans: %v", s)
	}
	if v := w.cloud.Violations(); len(v) > 0 {
		return fmt.Errorf("%s", strings.Join(v, "; "))
	}
	for _, r := range w.state.Records {
		if r.State == slot.Held {
			return fmt.Errorf("slot record %+v, wanted it given back", r)
		}
	}
	return nil
}

// Promise 3: a deletion that overtakes a creation, under every single fault, leaves no orphan behind.
func TestDeletedWhileComingUp(t *testing.T) {
	for _, cloud := range clouds {
		for _, f := range []fault{crashBefore, crashAfter, failBefore, loseReply} {
			t.Run(cloud.name+"/"+string(f), func(t *testing.T) {
				t.Parallel()
				for after := range 8 {
					steps := 0
					for at := 0; at <= steps; at++ {
						w := newWorld(t, place("w-1", "10.0.0.11/24"))
						cloud.make(w.cloud)
						w.gate.at, w.gate.fault = at, f
						if err := aborted(w, after); err != nil {
							t.Fatalf("deleted after %d rounds, %s step %d (%s): %v", after, f, at, w.gate.where, err)
						}
						if at == 0 {
							steps = w.gate.n
						}
					}
				}
			})
		}
	}
}

// A machine takes few writes and few calls (VS-P10, VS-P13): what one pass can do is not spread over several.
func TestCreationIsCheap(t *testing.T) {
	for _, async := range []bool{false, true} {
		w := newWorld(t, place("w-1", "10.0.0.11/24"))
		w.cloud.Async, w.cloud.Lagging = async, async
		p := w.start()
		a := w.add("a")
		passes := 0
		for ; !a.notes.Ready && passes < rounds; passes++ {
			p.pass(a)
			w.cloud.Tick()
		}
		calls := 0 // operations are followed by one watch and not counted
		for _, step := range w.gate.trace {
			switch step {
			case "Lookup", "LookupLive", "Create", "Fit", "PowerOn", "PlanVolume", "LookupVolume", "CreateVolume", "Holders":
				calls++
			}
		}
		t.Logf("async %v: %d passes, %d calls, %d writes of the machine, %d of the pool", async, passes, calls, a.saves, w.saves)
		if calls > 14 || a.saves > 8 || w.saves > 5 {
			t.Errorf("async %v: %d calls, %d writes of the machine, %d of the pool: %v", async, calls, a.saves, w.saves, w.gate.trace)
		}
		before := len(w.gate.trace)
		r := p.pass(a)
		if !r.Ready || len(w.gate.trace)-before > 2 {
			t.Errorf("async %v: a ready machine at rest took %v (%+v)", async, w.gate.trace[before:], r.Result)
		}
	}
}
