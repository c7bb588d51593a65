package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// VS-D57, VS-D58, VS-A27, VS-R61: a namespace that is deleted deletes everything in it at once, in no order. The order of what
// happens in vCenter is kept all the same, credentials last, and nobody has to remove a disk or a finalizer by hand.
func TestEverythingIsDeletedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	pool := w.withPool(3)
	running, alone := w.withMachine("m1", "demo-worker"), w.withMachine("m2", "demo-worker")
	w.ready(running)
	w.ready(alone)
	w.workload(running)
	released := w.withMachine("m3", "demo-worker")
	w.ready(released)
	w.remove(released)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-vcenter"}}
	vms := &infrav1.VSphereVMList{}
	w.g.Expect(k8s.List(ctx, vms, client.InNamespace(w.ns))).To(Succeed())
	all := []client.Object{secret, pool, &vms.Items[0], w.cluster, running, alone, w.infra, &vms.Items[1]}
	for _, o := range all {
		w.g.Expect(k8s.Delete(ctx, o)).To(Succeed())
	}
	w.g.Eventually(func(g Gomega) {
		for _, m := range []*infrav1.VSphereMachine{running, alone} {
			// Core's part: a Machine goes once its infrastructure has gone.
			if k8s.Get(ctx, client.ObjectKeyFromObject(m), &infrav1.VSphereMachine{}) != nil {
				g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, w.machineOf(m)))).To(Succeed())
			}
		}
		for _, o := range all {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).NotTo(Succeed(), "%T %s: %+v", o, o.GetName(), conditionsOf(o))
		}
	}).Should(Succeed())
	w.g.Expect(w.vms()).To(BeZero())
	w.g.Expect(w.disksOfPlaces()).To(BeZero())
	for _, f := range w.vcenter.World().Files {
		w.g.Expect(f.Path).NotTo(ContainSubstring(w.ns), "nothing of the cluster is left on a datastore")
	}
	w.g.Eventually(w.sessions).Should(BeZero())
}
