package vsphere_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/cluster"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// groupMembers reads a VM group as an administrator sees it.
func (c *cloud) groupMembers(t *testing.T, compute *object.ClusterComputeResource, name string) []types.ManagedObjectReference {
	t.Helper()
	config := must[*types.ClusterConfigInfoEx](t)(compute.Configuration(t.Context()))
	for _, g := range config.Group {
		if group, ok := g.(*types.ClusterVmGroup); ok && group.Name == name {
			return group.Vm
		}
	}
	t.Fatalf("no VM group %s", name)
	return nil
}

func refOf(server *machine.Server) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "VirtualMachine", Value: strings.TrimPrefix(server.ServerID, "VirtualMachine:")}
}

// VS-V48: machines that join a VM group at the same time all get in, beside those of others; they run on the hosts of the zone from
// their first start, and leave the group with their destruction.
func TestMachinesJoinTheirGroup(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	compute := c.rack(t, true)
	_, finder, _ := c.admin(t)
	theirs := c.foreign(t, finder, "theirs").Reference()
	s := c.dial(t)
	f := newFleet(t, c, s)
	const n = 12
	f.each(n, func(_ int, m *member) error {
		sh := shape()
		sh.ComputeCluster, sh.VMGroup = "cl-a", "vms-1"
		m.spec.Shape = sh
		return nil
	})
	// Whoever is in the group already stays in it.
	c.change(t, compute, &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit},
		Info:            &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "vms-1"}, Vm: []types.ManagedObjectReference{theirs}},
	}}})
	before := c.meter.Snapshot()
	f.each(n, f.create)
	if t.Failed() {
		return
	}
	if got := c.meter.Snapshot().Since(before).Calls["ReconfigureComputeResource_Task"]; got > n {
		t.Errorf("%d changes of the group for %d machines", got, n)
	}
	members := c.groupMembers(t, compute, "vms-1")
	if !slices.Contains(members, theirs) {
		t.Error("the machine that was in the group before is not any more")
	}
	var config mo.ClusterComputeResource
	if err := compute.Properties(t.Context(), compute.Reference(), []string{"host"}, &config); err != nil {
		t.Fatal(err)
	}
	f.each(n, func(_ int, m *member) error {
		if !slices.Contains(members, refOf(m.server)) {
			t.Errorf("%s is not in the group", m.spec.Name)
		}
		for _, vm := range c.World().VMs {
			if vm.Ref == refOf(m.server).Value && vm.Host != "cl-a-h1" && vm.Host != "cl-a-h2" {
				t.Errorf("%s runs on %s, outside of its zone", vm.Name, vm.Host)
			}
		}
		return nil
	})
	f.each(n, f.remove)
	if members := c.groupMembers(t, compute, "vms-1"); len(members) != 1 {
		t.Errorf("still in the group: %v", members)
	}
}

// VS-V48: a machine whose group could not be changed is not fitted, and the next try changes it.
func TestFailedChangeOfAGroup(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	compute := c.rack(t, true)
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(1, func(_ int, m *member) error {
		sh := shape()
		sh.ComputeCluster, sh.VMGroup = "cl-a", "vms-1"
		m.spec.Shape = sh
		return c.Admin().Inject(t.Context(), vcenter.Fault{Method: "ReconfigureComputeResource_Task", Kind: vcenter.FaultBefore, Client: "adapter", Count: 1})
	})
	m := f.state[machine.Mark("0c6a5f7e-52d1-4f0e-8a41-000000000000")]
	if err := f.create(0, m); err == nil {
		t.Fatal("a failed change of the group went unnoticed")
	}
	if m.server == nil {
		t.Fatal("no virtual machine")
	}
	if members := c.groupMembers(t, compute, "vms-1"); len(members) != 0 {
		t.Fatalf("%v", members)
	}
	op, err := s.Fit(t.Context(), m.server, machine.Fit{Spec: m.spec, Volumes: m.volumes, UserData: []byte("#cloud-config\n")})
	if err := f.end(m.spec.Mark, op, err); err != nil {
		t.Fatal(err)
	}
	if members := c.groupMembers(t, compute, "vms-1"); !slices.Contains(members, refOf(m.server)) {
		t.Fatalf("%v", members)
	}
}

// A group that was removed is named, with those that there are.
func TestGroupIsGone(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	c.rack(t, false)
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(1, func(_ int, m *member) error {
		sh := shape()
		sh.ComputeCluster, sh.VMGroup = "cl-a", "vms-9"
		m.spec.Shape = sh
		refusal(t, f.create(0, m), machine.Refused, vsphere.ReasonHosts, "vmGroupName", "vms-9", "vms-1", "cl-a")
		return nil
	})
}

