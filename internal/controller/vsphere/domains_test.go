package vsphere_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// zoned is a zone over a failure domain that the test shapes.
func (w *world) zoned(suffix string, change func(*infrav1.VSphereFailureDomain, *infrav1.VSphereDeploymentZone)) *infrav1.VSphereDeploymentZone {
	w.t.Helper()
	name := w.ns + "-" + suffix
	domain := &infrav1.VSphereFailureDomain{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrav1.VSphereFailureDomainSpec{
			Region: infrav1.FailureDomain{Name: "region-1", Type: infrav1.DatacenterFailureDomain, TagCategory: "k8s-region", AutoConfigure: ptr.To(true)},
			Zone:   infrav1.FailureDomain{Name: "zone-" + suffix, Type: infrav1.ComputeClusterFailureDomain, TagCategory: "k8s-zone", AutoConfigure: ptr.To(true)},
			Topology: infrav1.Topology{
				Datacenter: "dc-" + suffix, ComputeCluster: ptr.To("cl-" + suffix), Datastore: "ds-shared-" + suffix, Networks: []string{"pg-node"},
			},
		},
	}
	zone := &infrav1.VSphereDeploymentZone{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": w.ns}},
		Spec: infrav1.VSphereDeploymentZoneSpec{
			Server: w.vcenter.Address(), FailureDomain: name, ControlPlane: ptr.To(true),
			PlacementConstraint: infrav1.PlacementConstraint{Folder: "k8s", ResourcePool: "k8s"},
		},
	}
	if change != nil {
		change(domain, zone)
	}
	w.g.Expect(k8s.Create(ctx, domain)).To(Succeed())
	w.g.Expect(k8s.Create(ctx, zone)).To(Succeed())
	w.t.Cleanup(func() {
		_ = k8s.Get(ctx, client.ObjectKeyFromObject(zone), zone)
		zone.Finalizers = nil
		_ = k8s.Update(ctx, zone)
		_ = k8s.Delete(ctx, zone)
		_ = k8s.Delete(ctx, domain)
	})
	return zone
}

// selecting makes the VSphereCluster select the zones of this test.
func (w *world) selecting(c *infrav1.VSphereCluster) {
	c.Spec.FailureDomainSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"test": w.ns}}
}

// zoneSays waits for a condition of a zone.
func (w *world) zoneSays(zone *infrav1.VSphereDeploymentZone, ready bool, condition, reason string, parts ...string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(zone), zone)).To(Succeed())
		c := conditions.Get(zone, condition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		for _, part := range parts {
			g.Expect(c.Message).To(ContainSubstring(part))
		}
		g.Expect(zone.Status.Ready).To(Equal(&ready))
	}).Should(Succeed())
}

func (w *world) zoneReady(zone *infrav1.VSphereDeploymentZone) {
	w.t.Helper()
	w.zoneSays(zone, true, infrav1.ReadyCondition, infrav1.SatisfiedReason)
}

// listed waits until the VSphereCluster lists exactly these zones.
func (w *world) listed(reason string, names ...string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		var got []string
		for _, d := range w.infra.Status.FailureDomains {
			got = append(got, d.Name)
		}
		g.Expect(got).To(Equal(names))
		c := conditions.Get(w.infra, infrav1.FailureDomainsAvailableCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(reason), c.Message)
	}).Should(Succeed())
}

// administrator is a login of a person at the simulated vCenter.
func (w *world) administrator() (*govmomi.Client, *find.Finder) {
	w.t.Helper()
	u := w.vcenter.URL()
	u.User = w.vcenter.Userinfo()
	c, err := govmomi.NewClient(ctx, u, true)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { _ = c.Logout(ctx) })
	f := find.NewFinder(c.Client)
	dc, err := f.Datacenter(ctx, "dc-a")
	w.g.Expect(err).NotTo(HaveOccurred())
	return c, f.SetDatacenter(dc)
}

