package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// pain 33: an image of another version than the Machine asks for is told, once, with both versions and the way out.
func TestKubeletOfAnotherVersionIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	owner := w.machineOf(m)
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
	owner.Spec.Version = "v1.36.3"
	w.g.Expect(k8s.Update(ctx, owner)).To(Succeed())
	report := func(version string) {
		t.Helper()
		owner.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version}
		w.g.Expect(k8s.Status().Update(ctx, owner)).To(Succeed())
	}
	told := func() []string { return w.events("VSphereMachine", infrav1.EventKubeletVersionMismatch) }
	report("v1.36.3+vendor.1")
	report("v1.35.1")
	w.g.Eventually(told).Should(ConsistOf(And(ContainSubstring("v1.36.3"), ContainSubstring("v1.35.1"), ContainSubstring("os-v136-3"))))
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
	w.g.Expect(conditions.IsTrue(m, infrav1.ReadyCondition)).To(BeTrue(), "the machine is as it was made")
	report("v1.36.3")
	report("v1.35.1")
	w.ready(w.withMachine("m2", ""))
	w.g.Expect(told()).To(HaveLen(1))
}

// A running machine whose Machine has gone stays what it was: Ready does not turn into a wait for an owner.
func TestReadyOutlivesItsMachine(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	before := m.DeepCopy()
	m.Annotations[clusterv1.PausedAnnotation] = ""
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.IsTrue(m, infrav1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
	before = m.DeepCopy()
	delete(m.Annotations, clusterv1.PausedAnnotation)
	w.g.Expect(k8s.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.IsFalse(m, infrav1.PausedCondition)).To(BeTrue(), "another pass is through")
		g.Expect(conditions.IsTrue(m, infrav1.ReadyCondition)).To(BeTrue(), "%+v", m.Status.Conditions)
		g.Expect(m.Status.Ready).To(BeTrue())
	}).Should(Succeed())
}
