package chaos

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// kind is a way in which one thing breaks.
type kind string

const (
	// Of a call to vCenter.
	killBefore kind = "kill-before" // the manager dies right before the call
	killAfter  kind = "kill-after"  // the manager dies after its effect, before it has the answer
	killDuring kind = "kill-during" // the manager dies while the task of the call runs
	fails      kind = "fails"       // the call fails before it happens
	dropped    kind = "dropped"     // the call happens, its answer is lost
	slow       kind = "slow"        // the call happens late
	busy       kind = "503"         // the server is busy
	expired    kind = "expired"     // the session has ended
	taskFails  kind = "task-fails"  // the task fails without effect
	taskLies   kind = "task-lies"   // the task takes effect, then fails
	taskSlow   kind = "task-slow"   // the task takes long
	hides      kind = "hides"       // virtual machines and files do not show for a while, from this call on
	removed    kind = "removed"     // the user deletes the machine at this moment

	// Of a write to the API server; the first five have the same names.
	contested kind = "contested"       // somebody else writes the same object right before
	stale     kind = "stale"           // watch events are late all the time
	staleKill kind = "stale-and-kills" // watch events are late, and the manager dies after the write

	// Of a whole flow.
	twin kind = "twin" // two managers run
)

// point is one thing that can break in a flow.
type point struct {
	flow string
	// what is the method of a call ("CloneVM_Task"), or a write ("PATCH vspheremachines/status"), or "" for the whole flow.
	what string
	// n counts the calls of the method, or the writes, from 1 at the start of the flow.
	n    int
	kind kind
}

func (p point) String() string { return fmt.Sprintf("%s:%s:%d:%s", p.flow, p.what, p.n, p.kind) }

func parsePoint(text string) (point, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 4 {
		return point{}, fmt.Errorf("point %q is not of the form flow:what:number:fault", text)
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		return point{}, fmt.Errorf("point %q: %w", text, err)
	}
	return point{flow: parts[0], what: parts[1], n: n, kind: kind(parts[3])}, nil
}

// rank orders points at random, the same way for the same seed, whatever other points there are.
func (p point) rank(seed uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", seed, p)
	// FNV's last bytes hardly reach the upper bits; mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// event is one call or write of a recorded flow.
type event struct {
	what string
	n    int
	// write is one to the API server.
	write bool
}

func (e event) task() bool { return strings.HasSuffix(e.what, "_Task") }

// changes says whether a call to vCenter changes something there.
func (e event) changes() bool {
	for _, read := range []string{"Retrieve", "Find", "Query", "WaitForUpdates", "GET", "Create", "Destroy", "Logout", "Login", "Cancel", "Continue", "SetCollector"} {
		if strings.HasPrefix(e.what, read) && !e.task() && e.what != "CreateFolder" {
			return false
		}
	}
	return true
}

// looks says whether a call looks for virtual machines or files.
func (e event) looks() bool {
	return strings.HasPrefix(e.what, "Find") || strings.HasPrefix(e.what, "Query") || strings.HasPrefix(e.what, "Retrieve") || strings.HasPrefix(e.what, "GET ")
}

// kinds are the faults that are possible at an event.
func (e event) kinds() []kind {
	if e.write {
		out := []kind{killBefore, killAfter, fails, dropped, staleKill}
		if !strings.HasPrefix(e.what, "POST") {
			out = append(out, contested)
		}
		return out
	}
	out := []kind{killBefore, killAfter, fails, dropped}
	if e.changes() {
		out = append(out, slow, busy, expired)
	}
	if e.task() {
		out = append(out, killDuring, taskFails, taskLies, taskSlow)
	}
	if e.looks() {
		out = append(out, hides)
	}
	return out
}

// pointsOf are all points of a flow that made these calls and writes.
func pointsOf(f flow, events []event) []point {
	var out []point
	for _, e := range events {
		kinds := e.kinds()
		if f.abortable && !e.write {
			kinds = append(kinds, removed)
		}
		for _, k := range kinds {
			if k == hides && f.hidesNothing {
				continue
			}
			out = append(out, point{flow: f.name, what: e.what, n: e.n, kind: k})
		}
	}
	for n := 1; n <= 4; n++ {
		out = append(out, point{flow: f.name, n: n, kind: stale})
	}
	return append(out, point{flow: f.name, n: 1, kind: twin})
}

// draw takes count points, as evenly as it can from all flows; 0 takes all.
func draw(all map[string][]point, count int, seed uint64) []point {
	var names []string
	for name := range all {
		names = append(names, name)
		slices.SortFunc(all[name], func(a, b point) int {
			ra, rb := a.rank(seed), b.rank(seed)
			switch {
			case ra < rb:
				return -1
			case ra > rb:
				return 1
			default:
				return 0
			}
		})
	}
	slices.Sort(names)
	var out []point
	for i := 0; ; i++ {
		took := false
		for _, name := range names {
			if i < len(all[name]) && (count == 0 || len(out) < count) {
				out = append(out, all[name][i])
				took = true
			}
		}
		if !took {
			return out
		}
	}
}
