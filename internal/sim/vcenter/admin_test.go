package vcenter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

func (s *site) inject(faults ...vcenter.Fault) {
	s.t.Helper()
	s.must(s.server.Admin().Inject(s.ctx, faults...))
}

func TestFaultsStrikeWhereTheySay(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	power := func() types.VirtualMachinePowerState { return s.read(vm).Runtime.PowerState }
	off := func() {
		g.Eventually(func() error { return s.powerOff(vm) }).Should(Succeed())
	}

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultBefore, Type: "HostCommunication"})
	_, err := vm.PowerOn(s.ctx)
	g.Expect(faultAs[*types.HostCommunication](err)).To(BeTrue(), "%v", err)
	g.Expect(power()).To(Equal(types.VirtualMachinePowerStatePoweredOff))

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultAfter})
	_, err = vm.PowerOn(s.ctx)
	g.Expect(faultAs[*types.SystemError](err)).To(BeTrue(), "%v", err)
	g.Eventually(power).Should(Equal(types.VirtualMachinePowerStatePoweredOn))
	off()

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultCut})
	_, err = vm.PowerOn(s.ctx)
	g.Expect(err).To(HaveOccurred())
	g.Consistently(power, "50ms").Should(Equal(types.VirtualMachinePowerStatePoweredOff))

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultDrop})
	_, err = vm.PowerOn(s.ctx)
	g.Expect(err).To(HaveOccurred())
	g.Eventually(power).Should(Equal(types.VirtualMachinePowerStatePoweredOn))
	off()

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultTask, Type: "NoDiskSpace", Message: "no room"})
	err = s.powerOn(vm)
	g.Expect(faultAs[*types.NoDiskSpace](err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("no room")))
	g.Expect(power()).To(Equal(types.VirtualMachinePowerStatePoweredOff))

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultTaskAfter})
	g.Expect(faultAs[*types.GenericVmConfigFault](s.powerOn(vm))).To(BeTrue())
	g.Expect(power()).To(Equal(types.VirtualMachinePowerStatePoweredOn))
	off()

	s.inject(vcenter.Fault{Method: "PowerOnVM_Task", Kind: vcenter.FaultTaskHang, Delay: 300 * time.Millisecond})
	began := time.Now()
	g.Expect(s.powerOn(vm)).To(Succeed())
	g.Expect(time.Since(began)).To(BeNumerically(">=", 300*time.Millisecond))
	off()

	s.inject(vcenter.Fault{Method: "CurrentTime", Kind: vcenter.FaultDelay, Delay: 200 * time.Millisecond})
}

func TestFaultsChooseTheirCalls(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	s.inject(
		vcenter.Fault{Method: "CloneVM_Task", Object: "^demo-2$", Kind: vcenter.FaultTask, Count: -1},
		vcenter.Fault{Method: "CreateVirtualDisk_Task", Object: "disks/b", Kind: vcenter.FaultBefore, Type: "NoDiskSpace"},
		vcenter.Fault{Method: "MakeDirectory", Client: "^someone else$", Kind: vcenter.FaultBefore, Count: -1},
	)
	s.mustClone("demo-1")
	for range 2 {
		_, err := s.clone("demo-2")
		g.Expect(faultAs[*types.GenericVmConfigFault](err)).To(BeTrue())
	}
	g.Expect(s.createDisk(s.path("disks/a.vmdk"), 1)).To(Succeed())
	_, err := s.disks.CreateVirtualDisk(s.ctx, s.path("disks/b.vmdk"), s.dc, &types.FileBackedVirtualDiskSpec{CapacityKb: 1024})
	g.Expect(faultAs[*types.NoDiskSpace](err)).To(BeTrue(), "%v", err)

	s.inject(vcenter.Fault{Method: "MakeDirectory", Kind: vcenter.FaultBefore, Skip: 1})
	g.Expect(s.files.MakeDirectory(s.ctx, s.path("x"), s.dc, true)).To(Succeed())
	g.Expect(s.files.MakeDirectory(s.ctx, s.path("x"), s.dc, true)).NotTo(Succeed())
	g.Expect(s.files.MakeDirectory(s.ctx, s.path("x"), s.dc, true)).To(Succeed())

	rules, err := s.server.Admin().Faults(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules[0].Struck).To(Equal(2))
	g.Expect(s.server.Admin().ClearFaults(s.ctx)).To(Succeed())
	s.mustClone("demo-2")

	for _, wrong := range []vcenter.Fault{{Kind: "never"}, {Kind: vcenter.FaultBefore, Type: "Nonsense"}, {Kind: vcenter.FaultBefore, Type: "VirtualDisk"}, {Kind: vcenter.FaultBefore, Object: "("}} {
		g.Expect(s.server.Admin().Inject(s.ctx, wrong)).NotTo(Succeed())
	}
}

