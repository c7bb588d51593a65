//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// TestDisturbed walks through the flows that change something in vCenter while the manager is disturbed again and again: after
// so many calls as the seed says it is killed and started anew, or one of its calls fails in one of the ways in which calls
// fail. The outcome must be the same as undisturbed.
func TestDisturbed(t *testing.T) {
	t.Logf("seed %d", *seed)
	w := newWorld(t, "v1beta2")
	flows := []flow{
		{"create", create},
		{"roll workers to a new template", rollWorkers},
		{"delete the cluster", deleteCluster},
	}
	times := 6
	if *full {
		times = 20
		flows = []flow{
			{"create", create},
			{"roll workers to a new template", rollWorkers},
			{"roll to a template that never boots, and back", failAndRollBack},
			{"roll control planes to a new template", rollControlPlanes},
			{"scale out, slot first", scaleOutSlotFirst},
			{"scale out, replicas first", scaleOutReplicasFirst},
			{"scale in", scaleIn},
			{"roll to a new bootstrap template", rollBootstrap},
			{"delete the cluster", deleteCluster},
		}
	}
	travel(t, w, flows, func(t *testing.T, f flow) func() {
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		done := 0
		wait.Go(func() { done = w.disturb(ctx, t, dice(f.name), times) })
		return func() {
			cancel()
			wait.Wait()
			row(t, f.name, times, done)
		}
	})
}

// row adds a flow to the table of `make chaos`, in the columns of the crash matrix: the faults planned, those that happened before
// the flow had ended, those that it did not live to see, and those that it survived.
func row(t *testing.T, flow string, planned, done int) {
	t.Helper()
	survived := done
	if t.Failed() {
		survived = 0
	}
	t.Logf("%d of %d faults happened, %d survived", done, planned, survived)
	if *table == "" {
		return
	}
	f, err := os.OpenFile(*table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\tkills and failed calls\t%d\t%d\t%d\t%d\n", flow, planned, done, planned-done, survived)
}

// dice gives each flow its own sequence, so that a flow can be repeated alone.
func dice(flow string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(flow))
	return rand.New(rand.NewPCG(uint64(*seed), h.Sum64()))
}

// mishaps are the ways in which a call of the manager fails. A kill is one of them too, see disturb.
var mishaps = []vcenter.Fault{
	{Kind: vcenter.FaultBefore},
	{Kind: vcenter.FaultAfter},
	{Kind: vcenter.FaultDrop},
	{Kind: vcenter.FaultCut},
	{Kind: vcenter.FaultDelay, Delay: 2 * time.Second},
}

// disturb lets the manager make a random number of calls, then kills it or makes its next call fail, a bounded number of times. It
// returns how often it did.
func (w *world) disturb(ctx context.Context, t *testing.T, d *rand.Rand, times int) int {
	for i := range times {
		calls := int64(1 + d.IntN(25))
		if !w.afterCalls(ctx, calls) {
			return i
		}
		// Every other time a kill: it is the harshest mishap.
		if i%2 == 1 {
			fault := mishaps[d.IntN(len(mishaps))]
			fault.Client, fault.Count = "berth-manager", 1
			t.Logf("after %d calls the next one fails: %s", calls, fault.Kind)
			if err := w.cloud.Inject(ctx, fault); err != nil && ctx.Err() == nil {
				t.Errorf("injecting a fault: %v", err)
			}
			continue
		}
		t.Logf("after %d calls the manager is killed", calls)
		if err := w.env.Kill(context.Background(), local.ManagerProcess); err != nil {
			t.Errorf("killing the manager: %v", err)
			return i
		}
		w.kills.Add(1)
		// Not ctx: a manager that was killed is started again even if the flow has ended meanwhile.
		if err := w.env.Restart(context.Background(), local.ManagerProcess); err != nil {
			t.Errorf("starting the manager again: %v", err)
			return i
		}
	}
	return times
}

// afterCalls waits until the manager has made so many more calls; false if the flow ended before.
func (w *world) afterCalls(ctx context.Context, calls int64) bool {
	from := w.managerCalls(ctx)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for w.managerCalls(ctx)-from < calls {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// managerCalls is how many calls the manager has made to vCenter; -1 if nobody can say.
func (w *world) managerCalls(ctx context.Context) int64 {
	counters, err := w.cloud.Counters(ctx)
	if err != nil {
		return -1
	}
	var n int64
	for agent, c := range counters.Clients {
		if strings.Contains(agent, "berth-manager") {
			n += c.Total
		}
	}
	return n
}
