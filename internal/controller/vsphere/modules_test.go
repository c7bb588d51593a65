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
	w.g.Expect(k8s.Create(ctx, &infrav1.VSphereMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-worker"},
		Spec: infrav1.VSphereMachineTemplateSpec{Template: infrav1.VSphereMachineTemplateResource{Spec: infrav1.VSphereMachineSpec{
			VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
				Template: "os-v136-3", Datacenter: "dc-a", ResourcePool: pool,
				Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node", DHCP4: true}}},
			},
		}}},
	})).To(Succeed())
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

// VS-V49: with the gate on, an owner of machines has a module, its virtual machines are in it from before their first start until
// their deletion, and it goes with its owner.
func TestClusterModules(t *testing.T) {
	w := newWorld(t)
	w.antiAffinity = true
	w.withCluster()
	md := w.deployment("k8s")
	w.start()
	w.provisioned()
	w.modulesSay(infrav1.SatisfiedReason)
	w.g.Expect(w.infra.Spec.ClusterModules).To(HaveLen(1))
	module := w.infra.Spec.ClusterModules[0]
	w.g.Expect(module.TargetObjectName).To(Equal("demo-md-0"))
	w.g.Expect(module.ControlPlane).To(BeFalse())

	c, _ := w.administrator()
	r := rest.NewClient(c.Client)
	w.g.Expect(r.Login(ctx, w.vcenter.Userinfo())).To(Succeed())
	modules := cluster.NewManager(r)
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

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
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
	w.deployment("nowhere")
	w.start()
	w.provisioned()
	w.modulesSay(infrav1.ClusterModuleSetupFailedReason, "MachineDeployment demo-md-0", `"nowhere"`)
	w.g.Expect(w.infra.Status.Ready).To(BeTrue())
	w.ready(w.withMachine("m1", ""))
}

// VS-V49: an old vCenter has no modules; without the gate nobody asks.
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
