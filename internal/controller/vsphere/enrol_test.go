package vsphere_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// hostGroups makes host group rack-1 of the first host of cl-a, VM group vms-1 and, switched on or off, the rule between them.
func (w *world) hostGroups(add types.ArrayUpdateOperation, enabled bool) {
	w.t.Helper()
	_, f := w.administrator()
	cl, err := f.ClusterComputeResource(ctx, "cl-a")
	w.g.Expect(err).NotTo(HaveOccurred())
	hosts, err := cl.Hosts(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	how := types.ArrayUpdateSpec{Operation: add}
	spec := &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: how, Info: &types.ClusterVmHostRuleInfo{
		ClusterRuleInfo: types.ClusterRuleInfo{Name: "vms-1 on rack-1", Enabled: types.NewBool(enabled), Mandatory: types.NewBool(true)},
		VmGroupName:     "vms-1", AffineHostGroupName: "rack-1",
	}}}}
	if add == types.ArrayUpdateOperationAdd {
		spec.GroupSpec = []types.ClusterGroupSpec{
			{ArrayUpdateSpec: how, Info: &types.ClusterHostGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "rack-1"}, Host: []types.ManagedObjectReference{hosts[0].Reference()}}},
			{ArrayUpdateSpec: how, Info: &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "vms-1"}}},
		}
	}
	task, err := cl.Reconfigure(ctx, spec, true)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(task.Wait(ctx)).To(Succeed())
}

// VS-V47, VS-V48: a zone of one rack is ready when a person has made the groups and the rule between them; its machines run on its
// host; a rule that is switched off is told, and the zone stays usable.
func TestZoneOfHosts(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", func(d *infrav1.VSphereFailureDomain, _ *infrav1.VSphereDeploymentZone) {
		d.Spec.Zone.Type = infrav1.HostGroupFailureDomain
		d.Spec.Topology.Hosts = &infrav1.FailureDomainHosts{HostGroupName: "rack-1", VMGroupName: "vms-1"}
	})
	w.withCluster(w.selecting)
	w.start()
	w.provisioned()
	w.zoneSays(zone, false, infrav1.FailureDomainValidatedCondition, infrav1.HostsMisconfiguredReason, "spec.topology.hosts.hostGroupName", `"rack-1"`, "cl-a")
	w.hostGroups(types.ArrayUpdateOperationAdd, true)
	w.zoneReady(zone)
	w.listed(infrav1.SatisfiedReason, zone.Name)
	w.failureDomain = zone.Name
	for i := range 3 {
		w.withMachine(fmt.Sprintf("m%d", i), "", onlyShape)
	}
	for i := range 3 {
		m := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("m%d", i)}}
		w.ready(m)
		w.g.Expect(w.vm(m.Name).Host).To(Equal("cl-a-h1"))
	}
	w.hostGroups(types.ArrayUpdateOperationEdit, false)
	before := zone.DeepCopy()
	zone.Labels["look"] = "again"
	w.g.Expect(k8s.Patch(ctx, zone, client.MergeFrom(before))).To(Succeed())
	w.zoneSays(zone, true, infrav1.FailureDomainValidatedCondition, infrav1.HostsAffinityMisconfiguredReason, "disabled", "vms-1 on rack-1")
	w.zoneSays(zone, true, infrav1.ReadyCondition, infrav1.SatisfiedReason, "disabled")
}

// 3.3: the Machine carries the name of the host that its virtual machine runs on, from the first start on and after a vMotion, and
// is written only when that changes.
func TestHostLabel(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	labelled := func(host string) {
		w.t.Helper()
		w.g.Eventually(func(g Gomega) {
			owner := w.machineOf(m)
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
			g.Expect(owner.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/esxi-host", host))
		}).Should(Succeed())
	}
	first := w.vm("m1").Host
	labelled(first)
	writes := w.writes.snapshot()["PATCH machines"]

	service := *w.vcenter.Service().Context
	sim := &service
	vm := sim.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: w.vm("m1").Ref}).(*simulator.VirtualMachine)
	var other types.ManagedObjectReference
	for _, h := range sim.Map.All("HostSystem") {
		if name := h.Entity().Name; strings.HasPrefix(name, "cl-a-") && name != first {
			other = h.Reference()
		}
	}
	sim.WithLock(vm, func() { sim.Update(vm, []types.PropertyChange{{Name: "runtime.host", Val: &other}}) })
	w.g.Expect(w.vm("m1").Host).NotTo(Equal(first))
	labelled(w.vm("m1").Host)
	w.g.Expect(w.writes.snapshot()["PATCH machines"]).To(BeNumerically("<=", writes+1))
}

// 3.3: annotations of Cluster and VSphereCluster become custom attributes of the virtual machines; the Cluster's win.
func TestInventoryAnnotations(t *testing.T) {
	w := newWorld(t)
	w.withCluster(func(c *infrav1.VSphereCluster) {
		c.Annotations = map[string]string{"vsphere.cluster.x-k8s.io/owner": "nobody", "vsphere.cluster.x-k8s.io/cost-centre": "4711", "example.com/other": "x"}
	})
	before := w.cluster.DeepCopy()
	w.cluster.Annotations = map[string]string{"vsphere.cluster.x-k8s.io/owner": "team-a"}
	w.g.Expect(k8s.Patch(ctx, w.cluster, client.MergeFrom(before))).To(Succeed())
	w.start()
	w.provisioned()
	w.ready(w.withMachine("m1", ""))
	c, _ := w.administrator()
	manager, err := object.GetCustomFieldsManager(c.Client)
	w.g.Expect(err).NotTo(HaveOccurred())
	defs, err := manager.Field(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	names := map[int32]string{}
	for _, d := range defs {
		names[d.Key] = d.Name
	}
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: w.vm("m1").Ref}
	var got mo.VirtualMachine
	w.g.Expect(object.NewVirtualMachine(c.Client, ref).Properties(ctx, ref, []string{"customValue"}, &got)).To(Succeed())
	values := map[string]string{}
	for _, v := range got.CustomValue {
		values[names[v.GetCustomFieldValue().Key]] = v.(*types.CustomFieldStringValue).Value
	}
	w.g.Expect(values).To(Equal(map[string]string{"owner": "team-a", "cost-centre": "4711"}))
}
