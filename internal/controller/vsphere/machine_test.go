package vsphere_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-A3, VS-A14, VS-D15, VS-V3, VS-V26, VS-V27: a machine takes a slot, gets its disks and addresses, and becomes ready.
func TestMachineComesUpInItsSlot(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)

	host := w.ns + "-w-1"
	w.g.Expect(m.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	w.g.Expect(m.Annotations).To(HaveKeyWithValue(infrav1.MarkAnnotation, string(m.UID)))
	w.g.Expect(conditions.IsTrue(m, infrav1.MachineConfigPoolReadyCondition)).To(BeTrue())
	w.g.Expect(conditions.IsTrue(m, infrav1.VMProvisionedCondition)).To(BeTrue())
	w.g.Expect(m.Status.Addresses).To(ContainElements(
		clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: "127.64.1.31"},
		clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: host},
	))

	vm := w.vm("m1")
	w.g.Expect(vm).NotTo(BeNil())
	w.g.Expect(vm.InstanceUUID).To(BeEquivalentTo(m.UID), "the instance UUID is the mark")
	w.g.Expect(vm.Power).To(Equal("poweredOn"))
	w.g.Expect(*m.Spec.ProviderID).To(Equal("vsphere://" + strings.ToLower(vm.UUID)))
	w.g.Expect(vm.Path).To(HavePrefix("/dc-a/vm/k8s/"))

	object := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, object)).To(Succeed())
	w.g.Expect(object.Spec.BiosUUID).To(Equal(strings.ToLower(vm.UUID)))
	w.g.Expect(object.Status.VMRef).To(Equal("VirtualMachine:" + vm.Ref))
	w.g.Expect(object.Annotations).To(HaveKeyWithValue(infrav1.SlotHostnameAnnotation, host))
	w.g.Expect(object.Status.TaskRef).To(BeEmpty())
	w.g.Expect(object.Annotations).NotTo(HaveKey("clusterctl.cluster.x-k8s.io/block-move"), "nothing is in flight any more")
	w.g.Expect(conditions.IsTrue(object, infrav1.InitialPowerOnCompletedCondition)).To(BeTrue())

	pool := w.pool()
	w.g.Expect(pool.Status.ConsumerRef.Name).To(Equal("demo-md-0"))
	w.g.Expect(pool.Status.Allocated).To(BeEquivalentTo(1))
	slot := w.slotStatus(host)
	w.g.Expect(slot.State).To(Equal(infrav1.ConfigStateInUse))
	w.g.Expect(slot.MachineRef.Name).To(Equal("m1"))
	w.g.Expect(slot.CAPIMachineName).To(Equal("m1"))
	disk := w.diskStatus(host)
	w.g.Expect(disk.Phase).To(Equal(infrav1.DiskPhaseAttached))
	attached := w.attachedTo(vm)
	w.g.Expect(attached).To(HaveKeyWithValue(disk.VolumePath, normal(disk.DiskUUID)))
	w.g.Eventually(func(g Gomega) {
		pool := w.pool()
		g.Expect(conditions.IsTrue(pool, infrav1.ReadyCondition)).To(BeTrue(), "%+v", pool.Status.Conditions)
		g.Expect(conditions.IsTrue(pool, infrav1.SlotAvailableCondition)).To(BeTrue())
		g.Expect(pool.OwnerReferences).To(ContainElement(HaveField("Kind", "Cluster")))
	}).Should(Succeed())
	t.Logf("vCenter calls: %d (%v); Kubernetes writes: %v", w.meter.Snapshot().Total(), w.meter.Snapshot().Calls, w.writes.snapshot())
}

// A machine without a pool lives as upstream's do: DHCP, no persistent disks.
func TestMachineWithoutPool(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	w.g.Expect(conditions.Get(m, infrav1.MachineConfigPoolReadyCondition)).To(BeNil())

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(w.vm("m1")).To(BeNil())
}

// VS-A5, VS-A6: the surplus machine says why it waits, and goes on by itself when a slot is added.
func TestMachineWaitsForASlot(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	second := w.withMachine("m2", "demo-worker")
	w.waits(second, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)
	ready := conditions.Get(second, infrav1.ReadyCondition)
	w.g.Expect(ready.Message).To(ContainSubstring("demo-worker"), "Cluster API copies this message to the Machine")
	w.g.Eventually(func(g Gomega) {
		c := conditions.Get(w.pool(), infrav1.SlotAvailableCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(infrav1.AllSlotsInUseReason))
		g.Expect(conditions.IsTrue(w.pool(), infrav1.ReadyCondition)).To(BeTrue(), "a full pool is healthy")
	}).Should(Succeed())
	w.g.Expect(w.vm("m2")).To(BeNil())

	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Spec.Configs = append(pool.Spec.Configs, w.slot(2))
		return k8s.Update(ctx, pool)
	}).Should(Succeed())
	w.ready(second)
	w.g.Expect(w.slotStatus(w.ns + "-w-2").MachineRef.Name).To(Equal("m2"))
}

