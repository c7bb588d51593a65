package vsphere_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	invariants "github.com/berth-dev/berth/internal/invariant/vsphere"
)

// VS-P11, VS-P5, VS-V33, promises 1 to 3: a manager that dies at any instant and starts again converges to the same outcome, without a
// duplicate and without an orphan. The points are drawn from a seed that is printed; BERTH_SEED repeats a run.
func TestManagerDiesAgainAndAgain(t *testing.T) {
	seed := uint64(20261201)
	if text := os.Getenv("BERTH_SEED"); text != "" {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("BERTH_SEED: %v", err)
		}
		seed = parsed
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test's dice

	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	const slots = 3
	w.withPool(slots)
	watch := invariants.Start(ctx, w.vcenter.Admin(), client.NewNamespacedClient(k8s, w.ns), 30*time.Millisecond)

	var first []*infrav1.VSphereMachine
	for i := range slots {
		first = append(first, w.withMachine(fmt.Sprintf("a%d", i), "demo-worker"))
	}
	w.dieUntil(random, func() bool { return w.allReady(first) })
	disks := map[string]string{}
	for _, d := range w.pool().Status.PersistentDiskStatuses {
		disks[d.VolumePath] = d.DiskUUID
	}
	w.g.Expect(disks).To(HaveLen(slots))

	// All are replaced at once: their successors already wait.
	var second []*infrav1.VSphereMachine
	for i := range slots {
		second = append(second, w.withMachine(fmt.Sprintf("b%d", i), "demo-worker"))
	}
	for _, m := range first {
		w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	}
	w.dieUntil(random, func() bool {
		// Core's part: the Machine goes once its infrastructure has gone.
		for _, m := range first {
			if k8s.Get(ctx, client.ObjectKeyFromObject(m), &infrav1.VSphereMachine{}) != nil {
				w.g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, w.machineOf(m)))).To(Succeed())
			}
		}
		return w.allReady(second)
	})
	w.g.Expect(w.vms()).To(Equal(slots))
	for _, d := range w.pool().Status.PersistentDiskStatuses {
		w.g.Expect(disks).To(HaveKeyWithValue(d.VolumePath, d.DiskUUID), "every place kept its disk")
		w.g.Expect(d.Phase).To(Equal(infrav1.DiskPhaseAttached))
	}
	w.g.Expect(w.disksOfPlaces()).To(Equal(slots))

	w.g.Expect(k8s.Delete(ctx, w.infra)).To(Succeed())
	for _, m := range second {
		w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
		w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	}
	w.dieUntil(random, func() bool { return k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra) != nil })
	w.g.Expect(w.vms()).To(BeZero())
	w.g.Expect(w.disksOfPlaces()).To(BeZero())

	breaches, err := watch.Stop(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(breaches).To(BeEmpty())
}

func (w *world) allReady(machines []*infrav1.VSphereMachine) bool {
	for _, m := range machines {
		if k8s.Get(ctx, client.ObjectKeyFromObject(m), m) != nil || !m.Status.Ready || !ptr.Deref(m.Status.Initialization.Provisioned, false) {
			return false
		}
	}
	return true
}

// disksOfPlaces counts the VMDKs that lie in no virtual machine's directory.
func (w *world) disksOfPlaces() (n int) {
	for _, d := range w.vcenter.World().Disks {
		for _, slot := range []int{1, 2, 3} {
			if containsHost(d.Path, fmt.Sprintf("%s-w-%d-", w.ns, slot)) {
				n++
			}
		}
	}
	return n
}

// dieUntil lets managers die after a drawn number of their writes, at most deaths times, until done.
func (w *world) dieUntil(random *rand.Rand, done func() bool) {
	w.t.Helper()
	const deaths = 6
	finished := false
	for range deaths {
		limit := w.writes.total() + 1 + random.IntN(12)
		w.g.Eventually(func() bool {
			finished = done()
			return finished || w.writes.total() >= limit
		}).Should(BeTrue())
		if finished {
			return
		}
		w.kill()
		w.start()
	}
	w.g.Eventually(done).WithTimeout(2 * patience).Should(BeTrue())
}
