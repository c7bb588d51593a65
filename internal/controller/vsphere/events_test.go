package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
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

// A machine that waits for a slot says so in one event for each reason, however often it is looked at.
func TestWaitForASlotIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	w.ready(w.withMachine("m1", "demo-worker"))
	m := w.withMachine("m2", "demo-worker")
	w.waits(m, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)
	warnings := func() []string { return w.events("VSphereMachine", infrav1.NoAvailableSlotsReason) }
	w.g.Eventually(warnings).Should(HaveLen(1))

	before := m.DeepCopy()
	m.Spec.PowerOffMode = infrav1.VirtualMachinePowerOpModeSoft
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.Get(m, infrav1.ReadyCondition).ObservedGeneration).To(Equal(m.Generation), "another pass is through")
	}).Should(Succeed())
	w.g.Expect(warnings()).To(HaveLen(1))
}

// A pool that serves somebody else is told by an event, too, and once.
func TestPoolOfAnotherConsumerIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	w.ready(w.withMachine("m1", "demo-worker"))
	set := w.machineSet()
	set.OwnerReferences[0].Name = "demo-md-1"
	w.g.Expect(k8s.Update(ctx, set)).To(Succeed())
	m := w.withMachine("m2", "demo-worker")
	w.waits(m, infrav1.MachineConfigPoolReadyCondition, infrav1.PoolBoundToOtherConsumerReason)
	w.g.Eventually(func() []string { return w.events("VSphereMachine", infrav1.PoolBoundToOtherConsumerReason) }).Should(HaveLen(1))
}
