package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-D49: the end of a disk's deletion wakes its pool; nothing polls for it. The safety net alone would take half a minute.
func TestEndOfADeletionWakesThePool(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) { p.Spec.ReleaseDelayHours = ptr.To(0) })
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	const hangs = 2 * time.Second
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "DeleteVirtualDisk_Task", Kind: vcenter.FaultTaskHang, Delay: hangs})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, w.machineOf(m)))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.diskStatus(w.ns + "-w-1").TaskRef).NotTo(BeEmpty())
	}).Should(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.diskStatus(w.ns + "-w-1").Phase).To(Equal(infrav1.DiskPhaseReclaimed))
		g.Expect(w.slotStatus(w.ns + "-w-1").State).To(Equal(infrav1.ConfigStateAvailable))
	}).WithTimeout(20 * time.Second).Should(Succeed())
}

// 3.1: a disk that cannot be deleted is told with its own reason, and a pool that waits for it says so when it is to go.
func TestFailedReclaimIsNamed(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) { p.Spec.ReleaseDelayHours = ptr.To(0) })
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	path := w.diskStatus(w.ns + "-w-1").VolumePath
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "DeleteVirtualDisk_Task", Kind: vcenter.FaultTask, Type: "CannotAccessFile"})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, w.machineOf(m)))).To(Succeed())
	says := func(condition, reason string) func(Gomega) {
		return func(g Gomega) {
			c := conditions.Get(w.pool(), condition)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason).To(Equal(reason), c.Message)
			g.Expect(c.Message).To(And(ContainSubstring("var-cpaas"), ContainSubstring("CannotAccessFile")))
		}
	}
	w.g.Eventually(says(infrav1.PersistentDisksReadyCondition, infrav1.ReclaimFailedReason)).Should(Succeed())
	w.g.Expect(w.disk(path)).NotTo(BeNil())
	w.g.Expect(k8s.Delete(ctx, w.pool())).To(Succeed())
	w.g.Eventually(says(infrav1.ReadyCondition, infrav1.DeletingReason)).Should(Succeed())
}
