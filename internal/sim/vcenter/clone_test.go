package vcenter_test

import (
	"path"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-S2: the configuration of a clone is applied, flags included.
func TestCloneAppliesTheConfiguration(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	const instance = "0123abcd-1111-4222-8333-444455556666"
	vm := s.mustClone("demo-1", func(spec *types.VirtualMachineCloneSpec) {
		spec.Config = &types.VirtualMachineConfigSpec{
			InstanceUuid: instance, NumCPUs: 8, NumCoresPerSocket: types.NewInt32(4), MemoryMB: 16384, Annotation: "a note",
			Flags:       &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(true)},
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.metadata", Value: "x"}},
		}
	})
	got := s.read(vm)
	g.Expect(got.Config.InstanceUuid).To(Equal(instance))
	g.Expect(got.Config.Hardware.NumCPU).To(Equal(int32(8)))
	g.Expect(*got.Config.Hardware.NumCoresPerSocket).To(Equal(int32(4)))
	g.Expect(got.Config.Hardware.MemoryMB).To(Equal(int32(16384)))
	g.Expect(got.Config.Annotation).To(Equal("a note"))
	g.Expect(*got.Config.Flags.DiskUuidEnabled).To(BeTrue())
	g.Expect(got.Config.ExtraConfig).To(ContainElement(&types.OptionValue{Key: "guestinfo.metadata", Value: "x"}))
	g.Expect(got.Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOff))
	g.Expect(got.Config.Version).To(Equal("vmx-19"))

	byUUID, err := s.finder.VirtualMachine(s.ctx, "/dc-a/vm/k8s/demo-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(byUUID.Reference()).To(Equal(vm.Reference()))
}

// A clone takes over the extra configuration of its template, such as the version of its image, where its own says nothing.
func TestCloneInheritsExtraConfiguration(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	image := &types.OptionValue{Key: vcenter.ImageVersionKey, Value: "v1.36.3"}
	g.Expect(s.read(s.template).Config.ExtraConfig).To(ContainElement(image))
	vm := s.mustClone("demo-1", func(spec *types.VirtualMachineCloneSpec) {
		spec.Config = &types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.metadata", Value: "x"}}}
	})
	g.Expect(s.read(vm).Config.ExtraConfig).To(ContainElements(image, &types.OptionValue{Key: "guestinfo.metadata", Value: "x"}))

	own := &types.OptionValue{Key: vcenter.ImageVersionKey, Value: "v0.0.1"}
	vm = s.mustClone("demo-2", func(spec *types.VirtualMachineCloneSpec) {
		spec.Config = &types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{own}}
	})
	g.Expect(s.read(vm).Config.ExtraConfig).To(And(ContainElement(own), Not(ContainElement(image))))
}

// VS-S1: a name is taken once per folder.
func TestCloneRefusesATakenName(t *testing.T) {
	s := start(t, vcenter.Options{})
	s.mustClone("demo-1")
	_, err := s.clone("demo-1")
	NewWithT(t).Expect(faultAs[*types.DuplicateName](err)).To(BeTrue())
}

// VS-S4: the system disk can be resized in the clone, and the template keeps its own.
func TestCloneOwnsItsSystemDisk(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	template := s.diskList(s.template)[0]
	for name, resize := range map[string]func(*types.VirtualDisk){
		"by-kb":    func(d *types.VirtualDisk) { d.CapacityInKB = 40 << 20 },
		"kb-only":  func(d *types.VirtualDisk) { d.CapacityInKB, d.CapacityInBytes = 40<<20, 0 },
		"by-bytes": func(d *types.VirtualDisk) { d.CapacityInBytes = 40 << 30 },
		"both":     func(d *types.VirtualDisk) { d.CapacityInKB, d.CapacityInBytes = 40<<20, 40<<30 },
	} {
		vm := s.mustClone(name, func(spec *types.VirtualMachineCloneSpec) {
			disk := s.diskList(s.template)[0]
			resize(disk)
			spec.Location.DeviceChange = []types.BaseVirtualDeviceConfigSpec{
				&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk},
			}
		})
		disk := s.diskList(vm)[0]
		g.Expect(disk.CapacityInBytes).To(Equal(int64(40)<<30), name)
		g.Expect(disk.CapacityInKB).To(Equal(int64(40)<<20), name)
		g.Expect(backing(disk).FileName).To(Equal(s.path("%s/%s.vmdk", name, name)))
		g.Expect(backing(disk).Uuid).NotTo(Equal(backing(template).Uuid))
		g.Expect(s.uuid(backing(disk).FileName)).To(Equal(backing(disk).Uuid))
		g.Expect(s.destroy(vm)).To(Succeed())
	}
	g.Expect(s.uuid(backing(template).FileName)).To(Equal(backing(template).Uuid))
}