// VS-A21, VS-A22, VS-A24, VS-A25, VS-A26, VS-D20, VS-V21, VS-B4, VS-B11, VS-B23: the slot goes on with its disks only after virtual machine, Machine and Node are gone.
func TestReplacementGetsSlotAndDisks(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	host := w.ns + "-w-1"
	before := w.diskStatus(host)
	second := w.withMachine("m2", "demo-worker")
	w.waits(second, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)

	w.workload(first)
	w.g.Expect(k8s.Delete(ctx, first)).To(Succeed())
	w.gone(first)
	w.g.Expect(w.vm("m1")).To(BeNil())
	slot := w.slotStatus(host)
	w.g.Expect(slot.State).To(Equal(infrav1.ConfigStateInUse), "the Machine still exists")
	w.g.Expect(slot.VacatedTime).NotTo(BeNil())
	w.g.Expect(w.vm("m2")).To(BeNil())

	// The Node of the dead machine is still there, and so it is in the way of a successor.
	w.g.Expect(k8s.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}})).To(Succeed())
	w.ready(second)
	w.g.Expect(client.IgnoreNotFound(k8s.Get(ctx, client.ObjectKey{Name: host}, &corev1.Node{}))).To(Succeed())
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Name: host}, &corev1.Node{})).NotTo(Succeed(), "the stale Node was deleted")
	after := w.diskStatus(host)
	w.g.Expect(after.VolumePath).To(Equal(before.VolumePath))
	w.g.Expect(after.DiskUUID).To(Equal(before.DiskUUID))
	w.g.Expect(w.attachedTo(w.vm("m2"))).To(HaveKeyWithValue(before.VolumePath, normal(before.DiskUUID)))
	w.g.Expect(w.slotStatus(host).MachineRef.Name).To(Equal("m2"))
}

// VS-A21, VS-A26: a Node of the slot's name, which is not the virtual machine's, with another provider ID is deleted before the guest starts, by UID.
func TestStaleNodeGoesBeforePowerOn(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	host := w.ns + "-w-1"
	w.g.Expect(k8s.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: corev1.NodeSpec{ProviderID: "vsphere://of-another"}})).To(Succeed())
	w.reachable()
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Name: host}, &corev1.Node{})).NotTo(Succeed())
}

// A worker waits for a workload cluster that cannot be asked, and says so.
func TestWorkerWaitsForUnreachableWorkloadCluster(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.clusterStatus(func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = ptr.To(true) })
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.WaitingForStaleNodeReason)
	w.g.Expect(w.vm("m1").Power).To(Equal("poweredOff"))
	w.reachable()
	w.ready(m)
}

// VS-A20: template and slot disagree about interfaces: no clone.
func TestTopologyMismatchMakesNoClone(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker", func(m *infrav1.VSphereMachine) {
		m.Spec.Network.Devices = append(m.Spec.Network.Devices, infrav1.NetworkDeviceSpec{NetworkName: "pg-stor", DHCP4: true})
	})
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.NetworkTopologyMismatchReason)
	w.g.Expect(w.vm("m1")).To(BeNil())
}

// Bad input that only vCenter knows becomes a condition that names field, value and what there is.
func TestUnknownInventoryIsNamed(t *testing.T) {
	for field, change := range map[string]func(*infrav1.VSphereMachine){
		"template":  func(m *infrav1.VSphereMachine) { m.Spec.Template = "no-such-template" },
		"datastore": func(m *infrav1.VSphereMachine) { m.Spec.Datastore = "no-such-datastore" },
		"folder":    func(m *infrav1.VSphereMachine) { m.Spec.Folder = "no-such-folder" },
	} {
		t.Run(field, func(t *testing.T) {
			w := newWorld(t)
			w.withCluster()
			w.start()
			w.provisioned()
			m := w.withMachine("m1", "", change)
			w.g.Eventually(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
				c := conditions.Get(m, infrav1.VMProvisionedCondition)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Message).To(And(ContainSubstring("no-such-"+field), ContainSubstring(field)), "%+v", c)
			}).Should(Succeed())
		})
	}
}

// A deletion needs neither Cluster nor Machine nor bootstrap Secret.
func TestDeletionNeedsOnlyVCenter(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	for _, obj := range []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo"}},
		&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}},
	} {
		w.g.Expect(k8s.Delete(ctx, obj)).To(Succeed())
	}
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(w.vm("m1")).To(BeNil())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(w.ns + "-w-1").State }).Should(Equal(infrav1.ConfigStateReleased))
	w.g.Expect(w.disk(w.diskStatus(w.ns+"-w-1").VolumePath)).NotTo(BeNil(), "the disk waits for a successor")
}

