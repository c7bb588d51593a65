package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A pool whose slots name a datacenter, a datastore or a policy that vCenter does not have can be deleted: it never had a disk.
func TestPoolOfAPlaceThatCannotExistGoes(t *testing.T) {
	for name, change := range map[string]func(*infrav1.VSphereMachineConfigPool){
		"datacenter": func(p *infrav1.VSphereMachineConfigPool) { p.Spec.Configs[0].Datacenter = "dc-nope" },
		"datastore":  func(p *infrav1.VSphereMachineConfigPool) { p.Spec.Configs[0].PersistentDisks[0].Datastore = "ds-nope" },
		"policy": func(p *infrav1.VSphereMachineConfigPool) {
			p.Spec.Configs[0].PersistentDisks[0].StoragePolicy = "sp-nope"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.withCluster()
			w.withTemplate("demo-worker")
			pool := w.withPool(1, change)
			w.start()
			w.provisioned()
			w.g.Eventually(func() bool { return conditions.IsTrue(w.pool(), infrav1.ReadyCondition) }).Should(BeTrue())
			w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
			w.gone(pool)
		})
	}
}

// What keeps a pool from going is said in its conditions and in one event, with the way out, and that way works.
func TestPoolThatCannotGoNamesTheWayOut(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.withTemplate("demo-worker")
	w.darken("ds-shared-a2")
	pool := w.withPool(1)
	w.start()
	w.provisioned()
	w.g.Eventually(func() bool { return conditions.IsTrue(w.pool(), infrav1.ReadyCondition) }).Should(BeTrue())
	w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
	way := And(ContainSubstring("ds-shared-a2"), ContainSubstring("var-cpaas"), ContainSubstring(infrav1.RetainDisksAnnotation+`: "true"`))
	w.g.Eventually(func(g Gomega) {
		p := w.pool()
		g.Expect(conditions.GetReason(p, infrav1.ReadyCondition)).To(Equal(infrav1.DeletingReason))
		g.Expect(conditions.GetMessage(p, infrav1.ReadyCondition)).To(way)
		g.Expect(conditions.GetReason(p, infrav1.PersistentDisksReadyCondition)).To(Equal(infrav1.ReclaimFailedReason))
		g.Expect(w.events("VSphereMachineConfigPool", infrav1.EventPersistentDiskReclaimFailed)).To(ConsistOf(way))
	}).Should(Succeed())
	before := w.pool()
	after := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, infrav1.RetainDisksAnnotation, "true")
	w.g.Expect(k8s.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
	w.gone(pool)
}

// darken makes a datastore one that cannot be looked at.
func (w *world) darken(name string) {
	w.t.Helper()
	service := *w.vcenter.Service().Context
	inside := &service
	for _, entity := range inside.Map.All("Datastore") {
		if ds, ok := entity.(*simulator.Datastore); ok && ds.Name == name {
			inside.WithLock(ds, func() {
				summary := ds.Summary
				summary.Accessible = false
				inside.Update(ds, []types.PropertyChange{{Name: "summary", Val: summary}})
			})
			return
		}
	}
	w.t.Fatalf("no datastore %s", name)
}

// withTemplate creates a template of machines of a pool: through it the pool knows what its servers look like.
func (w *world) withTemplate(pool string) {
	w.t.Helper()
	template := &infrav1.VSphereMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pool}}
	template.Spec.Template.Spec = infrav1.VSphereMachineSpec{
		VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
			Template: "os-v136-3", Datacenter: "dc-a", Datastore: "ds-shared-a",
			Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node"}}},
		},
	}
	template.Spec.Template.Spec.MachineConfigPoolRef = &corev1.ObjectReference{Kind: "VSphereMachineConfigPool", Name: pool}
	w.g.Expect(k8s.Create(ctx, template)).To(Succeed())
}
