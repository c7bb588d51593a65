//go:build e2e

package e2e

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/local"
)

// TestKills walks through the flows that change something in vCenter while berth-manager is killed again and again: after so
// many calls to vCenter as the seed says, each time it is started anew. The outcome must be the same as undisturbed.
func TestKills(t *testing.T) {
	t.Logf("seed %d", *seed)
	w := newWorld(t, "v1beta2")
	flows := []flow{
		{"create", create},
		{"roll workers to a new template", rollWorkers},
		{"delete the cluster", deleteCluster},
	}
	kills := 4
	if *full {
		kills = 12
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
		wait.Go(func() { w.killManager(ctx, t, dice(f.name), kills) })
		return func() {
			cancel()
			wait.Wait()
			if err := w.env.Restart(context.Background(), local.ManagerProcess); err != nil {
				t.Errorf("restarting the manager after the flow: %v", err)
			}
		}
	})
}

// dice gives each flow its own sequence, so that a flow can be repeated alone.
func dice(flow string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(flow))
	return rand.New(rand.NewPCG(uint64(*seed), h.Sum64()))
}

// killManager kills the manager once it has made a random number of calls, and starts it again, a bounded number of times.
func (w *world) killManager(ctx context.Context, t *testing.T, d *rand.Rand, kills int) {
	for range kills {
		calls := int64(1 + d.IntN(25))
		from := w.managerCalls(ctx)
		tick := time.NewTicker(10 * time.Millisecond)
		for w.managerCalls(ctx)-from < calls {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
		tick.Stop()
		if err := w.env.Kill(ctx, local.ManagerProcess); err != nil {
			t.Errorf("killing the manager: %v", err)
			return
		}
		t.Logf("killed the manager after %d calls", calls)
		// Not ctx: a manager that was killed is started again even if the flow has ended meanwhile.
		if err := w.env.Restart(context.Background(), local.ManagerProcess); err != nil {
			t.Errorf("starting the manager again: %v", err)
			return
		}
	}
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
