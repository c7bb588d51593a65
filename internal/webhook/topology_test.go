package webhook_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// TestFailureDomainsAtAdmission: VS-R43, VS-A19: an owner of machines is held against the failure domain that it names, and a control
// plane against those that its VSphereCluster offers.
func TestFailureDomainsAtAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	var heard warned
	c := listening(g, &heard)
	domain := &v1beta1.VSphereFailureDomain{ObjectMeta: metav1.ObjectMeta{Name: "fd-" + ns}}
	domain.Spec.Region = v1beta1.FailureDomain{Name: "r", Type: v1beta1.DatacenterFailureDomain, TagCategory: "region"}
	domain.Spec.Zone = v1beta1.FailureDomain{Name: "z", Type: v1beta1.DatacenterFailureDomain, TagCategory: "zone"}
	domain.Spec.Topology = v1beta1.Topology{Datacenter: "dc", Networks: []string{"pg", "pg-2"}}
	g.Expect(k8s.Create(ctx, domain)).To(Succeed())
	zone := &v1beta1.VSphereDeploymentZone{ObjectMeta: metav1.ObjectMeta{Name: "zone-" + ns}}
	zone.Spec.FailureDomain = domain.Name
	g.Expect(k8s.Create(ctx, zone)).To(Succeed())
	g.Expect(zone.Spec.ControlPlane).To(HaveValue(BeTrue()))

	g.Expect(k8s.Create(ctx, newPool(ns, "workers", "w-1", "w-2", "w-3"))).To(Succeed())
	g.Expect(k8s.Create(ctx, newTemplate(ns, "v1", "workers"))).To(Succeed())
	md := deployment(ns, "v1beta2", "v1", map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)})
	must(unstructured.SetNestedField(md.Object, zone.Name, "spec", "template", "spec", "failureDomain"))
	g.Expect(k8s.Create(ctx, md)).To(MatchError(And(ContainSubstring("spec.template.spec.failureDomain"), ContainSubstring("names 2 network(s) [pg pg-2], template v1 has 1 device(s)"))))

	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.GroupVersion.Group, Kind: "VSphereCluster", Name: "demo"}
	g.Expect(k8s.Create(ctx, cluster)).To(Succeed())
	infra := &v1beta1.VSphereCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo"}}
	g.Expect(k8s.Create(ctx, infra)).To(Succeed())
	infra.Status.FailureDomains = []clusterv1.FailureDomain{{Name: zone.Name, ControlPlane: ptr.To(true)}, {Name: "workers-only", ControlPlane: ptr.To(false)}}
	g.Expect(k8s.Status().Update(ctx, infra)).To(Succeed())
	g.Expect(k8s.Create(ctx, newTemplate(ns, "cp", "cp"))).To(Succeed())
	pool := newPool(ns, "cp", "c-1", "c-2", "c-3")
	for i := range pool.Spec.Configs {
		pool.Spec.Configs[i].Network.Primary.IP = ""
	}
	g.Expect(k8s.Create(ctx, pool)).To(Succeed())
	kcp := controlPlaneObject(ns, "v1beta2", 3)
	kcp.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "demo"})
	must(unstructured.SetNestedField(kcp.Object, int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge"))
	must(unstructured.SetNestedField(kcp.Object, "RollingUpdate", "spec", "rollout", "strategy", "type"))
	heard.texts = nil
	g.Expect(c.Create(ctx, kcp)).To(Succeed())
	g.Expect(heard.texts).To(ContainElement(ContainSubstring("failure domain " + domain.Name + " of zone " + zone.Name + " names 2 network(s)")))
	g.Expect(heard.texts).NotTo(ContainElement(ContainSubstring("workers-only")))

	// The pool's next edit says it, too.
	heard.texts = nil
	pool.Spec.Configs[0].Network.Primary.DNS = []string{"192.0.2.53"}
	g.Expect(c.Update(ctx, pool)).To(Succeed())
	g.Expect(heard.texts).To(ContainElement(ContainSubstring("(KubeadmControlPlane " + ns + "/cp goes there)")))

	// It never changes.
	domain.Spec.Topology.Networks = []string{"pg"}
	g.Expect(k8s.Update(ctx, domain)).To(MatchError(ContainSubstring("a failure domain cannot be modified")))
}

// TestMachineDeletedAlone: whoever deletes a VSphereMachine instead of its Machine is told, and nothing is refused.
func TestMachineDeletedAlone(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	var heard warned
	c := listening(g, &heard)
	owner := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo-1", Finalizers: []string{keep}}}
	owner.Spec.ClusterName = "demo"
	owner.Spec.Bootstrap.DataSecretName = ptr.To("secret")
	owner.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.GroupVersion.Group, Kind: "VSphereMachine", Name: "m"}
	g.Expect(k8s.Create(ctx, owner)).To(Succeed())
	remove := func() []string {
		m := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "m", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: owner.Name, UID: owner.UID,
		}}}, Spec: newTemplate(ns, "", "").Spec.Template.Spec}
		g.Expect(k8s.Create(ctx, m)).To(Succeed())
		heard.texts = nil
		g.Expect(c.Delete(ctx, m)).To(Succeed())
		return heard.texts
	}
	g.Expect(remove()).To(ConsistOf(ContainSubstring("VSphereMachine " + ns + "/m is deleted while its Machine demo-1 lives")))
	g.Expect(k8s.Delete(ctx, owner)).To(Succeed())
	g.Expect(remove()).To(BeEmpty(), "its Machine is going")
	g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
	owner.Finalizers = nil
	g.Expect(k8s.Update(ctx, owner)).To(Succeed())
	g.Expect(remove()).To(BeEmpty(), "its Machine is gone")
}