// VS-S3: a device change that fails, fails the clone, and nothing stays behind.
func TestCloneFailsWithItsDeviceChanges(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	_, err := s.clone("demo-1", func(spec *types.VirtualMachineCloneSpec) {
		spec.Config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{s.attachSpec(s.template, s.path("nowhere/missing.vmdk"), 1)}
	})
	g.Expect(faultAs[*types.FileNotFound](err)).To(BeTrue(), "%v", err)
	world := s.server.World()
	for _, vm := range world.VMs {
		g.Expect(vm.Template).To(BeTrue(), vm.Name)
	}
	for _, file := range world.Files {
		g.Expect(file.Path).NotTo(ContainSubstring("demo-1"))
	}
}

func TestCloneReplacesTheNICAndAddsDisks(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1", func(spec *types.VirtualMachineCloneSpec) {
		nic := s.devices(s.template).SelectByType((*types.VirtualEthernetCard)(nil))[0]
		card := &types.VirtualVmxnet3{}
		card.Key, card.Backing = -1, s.network
		spec.Location.DeviceChange = []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: nic},
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: card},
			s.createSpec(s.template, "", 1, 5),
		}
	})
	disks := s.diskList(vm)
	g.Expect(disks).To(HaveLen(2))
	g.Expect(disks[1].CapacityInBytes).To(Equal(int64(5) << 30))
	g.Expect(path.Dir(backing(disks[1]).FileName)).To(Equal(s.path("demo-1")))
	g.Expect(s.uuid(backing(disks[1]).FileName)).To(Equal(backing(disks[1]).Uuid))
	nics := s.devices(vm).SelectByType((*types.VirtualEthernetCard)(nil))
	g.Expect(nics).To(HaveLen(1))
	g.Expect(nics[0].(*types.VirtualVmxnet3).MacAddress).To(HavePrefix("00:50:56:"))
}

// VS-S23, VS-S24: every clone has an address and a BIOS UUID of its own, also under a name that was used before.
func TestClonesAreIndividuals(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	seen := map[string]bool{}
	for range 5 {
		vm := s.mustClone("demo-1")
		got := s.read(vm)
		mac := s.devices(vm).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress
		for _, id := range []string{got.Config.Uuid, got.Config.InstanceUuid, mac, backing(s.diskList(vm)[0]).Uuid} {
			g.Expect(seen).NotTo(HaveKey(id))
			seen[id] = true
		}
		g.Expect(got.Guest.Net[0].MacAddress).To(Equal(mac))
		g.Expect(s.destroy(vm)).To(Succeed())
	}
}

// VS-S5: clones are spread over the hosts of the pool's cluster, not left on the template's.
func TestClonesAreSpreadOverTheCluster(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	hosts := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.mustClone(name)
	}
	for _, vm := range s.server.World().VMs {
		if !vm.Template && vm.Datacenter == "dc-a" {
			hosts[vm.Host] = true
		}
	}
	g.Expect(hosts).To(HaveLen(3))
}

func TestCloneRefusesWrongPlaces(t *testing.T) {
	g := NewWithT(t)
	a := start(t, vcenter.Options{})
	b := newSite(t, a.server, "dc-b")
	_, err := a.clone("demo-1", func(spec *types.VirtualMachineCloneSpec) { spec.Location.Pool = nil })
	g.Expect(faultAs[*types.InvalidArgument](err)).To(BeTrue(), "%v", err)
	_, err = a.clone("demo-2", func(spec *types.VirtualMachineCloneSpec) {
		store, err := b.finder.Datastore(b.ctx, b.store)
		a.must(err)
		ref := store.Reference()
		spec.Location.Datastore = &ref
	})
	g.Expect(faultAs[*types.InvalidDatastore](err)).To(BeTrue(), "%v", err)
	_, err = a.clone("demo-3", func(spec *types.VirtualMachineCloneSpec) {
		card := &types.VirtualVmxnet3{}
		card.Backing = b.network
		spec.Config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: card}}
	})
	g.Expect(faultAs[*types.InvalidDeviceSpec](err)).To(BeTrue(), "%v", err)
}

// VS-S33: a long clone blocks neither the template nor other clones.
func TestClonesTakeTimeTogether(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{CloneTime: shortClone})
	pool := s.pool.Reference()
	began := time.Now()
	var tasks []*object.Task
	for _, name := range []string{"a", "b", "c", "d"} {
		task, err := s.template.Clone(s.ctx, s.folder, name, types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &pool}})
		g.Expect(err).NotTo(HaveOccurred())
		tasks = append(tasks, task)
	}
	s.read(s.template)
	g.Expect(time.Since(began)).To(BeNumerically("<", shortClone), "reading waited for the clone")
	for _, task := range tasks {
		g.Expect(task.Wait(s.ctx)).To(Succeed())
	}
	g.Expect(time.Since(began)).To(And(BeNumerically(">=", shortClone), BeNumerically("<", 3*shortClone)))
}