func (w *world) tagger() *tags.Manager {
	w.t.Helper()
	c, _ := w.administrator()
	r := rest.NewClient(c.Client)
	w.g.Expect(r.Login(ctx, w.vcenter.Userinfo())).To(Succeed())
	w.t.Cleanup(func() { _ = r.Logout(ctx) })
	return tags.NewManager(r)
}

// A vCenter that does not answer a look at a zone is told where people and the cluster look, and asked again.
func TestZoneThatCannotBeLookedAt(t *testing.T) {
	w := newWorld(t)
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "REST POST /rest/com/vmware/cis/session", Kind: vcenter.FaultBefore, Count: -1})).To(Succeed())
	zone := w.zoned("a", nil)
	w.withCluster(w.selecting)
	w.start()
	w.zoneSays(zone, false, infrav1.VCenterAvailableCondition, infrav1.VCenterUnreachableReason, "REST services", "503")
	w.zoneSays(zone, false, infrav1.ReadyCondition, infrav1.VCenterUnreachableReason)
	w.g.Expect(w.vcenter.Admin().ClearFaults(ctx)).To(Succeed())
	w.zoneReady(zone)
}

// VS-V47: a zone without autoConfigure waits for its tags, says which, and is ready soon after a person has made them; a placement
// constraint that names nothing is told at the same time.
func TestZoneWaitsForItsTags(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", func(d *infrav1.VSphereFailureDomain, z *infrav1.VSphereDeploymentZone) {
		d.Spec.Region.AutoConfigure, d.Spec.Zone.AutoConfigure = nil, nil
		z.Spec.PlacementConstraint.Folder = "nowhere"
	})
	w.withCluster(w.selecting)
	w.start()
	w.zoneSays(zone, false, infrav1.FailureDomainValidatedCondition, infrav1.FailureDomainRegionMisconfiguredReason,
		"VSphereFailureDomain "+zone.Name, "spec.region.tagCategory", `"k8s-region"`, "autoConfigure")
	w.zoneSays(zone, false, infrav1.PlacementConstraintMetCondition, infrav1.FolderNotFoundReason, "spec.placementConstraint.folder", `"nowhere"`, "k8s")

	m := w.tagger()
	_, f := w.administrator()
	dc, err := f.Datacenter(ctx, "dc-a")
	w.g.Expect(err).NotTo(HaveOccurred())
	cl, err := f.ClusterComputeResource(ctx, "cl-a")
	w.g.Expect(err).NotTo(HaveOccurred())
	for category, on := range map[string]struct {
		tag string
		ref mo.Reference
	}{"k8s-region": {"region-1", dc}, "k8s-zone": {"zone-a", cl}} {
		id, err := m.CreateCategory(ctx, &tags.Category{Name: category, Cardinality: "SINGLE"})
		w.g.Expect(err).NotTo(HaveOccurred())
		tag, err := m.CreateTag(ctx, &tags.Tag{Name: on.tag, CategoryID: id})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(m.AttachTag(ctx, tag, on.ref)).To(Succeed())
	}
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(zone), zone); err != nil {
			return err
		}
		zone.Spec.PlacementConstraint.Folder = "k8s"
		return k8s.Update(ctx, zone)
	}).Should(Succeed())
	w.zoneReady(zone)
	w.listed(infrav1.SatisfiedReason, zone.Name)
}

