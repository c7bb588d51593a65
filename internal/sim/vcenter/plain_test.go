package vcenter_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// The tests of this file run vcsim alone: they pin down what the strict layer is there for, so that a newer vcsim that
// behaves is noticed.

// plain runs a test against vcsim's default inventory.
func plain(t *testing.T, test func(s *site)) {
	t.Helper()
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		s := &site{t: t, ctx: ctx, finder: find.NewFinder(c), disks: object.NewVirtualDiskManager(c), files: object.NewFileManager(c), store: "LocalDS_0"}
		var err error
		s.dc, err = s.finder.DefaultDatacenter(ctx)
		s.must(err)
		s.finder.SetDatacenter(s.dc)
		test(s)
	})
}

func (s *site) vm(name string) *object.VirtualMachine {
	s.t.Helper()
	vm, err := s.finder.VirtualMachine(s.ctx, name)
	s.must(err)
	return vm
}

// plainClone clones the default inventory's VM.
func (s *site) plainClone(name string, spec types.VirtualMachineCloneSpec) (*object.VirtualMachine, error) {
	s.t.Helper()
	folders, err := s.dc.Folders(s.ctx)
	s.must(err)
	task, err := s.vm("DC0_C0_RP0_VM0").Clone(s.ctx, folders.VmFolder, name, spec)
	s.must(err)
	if err := task.Wait(s.ctx); err != nil {
		return nil, err
	}
	return s.vm(name), nil
}

// VS-S2 as of v0.55.1: identities and sizes are applied by the clone, flags are not.
func TestPlainCloneIgnoresFlags(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		vm, err := s.plainClone("clone", types.VirtualMachineCloneSpec{Config: &types.VirtualMachineConfigSpec{
			InstanceUuid: "0123abcd-1111-4222-8333-444455556666", NumCPUs: 8, Annotation: "a note",
			Flags: &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(true)},
		}})
		g.Expect(err).NotTo(HaveOccurred())
		got := s.read(vm)
		g.Expect(got.Config.InstanceUuid).To(Equal("0123abcd-1111-4222-8333-444455556666"))
		g.Expect(got.Config.Hardware.NumCPU).To(Equal(int32(8)))
		g.Expect(got.Config.Annotation).To(BeEmpty())
		g.Expect(got.Config.Flags.DiskUuidEnabled).To(BeNil())
	})
}

// VS-S3: errors of a clone's device changes are dropped.
func TestPlainCloneDropsDeviceErrors(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		vm, err := s.plainClone("clone", types.VirtualMachineCloneSpec{Config: &types.VirtualMachineConfigSpec{
			DeviceChange: []types.BaseVirtualDeviceConfigSpec{s.attachSpec(s.vm("DC0_C0_RP0_VM0"), s.path("nowhere/missing.vmdk"), 1)},
		}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.diskList(vm)).To(HaveLen(1))
	})
}

// VS-S4: an edited system disk of a clone is the template's file.
func TestPlainCloneSharesTheTemplatesDisk(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		disk := s.diskList(s.vm("DC0_C0_RP0_VM0"))[0]
		theirs := backing(disk).FileName
		disk.CapacityInKB *= 2
		vm, err := s.plainClone("clone", types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{
			DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk}},
		}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(backing(s.diskList(vm)[0]).FileName).To(Equal(theirs))
	})
}

// VS-S9, VS-S17: units, space and attachment are not checked; VS-S13: the UUID is the path's.
func TestPlainDisksAreNotGuarded(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		path := s.path("disks/data.vmdk")
		g.Expect(s.createDisk(path, 4<<20)).To(Succeed(), "4 PiB")
		id := s.uuid(path)
		one, two := s.vm("DC0_C0_RP0_VM0"), s.vm("DC0_C0_RP0_VM1")
		g.Expect(s.attach(one, path, 64)).To(Succeed())
		g.Expect(s.attach(two, path, 7)).To(Succeed(), "VS-S12: both VMs run")
		g.Expect(s.deleteDisk(path)).To(Succeed(), "attached twice")
		g.Expect(s.createDisk(path, 1)).To(Succeed())
		g.Expect(s.uuid(path)).To(Equal(id), "a blank disk passes for the deleted one")
	})
}

// VS-S23, VS-S24: clones share the address, and the BIOS UUID comes from the name.
func TestPlainClonesAreNotIndividuals(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		mac := func(vm *object.VirtualMachine) string {
			return s.devices(vm).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress
		}
		one, err := s.plainClone("clone-1", types.VirtualMachineCloneSpec{})
		g.Expect(err).NotTo(HaveOccurred())
		two, err := s.plainClone("clone-2", types.VirtualMachineCloneSpec{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(mac(one)).To(Equal(mac(two)))
		first := s.read(one).Config.Uuid
		g.Expect(s.destroy(one)).To(Succeed())
		// The directory is deleted after the task has ended: a clone at once may get "clone-1 (0)".
		g.Eventually(func() error {
			store, err := s.finder.DefaultDatastore(s.ctx)
			s.must(err)
			_, err = store.Stat(s.ctx, "clone-1")
			return err
		}).Should(HaveOccurred())
		one, err = s.plainClone("clone-1", types.VirtualMachineCloneSpec{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.read(one).Config.Uuid).To(Equal(first))
	})
}

// VS-S20, VS-S21: guests shut down without tools, and keep their address when off.
func TestPlainGuestsObeyWithoutTools(t *testing.T) {
	plain(t, func(s *site) {
		g := NewWithT(t)
		vm := s.vm("DC0_C0_RP0_VM0")
		g.Expect(s.reconfigure(vm, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "SET.guest.ipAddress", Value: "127.0.0.9"},
		}})).To(Succeed())
		g.Expect(vm.ShutdownGuest(s.ctx)).To(Succeed())
		g.Expect(vm.WaitForPowerState(s.ctx, types.VirtualMachinePowerStatePoweredOff)).To(Succeed())
		g.Expect(s.read(vm).Guest.IpAddress).To(Equal("127.0.0.9"))
	})
}
