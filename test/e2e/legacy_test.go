//go:build e2e

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rollLegacyControlPlanes: in a pool from before there were ephemeral disks, containerd's and etcd's disks are persistent. A new
// member of etcd finds its disk emptied; everything else is as it was left (VS-R22, VS-R57, VS-D36, hazard H13).
func rollLegacyControlPlanes(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, controlPlanePool)
	for host, p := range before {
		g.Expect(p.Persistent).To(HaveLen(3), "persistent disks of %s", host)
		g.Expect(tenants[host].Ephemeral).To(BeEmpty(), "ephemeral disks of %s", host)
		g.Expect(w.berth(t, "guest", "ls", host, "/var/lib/etcd")).To(ContainSubstring("member"), "etcd of %s keeps its data there", host)
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
		w.writeInGuest(t, host, "/var/lib/containerd/marker", "images of "+host)
		w.writeInGuest(t, host, "/var/lib/etcd/marker", "member on "+host)
	}
	w.export(t, "vspheremachinetemplate", w.templateOf(t, controlPlane), controlTemplate+"-v2", "control-plane-v2.yaml", func(o *unstructured.Unstructured) {
		set(t, o, int64(12288), "spec.template.spec.memoryMiB")
	})
	w.useControlPlane(t, oldVersion, controlTemplate+"-v2")
	// The same VMDKs, etcd's included: it is emptied, not made anew.
	w.replaced(t, controlPlanePool, before, tenants)
	for host := range before {
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
		g.Expect(w.berth(t, "guest", "cat", host, "/var/lib/containerd/marker")).To(Equal("images of " + host))
		in := w.berth(t, "guest", "ls", host, "/var/lib/etcd")
		g.Expect(in).To(ContainSubstring("member"), "etcd runs on %s", host)
		g.Expect(in).NotTo(ContainSubstring("marker"), "nothing of the earlier member is left on %s", host)
	}
}

// rollLegacyWorkers: VS-R22, VS-R31, VS-R57.
func rollLegacyWorkers(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, workerPool)
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
		w.writeInGuest(t, host, "/var/lib/containerd/marker", "images of "+host)
	}
	w.export(t, "vspheremachinetemplate", w.templateOf(t, workers), workerTemplate+"-v2", "worker-v2.yaml", func(o *unstructured.Unstructured) {
		set(t, o, int64(6), "spec.template.spec.numCPUs")
	})
	w.useWorkerTemplate(t, workerTemplate+"-v2")
	w.replaced(t, workerPool, before, tenants)
	for host := range before {
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
		g.Expect(w.berth(t, "guest", "cat", host, "/var/lib/containerd/marker")).To(Equal("images of " + host))
	}
}
