package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// VS-A26: where no control plane can be asked, a worker's slot waits, and a control plane's goes on: it may be the one that
// brings the cluster back.
func TestControlPlaneSlotGoesOnWhenNobodyCanBeAsked(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	machine := w.machineOf(m)
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		machine.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "demo", UID: "1e2e5a5e-0000-4000-8000-000000000002", Controller: ptr.To(true),
		}}
		return k8s.Update(ctx, machine)
	}).Should(Succeed())
	w.provisioned()
	w.clusterStatus(func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = ptr.To(true) })
	w.ready(m)
	w.g.Expect(w.pool().Status.ConsumerRef.Kind).To(Equal("KubeadmControlPlane"))

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, machine)).To(Succeed())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(w.ns + "-w-1").State }).Should(Equal(infrav1.ConfigStateReleased))
}