// VS-V46, VS-V51: a missing failure domain is awaited without a timer; a zone that Machines use stays and names them; the last
// zone takes the failure domain along, which does not hold it up when it is gone already.
func TestZoneLifeCycle(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("b", nil)
	domain := &infrav1.VSphereFailureDomain{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, domain)).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, domain)).To(Succeed())
	second := w.zoned("second", func(d *infrav1.VSphereFailureDomain, z *infrav1.VSphereDeploymentZone) {
		d.Name = z.Name + "-unused"
		z.Spec.FailureDomain = zone.Spec.FailureDomain
	})
	w.withCluster(w.selecting)
	w.start()
	w.zoneSays(zone, false, infrav1.FailureDomainValidatedCondition, infrav1.FailureDomainZoneMisconfiguredReason, domain.Name, "does not exist")
	w.listed(infrav1.FailureDomainsSkippedReason)
	domain.ResourceVersion, domain.UID, domain.OwnerReferences = "", "", nil
	w.g.Expect(k8s.Create(ctx, domain)).To(Succeed())
	w.zoneReady(zone)
	w.zoneReady(second)
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(domain), domain)).To(Succeed())
		g.Expect(domain.OwnerReferences).To(HaveLen(2))
	}).Should(Succeed())
	w.listed(infrav1.SatisfiedReason, zone.Name, second.Name)

	w.failureDomain = zone.Name
	w.provisioned()
	m := w.withMachine("m1", "", onlyShape)
	w.ready(m)
	w.g.Expect(k8s.Delete(ctx, zone)).To(Succeed())
	w.zoneSays(zone, true, infrav1.ReadyCondition, infrav1.DeletingReason, w.ns+"/m1")
	w.listed(infrav1.FailureDomainsSkippedReason, second.Name)

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	w.gone(zone)
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(domain), domain)).To(Succeed(), "another zone names it")
	w.g.Expect(k8s.Delete(ctx, second)).To(Succeed())
	w.gone(second)
	w.gone(domain)
}

// onlyShape leaves placement to the failure domain, as 8.2 has it.
func onlyShape(m *infrav1.VSphereMachine) {
	m.Spec.Datacenter, m.Spec.Folder, m.Spec.ResourcePool, m.Spec.Datastore = "", "", "", ""
}

// 8.2, VS-A18, VS-R41, VS-R44: slots in two datacenters, a template without placement: each machine lands where its zone says,
// its disks on the zone's datastore, or on the one that the slot names.
func TestPoolOverTwoDatacenters(t *testing.T) {
	w := newWorld(t)
	zoneA, zoneB := w.zoned("a", nil), w.zoned("b", nil)
	w.withCluster(w.selecting)
	w.start()
	w.provisioned()
	w.listed(infrav1.SatisfiedReason, zoneA.Name, zoneB.Name)
	w.withPool(3, func(p *infrav1.VSphereMachineConfigPool) {
		p.Spec.Configs[0].Datacenter, p.Spec.Configs[1].Datacenter, p.Spec.Configs[2].Datacenter = "dc-a", "dc-b", "dc-a"
		p.Spec.Configs[0].PersistentDisks = append(p.Spec.Configs[0].PersistentDisks, infrav1.PersistentDisk{Name: "elsewhere", SizeGiB: 1, Datastore: "ds-shared-a2"})
	})
	w.failureDomain = zoneB.Name
	inB := w.withMachine("m-b", "demo-worker", onlyShape)
	w.failureDomain = zoneA.Name
	inA := w.withMachine("m-a", "demo-worker", onlyShape)
	w.ready(inB)
	w.ready(inA)
	w.g.Expect(w.vm("m-b").Datacenter).To(Equal("dc-b"))
	w.g.Expect(w.vm("m-b").Directory).To(HavePrefix("[ds-shared-b]"))
	w.g.Expect(w.vm("m-a").Datacenter).To(Equal("dc-a"))
	w.g.Expect(w.vm("m-a").Directory).To(HavePrefix("[ds-shared-a]"))
	where := map[string]string{}
	for _, d := range w.pool().Status.PersistentDiskStatuses {
		where[d.Hostname+"/"+d.Name] = strings.Fields(d.VolumePath + " -")[0]
	}
	w.g.Expect(where).To(HaveKeyWithValue(w.ns+"-w-1/var-cpaas", "[ds-shared-a]"))
	w.g.Expect(where).To(HaveKeyWithValue(w.ns+"-w-1/elsewhere", "[ds-shared-a2]"), "the slot's own word wins over the failure domain's")
	w.g.Expect(where).To(HaveKeyWithValue(w.ns+"-w-2/var-cpaas", "[ds-shared-b]"))

	// A third machine in zone b finds no slot there, and says which zone is full.
	w.failureDomain = zoneB.Name
	late := w.withMachine("m-late", "demo-worker", onlyShape)
	w.waits(late, infrav1.MachineConfigPoolReadyCondition, infrav1.NoAvailableSlotsReason)
	w.g.Expect(conditions.GetMessage(late, infrav1.MachineConfigPoolReadyCondition)).To(ContainSubstring(zoneB.Name))

	// D17: the template names no datastore, and the disks are found again all the same.
	before := w.pool().Status.PersistentDiskStatuses
	made := len(w.vcenter.World().Disks)
	pool := w.pool()
	pool.Status = infrav1.VSphereMachineConfigPoolStatus{}
	w.g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		after := map[string]string{}
		for _, d := range w.pool().Status.PersistentDiskStatuses {
			if d.VolumePath != "" {
				after[d.Hostname+"/"+d.Name] = d.VolumePath
			}
		}
		for _, d := range before {
			if d.VolumePath != "" {
				g.Expect(after).To(HaveKeyWithValue(d.Hostname+"/"+d.Name, d.VolumePath))
			}
		}
		g.Expect(w.slotStatus(w.ns + "-w-2").State).To(Equal(infrav1.ConfigStateInUse))
		g.Expect(conditions.IsTrue(w.pool(), infrav1.ReadyCondition)).To(BeTrue(), "%+v", w.pool().Status.Conditions)
	}).Should(Succeed())
	w.g.Expect(w.vcenter.World().Disks).To(HaveLen(made), "nothing is created to rebuild a record")
}

