package vcenter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// V10: a disk deleted and created again at the same path is another disk, and its content is gone.
func TestRecreatedDiskIsAnotherDisk(t *testing.T) {
	g := NewWithT(t)
	contents := t.TempDir()
	s := start(t, vcenter.Options{DisksDir: contents})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 10)).To(Succeed())
	first := s.uuid(path)
	content := filepath.Join(contents, strings.ReplaceAll(first, "-", ""))
	g.Expect(os.MkdirAll(filepath.Join(content, "fs"), 0o700)).To(Succeed())

	g.Expect(s.deleteDisk(path)).To(Succeed())
	g.Expect(content).NotTo(BeADirectory())
	g.Expect(s.createDisk(path, 10)).To(Succeed())
	g.Expect(s.uuid(path)).NotTo(Equal(first))
}

// VS-S13: a disk keeps its identity over detach and attach, on another VM too; VS-S11: capacity comes from the file.
func TestDiskKeepsItsIdentityAcrossVMs(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 10)).To(Succeed())
	id := s.uuid(path)
	for _, name := range []string{"demo-1", "demo-2"} {
		vm := s.mustClone(name)
		g.Expect(s.attach(vm, path, 1)).To(Succeed())
		disk := s.diskList(vm)[1]
		g.Expect(backing(disk).Uuid).To(Equal(id))
		g.Expect(disk.CapacityInBytes).To(Equal(int64(10) << 30))
		g.Expect(s.detach(vm, path)).To(Succeed())
		g.Expect(s.diskList(vm)).To(HaveLen(1))
		g.Expect(s.destroy(vm)).To(Succeed())
		g.Expect(s.uuid(path)).To(Equal(id))
	}
	g.Expect(s.kinds()).To(BeEmpty())
}

// VS-S8, VS-S9: what vSphere refuses when a disk is added.
func TestAddingADiskIsChecked(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	g.Expect(s.createDisk(s.path("disks/data.vmdk"), 1)).To(Succeed())
	add := func(spec *types.VirtualDeviceConfigSpec) error {
		return s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{spec}})
	}
	for _, unit := range []int32{0, 7, 16, 64} {
		g.Expect(faultAs[*types.InvalidDeviceSpec](add(s.attachSpec(vm, s.path("disks/data.vmdk"), unit)))).To(BeTrue(), "unit %d", unit)
	}
	noUnit := s.attachSpec(vm, s.path("disks/data.vmdk"), 1)
	noUnit.Device.GetVirtualDevice().UnitNumber = nil
	g.Expect(faultAs[*types.InvalidDeviceSpec](add(noUnit))).To(BeTrue())
	noController := s.attachSpec(vm, s.path("disks/data.vmdk"), 1)
	noController.Device.GetVirtualDevice().ControllerKey = 1234
	g.Expect(faultAs[*types.InvalidDeviceSpec](add(noController))).To(BeTrue())

	g.Expect(faultAs[*types.FileNotFound](add(s.attachSpec(vm, s.path("disks/missing.vmdk"), 1)))).To(BeTrue())
	g.Expect(faultAs[*types.FileNotFound](add(s.createSpec(vm, s.path("nodir/new.vmdk"), 1, 1)))).To(BeTrue())
	g.Expect(faultAs[*types.FileAlreadyExists](add(s.createSpec(vm, s.path("disks/data.vmdk"), 1, 1)))).To(BeTrue())
	g.Expect(faultAs[*types.InvalidDatastore](add(s.createSpec(vm, "[nowhere] x.vmdk", 1, 1)))).To(BeTrue())
	g.Expect(s.diskList(vm)).To(HaveLen(1))

	g.Expect(add(s.createSpec(vm, s.path("disks/new.vmdk"), 15, 1))).To(Succeed())
	g.Expect(s.uuid(s.path("disks/new.vmdk"))).To(Equal(backing(s.diskList(vm)[1]).Uuid))
}

func TestFourSCSIControllersAndNoMore(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	add := func(bus int32) error {
		controller := &types.ParaVirtualSCSIController{}
		controller.Key, controller.BusNumber = -10-bus, bus
		controller.SharedBus = types.VirtualSCSISharingNoSharing
		return s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: controller},
		}})
	}
	g.Expect(faultAs[*types.InvalidDeviceSpec](add(0))).To(BeTrue())
	for bus := int32(1); bus < 4; bus++ {
		g.Expect(add(bus)).To(Succeed())
	}
	g.Expect(faultAs[*types.InvalidDeviceSpec](add(4))).To(BeTrue())
	g.Expect(s.devices(vm).SelectByType((*types.ParaVirtualSCSIController)(nil))).To(HaveLen(4))
}

