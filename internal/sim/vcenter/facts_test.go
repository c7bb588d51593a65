package vcenter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/cluster"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// The tests of this file verify what clients rely on, on the simulated vCenter as a whole.

// VS-S6: reconfiguration.
func TestFactReconfigure(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1", func(spec *types.VirtualMachineCloneSpec) {
		spec.Config.Flags = &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(true)}
	})
	big := strings.Repeat("x", 300<<10)
	set := func(key, value string) error {
		return s.reconfigure(vm, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: key, Value: value}}})
	}
	g.Expect(set("guestinfo.userdata", big)).To(Succeed())
	g.Expect(s.reconfigure(vm, types.VirtualMachineConfigSpec{
		InstanceUuid: "0123abcd-1111-4222-8333-444455556666", MemoryMB: 4096, Flags: &types.VirtualMachineFlagInfo{EnableLogging: types.NewBool(false)},
	})).To(Succeed())
	got := s.read(vm)
	g.Expect(got.Config.InstanceUuid).To(Equal("0123abcd-1111-4222-8333-444455556666"))
	g.Expect(got.Config.Hardware.MemoryMB).To(Equal(int32(4096)))
	g.Expect(*got.Config.Flags.DiskUuidEnabled).To(BeTrue(), "flags that are not named stay")

	// An indexed path returns one key only.
	var one mo.VirtualMachine
	g.Expect(vm.Properties(s.ctx, vm.Reference(), []string{`config.extraConfig["guestinfo.userdata"]`}, &one)).To(Succeed())
	g.Expect(one.Config.ExtraConfig).To(HaveLen(1))
	g.Expect(set("guestinfo.userdata", "")).To(Succeed())
	for _, option := range s.read(vm).Config.ExtraConfig {
		g.Expect(option.GetOptionValue().Key).NotTo(Equal("guestinfo.userdata"), "an empty value removes the key")
	}
	g.Expect(faultAs[*types.NotSupported](s.reconfigure(s.template, types.VirtualMachineConfigSpec{NumCPUs: 4}))).To(BeTrue())
}

// VS-S7: both UUIDs find the VM.
func TestFactFindByUUID(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	got := s.read(vm)
	index := object.NewSearchIndex(s.client.Client)
	for id, instance := range map[string]bool{got.Config.Uuid: false, got.Config.InstanceUuid: true} {
		found, err := index.FindByUuid(s.ctx, s.dc, id, true, &instance)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Reference()).To(Equal(vm.Reference()))
		wrong := !instance
		found, err = index.FindByUuid(s.ctx, s.dc, id, true, &wrong)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found).To(BeNil())
	}
	g.Expect(s.destroy(vm)).To(Succeed())
	instance := true
	found, err := index.FindByUuid(s.ctx, s.dc, got.Config.InstanceUuid, true, &instance)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeNil())
}

// observed collects the updates of a filter on one goroutine.
type observed struct {
	updates chan types.ObjectUpdate
}

func (s *site) observe(root types.ManagedObjectReference, traverse types.TraversalSpec, kind string, paths ...string) *observed {
	s.t.Helper()
	collector, err := property.DefaultCollector(s.client.Client).Create(s.ctx)
	s.must(err)
	_, err = collector.CreateFilter(s.ctx, types.CreateFilter{Spec: types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: kind, PathSet: paths}},
		ObjectSet: []types.ObjectSpec{{Obj: root, Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{&traverse}}},
	}})
	s.must(err)
	o := &observed{updates: make(chan types.ObjectUpdate, 1000)}
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		version := ""
		for {
			set, err := collector.WaitForUpdates(ctx, version)
			if err != nil || set == nil {
				return
			}
			version = set.Version
			for _, filter := range set.FilterSet {
				for _, update := range filter.ObjectSet {
					o.updates <- update
				}
			}
		}
	}()
	return o
}

// until reads updates until one says that the property of the object has the value.
func (o *observed) until(g *WithT, ref types.ManagedObjectReference, name string, value any) {
	timeout := time.After(5 * time.Second)
	for {
		select {
		case update := <-o.updates:
			for _, change := range update.ChangeSet {
				if update.Obj == ref && change.Name == name && change.Val == value {
					return
				}
			}
		case <-timeout:
			g.Expect(name).To(Equal(value), "no such update of %s", ref)
			return
		}
	}
}

var viewTraversal = types.TraversalSpec{Type: "ListView", Path: "view", Skip: types.NewBool(false)}