// VS-A19: a slot and a failure domain that name different networks stop the machine before anything is made.
func TestSlotAndFailureDomainDisagree(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", func(d *infrav1.VSphereFailureDomain, _ *infrav1.VSphereDeploymentZone) {
		d.Spec.Topology.Networks = []string{"pg-stor"}
	})
	w.withCluster(w.selecting)
	w.start()
	w.provisioned()
	w.withPool(1)
	w.failureDomain = zone.Name
	m := w.withMachine("m1", "demo-worker", onlyShape)
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.NetworkTopologyMismatchReason)
	w.g.Expect(conditions.GetMessage(m, infrav1.VMProvisionedCondition)).To(And(
		ContainSubstring(w.ns+"-w-1"), ContainSubstring(`"pg-node"`), ContainSubstring(zone.Name), ContainSubstring(`"pg-stor"`)))
	w.g.Expect(w.vms()).To(BeZero())
	w.g.Expect(w.meter.Snapshot().Calls["CloneVM_Task"]).To(BeZero())
}

// A zone of another vCenter, and a template that names another one, are refused in a sentence and without a call: the disks of a
// pool lie on the cluster's vCenter.
func TestAnotherVCenterIsRefused(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", func(_ *infrav1.VSphereFailureDomain, z *infrav1.VSphereDeploymentZone) {
		z.Spec.Server = "vc.example.test"
	})
	w.withCluster(func(c *infrav1.VSphereCluster) { c.Spec.FailureDomainSelector = &metav1.LabelSelector{} })
	w.start()
	w.provisioned()
	w.zoneSays(zone, false, infrav1.VCenterAvailableCondition, infrav1.VCenterUnreachableReason, `"vc.example.test"`, "no VSphereCluster")
	w.g.Expect(w.infra.Status.FailureDomains).NotTo(ContainElement(HaveField("Name", zone.Name)))
	w.withPool(2)
	before := w.meter.Snapshot()
	other := w.withMachine("m-other", "demo-worker", func(m *infrav1.VSphereMachine) { m.Spec.Server = "vc.example.test" })
	w.failureDomain = zone.Name
	zoned := w.withMachine("m-zoned", "demo-worker", onlyShape)
	for m, says := range map[*infrav1.VSphereMachine]string{other: "spec.server", zoned: "VSphereDeploymentZone " + zone.Name} {
		w.waits(m, infrav1.VMProvisionedCondition, infrav1.CloningFailedReason)
		w.g.Expect(conditions.GetMessage(m, infrav1.VMProvisionedCondition)).To(And(
			ContainSubstring(says), ContainSubstring(`"vc.example.test"`), ContainSubstring(fmt.Sprintf("%q", w.vcenter.Address()))))
	}
	for method, n := range w.meter.Snapshot().Since(before).Calls {
		if method != "WaitForUpdatesEx" {
			t.Errorf("%d calls of %s for machines that cannot be made", n, method)
		}
	}
	w.g.Expect(w.pool().Status.ConsumerRef).To(BeNil(), "no slot is claimed")
}