// VS-S10: of two disks of which one cannot be created, none is attached, and the list of devices is intact.
func TestFailedReconfigurationLeavesTheDevicesIntact(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	g.Expect(s.createDisk(s.path("disks/a.vmdk"), 1)).To(Succeed())
	g.Expect(s.attach(vm, s.path("disks/a.vmdk"), 1)).To(Succeed())
	before := s.devices(vm)
	err := s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: s.diskList(vm)[1]},
		s.createSpec(vm, s.path("disks/new.vmdk"), 2, 1),
		s.createSpec(vm, s.path("disks/a.vmdk"), 3, 1),
	}})
	g.Expect(faultAs[*types.FileAlreadyExists](err)).To(BeTrue(), "%v", err)
	g.Expect(s.devices(vm)).To(Equal(before))
	g.Expect(s.uuid(s.path("disks/new.vmdk"))).NotTo(BeEmpty(), "the first disk's file stays behind, as on a real datastore")
}

// No disk is deleted while a VM has it.
func TestAttachedDiskCannotBeDeleted(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.attach(vm, path, 1)).To(Succeed())

	g.Expect(faultAs[*types.FileLocked](s.deleteDisk(path))).To(BeTrue())
	for _, name := range []string{path, s.path("disks/data-flat.vmdk"), s.path("disks")} {
		task, err := s.files.DeleteDatastoreFile(s.ctx, name, s.dc)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(faultAs[*types.FileLocked](task.Wait(s.ctx))).To(BeTrue(), name)
	}
	g.Expect(s.kinds()).To(HaveEach(vcenter.DeletedWhileAttached))
	g.Expect(s.detach(vm, path)).To(Succeed())
	g.Expect(s.deleteDisk(path)).To(Succeed())
	g.Expect(faultAs[*types.FileNotFound](s.deleteDisk(path))).To(BeTrue())
}

// VS-S14: removal with destroy deletes the file.
func TestRemovalWithDestroyDeletesTheFile(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.attach(vm, path, 1)).To(Succeed())
	g.Expect(s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
		Operation: types.VirtualDeviceConfigSpecOperationRemove, FileOperation: types.VirtualDeviceConfigSpecFileOperationDestroy,
		Device: s.diskList(vm)[1],
	}}})).To(Succeed())
	_, err := s.disks.QueryVirtualDiskUuid(s.ctx, path, s.dc)
	g.Expect(faultAs[*types.FileNotFound](err)).To(BeTrue())
	g.Expect(s.diskList(vm)).To(HaveLen(1))
}

// VS-S15: destroying a VM deletes what is attached to it, wherever it lies. This is why there is a guard.
func TestDestroyDeletesForeignDisksAndSaysSo(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	kept, lost := s.path("disks/kept.vmdk"), s.path("disks/lost.vmdk")
	g.Expect(s.createDisk(kept, 1)).To(Succeed())
	g.Expect(s.createDisk(lost, 1)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.attach(vm, kept, 1)).To(Succeed())
	g.Expect(s.attach(vm, lost, 2)).To(Succeed())
	g.Expect(s.detach(vm, kept)).To(Succeed())
	g.Expect(s.destroy(vm)).To(Succeed())
	g.Expect(s.uuid(kept)).NotTo(BeEmpty())
	_, err := s.disks.QueryVirtualDiskUuid(s.ctx, lost, s.dc)
	g.Expect(err).To(HaveOccurred())
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.ForeignDiskDestroyed}))
	g.Expect(s.server.Violations()[0].Disk).To(Equal(lost))
	g.Expect(faultAs[*types.ManagedObjectNotFound](vm.Properties(s.ctx, vm.Reference(), []string{"name"}, nil))).To(BeTrue())
}

// VS-S16: disks grow and do not shrink.
func TestDisksGrowOnly(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 10)).To(Succeed())
	task, err := s.disks.ExtendVirtualDisk(s.ctx, path, s.dc, 20<<20, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.attach(vm, path, 1)).To(Succeed())
	edit := func(gib int64) error {
		disk := s.diskList(vm)[1]
		disk.CapacityInKB, disk.CapacityInBytes = gib<<20, gib<<30
		return s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk},
		}})
	}
	g.Expect(s.diskList(vm)[1].CapacityInBytes).To(Equal(int64(20) << 30))
	g.Expect(edit(30)).To(Succeed())
	g.Expect(faultAs[*types.InvalidDeviceOperation](edit(20))).To(BeTrue())
	g.Expect(s.detach(vm, path)).To(Succeed())
	g.Expect(s.attach(vm, path, 2)).To(Succeed())
	g.Expect(s.diskList(vm)[1].CapacityInBytes).To(Equal(int64(30)<<30), "the file remembers")
}

