//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/local"
)

// wrongPlaces: what can be known of a place's addresses is refused before a machine is made for it (decision D10, VS-R55).
func wrongPlaces(t *testing.T, w *world) {
	gateway := func(last string) func(*unstructured.Unstructured) {
		return func(pool *unstructured.Unstructured) {
			g := NewWithT(t)
			configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(unstructured.SetNestedField(configs[0].(map[string]any), fmt.Sprintf("127.%d.%s", int(w.env.Range), last), "network", "primary", "gateway")).To(Succeed())
			g.Expect(unstructured.SetNestedSlice(pool.Object, configs, "spec", "configs")).To(Succeed())
		}
	}
	w.edit(t, workerPoolFile, gateway("9.1"))
	w.refused(t, []string{"spec.configs[0].network.primary.gateway", "127.", ".9.1"}, "apply", "-f", w.manifest(workerPoolFile))
	w.edit(t, workerPoolFile, gateway("1.31"))
	w.refused(t, []string{"spec.configs[0].network.primary", ".1.31"}, "apply", "-f", w.manifest(workerPoolFile))
	w.edit(t, workerPoolFile, gateway("1.1"))
	w.kubectl(t, "apply", "-f", w.manifest(workerPoolFile))
}

// wrongDisks: an allocated slot is not reshaped. A disk of another size is a new slot's, and a slot with other disks than the rest of
// its pool draws a warning (VS-R32, VS-R46, VS-R47).
func wrongDisks(t *testing.T, w *world) {
	g := NewWithT(t)
	untouched := w.hardware(t)
	resize := func(slot int, size int64) func(*unstructured.Unstructured) {
		return func(pool *unstructured.Unstructured) {
			g := NewWithT(t)
			configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
			g.Expect(err).NotTo(HaveOccurred())
			configs[slot].(map[string]any)["persistentDisks"].([]any)[0].(map[string]any)["sizeGiB"] = size
			g.Expect(unstructured.SetNestedSlice(pool.Object, configs, "spec", "configs")).To(Succeed())
		}
	}
	w.edit(t, workerPoolFile, resize(0, 200))
	w.refused(t, []string{"spec.configs[0].persistentDisks", "var-cpaas", "100", "200"}, "apply", "-f", w.manifest(workerPoolFile))
	w.edit(t, workerPoolFile, resize(0, 100))
	w.addSlot(t, 4)
	w.edit(t, workerPoolFile, resize(3, 200))
	w.warned(t, nil, "apply", "-f", w.manifest(workerPoolFile))
	w.addSlot(t, 5)
	w.edit(t, workerPoolFile, func(pool *unstructured.Unstructured) {
		configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
		g.Expect(err).NotTo(HaveOccurred())
		slot := configs[4].(map[string]any)
		slot["persistentDisks"] = slot["persistentDisks"].([]any)[:1]
		g.Expect(unstructured.SetNestedSlice(pool.Object, configs, "spec", "configs")).To(Succeed())
	})
	w.warned(t, []string{"spec.configs[4]", cluster + "-worker-5"}, "apply", "-f", w.manifest(workerPoolFile))
	// Slots that nobody has may go again.
	w.edit(t, workerPoolFile, func(pool *unstructured.Unstructured) {
		configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(unstructured.SetNestedSlice(pool.Object, configs[:3], "spec", "configs")).To(Succeed())
	})
	w.warned(t, nil, "apply", "-f", w.manifest(workerPoolFile))
	g.Expect(w.hardware(t)).To(Equal(untouched), "no virtual machine is edited")
}

// contestedPool: with admission switched off, two MachineDeployments can name one pool. The second waits with the reason that the
// manual names, and the first is not disturbed (VS-R51, VS-R52, VS-A4).
func contestedPool(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, workerPool)
	const intruder = cluster + "-md-2"
	w.shell(t, "kubectl delete validatingwebhookconfiguration -l cluster.x-k8s.io/provider=infrastructure-berth-vsphere")
	w.shell(t, "kubectl get machinedeployment "+workers+" -n "+namespace+" -o yaml > intruder.yaml")
	w.rename(t, intruder, "intruder.yaml", func(md *unstructured.Unstructured) {
		set(t, md, int64(1), "spec.replicas")
		set(t, md, map[string]any{"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/deployment-name": intruder}, "spec.selector.matchLabels")
		set(t, md, map[string]any{"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/deployment-name": intruder}, "spec.template.metadata.labels")
		unstructured.RemoveNestedField(md.Object, "metadata", "annotations")
	})
	w.kubectl(t, "apply", "-f", w.manifest("intruder.yaml"))
	const says = `jsonpath={.items[*].status.conditions[?(@.type=="` + infrav1.MachineConfigPoolReadyCondition + `")]}`
	await(t, "the second owner's machine says that the pool belongs to the first", func(ctx context.Context, g Gomega) {
		out, err := w.run(ctx, w.tool("kubectl"), "-n", namespace, "get", "vspheremachine", "-l", "cluster.x-k8s.io/deployment-name="+intruder, "-o", says)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(And(ContainSubstring(`"status":"False"`), ContainSubstring(infrav1.PoolBoundToOtherConsumerReason), ContainSubstring(workers)))
	})
	after, now := w.places(t.Context(), g, workerPool)
	g.Expect(after).To(Equal(before))
	g.Expect(now).To(Equal(tenants))
	w.kubectl(t, "-n", namespace, "delete", "machinedeployment", intruder)

	// Typed again, `berth up` brings back what is missing.
	_, err := local.Up(t.Context(), local.Options{Dir: w.env.Dir, Bare: true, Bin: w.bin, Progress: logging{t}})
	g.Expect(err).NotTo(HaveOccurred())
	w.refused(t, []string{"a pool of its own"}, "apply", "-f", w.manifest("intruder.yaml"))
}
