package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// Promise 3, pain 45: a VSphereVM that somebody removes by force in the middle of a clone takes the record of the clone with it. The
// virtual machine that comes out of it is found by its mark all the same, and goes with its machine.
func TestVSphereVMRemovedByForceWhileCloning(t *testing.T) {
	for _, pool := range []string{"demo-worker", ""} {
		t.Run("pool "+pool, func(t *testing.T) {
			w := newWorld(t, func(o *vcenter.Options) { o.CloneTime = aClone })
			w.withCluster()
			w.start()
			w.provisioned()
			w.withPool(1)
			m := w.withMachine("m1", pool)
			w.cloning(m)
			w.stop()
			w.dropVM("m1")
			w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
			w.start()
			w.gone(m)
			w.g.Consistently(w.vms, longerThanAClone).Should(BeZero())
		})
	}
}

// Promise 1, VS-A16: if the VSphereMachine is removed by force, too, the slot's record is all that is left. The slot waits for the clone
// to end, and then names the virtual machine that is in the way.
func TestEverythingRemovedByForceWhileCloning(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) { o.CloneTime = aClone })
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.cloning(m)
	w.stop()
	w.dropVM("m1")
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
	before := m.DeepCopy()
	m.Finalizers = nil
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, m))).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	w.start()
	w.g.Eventually(func() int { return w.vms() }).Should(Equal(1))
	w.g.Consistently(func() infrav1.ConfigState { return w.slotStatus(w.ns + "-w-1").State }, soon).Should(Equal(infrav1.ConfigStateInUse))
}

const (
	aClone           = 4 * time.Second
	longerThanAClone = 5 * time.Second
)

// cloning waits until the clone of a machine was asked for.
func (w *world) cloning(m *infrav1.VSphereMachine) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		vm := &infrav1.VSphereVM{}
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), vm)).To(Succeed())
		g.Expect(vm.Status.TaskRef).NotTo(BeEmpty())
	}).Should(Succeed())
	w.g.Expect(w.vms()).To(BeZero(), "the clone was too quick for this test")
}
