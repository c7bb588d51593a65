package vcenter_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-S12: two VMs may have a disk, but only one of them runs.
func TestDiskIsLockedAtPowerOn(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	one, two := s.mustClone("demo-1"), s.mustClone("demo-2")
	g.Expect(s.attach(one, path, 1)).To(Succeed())
	g.Expect(s.attach(two, path, 1)).To(Succeed())
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.AttachedTwice}))

	g.Expect(s.powerOn(one)).To(Succeed())
	g.Expect(faultAs[*types.FileLocked](s.powerOn(two))).To(BeTrue())
	g.Expect(s.kinds()).To(ContainElement(vcenter.LockedAtPowerOn))
	g.Expect(s.powerOff(one)).To(Succeed())
	g.Expect(s.powerOn(two)).To(Succeed())
	g.Expect(faultAs[*types.FileLocked](s.destroy(one))).To(BeTrue(), "its disk is in use")
}

func TestAttachingADiskInUseToARunningVMIsRefused(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	one, two := s.mustClone("demo-1"), s.mustClone("demo-2")
	g.Expect(s.attach(one, path, 1)).To(Succeed())
	g.Expect(s.powerOn(one)).To(Succeed())
	g.Expect(s.powerOn(two)).To(Succeed())
	g.Expect(faultAs[*types.FileLocked](s.attach(two, path, 1))).To(BeTrue())
	g.Expect(s.diskList(two)).To(HaveLen(1))
}

// What happens to the disks of a VM that runs takes effect, and is recorded.
func TestHotDiskChangesAreRecorded(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.powerOn(vm)).To(Succeed())
	g.Expect(s.attach(vm, path, 1)).To(Succeed())
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.HotDiskChange}))
	g.Expect(s.detach(vm, path)).To(Succeed())
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.HotDiskChange, vcenter.HotDetach}))
}

// VS-S22: power states.
func TestPowerStates(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	g.Expect(faultAs[*types.InvalidPowerState](s.powerOff(vm))).To(BeTrue())
	g.Expect(s.powerOn(vm)).To(Succeed())
	g.Expect(faultAs[*types.InvalidPowerState](s.powerOn(vm))).To(BeTrue())
	g.Expect(faultAs[*types.InvalidPowerState](s.destroy(vm))).To(BeTrue())
	_, err := s.template.PowerOn(s.ctx)
	g.Expect(faultAs[*types.NotSupported](err)).To(BeTrue())
	g.Expect(faultAs[*types.InvalidPowerState](s.reconfigure(vm, types.VirtualMachineConfigSpec{NumCPUs: 16}))).To(BeTrue())
	g.Expect(s.powerOff(vm)).To(Succeed())
	g.Expect(s.reconfigure(vm, types.VirtualMachineConfigSpec{NumCPUs: 16})).To(Succeed())
}

func TestAVMWithoutItsDiskDoesNotStart(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 1)).To(Succeed())
	other := s.mustClone("demo-2")
	g.Expect(s.attach(vm, path, 1)).To(Succeed())
	g.Expect(s.attach(other, path, 1)).To(Succeed())
	g.Expect(s.destroy(other)).To(Succeed())
	g.Expect(s.kinds()).To(ContainElements(vcenter.DeletedWhileAttached, vcenter.ForeignDiskDestroyed))
	g.Expect(faultAs[*types.FileNotFound](s.powerOn(vm))).To(BeTrue())
}

