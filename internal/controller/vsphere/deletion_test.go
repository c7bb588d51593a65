package vsphere_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-V37: a virtual machine that vCenter cannot vouch for is left alone, at rest and at its deletion, and the condition says why.
func TestInaccessibleMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	connection := func(state types.VirtualMachineConnectionState) {
		t.Helper()
		w.inside("m1", func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
			ctx.Update(vm, []types.PropertyChange{{Name: "runtime.connectionState", Val: state}})
		})
	}
	connection(types.VirtualMachineConnectionStateInaccessible)
	w.waits(m, infrav1.ReadyCondition, infrav1.VMNotReadableReason)
	w.g.Expect(conditions.Get(m, infrav1.ReadyCondition).Message).To(ContainSubstring("inaccessible"))
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	connection(types.VirtualMachineConnectionStateOrphaned)
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.DeletionTimestamp).NotTo(BeNil())
		g.Expect(conditions.Get(m, infrav1.ReadyCondition).Message).To(ContainSubstring("orphaned"))
	}).Should(Succeed())
	w.g.Expect(w.vm("m1").Power).To(Equal("poweredOn"))
	connection(types.VirtualMachineConnectionStateConnected)
	w.gone(m)
	w.g.Expect(w.vm("m1")).To(BeNil())
}

// VS-V38: a virtual machine that somebody has made a template of is not destroyed.
func TestTemplateIsNotDestroyed(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "")
	w.ready(m)
	w.powerOff("m1")
	w.asAdmin("m1", func(vm *object.VirtualMachine) error { return vm.MarkAsTemplate(ctx) })
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.DeletionTimestamp).NotTo(BeNil())
		g.Expect(conditions.Get(m, infrav1.ReadyCondition).Message).To(ContainSubstring("template"))
	}).Should(Succeed())
	w.g.Expect(slices.ContainsFunc(w.vcenter.World().VMs, func(v vcenter.VM) bool { return v.Name == "m1" && v.Template })).To(BeTrue())
}

// asAdmin is a person with the vSphere client.
func (w *world) asAdmin(name string, act func(*object.VirtualMachine) error) {
	w.t.Helper()
	u := w.vcenter.URL()
	u.User = w.vcenter.Userinfo()
	c, err := govmomi.NewClient(ctx, u, true)
	w.g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = c.Logout(ctx) }()
	w.g.Expect(act(object.NewVirtualMachine(c.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: w.vm(name).Ref}))).To(Succeed())
}

func (w *world) softStop(reason string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		vm := &infrav1.VSphereVM{}
		g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, vm)).To(Succeed())
		c := conditions.Get(vm, infrav1.GuestSoftPowerOffSucceededCondition)
		g.Expect(c).NotTo(BeNil(), "%+v", vm.Status.Conditions)
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		g.Expect(c.Status == metav1.ConditionTrue).To(Equal(reason == infrav1.SatisfiedReason))
	}).Should(Succeed())
}

// 6.7: soft waits for the guest, for ever, and says how it goes.
func TestSoftStopWaitsForTheGuest(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) { o.ShutdownTime = time.Hour })
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) { m.Spec.PowerOffMode = infrav1.VirtualMachinePowerOpModeSoft })
	w.ready(m)
	v := w.vm("m1")
	tools := func(running bool) {
		t.Helper()
		w.g.Expect(w.vcenter.ReportGuest(v.Ref, vcenter.Guest{ToolsRunning: running, NICs: []vcenter.GuestNIC{{MAC: v.NICs[0].MAC, Addresses: []string{"192.0.2.1"}}}})).To(Succeed())
	}
	tools(false)
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "Destroy_Task", Kind: vcenter.FaultBefore, Count: -1})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.softStop(infrav1.GuestSoftPowerOffFailedReason)
	w.waits(m, infrav1.ReadyCondition, infrav1.GuestSoftPowerOffFailedReason)
	w.g.Expect(w.vm("m1").Power).To(Equal("poweredOn"))
	tools(true)
	w.softStop(infrav1.GuestSoftPowerOffInProgressReason)
	w.powerOff("m1")
	w.softStop(infrav1.SatisfiedReason)
	w.g.Expect(w.vcenter.Admin().ClearFaults(ctx)).To(Succeed())
	w.gone(m)
}

