package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
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