// VS-S26: one wait for many VMs and for all their tasks; members join while the wait is open.
func TestFactListViews(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	manager := view.NewManager(s.client.Client)
	vms, err := manager.CreateListView(s.ctx, nil)
	g.Expect(err).NotTo(HaveOccurred())
	tasks, err := manager.CreateListView(s.ctx, nil)
	g.Expect(err).NotTo(HaveOccurred())
	machines := s.observe(vms.Reference(), viewTraversal, "VirtualMachine", "runtime.powerState", "guest.ipAddress", "config.hardware.device")
	states := s.observe(tasks.Reference(), viewTraversal, "Task", "info.state")

	var all []*object.VirtualMachine
	for _, name := range []string{"demo-1", "demo-2"} {
		vm := s.mustClone(name)
		all = append(all, vm)
		unresolved, err := vms.Add(s.ctx, []types.ManagedObjectReference{vm.Reference()})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(unresolved).To(BeEmpty())
		machines.until(g, vm.Reference(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOff)
	}
	for _, vm := range all {
		task, err := vm.PowerOn(s.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = tasks.Add(s.ctx, []types.ManagedObjectReference{task.Reference()})
		g.Expect(err).NotTo(HaveOccurred())
		states.until(g, task.Reference(), "info.state", types.TaskInfoStateSuccess)
		machines.until(g, vm.Reference(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOn)
		g.Expect(s.server.ReportGuest(vm.Reference().Value, vcenter.Guest{NICs: []vcenter.GuestNIC{{MAC: "x", Addresses: []string{"127.0.0.9"}}}})).To(Succeed())
		machines.until(g, vm.Reference(), "guest.ipAddress", "127.0.0.9")
	}
	g.Expect(s.powerOff(all[0])).To(Succeed())
	g.Expect(s.destroy(all[0])).To(Succeed())
	g.Eventually(machines.updates).Should(Receive(Satisfy(func(u types.ObjectUpdate) bool {
		return u.Obj == all[0].Reference() && u.Kind == types.ObjectUpdateKindLeave
	})))
	g.Expect(vms.Remove(s.ctx, []types.ManagedObjectReference{all[0].Reference()})).Error().NotTo(HaveOccurred())
}

// VS-S26: a container view finds VMs that are created later.
func TestFactContainerView(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	container, err := view.NewManager(s.client.Client).CreateContainerView(s.ctx, s.dc.Reference(), []string{"VirtualMachine"}, true)
	g.Expect(err).NotTo(HaveOccurred())
	traverse := viewTraversal
	traverse.Type = "ContainerView"
	machines := s.observe(container.Reference(), traverse, "VirtualMachine", "name", "runtime.powerState")
	vm := s.mustClone("demo-1")
	machines.until(g, vm.Reference(), "name", "demo-1")
	g.Expect(s.powerOn(vm)).To(Succeed())
	machines.until(g, vm.Reference(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOn)

	var list []mo.VirtualMachine
	g.Expect(container.Retrieve(s.ctx, []string{"VirtualMachine"}, []string{"name", "config.hardware.device"}, &list)).To(Succeed())
	var names []string
	for _, vm := range list {
		names = append(names, vm.Name)
	}
	g.Expect(names).To(ContainElements("os-v136-3", "os-v137-0", "demo-1"))
}

// A client that leaves in the middle of a wait loses no update: its next wait has them.
func TestFactWaitSurvivesALostClient(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	collector, err := property.DefaultCollector(s.client.Client).Create(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(collector.CreateFilter(s.ctx, types.CreateFilter{Spec: types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"runtime.powerState"}}},
		ObjectSet: []types.ObjectSpec{{Obj: vm.Reference()}},
	}})).Error().NotTo(HaveOccurred())
	set, err := collector.WaitForUpdates(s.ctx, "")
	g.Expect(err).NotTo(HaveOccurred())
	short, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	_, err = collector.WaitForUpdates(short, set.Version)
	g.Expect(err).To(HaveOccurred())
	g.Expect(s.powerOn(vm)).To(Succeed())
	long, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	set, err = collector.WaitForUpdates(long, set.Version)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.FilterSet[0].ObjectSet[0].ChangeSet).To(ContainElement(
		types.PropertyChange{Name: "runtime.powerState", Op: types.PropertyChangeOpAssign, Val: types.VirtualMachinePowerStatePoweredOn}))
}

// VS-S25: snapshots exist; the strict layer does not change them.
func TestFactSnapshots(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	task, err := vm.CreateSnapshot(s.ctx, "one", "", false, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	g.Expect(s.read(vm).Snapshot.CurrentSnapshot).NotTo(BeNil())
}

// VS-S28: cluster modules are a set: adding twice is no error, but not done either.
func TestFactClusterModules(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	client := rest.NewClient(s.client.Client)
	g.Expect(client.Login(s.ctx, s.server.Userinfo())).To(Succeed())
	modules := cluster.NewManager(client)
	compute, err := s.finder.ClusterComputeResource(s.ctx, "cl-a")
	g.Expect(err).NotTo(HaveOccurred())
	id, err := modules.CreateModule(s.ctx, compute)
	g.Expect(err).NotTo(HaveOccurred())
	for _, done := range []bool{true, false} {
		g.Expect(modules.AddModuleMembers(s.ctx, id, vm.Reference())).To(Equal(done))
	}
	members, err := modules.ListModuleMembers(s.ctx, id)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(members).To(Equal([]types.ManagedObjectReference{vm.Reference()}))
}

// VS-S29: VM groups and host groups.
func TestFactGroups(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	compute, err := s.finder.ClusterComputeResource(s.ctx, "cl-a")
	g.Expect(err).NotTo(HaveOccurred())
	task, err := compute.Reconfigure(s.ctx, &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd},
		Info:            &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "workers"}, Vm: []types.ManagedObjectReference{vm.Reference()}},
	}}}, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	config, err := compute.Configuration(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Group).To(HaveLen(1))
}