// 6.7: trySoft gives the guest its time and then cuts the power.
func TestTrySoftBecomesHard(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) { o.ShutdownTime = time.Hour })
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) {
		m.Spec.PowerOffMode = infrav1.VirtualMachinePowerOpModeTrySoft
		m.Spec.GuestSoftPowerOffTimeout = &metav1.Duration{Duration: 3 * time.Second}
	})
	w.ready(m)
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.softStop(infrav1.GuestSoftPowerOffInProgressReason)
	w.gone(m)
	calls := w.meter.Snapshot().Calls
	w.g.Expect(calls["ShutdownGuest"]).To(BeNumerically(">=", 1))
	w.g.Expect(calls["PowerOffVM_Task"]).To(Equal(1))
}

// migrate moves a disk that a virtual machine has, as a storage migration does: the file and what the device says of it.
func (w *world) migrate(name, from, to string) {
	w.t.Helper()
	w.inside(name, func(own *simulator.Context, vm *simulator.VirtualMachine) {
		file := func(path string) string {
			var p object.DatastorePath
			p.FromString(path)
			for _, entity := range own.Map.All("Datastore") {
				if ds := entity.(*simulator.Datastore); ds.Name == p.Datastore {
					return filepath.Join(ds.Summary.Url, p.Path)
				}
			}
			w.t.Fatalf("no datastore of %s", path)
			return ""
		}
		old, moved := file(from), file(to)
		w.g.Expect(os.MkdirAll(filepath.Dir(moved), 0o700)).To(Succeed())
		for _, part := range []string{".vmdk", "-flat.vmdk"} {
			w.g.Expect(os.Rename(strings.TrimSuffix(old, ".vmdk")+part, strings.TrimSuffix(moved, ".vmdk")+part)).To(Succeed())
		}
		devices := slices.Clone(vm.Config.Hardware.Device)
		for i, device := range devices {
			disk, ok := device.(*types.VirtualDisk)
			if !ok {
				continue
			}
			back, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			if !ok || back.FileName != from {
				continue
			}
			disk2, back2 := *disk, *back
			back2.FileName = to
			disk2.Backing = &back2
			devices[i] = &disk2
		}
		own.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: devices}})
	})
}

// VS-D4: a disk that a storage migration has moved is known by its UUID, its new path goes on record before it is detached, and the
// successor gets it from there.
func TestMigratedDiskIsFollowed(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	host := w.ns + "-w-1"
	before := w.diskStatus(host)
	moved := "[ds-shared-a2] elsewhere/" + filepath.Base(before.VolumePath)
	w.migrate("m1", before.VolumePath, moved)
	w.g.Expect(k8s.Delete(ctx, first)).To(Succeed())
	w.gone(first)
	w.g.Expect(w.diskStatus(host).VolumePath).To(Equal(moved))
	w.g.Expect(k8s.Delete(ctx, w.machineOf(first))).To(Succeed())
	second := w.withMachine("m2", "demo-worker")
	w.ready(second)
	w.g.Expect(w.diskStatus(host).DiskUUID).To(Equal(before.DiskUUID))
	w.g.Expect(w.attachedTo(w.vm("m2"))).To(HaveKeyWithValue(moved, normal(before.DiskUUID)))
}

// VS-D4, VS-D21: a disk that was moved among the virtual machine's own files would be destroyed with them. The machine waits until it
// is back, and says where it belongs.
func TestDiskMovedIntoTheMachineIsNotDestroyed(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	before := w.diskStatus(w.ns + "-w-1")
	inside := w.vm("m1").Directory + "/" + filepath.Base(before.VolumePath)
	w.migrate("m1", before.VolumePath, inside)
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.waits(m, infrav1.ReadyCondition, infrav1.DeletionFailedReason)
	w.g.Expect(conditions.Get(m, infrav1.ReadyCondition).Message).To(And(ContainSubstring(inside), ContainSubstring(before.VolumePath)))
	w.g.Expect(w.attachedTo(w.vm("m1"))).To(HaveKeyWithValue(inside, normal(before.DiskUUID)))
	w.migrate("m1", inside, before.VolumePath)
	w.gone(m)
	w.g.Expect(w.disk(before.VolumePath)).NotTo(BeNil())
	w.g.Expect(normal(w.disk(before.VolumePath).UUID)).To(Equal(normal(before.DiskUUID)))
}

