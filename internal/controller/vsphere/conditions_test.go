package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-R51, 3.1: a machine keeps saying that it has its slot while vCenter works on it, however often it is looked at.
func TestSlotStaysAllocatedWhileCloning(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskHang, Delay: 6 * time.Second})).To(Succeed())
	m := w.withMachine("m1", "demo-worker")
	cloning := func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		pool, vm := conditions.Get(m, infrav1.MachineConfigPoolReadyCondition), conditions.Get(m, infrav1.VMProvisionedCondition)
		g.Expect(pool).NotTo(BeNil())
		g.Expect(pool.Reason).To(Equal(infrav1.SlotAllocatedReason), pool.Message)
		g.Expect(vm.Reason).To(Equal(infrav1.CloningReason), vm.Message)
		// What the column Slot shows.
		g.Expect(m.Status.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: w.ns + "-w-1"}))
	}
	w.g.Eventually(cloning).Should(Succeed())

	before := m.DeepCopy()
	m.Spec.PowerOffMode = infrav1.VirtualMachinePowerOpModeSoft
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.Get(m, infrav1.VMProvisionedCondition).ObservedGeneration).To(Equal(m.Generation), "another pass is through")
	}).WithTimeout(4 * time.Second).Should(Succeed())
	cloning(w.g)
	w.ready(m)
}

// A machine whose zone does not exist says so, and goes on by itself when it is created.
func TestMachineWaitsForItsZone(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.failureDomain = w.ns + "-late"
	m := w.withMachine("m1", "")
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.WaitingForClusterInfrastructureReason)
	w.g.Expect(conditions.Get(m, infrav1.VMProvisionedCondition).Message).To(And(ContainSubstring("VSphereDeploymentZone"), ContainSubstring(w.failureDomain)))
	w.zone("late", "dc-a", "ds-shared-a")
	w.ready(m)
}

// 3.1: bootstrap data that cannot be used is named on the VSphereVM, too.
func TestBootstrapReady(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	m := w.withMachine("m1", "")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m1"}}
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	good := secret.DeepCopy()
	secret.Data["value"] = nil
	w.g.Expect(k8s.Update(ctx, secret)).To(Succeed())
	w.provisioned()
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.BootstrapSecretContentInvalidReason)
	vm := &infrav1.VSphereVM{}
	says := func(g Gomega) *metav1.Condition {
		g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, vm)).To(Succeed())
		g.Expect(conditions.IsTrue(vm, infrav1.VCenterAvailableCondition)).To(BeTrue())
		c := conditions.Get(vm, infrav1.BootstrapReadyCondition)
		g.Expect(c).NotTo(BeNil())
		return c
	}
	c := says(w.g)
	w.g.Expect(c.Reason).To(Equal(infrav1.BootstrapSecretContentInvalidReason))
	w.g.Expect(c.Message).To(And(ContainSubstring(w.ns+"/m1"), ContainSubstring(`"value"`)))
	secret.Data = good.Data
	w.g.Expect(k8s.Update(ctx, secret)).To(Succeed())
	w.ready(m)
	w.g.Expect(says(w.g).Status).To(Equal(metav1.ConditionTrue))
}
