package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// zone creates a deployment zone with its failure domain; both are cluster scoped, so the test's namespace is in their names.
func (w *world) zone(suffix, datacenter, datastore string) *infrav1.VSphereDeploymentZone {
	w.t.Helper()
	name := w.ns + "-" + suffix
	domain := &infrav1.VSphereFailureDomain{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: infrav1.VSphereFailureDomainSpec{
			Region:   infrav1.FailureDomain{Name: "r", Type: infrav1.DatacenterFailureDomain, TagCategory: "region", AutoConfigure: ptr.To(true)},
			Zone:     infrav1.FailureDomain{Name: suffix, Type: infrav1.DatacenterFailureDomain, TagCategory: "zone", AutoConfigure: ptr.To(true)},
			Topology: infrav1.Topology{Datacenter: datacenter, Datastore: datastore},
		},
	}
	w.g.Expect(k8s.Create(ctx, domain)).To(Succeed())
	zone := &infrav1.VSphereDeploymentZone{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": w.ns}},
		Spec: infrav1.VSphereDeploymentZoneSpec{
			Server: w.vcenter.Address(), FailureDomain: name,
			PlacementConstraint: infrav1.PlacementConstraint{Folder: "k8s", ResourcePool: "k8s"},
		},
	}
	w.g.Expect(k8s.Create(ctx, zone)).To(Succeed())
	return zone
}

// VS-V47, VS-V51, VS 4.5: zones are checked in vCenter, the cluster lists the good ones, and a machine lands in its zone.
func TestMachineLandsInItsZone(t *testing.T) {
	w := newWorld(t)
	good, bad := w.zone("b", "dc-b", "ds-shared-b"), w.zone("c", "dc-b", "ds-of-nobody")
	w.withCluster(func(c *infrav1.VSphereCluster) {
		c.Spec.FailureDomainSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"test": w.ns}}
	})
	w.start()
	w.provisioned()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(bad), bad)).To(Succeed())
		g.Expect(ptr.Deref(bad.Status.Ready, true)).To(BeFalse())
		c := conditions.Get(bad, infrav1.FailureDomainValidatedCondition)
		g.Expect(c.Reason).To(Equal(infrav1.DatastoreNotFoundReason))
		g.Expect(c.Message).To(ContainSubstring("ds-of-nobody"))
	}).Should(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		g.Expect(w.infra.Status.FailureDomains).To(ConsistOf(clusterv1.FailureDomain{Name: good.Name, ControlPlane: ptr.To(true)}))
		g.Expect(conditions.GetReason(w.infra, infrav1.FailureDomainsAvailableCondition)).To(Equal(infrav1.FailureDomainsSkippedReason))
	}).Should(Succeed())

	w.failureDomain = good.Name
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) { m.Spec.Datacenter = infrav1.AnyDatacenter })
	w.ready(m)
	w.g.Expect(w.vm("m1").Datacenter).To(Equal("dc-b"))
	w.g.Expect(w.vm("m1").Directory).To(HavePrefix("[ds-shared-b]"))
	w.g.Expect(m.Status.FailureDomain).To(Equal(good.Name))

	// A zone stays while a Machine is in it; the last zone takes its failure domain along.
	w.g.Expect(k8s.Delete(ctx, bad)).To(Succeed())
	w.gone(bad)
	w.gone(&infrav1.VSphereFailureDomain{ObjectMeta: metav1.ObjectMeta{Name: bad.Name}})
	w.g.Expect(k8s.Delete(ctx, good)).To(Succeed())
	w.g.Consistently(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(good), good) }, soon).Should(Succeed())
}