// 3.1: PCI devices that somebody has taken off are reported, and nothing is done to the machine that runs.
func TestMissingPCIDevicesAreReported(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) {
		m.Spec.PciDevices = []infrav1.PCIDeviceSpec{{VGPUProfile: "grid_v100-4q"}}
	})
	w.ready(m)
	says := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		w.g.Eventually(func(g Gomega) {
			c := conditions.Get(w.object("m1"), infrav1.PCIDevicesDetachedCondition)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Status).To(Equal(status))
			g.Expect(c.Reason).To(Equal(reason), c.Message)
		}).Should(Succeed())
	}
	says(metav1.ConditionTrue, infrav1.SatisfiedReason)
	w.inside("m1", func(own *simulator.Context, vm *simulator.VirtualMachine) {
		left := slices.DeleteFunc(slices.Clone(vm.Config.Hardware.Device), func(d types.BaseVirtualDevice) bool {
			_, pci := d.(*types.VirtualPCIPassthrough)
			return pci
		})
		own.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: left}})
	})
	says(metav1.ConditionFalse, infrav1.PCIDeviceNotFoundReason)
	w.ready(m)
}

// VS-V34, VS-B30, VS-V4: a manager that starts while a clone runs takes over the wait for it, and makes no second one.
func TestCloneOutlivesTheManager(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskHang, Delay: 5 * time.Second})).To(Succeed())
	m := w.withMachine("m1", "")
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.CloningReason)
	w.g.Eventually(func() string { return w.object("m1").Status.TaskRef }).ShouldNot(BeEmpty())
	w.kill()
	w.start()
	w.ready(m)
	w.g.Expect(w.meter.Snapshot().Calls["CloneVM_Task"]).To(Equal(1))
	w.g.Expect(w.vms()).To(Equal(1))
}

// VS-V30, VS-V35, pain 72: vCenter's words about a failed task are on the machine, which goes on when the cause is gone.
func TestFailedCloneIsToldInVCentersWords(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{
		Method: "CloneVM_Task", Kind: vcenter.FaultTask, Type: "InsufficientMemoryResourcesFault", Message: "The host has no memory left.", Count: -1,
	})).To(Succeed())
	m := w.withMachine("m1", "")
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		c := conditions.Get(m, infrav1.VMProvisionedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(And(ContainSubstring("The host has no memory left"), ContainSubstring("InsufficientMemoryResourcesFault")))
		g.Expect(w.object("m1").Status.RetryAfter).NotTo(BeNil())
		g.Expect(w.object("m1").Status.TaskRef).To(BeEmpty())
	}).Should(Succeed())
	w.g.Expect(w.vcenter.Admin().ClearFaults(ctx)).To(Succeed())
	w.ready(m)
}

// VS-V15, VS-V16, VS-V20b, VS-B28: guest data is encoded once, even if it looks encoded already, and never written again.
func TestGuestDataIsEncodedOnce(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	const ignition = "eyJpZ25pdGlvbiI6eyJ2ZXJzaW9uIjoiMy40LjAifX0="
	m := w.withMachine("m1", "")
	secret := w.bootstrap("m1", ignition, "ignition")
	w.provisioned()
	w.ready(m)
	w.g.Expect(w.guestinfo("m1", "guestinfo.ignition.config.data")).To(Equal(ignition))
	w.g.Expect(w.metadata("m1")).To(ContainSubstring("m1"))

	before := w.meter.Snapshot().Calls["ReconfigVM_Task"]
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data["value"] = []byte("something else")
	w.g.Expect(k8s.Update(ctx, secret)).To(Succeed())
	w.ready(w.withMachine("m2", ""))
	w.g.Expect(w.guestinfo("m1", "guestinfo.ignition.config.data")).To(Equal(ignition))
	w.g.Expect(w.meter.Snapshot().Calls["ReconfigVM_Task"]).To(Equal(before+1), "the second machine's")
}

// bootstrap changes a machine's bootstrap Secret.
func (w *world) bootstrap(name, value, format string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data = map[string][]byte{"value": []byte(value), "format": []byte(format)}
	w.g.Expect(k8s.Update(ctx, secret)).To(Succeed())
	return secret
}
