//go:build e2e

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/examples"
)

const (
	otherPool     = cluster + "-batch"
	otherTemplate = cluster + "-batch"
	others        = cluster + "-md-1"
)

// secondGroup: another group of workers is another set of the same objects, with the disks it likes; a pool is never shared
// (VS-R2, VS-R22, VS-R27).
func secondGroup(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, workerPool)
	untouched := w.hardware(t)
	w.describeGroup(t)
	w.warned(t, nil, "apply", "-f", w.manifest("47-pool.yaml"))
	w.warned(t, nil, "apply", "-f", w.manifest("48-template.yaml"))

	// The new MachineDeployment is pointed at the other group's template by mistake.
	shared := w.templateOf(t, workers)
	w.edit(t, "49-workers.yaml", func(md *unstructured.Unstructured) { set(t, md, shared, "spec.template.spec.infrastructureRef.name") })
	w.refused(t, []string{others, workerPool, workers, "a pool of its own"}, "apply", "-f", w.manifest("49-workers.yaml"))

	w.edit(t, "49-workers.yaml", func(md *unstructured.Unstructured) {
		set(t, md, otherTemplate, "spec.template.spec.infrastructureRef.name")
	})
	w.warned(t, nil, "apply", "-f", w.manifest("49-workers.yaml"))
	await(t, "both groups run in their pools", func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, otherPool, 1)
		w.settled(ctx, g, workerPool, len(before))
	})
	after, now := w.places(t.Context(), g, workerPool)
	g.Expect(after).To(Equal(before))
	g.Expect(now).To(Equal(tenants), "the first group is not disturbed")
	for name, parts := range w.hardware(t) {
		if was, known := untouched[name]; known {
			g.Expect(parts).To(Equal(was), "hardware of %s", name)
		}
	}
}

// describeGroup writes the manifests of a group of one worker, made from the example's.
func (w *world) describeGroup(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	names := strings.NewReplacer(cluster+"-worker-bootstrap", cluster+"-worker-bootstrap", cluster+"-worker", otherPool, workers, others, ".1.31/", ".1.41/")
	for from, to := range map[string]string{workerPoolFile: "47-pool.yaml", "18-vspheremachinetemplate-worker.yaml": "48-template.yaml", workersFile: "49-workers.yaml"} {
		text, err := examples.Files.ReadFile("vsphere/v1beta1/" + from)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(w.manifest(to), []byte(names.Replace(w.env.Range.Rewrite(string(text)))), 0o600)).To(Succeed())
	}
	w.edit(t, "47-pool.yaml", func(pool *unstructured.Unstructured) {
		configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(unstructured.SetNestedSlice(pool.Object, configs[:1], "spec", "configs")).To(Succeed())
	})
	w.edit(t, "49-workers.yaml", func(md *unstructured.Unstructured) { set(t, md, int64(1), "spec.replicas") })
}