// VS-S29: a rule between a VM group and a host group decides where a VM runs, and a destroyed VM leaves its groups: vcsim does
// neither, vCenter both.
func TestFactRules(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	compute, err := s.finder.ClusterComputeResource(s.ctx, "cl-a")
	g.Expect(err).NotTo(HaveOccurred())
	hosts, err := compute.Hosts(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	var elsewhere types.ManagedObjectReference
	for _, h := range hosts {
		if h.Reference() != *s.read(vm).Runtime.Host {
			elsewhere = h.Reference()
		}
	}
	add := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}
	task, err := compute.Reconfigure(s.ctx, &types.ClusterConfigSpecEx{
		GroupSpec: []types.ClusterGroupSpec{
			{ArrayUpdateSpec: add, Info: &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "workers"}, Vm: []types.ManagedObjectReference{vm.Reference()}}},
			{ArrayUpdateSpec: add, Info: &types.ClusterHostGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "rack"}, Host: []types.ManagedObjectReference{elsewhere}}},
		},
		RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: add, Info: &types.ClusterVmHostRuleInfo{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: "workers in rack", Enabled: types.NewBool(true), Mandatory: types.NewBool(true)},
			VmGroupName:     "workers", AffineHostGroupName: "rack",
		}}},
	}, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	g.Expect(s.powerOn(vm)).To(Succeed())
	g.Expect(*s.read(vm).Runtime.Host).To(Equal(elsewhere))

	g.Expect(s.powerOff(vm)).To(Succeed())
	g.Expect(s.destroy(vm)).To(Succeed())
	config, err := compute.Configuration(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	for _, group := range config.Group {
		if vms, ok := group.(*types.ClusterVmGroup); ok {
			g.Expect(vms.Vm).To(BeEmpty())
		}
	}
}

// A task that ended long ago is not there any more.
func TestFactOldTasksVanish(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{TaskRetention: time.Second})
	vm := s.mustClone("demo-1")
	task, err := vm.PowerOn(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	g.Eventually(func() bool {
		var got mo.Task
		return faultAs[*types.ManagedObjectNotFound](task.Properties(s.ctx, task.Reference(), []string{"info"}, &got))
	}, 15*time.Second, 100*time.Millisecond).Should(BeTrue())
}

// VS-S30: custom fields.
func TestFactCustomFields(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	fields, err := object.GetCustomFieldsManager(s.client.Client)
	g.Expect(err).NotTo(HaveOccurred())
	field, err := fields.Add(s.ctx, "berth", "VirtualMachine", nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(field.Key).To(BeZero(), "beware: the first key is 0")
	g.Expect(fields.Set(s.ctx, vm.Reference(), field.Key, "x")).To(Succeed())
}

// VS-S31: storage policies can be looked up.
func TestFactStoragePolicies(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	client, err := pbm.NewClient(s.ctx, s.client.Client)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.ProfileIDByName(s.ctx, "vSAN Default Storage Policy")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.ProfileIDByName(s.ctx, "nonsense")
	g.Expect(err).To(HaveOccurred())
}

// VS-S35: states that no API reaches can be set in process.
func TestFactStatesInProcess(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	service := *s.server.Service().Context
	ctx := &service
	object := ctx.Map.Get(vm.Reference()).(*simulator.VirtualMachine)
	ctx.WithLock(object, func() {
		ctx.Update(object, []types.PropertyChange{{Name: "runtime.connectionState", Val: types.VirtualMachineConnectionStateDisconnected}})
	})
	g.Expect(s.read(vm).Runtime.ConnectionState).To(Equal(types.VirtualMachineConnectionStateDisconnected))
}

// Many clones at once: one result each, all different.
func TestFactParallelClones(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	pool := s.pool.Reference()
	spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &pool}}
	var tasks []*object.Task
	for range 20 {
		task, err := s.template.Clone(s.ctx, s.folder, "demo-1", spec)
		g.Expect(err).NotTo(HaveOccurred())
		tasks = append(tasks, task)
	}
	made := 0
	for _, task := range tasks {
		if err := task.Wait(s.ctx); err == nil {
			made++
		} else {
			g.Expect(faultAs[*types.DuplicateName](err)).To(BeTrue(), "%v", err)
		}
	}
	g.Expect(made).To(Equal(1), "a name is given once")
}
