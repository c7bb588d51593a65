package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// TestWhatSlippedInWaits: VS-R3, VS-R17: webhooks can be off. A slot that admission would have refused is given to nobody, its machine
// reads the sentence of admission and so does who looks at the pool; a surge is named when it is why a machine waits; a machine that
// would have been refused is not built. The good slot of the same pool serves all the same.
func TestWhatSlippedInWaits(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	const sentence = "spec.configs[0].network.primary.gateway: Invalid value: \"127.99.1.1\""
	w.withPool(2, func(p *infrav1.VSphereMachineConfigPool) { p.Spec.Configs[0].Network.Primary.Gateway = "127.99.1.1" })
	set := w.machineSet()
	owner := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-md-0"}}
	owner.Spec.ClusterName, owner.Spec.Selector, owner.Spec.Template = "demo", set.Spec.Selector, set.Spec.Template
	owner.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	owner.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(1))
	owner.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	w.g.Expect(k8s.Create(ctx, owner)).To(Succeed())

	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	w.g.Expect(w.slotStatus(w.ns + "-w-2").MachineRef.Name).To(Equal("m1"))
	second := w.withMachine("m2", "demo-worker")
	w.waits(second, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)
	w.g.Expect(conditions.GetMessage(second, infrav1.ReadyCondition)).To(And(
		ContainSubstring("1 of 2 not right as declared ("+w.ns+"-w-1: "+sentence), ContainSubstring("lies outside 127.64.1.0/24"),
		ContainSubstring("MachineDeployment "+w.ns+"/demo-md-0: spec.rollout.strategy.rollingUpdate.maxSurge"), ContainSubstring("maxSurge must be 0")))
	w.g.Expect(conditions.GetMessage(w.pool(), infrav1.MembersValidCondition)).To(ContainSubstring(sentence))
	w.g.Expect(w.vm("m2")).To(BeNil())

	third := w.withMachine("m3", "", func(m *infrav1.VSphereMachine) {
		m.Spec.PowerOffMode = infrav1.VirtualMachinePowerOpModeHard
		m.Spec.GuestSoftPowerOffTimeout = &metav1.Duration{Duration: time.Minute}
	})
	w.waits(third, infrav1.VMProvisionedCondition, infrav1.CloningFailedReason)
	w.g.Expect(conditions.GetMessage(third, infrav1.ReadyCondition)).To(ContainSubstring("spec.guestSoftPowerOffTimeout: Forbidden: 1m0s counts only when powerOffMode is trySoft"))
	w.g.Expect(w.vm("m3")).To(BeNil())

	// Nobody has to kick it: with the slot put right the machine goes on.
	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Spec.Configs[0].Network.Primary.Gateway = "127.64.1.1"
		return k8s.Update(ctx, pool)
	}).Should(Succeed())
	w.ready(second)
	w.g.Expect(w.slotStatus(w.ns + "-w-1").MachineRef.Name).To(Equal("m2"))
}
