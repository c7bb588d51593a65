package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// outcome of a point.
type outcome struct {
	point point
	// reached: the fault has happened. Where the manager's calls differ from run to run the n-th one may not come.
	reached bool
	err     error
	trail   string
	took    time.Duration
}

// travel runs one flow with one fault; the zero point is none, and then the events are the recording.
func travel(f flow, p point) (o outcome, events []event) {
	o.point = p
	began := time.Now()
	w, err := newWorld(f, p)
	defer func() {
		o.took = time.Since(began)
		if w != nil {
			o.trail = w.trail.String()
			w.close()
		}
	}()
	if err != nil {
		o.err = fmt.Errorf("making the world: %w", err)
		return o, nil
	}
	if err := f.before(w); err != nil {
		o.err = fmt.Errorf("before the flow began: %w", err)
		return o, nil
	}
	w.mu.Lock()
	w.moment = func() { w.others.remove("a") }
	w.mu.Unlock()
	w.trail.add("--- %s", p)
	if o.err = w.arm(p); o.err != nil {
		return o, nil
	}
	if o.err = f.act(w); o.err != nil {
		return o, nil
	}
	w.others.haste(true)
	lacks := f.lacks(w)
	if p.kind == removed {
		complete := lacks
		lacks = func() string {
			if w.struck.Load() > 0 {
				return aborted(w)()
			}
			return complete()
		}
	}
	o.err = w.until(lacks)
	o.reached = p.kind == "" || w.hit()
	w.others.haste(false)
	if !o.reached {
		p = point{}
	}
	w.mu.Lock()
	events = slices.Clone(w.events)
	w.mu.Unlock()
	o.err = errors.Join(o.err, w.examine(f, p))
	return o, events
}

// each runs do for all items, so many at a time.
func each[T any](items []T, do func(T)) {
	queue := make(chan T)
	var workers sync.WaitGroup
	for range max(1, *parallel) {
		workers.Go(func() {
			for item := range queue {
				do(item)
			}
		})
	}
	for _, item := range items {
		queue <- item
	}
	close(queue)
	workers.Wait()
}

// Promises 1 to 5, hazard by hazard and call by call (VS-P11): whatever single thing breaks in a flow, it reaches its end, and no
// promise is broken on the way.
func TestMatrix(t *testing.T) {
	if *only != "" {
		alone(t, *only)
		return
	}
	chosen := flows
	if *flowName != "" {
		chosen = slices.DeleteFunc(slices.Clone(flows), func(f flow) bool { return f.name != *flowName })
	}
	if len(chosen) == 0 {
		t.Fatalf("there is no flow %q", *flowName)
	}
	known := map[string]flow{}
	for _, f := range chosen {
		known[f.name] = f
	}
	possible, counts := record(t, chosen)
	drawn := draw(possible, *points, *seed)
	t.Logf("seed %d: %d points of %d (%s)", *seed, len(drawn), total(possible), counts)

	var mu sync.Mutex
	var outcomes []outcome
	began := time.Now()
	each(drawn, func(p point) {
		if over.Load() {
			return
		}
		o, _ := travel(known[p.flow], p)
		if over.Load() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		outcomes = append(outcomes, o)
		if o.err != nil {
			t.Errorf("%s did not survive: %v\nalone: go test -count=1 ./test/chaos -args -point='%s'\n%s", p, o.err, p, indent(o.trail))
		}
		if n := len(outcomes); n%50 == 0 {
			fmt.Fprintf(os.Stderr, "chaos: %d of %d points after %s\n", n, len(drawn), time.Since(began).Round(time.Second))
		}
	})
	if err := report(outcomes, possible); err != nil {
		t.Error(err)
	}
}

// alone runs one point and shows all that happened.
func alone(t *testing.T, text string) {
	p, err := parsePoint(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		if f.name != p.flow {
			continue
		}
		o, _ := travel(f, p)
		t.Logf("%s, fault happened: %v, took %s\n%s", p, o.reached, o.took.Round(time.Millisecond), indent(o.trail))
		if o.err != nil {
			t.Errorf("did not survive: %v", o.err)
		}
		return
	}
	t.Fatalf("there is no flow %q", p.flow)
}

// record runs every flow undisturbed and lists what can break in it.
func record(t *testing.T, flows []flow) (map[string][]point, string) {
	t.Helper()
	possible := map[string][]point{}
	var counts []string
	var mu sync.Mutex
	each(flows, func(f flow) {
		o, events := travel(f, point{flow: f.name})
		mu.Lock()
		defer mu.Unlock()
		if o.err != nil {
			t.Errorf("flow %s fails undisturbed: %v\n%s", f.name, o.err, indent(o.trail))
			return
		}
		possible[f.name] = slices.DeleteFunc(pointsOf(f, events), func(p point) bool {
			return *kindName != "" && string(p.kind) != *kindName
		})
		writes := 0
		for _, e := range events {
			if e.write {
				writes++
			}
		}
		counts = append(counts, fmt.Sprintf("%s: %d calls, %d writes, %d points", f.name, len(events)-writes, writes, len(possible[f.name])))
	})
	slices.Sort(counts)
	if t.Failed() {
		t.FailNow()
	}
	return possible, strings.Join(counts, "; ")
}

func total(possible map[string][]point) (n int) {
	for _, list := range possible {
		n += len(list)
	}
	return n
}

// report prints what was tried, by flow and kind of fault.
func report(outcomes []outcome, possible map[string][]point) error {
	type row struct {
		flow                               string
		kind                               kind
		points, tried, unreached, survived int
	}
	rows := map[string]*row{}
	at := func(p point) *row {
		key := p.flow + " " + string(p.kind)
		if rows[key] == nil {
			rows[key] = &row{flow: p.flow, kind: p.kind}
		}
		return rows[key]
	}
	for _, list := range possible {
		for _, p := range list {
			at(p).points++
		}
	}
	sum := row{flow: "all"}
	for _, o := range outcomes {
		for _, r := range []*row{at(o.point), &sum} {
			switch {
			case o.err == nil && !o.reached:
				r.unreached++
			case o.err == nil:
				r.tried++
				r.survived++
			default:
				r.tried++
			}
		}
	}
	sum.points = total(possible)
	var list []*row
	for _, r := range rows {
		if r.tried+r.unreached > 0 {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return cmp.Or(cmp.Compare(a.flow, b.flow), cmp.Compare(a.kind, b.kind)) })
	list = append(list, &sum)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "FLOW\tFAULT\tPOINTS\tTRIED\tNOT REACHED\tSURVIVED\n")
	var lines strings.Builder
	for _, r := range list {
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\n", r.flow, r.kind, r.points, r.tried, r.unreached, r.survived)
		fmt.Fprintf(&lines, "%s\t%s\t%d\t%d\t%d\t%d\n", r.flow, r.kind, r.points, r.tried, r.unreached, r.survived)
	}
	fmt.Fprintf(out, "seed %d\n", *seed)
	if err := out.Flush(); err != nil {
		return err
	}
	if *table == "" {
		return nil
	}
	return os.WriteFile(*table, []byte(lines.String()), 0o644)
}

func indent(text string) string { return "\t" + strings.ReplaceAll(text, "\n", "\n\t") }
