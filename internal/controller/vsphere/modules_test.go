package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vapi/cluster"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// deployment creates the MachineDeployment demo-md-0, with a template that names a resource pool.
func (w *world) deployment(pool string) *clusterv1.MachineDeployment {
	w.t.Helper()
	w.g.Expect(k8s.Create(ctx, template("demo-worker", w.ns, pool))).To(Succeed())
	md := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-md-0", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"}},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: "demo", Replicas: ptr.To[int32](0), Selector: metav1.LabelSelector{MatchLabels: map[string]string{"set": "demo-md-0-x"}},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"set": "demo-md-0-x"}},
				Spec: clusterv1.MachineSpec{
					ClusterName: "demo", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachineTemplate", Name: "demo-worker"},
				},
			},
		},
	}
	w.g.Expect(k8s.Create(ctx, md)).To(Succeed())
	return md
}

func template(name, namespace, pool string) *infrav1.VSphereMachineTemplate {
	return &infrav1.VSphereMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: infrav1.VSphereMachineTemplateSpec{Template: infrav1.VSphereMachineTemplateResource{Spec: infrav1.VSphereMachineSpec{
			VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
				Template: "os-v136-3", Datacenter: "dc-a", ResourcePool: pool,
				Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node", DHCP4: true}}},
			},
		}}},
	}
}

// modulesSay waits for the condition of a VSphereCluster's modules.
func (w *world) modulesSay(reason string, parts ...string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		c := conditions.Get(w.infra, infrav1.ClusterModulesAvailableCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		for _, part := range parts {
			g.Expect(c.Message).To(ContainSubstring(part))
		}
	}).Should(Succeed())
}

// modules are the cluster modules as an administrator sees them.
func (w *world) modules() *cluster.Manager {
	w.t.Helper()
	c, _ := w.administrator()
	r := rest.NewClient(c.Client)
	w.g.Expect(r.Login(ctx, w.vcenter.Userinfo())).To(Succeed())
	return cluster.NewManager(r)
}

// VS-V49: with the gate on, an owner of machines has a module, its virtual machines are in it from before their first start until
// they are destroyed, and it goes with its owner and not before. Without the gate nobody asks.
func TestClusterModules(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	md := w.deployment("k8s")
	w.start()
	w.provisioned()
	w.g.Expect(conditions.Get(w.infra, infrav1.ClusterModulesAvailableCondition)).To(BeNil())
	for call := range w.meter.Snapshot().Calls {
		w.g.Expect(call).NotTo(ContainSubstring("modules"))
	}
	w.stop()
	w.antiAffinity = true
	w.start()
	w.modulesSay(infrav1.SatisfiedReason)
	w.g.Expect(w.infra.Spec.ClusterModules).To(HaveLen(1))
	module := w.infra.Spec.ClusterModules[0]
	w.g.Expect(module.TargetObjectName).To(Equal("demo-md-0"))
	w.g.Expect(module.ControlPlane).To(BeFalse())

	modules := w.modules()
	m := w.withMachine("m1", "")
	w.ready(m)
	members := func() []types.ManagedObjectReference {
		list, err := modules.ListModuleMembers(ctx, module.ModuleUUID)
		w.g.Expect(err).NotTo(HaveOccurred())
		return list
	}
	w.g.Expect(members()).To(ConsistOf(types.ManagedObjectReference{Type: "VirtualMachine", Value: w.vm("m1").Ref}))
	vm := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, vm)).To(Succeed())
	w.g.Expect(ptr.Deref(vm.Status.ModuleUUID, "")).To(Equal(module.ModuleUUID))

	// An owner that cannot be placed keeps its module, whatever happens to those of others.
	w.g.Expect(k8s.Delete(ctx, template("demo-worker", w.ns, "k8s"))).To(Succeed())
	w.g.Expect(k8s.Create(ctx, template("demo-other", w.ns, "k8s"))).To(Succeed())
	other := md.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "demo-md-1", Labels: md.Labels}
	other.Spec.Template.Spec.InfrastructureRef.Name = "demo-other"
	w.g.Expect(k8s.Create(ctx, other)).To(Succeed())
	owners := func() (names []string) {
		w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		for _, m := range w.infra.Spec.ClusterModules {
			names = append(names, m.TargetObjectName)
		}
		return names
	}
	w.g.Eventually(owners).Should(ContainElement("demo-md-1"))
	w.g.Expect(k8s.Delete(ctx, other)).To(Succeed())
	w.g.Eventually(owners).ShouldNot(ContainElement("demo-md-1"))
	w.g.Expect(w.infra.Spec.ClusterModules).To(ConsistOf(module))
	w.g.Expect(members()).To(HaveLen(1))

	// One that is to be destroyed and runs on is still kept apart.
	admin := w.vcenter.Admin()
	w.g.Expect(admin.Inject(ctx, vcenter.Fault{Method: "PowerOffVM_Task", Kind: vcenter.FaultBefore, Count: -1})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		faults, err := admin.Faults(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(faults).To(ContainElement(HaveField("Struck", BeNumerically(">", 0))))
	}).Should(Succeed())
	w.g.Expect(members()).To(HaveLen(1))
	w.g.Expect(admin.ClearFaults(ctx)).To(Succeed())
	w.gone(m)
	w.g.Expect(members()).To(BeEmpty())

	w.g.Expect(k8s.Delete(ctx, md)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		g.Expect(w.infra.Spec.ClusterModules).To(BeEmpty())
		list, err := modules.ListModules(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list).To(BeEmpty())
	}).Should(Succeed())
}

// VS-V49: what is in the way of a module is a condition, and keeps neither the cluster nor its machines from being ready; a cluster
// that goes takes its modules along.
func TestClusterModulesThatCannotBe(t *testing.T) {
	w := newWorld(t)
	w.antiAffinity = true
	w.withCluster()
	md := w.deployment("nowhere")
	w.start()
	w.provisioned()
	w.modulesSay(infrav1.ClusterModuleSetupFailedReason, "MachineDeployment demo-md-0", `"nowhere"`)
	w.g.Expect(w.infra.Status.Ready).To(BeTrue())
	m := w.withMachine("m1", "")
	w.ready(m)

	w.g.Expect(k8s.Create(ctx, template("demo-right", w.ns, "k8s"))).To(Succeed())
	before := md.DeepCopy()
	md.Spec.Template.Spec.InfrastructureRef.Name = "demo-right"
	w.g.Expect(k8s.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
	w.modulesSay(infrav1.SatisfiedReason)
	modules := w.modules()
	w.g.Expect(modules.ListModules(ctx)).To(HaveLen(1))
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, w.infra)).To(Succeed())
	w.gone(w.infra)
	w.g.Expect(modules.ListModules(ctx)).To(BeEmpty())
}

// VS-V49: an old vCenter has no modules.
func TestOldVCenterHasNoModules(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) { o.Version = "6.7.0" })
	w.antiAffinity = true
	w.withCluster()
	w.deployment("k8s")
	w.start()
	w.provisioned()
	w.modulesSay(infrav1.VCenterVersionIncompatibleReason, "6.7.0")
	w.g.Expect(w.infra.Spec.ClusterModules).To(BeEmpty())
}