// V9, VS-A25: a VSphereVM whose VSphereMachine is gone is cleaned up, with the same care, and its slot is given back.
func TestOrphanIsCleanedUp(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	disk := w.diskStatus(w.ns + "-w-1")

	before := m.DeepCopy()
	m.Finalizers = nil
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.g.Eventually(func() *vcenter.VM { return w.vm("m1") }).Should(BeNil())
	w.g.Eventually(func(g Gomega) {
		vms := &infrav1.VSphereVMList{}
		g.Expect(k8s.List(ctx, vms, client.InNamespace(w.ns))).To(Succeed())
		g.Expect(vms.Items).To(BeEmpty())
	}).Should(Succeed())
	w.g.Expect(w.disk(disk.VolumePath)).NotTo(BeNil())
	w.g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, w.machineOf(m)))).To(Succeed())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(w.ns + "-w-1").State }).Should(Equal(infrav1.ConfigStateReleased))
}

// VS-V22: a machine that somebody powers off is reported, not powered on again.
func TestPowerOffIsReported(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	w.powerOff("m1")
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		c := conditions.Get(m, infrav1.ReadyCondition)
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal(infrav1.PoweredOffReason))
	}).Should(Succeed())
	w.g.Expect(w.vm("m1").Power).To(Equal("poweredOff"))
	w.g.Expect(ptr.Deref(m.Status.Initialization.Provisioned, false)).To(BeTrue())
}

// Paused objects are left alone, and say so.
func TestPausedMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) {
		m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.IsTrue(m, infrav1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
	w.g.Expect(m.Finalizers).To(BeEmpty())
	before := m.DeepCopy()
	m.Annotations = nil
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.ready(m)
	w.g.Expect(conditions.IsFalse(m, infrav1.PausedCondition)).To(BeTrue())
}

// Ten machines at once: one place each, few writes each.
func TestManyMachinesShareAPool(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	const n = 10
	w.withPool(n)
	calls, writes := w.meter.Snapshot(), w.writes.total()
	var machines []*infrav1.VSphereMachine
	for i := range n {
		machines = append(machines, w.withMachine(fmt.Sprintf("m%d", i), "demo-worker"))
	}
	holders := map[string]bool{}
	for _, m := range machines {
		w.ready(m)
	}
	for _, c := range w.pool().Status.ConfigStatuses {
		holders[c.MachineRef.Name] = true
	}
	w.g.Expect(holders).To(HaveLen(n))
	t.Logf("per machine: %.1f calls to vCenter, %.1f Kubernetes writes, %d conflicts in all; writes: %v; calls %v", float64(w.meter.Snapshot().Since(calls).Total())/n,
		float64(w.writes.total()-writes)/n, w.writes.conflicts(), w.writes.snapshot(), w.meter.Snapshot().Since(calls).Calls)
}

// TestPauseHoldsADeletion: a pause in the middle of a deletion holds the rest of it back and loses nothing of it; afterwards it
// goes on to its end (VS-B19).
func TestPauseHoldsADeletion(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	disk := w.diskStatus(w.ns + "-w-1")

	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "Destroy_Task", Kind: vcenter.FaultBefore, Count: -1})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		vm := w.vm("m1")
		g.Expect(vm).NotTo(BeNil())
		g.Expect(w.attachedTo(vm)).NotTo(HaveKey(disk.VolumePath))
	}).Should(Succeed(), "the deletion is under way")
	w.pauseMachine(m, true)
	w.g.Expect(w.vcenter.Admin().ClearFaults(ctx)).To(Succeed())
	// Any number of passes later nothing has happened.
	for range 3 {
		before := m.DeepCopy()
		m.Labels["touched"] += "x"
		w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
		w.g.Consistently(func() *vcenter.VM { return w.vm("m1") }, 500*time.Millisecond).ShouldNot(BeNil())
	}
	w.g.Expect(w.slotStatus(w.ns + "-w-1").State).To(Equal(infrav1.ConfigStateInUse))

	w.pauseMachine(m, false)
	w.gone(m)
	w.g.Expect(w.vm("m1")).To(BeNil())
	w.g.Expect(w.diskStatus(w.ns + "-w-1").DiskUUID).To(Equal(disk.DiskUUID))
}

// pauseMachine sets or removes the annotation and waits until the controller has seen it.
func (w *world) pauseMachine(m *infrav1.VSphereMachine, on bool) {
	w.t.Helper()
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
	before := m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	delete(m.Annotations, clusterv1.PausedAnnotation)
	if on {
		m.Annotations[clusterv1.PausedAnnotation] = ""
	}
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	if !on {
		return
	}
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.IsTrue(m, infrav1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
}