// VS-S20, VS-S21: addresses of all NICs come from the guest, and go with it.
func TestGuestReports(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	mac := s.devices(vm).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress
	guest := vcenter.Guest{HostName: "demo-1", ToolsRunning: true, NICs: []vcenter.GuestNIC{
		{MAC: mac, Network: "pg-node", Addresses: []string{"127.64.1.31", "127.64.1.99"}},
		{MAC: "02:00:00:00:00:01", Addresses: []string{"fd00::1"}},
	}}
	admin := s.server.Admin()
	g.Expect(admin.ReportGuest(s.ctx, vm.Reference().Value, guest)).To(MatchError(ContainSubstring("not powered on")))
	err := admin.ReportGuest(s.ctx, "vm-99999", guest)
	var refused *vcenter.AdminError
	g.Expect(errors.As(err, &refused)).To(BeTrue())
	g.Expect(refused.IsGone()).To(BeTrue())

	g.Expect(vm.ShutdownGuest(s.ctx)).NotTo(Succeed())
	g.Expect(s.powerOn(vm)).To(Succeed())
	g.Expect(faultAs[*types.ToolsUnavailable](vm.ShutdownGuest(s.ctx))).To(BeTrue())
	g.Expect(admin.ReportGuest(s.ctx, vm.Reference().Value, guest)).To(Succeed())
	got := s.read(vm)
	g.Expect(got.Guest.IpAddress).To(Equal("127.64.1.31"))
	g.Expect(got.Guest.HostName).To(Equal("demo-1"))
	g.Expect(got.Guest.ToolsRunningStatus).To(Equal("guestToolsRunning"))
	g.Expect(got.Guest.Net).To(HaveLen(2))
	g.Expect(got.Guest.Net[0].IpAddress).To(Equal([]string{"127.64.1.31", "127.64.1.99"}))
	g.Expect(got.Guest.Net[0].DeviceConfigId).To(Equal(s.devices(vm).SelectByType((*types.VirtualEthernetCard)(nil))[0].GetVirtualDevice().Key))
	g.Expect(got.Guest.Net[1].DeviceConfigId).To(Equal(int32(-1)))

	g.Expect(vm.ShutdownGuest(s.ctx)).To(Succeed())
	g.Expect(vm.WaitForPowerState(s.ctx, types.VirtualMachinePowerStatePoweredOff)).To(Succeed())
	g.Eventually(func() string { return s.read(vm).Guest.IpAddress }, time.Second).Should(BeEmpty())
	got = s.read(vm)
	g.Expect(got.Guest.ToolsRunningStatus).To(Equal("guestToolsNotRunning"))
	g.Expect(got.Guest.Net).To(HaveLen(1))
	g.Expect(got.Guest.Net[0].IpAddress).To(BeEmpty())
}

// An address belongs to one VM that runs.
func TestDuplicateAddressesAreRecorded(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	report := func(vm *object.VirtualMachine, host, address string) {
		g.Expect(s.server.ReportGuest(vm.Reference().Value, vcenter.Guest{
			HostName: host, ToolsRunning: true, NICs: []vcenter.GuestNIC{{MAC: "x", Addresses: []string{address}}},
		})).To(Succeed())
	}
	one, two := s.mustClone("demo-1"), s.mustClone("demo-2")
	g.Expect(s.powerOn(one)).To(Succeed())
	g.Expect(s.powerOn(two)).To(Succeed())
	report(one, "demo-1", "127.64.1.31")
	report(two, "demo-2", "127.64.1.32")
	g.Expect(s.kinds()).To(BeEmpty())
	report(two, "demo-2", "127.64.1.31")
	report(two, "demo-2", "127.64.1.31")
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.DuplicateAddress}), "once")
	report(two, "demo-1", "127.64.1.33")
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.DuplicateAddress, vcenter.DuplicateHostName}))
}

func TestDuplicateInstanceUUIDIsRecorded(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	withUUID := func(spec *types.VirtualMachineCloneSpec) {
		spec.Config.InstanceUuid = "0123abcd-1111-4222-8333-444455556666"
	}
	s.mustClone("demo-1", withUUID)
	g.Expect(s.kinds()).To(BeEmpty())
	s.mustClone("demo-2", withUUID)
	g.Expect(s.kinds()).To(Equal([]vcenter.ViolationKind{vcenter.DuplicateInstanceUUID}))
}

func TestFolderIsDestroyedWithItsVMs(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	g.Expect(s.powerOn(vm)).To(Succeed())
	task, err := s.folder.Destroy(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(faultAs[*types.InvalidPowerState](task.Wait(s.ctx))).To(BeTrue())
	g.Expect(s.powerOff(vm)).To(Succeed())
	task, err = s.folder.Destroy(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(task.Wait(s.ctx)).To(Succeed())
	world := s.server.World()
	g.Expect(world.Folders).To(Equal([]string{"/dc-b/vm/k8s"}))
	for _, vm := range world.VMs {
		g.Expect(vm.Template).To(BeTrue())
	}
}

func TestDangerousExtraConfigIsRefused(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	for _, key := range []string{"RUN.container", "SET.guest.net"} {
		err := s.reconfigure(vm, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: key, Value: "x"}}})
		g.Expect(err).To(HaveOccurred(), key)
	}
}