// 4.5: for a control plane, zones are listed in which its own pool has a slot left, whatever other pools have; when there is none
// anywhere, all are listed and the condition says so.
func TestFailureDomainsFollowTheControlPlanesPool(t *testing.T) {
	w := newWorld(t)
	a, b := w.zoned("a", nil), w.zoned("b", nil)
	workers := w.zoned("z-workers", func(d *infrav1.VSphereFailureDomain, z *infrav1.VSphereDeploymentZone) {
		d.Name, z.Spec.FailureDomain, z.Spec.ControlPlane = z.Name+"-unused", b.Spec.FailureDomain, ptr.To(false)
	})
	w.withCluster(w.selecting)
	w.start()
	w.provisioned()
	w.listed(infrav1.SatisfiedReason, a.Name, b.Name, workers.Name)

	// The pool of the control plane: one slot in each datacenter. A pool of workers has room in dc-a.
	own := w.withPool(2, func(p *infrav1.VSphereMachineConfigPool) {
		p.Name = "demo-control-plane"
		p.Spec.Configs[0].Datacenter, p.Spec.Configs[1].Datacenter = "dc-a", "dc-b"
	})
	other := w.slot(9)
	w.withPool(0, func(p *infrav1.VSphereMachineConfigPool) { p.Spec.Configs = []infrav1.VSphereMachineConfig{other} })
	status := func(consumer bool, states ...infrav1.ConfigState) {
		w.g.Eventually(func() error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(own), own); err != nil {
				return err
			}
			own.Status.ConsumerRef = nil
			if consumer {
				own.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Namespace: w.ns, Name: "demo"}
			}
			own.Status.ConfigStatuses = nil
			for i, s := range states {
				own.Status.ConfigStatuses = append(own.Status.ConfigStatuses, infrav1.VSphereMachineConfigStatus{Hostname: own.Spec.Configs[i].Hostname, State: s})
			}
			return k8s.Status().Update(ctx, own)
		}).Should(Succeed())
	}
	// Paused, the pool's status stays as it is written here.
	before := own.DeepCopy()
	own.Annotations = map[string]string{clusterv1.PausedAnnotation: "true"}
	w.g.Expect(k8s.Patch(ctx, own, client.MergeFrom(before))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(own), own)).To(Succeed())
		g.Expect(conditions.IsTrue(own, infrav1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
	status(true, infrav1.ConfigStateInUse, infrav1.ConfigStateAvailable)
	w.listed(infrav1.SatisfiedReason, b.Name, workers.Name)
	status(true, infrav1.ConfigStateReleased, infrav1.ConfigStateInUse)
	w.listed(infrav1.SatisfiedReason, a.Name, workers.Name)
	status(true, infrav1.ConfigStateInUse, infrav1.ConfigStateInUse)
	w.listed(infrav1.FailureDomainsExhaustedReason, a.Name, b.Name, workers.Name)
	w.g.Expect(conditions.GetMessage(w.infra, infrav1.FailureDomainsAvailableCondition)).To(ContainSubstring("demo-control-plane"))
}
