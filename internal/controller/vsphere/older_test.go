package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// VS-D51: a pool of an older version, whose disks only the declaration names, gives them to the next machines.
func TestDisksOfAnOlderVersionAreTakenOver(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	before := w.diskStatus(w.ns + "-w-1")
	w.g.Expect(k8s.Delete(ctx, first)).To(Succeed())
	w.gone(first)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(first))).To(Succeed())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(w.ns + "-w-1").State }).Should(Equal(infrav1.ConfigStateReleased))
	w.stop()
	pool := w.pool()
	pool.Status.PersistentDiskStatuses = nil
	w.g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())
	pool.Spec.Configs[0].PersistentDisks[0].VolumePath, pool.Spec.Configs[0].PersistentDisks[0].DiskUUID = before.VolumePath, before.DiskUUID
	w.g.Expect(k8s.Update(ctx, pool)).To(Succeed())
	w.start()
	second := w.withMachine("m2", "demo-worker")
	w.ready(second)
	after := w.diskStatus(w.ns + "-w-1")
	w.g.Expect(after.VolumePath).To(Equal(before.VolumePath))
	w.g.Expect(after.DiskUUID).To(Equal(before.DiskUUID))
	w.g.Expect(after.Phase).To(Equal(infrav1.DiskPhaseAttached))
}

// VS-A7, VS-B22: a pool is looked for in the machine's namespace, whether the reference names that or none; another one is refused in a
// sentence that names both.
func TestPoolOfAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	other := w.withMachine("m1", "demo-worker", func(m *infrav1.VSphereMachine) { m.Spec.MachineConfigPoolRef.Namespace = "elsewhere" })
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		c := conditions.Get(other, infrav1.ReadyCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(And(ContainSubstring(`"elsewhere"`), ContainSubstring(w.ns)))
	}).Should(Succeed())
	w.g.Expect(w.vm("m1")).To(BeNil())
	w.ready(w.withMachine("m2", "demo-worker", func(m *infrav1.VSphereMachine) { m.Spec.MachineConfigPoolRef.Namespace = w.ns }))
	w.ready(w.withMachine("m3", "demo-worker"))
}