// VS-S9: a datastore can be full.
func TestDatastoreIsFull(t *testing.T) {
	g := NewWithT(t)
	inventory := vcenter.DefaultInventory()
	inventory.Datacenters[0].Datastores[0].CapacityGiB = 100
	inventory.Datacenters[0].Templates = inventory.Datacenters[0].Templates[:2]
	s := start(t, vcenter.Options{Inventory: inventory})
	free := func() int64 {
		for _, ds := range s.server.World().Datastores {
			if ds.Name == s.store {
				return ds.FreeBytes >> 30
			}
		}
		return -1
	}
	g.Expect(free()).To(Equal(int64(60)), "two templates of 20 GiB")
	g.Expect(s.createDisk(s.path("disks/a.vmdk"), 30)).To(Succeed())
	g.Expect(faultAs[*types.NoDiskSpace](s.createDisk(s.path("disks/b.vmdk"), 31))).To(BeTrue())
	vm := s.mustClone("demo-1")
	g.Expect(free()).To(Equal(int64(10)))
	_, err := s.clone("demo-2")
	g.Expect(faultAs[*types.NoDiskSpace](err)).To(BeTrue(), "%v", err)
	err = s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		s.createSpec(vm, "", 1, 6), s.createSpec(vm, "", 2, 6),
	}})
	g.Expect(faultAs[*types.NoDiskSpace](err)).To(BeTrue(), "%v", err)
	for range 3 {
		g.Expect(s.attach(vm, s.path("disks/a.vmdk"), 1)).To(Succeed())
		g.Expect(s.detach(vm, s.path("disks/a.vmdk"))).To(Succeed())
	}
	g.Expect(free()).To(Equal(int64(10)), "attaching takes no space")
	g.Expect(s.destroy(vm)).To(Succeed())
	g.Expect(s.deleteDisk(s.path("disks/a.vmdk"))).To(Succeed())
	g.Expect(free()).To(Equal(int64(60)))
	store, err := s.finder.Datastore(s.ctx, s.store)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(object.NewDatastore(s.client.Client, store.Reference()).Reference()).To(Equal(store.Reference()))
}

// VS-S18: directories and files.
func TestFileManager(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	remove := func(name string) error {
		task, err := s.files.DeleteDatastoreFile(s.ctx, name, s.dc)
		g.Expect(err).NotTo(HaveOccurred())
		return task.Wait(s.ctx)
	}
	g.Expect(faultAs[*types.FileNotFound](s.files.MakeDirectory(s.ctx, s.path("a/b"), s.dc, false))).To(BeTrue())
	g.Expect(s.files.MakeDirectory(s.ctx, s.path("a/b"), s.dc, true)).To(Succeed())
	g.Expect(s.files.MakeDirectory(s.ctx, s.path("a/b"), s.dc, true)).To(Succeed(), "idempotent with parents")
	g.Expect(faultAs[*types.FileAlreadyExists](s.files.MakeDirectory(s.ctx, s.path("a/b"), s.dc, false))).To(BeTrue())
	g.Expect(faultAs[*types.InvalidDatastorePath](s.files.MakeDirectory(s.ctx, s.path("../x"), s.dc, true))).To(BeTrue())
	g.Expect(faultAs[*types.FileNotFound](remove(s.path("missing")))).To(BeTrue())
	g.Expect(faultAs[*types.CannotDeleteFile](remove("["+s.store+"]"))).To(BeTrue(), "a datastore is not a file")
	g.Expect(remove(s.path("a"))).To(Succeed())

	g.Expect(s.createDisk(s.path("disks/data.vmdk"), 1)).To(Succeed())
	g.Expect(remove(s.path("disks/data.vmdk"))).To(Succeed())
	world := s.server.World()
	var left []string
	for _, file := range world.Files {
		if strings.HasPrefix(file.Path, s.path("disks")) {
			left = append(left, file.Path)
		}
	}
	g.Expect(left).To(Equal([]string{s.path("disks"), s.path("disks/data-flat.vmdk")}), "the extent leaks, as on a real datastore")
}

// VS-S17: a moved disk keeps its UUID.
func TestMovedDiskKeepsItsIdentity(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	g.Expect(s.createDisk(s.path("disks/a.vmdk"), 1)).To(Succeed())
	id := s.uuid(s.path("disks/a.vmdk"))
	task, err := s.disks.MoveVirtualDisk(s.ctx, s.path("disks/a.vmdk"), s.dc, s.path("disks/b.vmdk"), s.dc, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	g.Expect(s.uuid(s.path("disks/b.vmdk"))).To(Equal(id))
	task, err = s.disks.CopyVirtualDisk(s.ctx, s.path("disks/b.vmdk"), s.dc, s.path("disks/c.vmdk"), s.dc, nil, false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	g.Expect(s.uuid(s.path("disks/c.vmdk"))).NotTo(Equal(id))
}

// VS-S19: what a look into a datastore finds.
func TestDatastoreStat(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	store, err := find.NewFinder(s.client.Client).Datastore(s.ctx, "/dc-a/datastore/"+s.store)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.createDisk(s.path("disks/a.vmdk"), 1)).To(Succeed())
	_, err = store.Stat(s.ctx, "disks/a.vmdk")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = store.Stat(s.ctx, "disks/b.vmdk")
	g.Expect(err).To(BeAssignableToTypeOf(object.DatastoreNoSuchFileError{}))
	_, err = store.Stat(s.ctx, "nowhere/b.vmdk")
	g.Expect(err).To(BeAssignableToTypeOf(object.DatastoreNoSuchDirectoryError{}))
}