// VS-V49, VS-S28: machines join their module once, and leave it; a module of another compute cluster is refused.
func TestModules(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	where := must[vsphere.ComputeCluster](t)(s.ClusterOf(t.Context(), "dc-a", "/dc-a/host/cl-a/Resources/k8s"))
	if where.Path != "/dc-a/host/cl-a" {
		t.Fatalf("%+v", where)
	}
	id := must[string](t)(s.CreateModule(t.Context(), where.Ref))
	if all := must[map[string]string](t)(s.Modules(t.Context())); all[id] != where.Ref {
		t.Fatalf("%v", all)
	}
	client, _, _ := c.admin(t)
	r := rest.NewClient(client.Client)
	if err := r.Login(t.Context(), c.Userinfo()); err != nil {
		t.Fatal(err)
	}
	m := cluster.NewManager(r)
	f := newFleet(t, c, s)
	const n = 5
	f.each(n, func(_ int, m *member) error {
		sh := shape()
		sh.Module = id
		m.spec.Shape = sh
		return nil
	})
	f.each(n, f.create)
	if t.Failed() {
		return
	}
	if members := must[[]types.ManagedObjectReference](t)(m.ListModuleMembers(t.Context(), id)); len(members) != n {
		t.Fatalf("%v", members)
	}
	f.each(n, func(_ int, m *member) error {
		if err := s.LeaveModule(t.Context(), id, m.server.ServerID); err != nil {
			return err
		}
		return s.LeaveModule(t.Context(), id, m.server.ServerID) // not a member any more: fine
	})
	if members := must[[]types.ManagedObjectReference](t)(m.ListModuleMembers(t.Context(), id)); len(members) != 0 {
		t.Fatalf("%v", members)
	}
	for range 2 {
		if err := s.DeleteModule(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	other := must[vsphere.ComputeCluster](t)(s.ClusterOf(t.Context(), "dc-b", "k8s"))
	wrong := must[string](t)(s.CreateModule(t.Context(), other.Ref))
	late := &member{spec: f.state[machine.Mark("0c6a5f7e-52d1-4f0e-8a41-000000000000")].spec}
	late.spec.Name, late.spec.Mark, late.spec.Place = "late", "0c6a5f7e-52d1-4f0e-8a41-0000000000ff", nil
	for module, says := range map[string]string{wrong: "not in the module's compute cluster", id: "does not exist"} {
		sh := shape()
		sh.Module = module
		late.spec.Shape = sh
		if late.server == nil {
			op, err := s.Create(t.Context(), late.spec)
			if err := f.end(late.spec.Mark, op, err); err != nil {
				t.Fatal(err)
			}
			late.server = must[*machine.Server](t)(s.LookupLive(t.Context(), machine.Identity{Mark: late.spec.Mark, Name: "late", Location: "dc-a"}))
		}
		_, err := s.Fit(t.Context(), late.server, machine.Fit{Spec: late.spec, UserData: []byte("#cloud-config\n")})
		refusal(t, err, machine.Refused, vsphere.ReasonModule, module, says)
	}
	refused := func(pool string) {
		_, err := s.ClusterOf(t.Context(), "dc-a", pool)
		refusal(t, err, machine.Refused, vsphere.ReasonResourcePool, pool)
	}
	refused("nowhere")
}

// VS-S30: custom attributes are defined once, set on the machine, and survive that somebody removes the definition.
func TestCustomAttributes(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	client, _, _ := c.admin(t)
	manager := must[*object.CustomFieldsManager](t)(object.GetCustomFieldsManager(client.Client))
	const n = 6
	f.each(n, func(_ int, m *member) error {
		sh := shape()
		sh.Fields = map[string]string{"owner": "team-a", "cost-centre": "4711"}
		m.spec.Shape = sh
		return nil
	})
	f.each(n-1, f.create)
	defs := must[object.CustomFieldDefList](t)(manager.Field(t.Context()))
	if len(defs) != 2 {
		t.Fatalf("%d definitions: %v", len(defs), defs)
	}
	for _, d := range defs {
		if _, err := methods.RemoveCustomFieldDef(t.Context(), client.Client, &types.RemoveCustomFieldDef{This: manager.Reference(), Key: d.Key}); err != nil {
			t.Fatal(err)
		}
	}
	last := f.state[machine.Mark("0c6a5f7e-52d1-4f0e-8a41-000000000005")]
	if err := f.create(n-1, last); err != nil {
		t.Fatal(err)
	}
	var got mo.VirtualMachine
	if err := object.NewVirtualMachine(client.Client, refOf(last.server)).Properties(t.Context(), refOf(last.server), []string{"customValue"}, &got); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, v := range got.CustomValue {
		name := must[string](t)(nameOf(t, manager, v.GetCustomFieldValue().Key), nil)
		values[name] = v.(*types.CustomFieldStringValue).Value
	}
	if values["owner"] != "team-a" || values["cost-centre"] != "4711" {
		t.Fatalf("%v", values)
	}
}

func nameOf(t *testing.T, manager *object.CustomFieldsManager, key int32) string {
	t.Helper()
	for _, d := range must[object.CustomFieldDefList](t)(manager.Field(t.Context())) {
		if d.Key == key {
			return d.Name
		}
	}
	return ""
}
