package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// D19: every volume is named by an event of its own. The events API shows the first only of events with one reason and action.
func TestEveryDiskHasItsEvent(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) {
		p.Spec.Configs[0].PersistentDisks = append(p.Spec.Configs[0].PersistentDisks, infrav1.PersistentDisk{Name: "raw-data", SizeGiB: 1})
	})
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	paths := map[string]string{}
	for _, d := range w.pool().Status.PersistentDiskStatuses {
		paths[d.Name] = d.VolumePath
	}
	w.g.Expect(paths).To(HaveLen(2))
	w.g.Eventually(func() []string { return w.events("VSphereMachineConfigPool", machine.EventVolumeCreated) }).
		Should(ConsistOf(ContainSubstring(paths["var-cpaas"]), ContainSubstring(paths["raw-data"])))
}

// events lists what the events of a reason on objects of a kind say.
func (w *world) events(kind, reason string) (notes []string) {
	w.t.Helper()
	list := &corev1.EventList{}
	w.g.Expect(k8s.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == kind && e.Reason == reason {
			notes = append(notes, e.Message)
		}
	}
	return notes
}
