package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// lose empties the status of all our objects, as a clusterctl move or a restore does.
func (w *world) lose(m *infrav1.VSphereMachine) {
	w.t.Helper()
	for _, obj := range []client.Object{
		&infrav1.VSphereMachineConfigPool{}, &infrav1.VSphereMachine{}, &infrav1.VSphereVM{},
	} {
		key := client.ObjectKeyFromObject(m)
		if _, ok := obj.(*infrav1.VSphereMachineConfigPool); ok {
			key.Name = "demo-worker"
		}
		w.g.Expect(k8s.Get(ctx, key, obj)).To(Succeed())
		switch o := obj.(type) {
		case *infrav1.VSphereMachineConfigPool:
			o.Status = infrav1.VSphereMachineConfigPoolStatus{}
		case *infrav1.VSphereMachine:
			o.Status = infrav1.VSphereMachineStatus{}
		case *infrav1.VSphereVM:
			o.Status = infrav1.VSphereVMStatus{}
		}
		w.g.Expect(k8s.Status().Update(ctx, obj)).To(Succeed())
	}
}

// Promise 5, D16, D17: status is rebuilt from spec, annotations and marks; the machine runs on in its place with its disks.
func TestMachineRunsOnWhenAllStatusIsLost(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	host := w.ns + "-w-1"
	before, vm := w.diskStatus(host), w.vm("m1")

	w.stop()
	w.lose(m)
	w.start()
	w.ready(m)
	w.g.Eventually(func(g Gomega) {
		slot, disk := w.slotStatus(host), w.diskStatus(host)
		g.Expect(slot.State).To(Equal(infrav1.ConfigStateInUse))
		g.Expect(slot.Mark).To(Equal(m.Annotations[infrav1.MarkAnnotation]))
		g.Expect(disk.Phase).To(Equal(infrav1.DiskPhaseAttached))
		g.Expect(disk.VolumePath).To(Equal(before.VolumePath))
		g.Expect(disk.DiskUUID).To(Equal(before.DiskUUID))
	}).Should(Succeed())
	after := w.vm("m1")
	w.g.Expect(after.Ref).To(Equal(vm.Ref))
	w.g.Expect(after.Power).To(Equal("poweredOn"))
	w.g.Expect(conditions.IsTrue(m, infrav1.VMProvisionedCondition)).To(BeTrue())
}

// The VSphereVM is a record like any other: a machine whose VSphereVM was lost gets a new one for the virtual machine it has.
func TestLostVSphereVMIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	vm := w.vm("m1")
	w.stop()
	w.lose(m)
	w.dropVM("m1")
	w.start()
	w.ready(m)
	w.g.Expect(w.vm("m1").Ref).To(Equal(vm.Ref))
	w.g.Expect(w.vms()).To(Equal(1))
	object := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, object)).To(Succeed())
	w.g.Expect(object.Spec.Slot.Hostname).To(Equal(w.ns + "-w-1"))
}

// Promise 1, hazard H7: a machine whose VSphereVM was lost gives its place back only when its virtual machine is proven gone.
func TestDeletionWithoutVSphereVM(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	disk := w.diskStatus(w.ns + "-w-1")
	w.stop()
	w.dropVM("m1")
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.start()
	w.gone(m)
	w.g.Expect(w.vm("m1")).To(BeNil(), "the place was given back under a running virtual machine")
	w.g.Expect(w.disk(disk.VolumePath)).NotTo(BeNil())
}

// dropVM removes a VSphereVM as a person with a finalizer patch does.
func (w *world) dropVM(name string) {
	w.t.Helper()
	vm := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, vm)).To(Succeed())
	before := vm.DeepCopy()
	vm.Finalizers = nil
	w.g.Expect(k8s.Patch(ctx, vm, client.MergeFrom(before))).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, vm)).To(Succeed())
}

// A slot whose VSphereMachine is gone while its Machine stands stays vacating when the pool's status is lost.
func TestLostStatusKeepsVacatingSlots(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	host := w.ns + "-w-1"
	owner := w.machineOf(m)
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
			return err
		}
		owner.Status.NodeRef = clusterv1.MachineNodeReference{Name: host}
		return k8s.Status().Update(ctx, owner)
	}).Should(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Status = infrav1.VSphereMachineConfigPoolStatus{}
		return k8s.Status().Update(ctx, pool)
	}).Should(Succeed())
	w.g.Eventually(func(g Gomega) {
		c := w.slotStatus(host)
		g.Expect(c.State).To(Equal(infrav1.ConfigStateInUse))
		g.Expect(c.VacatedTime).NotTo(BeNil())
		g.Expect(c.CAPIMachineName).To(Equal("m1"))
	}).Should(Succeed())
	w.g.Expect(k8s.Delete(ctx, owner)).To(Succeed())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(host).State }).Should(Equal(infrav1.ConfigStateReleased))
}
