package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// D22: a quarantined slot is shown, is given to nobody, and goes back to normal life by a person's annotation.
func TestQuarantineEndsByDecision(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.withPool(1)
	host := w.ns + "-w-1"
	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Status.ConfigStatuses = []infrav1.VSphereMachineConfigStatus{{Hostname: host, State: infrav1.ConfigStateAvailable, Quarantine: "two machines claim it"}}
		return k8s.Status().Update(ctx, pool)
	}).Should(Succeed())
	w.start()
	w.provisioned()
	w.g.Eventually(func(g Gomega) {
		c := conditions.Get(w.pool(), infrav1.SlotQuarantinedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionTrue))
		g.Expect(c.Message).To(And(ContainSubstring(host), ContainSubstring("two machines claim it"), ContainSubstring(infrav1.ReleaseQuarantinedAnnotation)))
	}).Should(Succeed())
	m := w.withMachine("m1", "demo-worker")
	w.waits(m, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)

	w.g.Eventually(func() error {
		pool := w.pool()
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, infrav1.ReleaseQuarantinedAnnotation, "other, "+host)
		return k8s.Update(ctx, pool)
	}).Should(Succeed())
	w.ready(m)
	w.g.Eventually(func(g Gomega) {
		pool := w.pool()
		g.Expect(pool.Annotations).NotTo(HaveKey(infrav1.ReleaseQuarantinedAnnotation))
		g.Expect(conditions.IsFalse(pool, infrav1.SlotQuarantinedCondition)).To(BeTrue())
	}).Should(Succeed())
}

// What admission would have refused is said in conditions, because webhooks can be off.
func TestInvalidPoolsSaySo(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2, func(p *infrav1.VSphereMachineConfigPool) {
		p.Spec.Configs[0].Network.Primary.IP = "127.64.1.31"
		p.Spec.Configs[1].Hostname = p.Spec.Configs[0].Hostname + "-b"
	})
	w.g.Eventually(func(g Gomega) {
		c := conditions.Get(w.pool(), infrav1.MembersValidCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(infrav1.InvalidMemberConfigReason))
		g.Expect(c.Message).To(And(ContainSubstring("spec.configs[0].network.primary.ip"), ContainSubstring("127.64.1.31")))
		g.Expect(conditions.IsFalse(w.pool(), infrav1.ReadyCondition)).To(BeTrue())
	}).Should(Succeed())
}

// A pool of a cluster that does not exist says so, and does not hang when it is deleted.
func TestPoolWithoutCluster(t *testing.T) {
	w := newWorld(t)
	pool := w.withPool(1)
	w.start()
	w.g.Eventually(func(g Gomega) {
		c := conditions.Get(w.pool(), infrav1.ClusterRefReadyCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(infrav1.ClusterNotFoundReason))
	}).Should(Succeed())
	w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
	w.gone(pool)
}

// An object that another manager's watch filter claims is left alone.
func TestWatchFilter(t *testing.T) {
	w := newWorld(t)
	w.filter = "ours"
	w.withCluster()
	w.start()
	other := w.withPool(1)
	w.g.Consistently(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		g.Expect(w.infra.Finalizers).To(BeEmpty())
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		g.Expect(other.Finalizers).To(BeEmpty())
	}, soon).Should(Succeed())
	before := w.infra.DeepCopy()
	metav1.SetMetaDataLabel(&w.infra.ObjectMeta, "cluster.x-k8s.io/watch-filter", "ours")
	w.g.Expect(k8s.Patch(ctx, w.infra, client.MergeFrom(before))).To(Succeed())
	w.provisioned()
}

// Promise 5, D17: a pool whose status is lost knows its slots and disks again from what machines and vCenter say, and no disk
// is made anew.
func TestLostStatusIsRebuilt(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	host := w.ns + "-w-1"
	before := w.diskStatus(host)
	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Status = infrav1.VSphereMachineConfigPoolStatus{}
		return k8s.Status().Update(ctx, pool)
	}).Should(Succeed())
	w.g.Eventually(func(g Gomega) {
		slot := w.slotStatus(host)
		g.Expect(slot.State).To(Equal(infrav1.ConfigStateInUse))
		g.Expect(slot.Mark).To(Equal(m.Annotations[infrav1.MarkAnnotation]))
		g.Expect(slot.CAPIMachineName).To(Equal("m1"))
	}).Should(Succeed())

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	w.g.Expect(w.disk(before.VolumePath)).NotTo(BeNil(), "detached, not destroyed")
	second := w.withMachine("m2", "demo-worker")
	w.ready(second)
	after := w.diskStatus(w.slotOf(second))
	w.g.Expect(after.VolumePath).To(Equal(before.VolumePath))
	w.g.Expect(normal(after.DiskUUID)).To(Equal(normal(before.DiskUUID)))
}

func (w *world) slotOf(m *infrav1.VSphereMachine) string {
	return m.Annotations[infrav1.SlotHostnameAnnotation]
}