func TestCountersTellClientsApart(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	admin := s.server.Admin()
	g.Expect(admin.Healthy(s.ctx)).To(Succeed())
	g.Expect(admin.ResetCounters(s.ctx)).To(Succeed())
	other := login(t, s.server)
	other.Client.UserAgent = "guests"
	_, err := other.IsVC(), error(nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = other.SessionManager.UserSession(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	s.mustClone("demo-1")
	counters, err := admin.Counters(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counters.Calls["CloneVM_Task"]).To(Equal(int64(1)))
	g.Expect(counters.Calls["Login"]).To(Equal(int64(1)))
	g.Expect(counters.Connections).To(BeNumerically(">=", 1))
	g.Expect(counters.Clients["guests"].Calls).To(HaveLen(1))
	g.Expect(counters.Clients["guests"].Calls).NotTo(HaveKey("CloneVM_Task"))
}

func TestWorldIsComplete(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	path := s.path("disks/data.vmdk")
	g.Expect(s.createDisk(path, 3)).To(Succeed())
	vm := s.mustClone("demo-1")
	g.Expect(s.attach(vm, path, 2)).To(Succeed())
	world, err := s.server.Admin().World(context.Background())
	g.Expect(err).NotTo(HaveOccurred())
	got := world.VMs[len(world.VMs)-1]
	g.Expect(got.Path).To(Equal("/dc-a/vm/k8s/demo-1"))
	g.Expect(got.Datacenter).To(Equal("dc-a"))
	g.Expect(got.Ref).To(Equal(vm.Reference().Value))
	g.Expect(got.Power).To(Equal("poweredOff"))
	g.Expect(got.NICs).To(HaveLen(1))
	g.Expect(got.NICs[0].Network).To(Equal("pg-node"))
	g.Expect(got.Disks).To(HaveLen(2))
	g.Expect(got.Disks[0].Own).To(BeTrue())
	g.Expect(got.Disks[1]).To(Equal(vcenter.AttachedDisk{Key: got.Disks[1].Key, Unit: 2, Path: path, UUID: s.uuid(path), CapacityBytes: 3 << 30}))
	for _, disk := range world.Disks {
		if disk.Path == path {
			g.Expect(disk.AttachedTo).To(Equal([]string{got.Ref}))
		}
	}
	g.Expect(world.Folders).To(Equal([]string{"/dc-a/vm/k8s", "/dc-b/vm/k8s"}))
	g.Expect(world.Files).To(ContainElement(vcenter.File{Datacenter: "dc-a", Path: path}))
}

func TestRoundTripIsAddedToEveryCall(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{RoundTrip: 50 * time.Millisecond})
	began := time.Now()
	_, err := s.client.SessionManager.UserSession(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(began)).To(BeNumerically(">=", 50*time.Millisecond))
}

// The world can be looked at while it changes.
func TestWorldDuringChanges(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	container, err := view.NewManager(s.client.Client).CreateContainerView(s.ctx, s.dc.Reference(), []string{"VirtualMachine"}, true)
	g.Expect(err).NotTo(HaveOccurred())
	traverse := viewTraversal
	traverse.Type = "ContainerView"
	machines := s.observe(container.Reference(), traverse, "VirtualMachine", "name", "config.hardware.device", "guest.net", "runtime.powerState")
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-machines.updates:
			default:
				s.server.World()
			}
		}
	})
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			for j := range 3 {
				name := fmt.Sprintf("demo-%d-%d", i, j)
				vm := s.mustClone(name)
				for _, step := range []func() error{
					func() error { return s.createDisk(s.path("disks/%s.vmdk", name), 1) },
					func() error { return s.attach(vm, s.path("disks/%s.vmdk", name), 1) },
					func() error { return s.powerOn(vm) },
					func() error {
						return s.server.ReportGuest(vm.Reference().Value, vcenter.Guest{HostName: name, ToolsRunning: true})
					},
					func() error { return s.powerOff(vm) },
					func() error { return s.detach(vm, s.path("disks/%s.vmdk", name)) },
					func() error { return s.destroy(vm) },
					func() error { return s.deleteDisk(s.path("disks/%s.vmdk", name)) },
				} {
					if err := step(); err != nil {
						t.Error(name, err)
						return
					}
				}
			}
		})
	}
	working.Wait()
	close(stop)
	looking.Wait()
	g.Expect(s.kinds()).To(BeEmpty())
	for _, disk := range s.server.World().Disks {
		g.Expect(disk.Path).NotTo(ContainSubstring("demo"))
	}
}
