package rules_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

func TestVSphereMachineTemplate(t *testing.T) {
	const spec = "spec.template.spec."
	timeout := &metav1.Duration{Duration: time.Minute}
	for _, c := range []struct {
		id, name string
		edit     func(*v1beta1.VSphereMachineSpec)
		want     expectation
	}{
		{"VS-R30", "a complete template", func(s *v1beta1.VSphereMachineSpec) { s.NumCPUs, s.MemoryMiB, s.DiskGiB = 8, 16384, 80 }, accepted},
		{"VS-W50", "a provider ID", func(s *v1beta1.VSphereMachineSpec) { s.ProviderID = ptr.To("vsphere://1") }, refused(field.ErrorTypeForbidden, spec+"providerID", "cannot be set in templates")},
		{"VS-W51", "static addresses", func(s *v1beta1.VSphereMachineSpec) { s.Network.Devices[0].IPAddrs = []string{"192.0.2.1/24"} }, refused(field.ErrorTypeForbidden, spec+"network.devices[0].ipAddrs", "cannot be set in templates")},
		{"VS-W52", "a hardware version in words", func(s *v1beta1.VSphereMachineSpec) { s.HardwareVersion = "19" }, refused(field.ErrorTypeInvalid, spec+"hardwareVersion", "vmx-19")},
		{"VS-W52", "hardware version 100", func(s *v1beta1.VSphereMachineSpec) { s.HardwareVersion = "vmx-100" }, refused(field.ErrorTypeInvalid, spec+"hardwareVersion", "1 to 99")},
		{"VS-W52", "hardware version 19", func(s *v1beta1.VSphereMachineSpec) { s.HardwareVersion = "vmx-19" }, accepted},
		{"VS-W53", "a timeout for a hard stop", func(s *v1beta1.VSphereMachineSpec) {
			s.PowerOffMode, s.GuestSoftPowerOffTimeout = v1beta1.VirtualMachinePowerOpModeHard, timeout
		}, refused(field.ErrorTypeForbidden, spec+"guestSoftPowerOffTimeout", `it is "hard"`)},
		{"VS-W53", "a timeout of nothing", func(s *v1beta1.VSphereMachineSpec) {
			s.PowerOffMode, s.GuestSoftPowerOffTimeout = v1beta1.VirtualMachinePowerOpModeTrySoft, &metav1.Duration{}
		}, refused(field.ErrorTypeInvalid, spec+"guestSoftPowerOffTimeout", "longer than zero")},
		{"VS-W53", "a timeout for trySoft", func(s *v1beta1.VSphereMachineSpec) {
			s.PowerOffMode, s.GuestSoftPowerOffTimeout = v1beta1.VirtualMachinePowerOpModeTrySoft, timeout
		}, accepted},
		{"VS-W54", "a naming template that does not parse", func(s *v1beta1.VSphereMachineSpec) {
			s.NamingStrategy = &v1beta1.VSphereVMNamingStrategy{Template: ptr.To("{{ .machine.name")}
		}, refused(field.ErrorTypeInvalid, spec+"namingStrategy.template", "unclosed action")},
		{"VS-W54", "a naming template that makes no name", func(s *v1beta1.VSphereMachineSpec) {
			s.NamingStrategy = &v1beta1.VSphereVMNamingStrategy{Template: ptr.To("{{ .machine.name }}_VM")}
		}, refused(field.ErrorTypeInvalid, spec+"namingStrategy.template", "_VM")},
		{"VS-W54", "a naming template", func(s *v1beta1.VSphereMachineSpec) {
			s.NamingStrategy = &v1beta1.VSphereVMNamingStrategy{Template: ptr.To(`vm-{{ .machine.name | trimSuffix "b2" | trunc 20 }}`)}
		}, accepted},
		{"VS-W56", "a pool of another namespace", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef.Namespace = "elsewhere" }, refused(field.ErrorTypeInvalid, spec+"machineConfigPoolRef.namespace", "must be ns")},
		{"decision V6", "a pool of another kind", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef.Kind = "HCSMachineConfigPool" }, refused(field.ErrorTypeInvalid, spec+"machineConfigPoolRef.kind", "VSphereMachineConfigPool")},
		{"decision V7", "preferredAPIServerCidr", func(s *v1beta1.VSphereMachineSpec) { s.Network.PreferredAPIServerCIDR = "192.0.2.0/24" }, refused(field.ErrorTypeForbidden, spec+"network.preferredAPIServerCidr", "192.0.2.0/24")},
		{"decision D15", "a failure domain of its own", func(s *v1beta1.VSphereMachineSpec) { s.FailureDomain = ptr.To("a") }, warned("has no effect")},
		{"decision V4", "more devices than the slots have interfaces", func(s *v1beta1.VSphereMachineSpec) {
			s.Network.Devices = append(s.Network.Devices, v1beta1.NetworkDeviceSpec{NetworkName: "pg-stor"})
		}, refused(field.ErrorTypeInvalid, spec+"network.devices", "slot w-1 of pool ns/workers has 1 network interface(s), template v1 has 2 device(s)")},
		{"decision D8", "a data disk with the name of a slot's disk", func(s *v1beta1.VSphereMachineSpec) {
			s.DataDisks = []v1beta1.VSphereDisk{{Name: "var-cpaas", SizeGiB: 1}}
		}, refused(field.ErrorTypeInvalid, spec+"dataDisks[var-cpaas]", "slot w-1 of pool ns/workers")},
		{"VS-D12", "more disks than a machine takes", func(s *v1beta1.VSphereMachineSpec) {
			for i := range 27 {
				s.DataDisks = append(s.DataDisks, v1beta1.VSphereDisk{Name: "d" + strings.Repeat("x", i), SizeGiB: 1})
			}
		}, refused(field.ErrorTypeInvalid, spec+"dataDisks", "30 disks")},
		{"VS-R58", "a size, and no word of how to clone", func(s *v1beta1.VSphereMachineSpec) { s.CloneMode, s.DiskGiB = "", 80 }, warned("full clones only")},
		{"VS-B25", "a size for a linked clone (pain 87)", func(s *v1beta1.VSphereMachineSpec) { s.CloneMode, s.DiskGiB = v1beta1.LinkedClone, 80 }, refused(field.ErrorTypeInvalid, spec+"diskGiB", "no effect with cloneMode linkedClone")},
		{"VS-V9", "sizes of further disks", func(s *v1beta1.VSphereMachineSpec) { s.AdditionalDisksGiB = []int32{50} }, warned("create none")},
		{"VS-V9", "a negative size of a further disk", func(s *v1beta1.VSphereMachineSpec) { s.AdditionalDisksGiB = []int32{0, -1} }, refused(field.ErrorTypeInvalid, spec+"additionalDisksGiB[1]", "negative")},
		{"VS-V9", "a negative disk", func(s *v1beta1.VSphereMachineSpec) { s.DiskGiB = -1 }, refused(field.ErrorTypeInvalid, spec+"diskGiB", "negative")},
		{"VS-V11", "no processors", func(s *v1beta1.VSphereMachineSpec) { s.NumCPUs = 0 }, warned("machines get 2 processors")},
		{"VS-V11", "negative processors", func(s *v1beta1.VSphereMachineSpec) { s.NumCPUs = -4 }, refused(field.ErrorTypeInvalid, spec+"numCPUs", "negative")},
		{"VS-V11", "no memory", func(s *v1beta1.VSphereMachineSpec) { s.MemoryMiB = 0 }, warned("machines get 2048 MiB")},
		{"VS-V11", "negative memory", func(s *v1beta1.VSphereMachineSpec) { s.MemoryMiB = -1 }, refused(field.ErrorTypeInvalid, spec+"memoryMiB", "negative")},
		{"VS-V11", "cores that make no whole sockets", func(s *v1beta1.VSphereMachineSpec) { s.NumCoresPerSocket = 3 }, refused(field.ErrorTypeInvalid, spec+"numCoresPerSocket", "does not divide the 4 processors")},
		{"VS-V11", "two sockets", func(s *v1beta1.VSphereMachineSpec) { s.NumCoresPerSocket = 2 }, accepted},
		{"decision D1", "a data disk of nothing", func(s *v1beta1.VSphereMachineSpec) { s.DataDisks = []v1beta1.VSphereDisk{{Name: "scratch"}} }, refused(field.ErrorTypeInvalid, spec+"dataDisks[scratch].sizeGiB", "at least 1 GiB")},
		{"VS-R43", "another network than the slots have", func(s *v1beta1.VSphereMachineSpec) { s.Network.Devices[0].NetworkName = "pg-old" }, warned(`is "pg-old", and slot w-1 of pool ns/workers names "pg-node"`)},
		{"decision D2", "a pool that is not there yet", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef.Name = "elsewhere" }, warned("machine config pool ns/elsewhere does not exist yet")},
		{"VS-V24", "no pool, no DHCP", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef = nil }, warned("neither DHCP nor an address")},
		{"VS-V24", "no pool, addresses from elsewhere", func(s *v1beta1.VSphereMachineSpec) {
			s.MachineConfigPoolRef = nil
			s.Network.Devices[0].AddressesFromPools = []corev1.TypedLocalObjectReference{{Kind: "InClusterIPPool", Name: "a"}}
		}, accepted},
		{"VS-V24", "no pool, DHCP", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef, s.Network.Devices[0].DHCP4 = nil, true }, accepted},
		{"decision V6", "a pool of another group", func(s *v1beta1.VSphereMachineSpec) { s.MachineConfigPoolRef.APIVersion = "example.com/v1" }, refused(field.ErrorTypeInvalid, spec+"machineConfigPoolRef.apiVersion", "infrastructure.cluster.x-k8s.io")},
		{"VS-V8", "an unknown way to clone", func(s *v1beta1.VSphereMachineSpec) { s.CloneMode = "instantClone" }, refused(field.ErrorTypeNotSupported, spec+"cloneMode", "fullClone")},
		{"VS-V24", "no network device", func(s *v1beta1.VSphereMachineSpec) { s.Network.Devices, s.MachineConfigPoolRef = nil, nil }, refused(field.ErrorTypeRequired, spec+"network.devices", "at least one")},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			template := newTemplate("v1", "workers")
			c.edit(&template.Spec.Template.Spec)
			world := rules.VSphereTemplateWorld{Pool: newPool()}
			if ref := template.Spec.Template.Spec.MachineConfigPoolRef; ref != nil && ref.Name != world.Pool.Name {
				world.Pool = nil
			}
			c.want.check(t, rules.VSphereMachineTemplate(nil, template, world))
		})
	}
	t.Run("VS-V24 a slot without an address and a device without DHCP", func(t *testing.T) {
		pool := newPool()
		pool.Spec.Configs[1].Network.Primary.IP, pool.Spec.Configs[1].Network.Primary.Gateway = "", ""
		warned("slot w-2 of pool ns/workers gives this interface no address").check(t, rules.VSphereMachineTemplate(nil, newTemplate("v1", "workers"), rules.VSphereTemplateWorld{Pool: pool}))
		withDHCP := newTemplate("v1", "workers")
		withDHCP.Spec.Template.Spec.Network.Devices[0].DHCP4 = true
		accepted.check(t, rules.VSphereMachineTemplate(nil, withDHCP, rules.VSphereTemplateWorld{Pool: pool}))
	})
	t.Run("VS-R17 a template lists what it changed, one sentence for each field", func(t *testing.T) {
		g := NewWithT(t)
		old, template := newTemplate("v1", "workers"), newTemplate("v1", "workers")
		template.Spec.Template.Spec.NumCPUs = 8
		template.Spec.Template.Spec.Network.Devices[0].NetworkName = "pg-other"
		template.Spec.Template.Spec.TagIDs = []string{} // as good as none
		v := rules.VSphereMachineTemplate(old, template, rules.VSphereTemplateWorld{})
		g.Expect(v.Errors).To(HaveLen(2))
		g.Expect(v.Errors[0].Error()).To(HavePrefix(spec + `network.devices[0].networkName: Invalid value: cannot change from "pg-node" to "pg-other"`))
		g.Expect(v.Errors[1].Error()).To(HavePrefix(spec + "numCPUs: Invalid value: cannot change from 4 to 8"))
	})

	t.Run("VS-W55 a template never changes", func(t *testing.T) {
		old, template := newTemplate("v1", "workers"), newTemplate("v1", "workers")
		template.Spec.Template.Spec.MemoryMiB = 4096
		was := old.Spec.Template.Spec.MemoryMiB
		want := refused(field.ErrorTypeInvalid, spec+"memoryMiB", fmt.Sprintf("cannot change from %d to 4096: field is immutable, create a new resource", was))
		want.check(t, rules.VSphereMachineTemplate(old, template, rules.VSphereTemplateWorld{}))
		accepted.check(t, rules.VSphereMachineTemplate(old, template, rules.VSphereTemplateWorld{TopologyDryRun: true}))
		template.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		accepted.check(t, rules.VSphereMachineTemplate(old, template, rules.VSphereTemplateWorld{}))
		relabelled := old.DeepCopy()
		relabelled.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "b"}
		accepted.check(t, rules.VSphereMachineTemplate(old, relabelled, rules.VSphereTemplateWorld{}))
	})
	t.Run("VS-R33 defaults change nothing that is set, and nothing twice", func(t *testing.T) {
		g := NewWithT(t)
		once := newTemplate("v1", "").Spec.Template.Spec
		rules.DefaultVSphereMachine(&once)
		g.Expect(once.Datacenter).To(Equal(v1beta1.AnyDatacenter))
		g.Expect(once.OS).To(Equal(v1beta1.Linux))
		twice := *once.DeepCopy()
		rules.DefaultVSphereMachine(&twice)
		g.Expect(twice).To(Equal(once))
		twice.Datacenter, twice.OS, twice.PowerOffMode = "dc-a", v1beta1.Windows, v1beta1.VirtualMachinePowerOpModeSoft
		set := *twice.DeepCopy()
		rules.DefaultVSphereMachine(&set)
		g.Expect(set).To(Equal(twice))
	})
}

func TestVSphereMachine(t *testing.T) {
	newMachine := func() *v1beta1.VSphereMachine {
		m := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
		m.Spec = newTemplate("v1", "workers").Spec.Template.Spec
		return m
	}
	for _, c := range []struct {
		id, name string
		edit     func(*v1beta1.VSphereMachineSpec)
		want     expectation
	}{
		{"VS-W41", "preferredAPIServerCidr", func(s *v1beta1.VSphereMachineSpec) { s.Network.PreferredAPIServerCIDR = "192.0.2.0/24" }, refused(field.ErrorTypeForbidden, "spec.network.preferredAPIServerCidr", "remove")},
		{"VS-W42", "an address without prefix length", func(s *v1beta1.VSphereMachineSpec) { s.Network.Devices[0].IPAddrs = []string{"192.0.2.31"} }, refused(field.ErrorTypeInvalid, "spec.network.devices[0].ipAddrs[0]", "CIDR")},
		{"VS-W43", "a timeout for a hard stop", func(s *v1beta1.VSphereMachineSpec) {
			s.GuestSoftPowerOffTimeout = &metav1.Duration{Duration: time.Minute}
		}, refused(field.ErrorTypeForbidden, "spec.guestSoftPowerOffTimeout", "trySoft")},
		{"VS-W44", "half a PCI device", func(s *v1beta1.VSphereMachineSpec) {
			s.PciDevices = []v1beta1.PCIDeviceSpec{{DeviceID: ptr.To[int32](1)}}
		}, refused(field.ErrorTypeInvalid, "spec.pciDevices[0]", "both deviceId and vendorId")},
		{"VS-W44", "a PCI device in two ways", func(s *v1beta1.VSphereMachineSpec) {
			s.PciDevices = []v1beta1.PCIDeviceSpec{{DeviceID: ptr.To[int32](1), VendorID: ptr.To[int32](2), VGPUProfile: "grid"}}
		}, refused(field.ErrorTypeForbidden, "spec.pciDevices[0]", "grid")},
		{"VS-W44", "a PCI device by profile", func(s *v1beta1.VSphereMachineSpec) { s.PciDevices = []v1beta1.PCIDeviceSpec{{VGPUProfile: "grid"}} }, accepted},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			m := newMachine()
			c.edit(&m.Spec)
			c.want.check(t, rules.VSphereMachine(nil, m))
		})
	}
	t.Run("VS-R41 a machine is not rebuilt by an edit", func(t *testing.T) {
		old, m := newMachine(), newMachine()
		m.Spec.NumCPUs = 8
		refused(field.ErrorTypeForbidden, "spec.numCPUs", "cannot be modified").check(t, rules.VSphereMachine(old, m))
	})
	t.Run("VS-W28 what was wrong before does not stand in the way of the controller", func(t *testing.T) {
		old, m := newMachine(), newMachine()
		for _, o := range []*v1beta1.VSphereMachine{old, m} {
			o.Spec.Network.PreferredAPIServerCIDR = "192.0.2.0/24"
		}
		m.Spec.ProviderID = ptr.To("vsphere://1")
		warned("accepted because this change does not touch it").check(t, rules.VSphereMachine(old, m))
	})
	t.Run("VS-W45 what may change", func(t *testing.T) {
		old, m := newMachine(), newMachine()
		m.Spec.ProviderID = ptr.To("vsphere://1")
		m.Spec.PowerOffMode = v1beta1.VirtualMachinePowerOpModeTrySoft
		m.Spec.GuestSoftPowerOffTimeout = &metav1.Duration{Duration: time.Minute}
		m.Spec.Network.Devices[0].IPAddrs = []string{"192.0.2.31/24"}
		accepted.check(t, rules.VSphereMachine(old, m))
	})
	t.Run("VS-W45 while it is being deleted", func(t *testing.T) {
		old, m := newMachine(), newMachine()
		m.Spec.NumCPUs = 8
		m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		accepted.check(t, rules.VSphereMachine(old, m))
	})
}

func TestVSphereVM(t *testing.T) {
	newVM := func() *v1beta1.VSphereVM {
		vm := &v1beta1.VSphereVM{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-name-of-twenty-char"}}
		vm.Spec.VirtualMachineCloneSpec = newTemplate("v1", "").Spec.Template.Spec.VirtualMachineCloneSpec
		slot := newSlot("w-1", "192.0.2.31/24")
		vm.Spec.Slot = &slot
		return vm
	}
	t.Run("VS-V20b the description of a virtual machine is written once", func(t *testing.T) {
		old, vm := newVM(), newVM()
		vm.Spec.Slot.PersistentDisks[0].SizeGiB++
		refused(field.ErrorTypeForbidden, "spec.slot.persistentDisks[0].sizeGiB", "cannot be modified").check(t, rules.VSphereVM(old, vm))
		vm = newVM()
		vm.Spec.DataDisks = []v1beta1.VSphereDisk{{Name: "d", SizeGiB: 1}}
		refused(field.ErrorTypeForbidden, "spec.dataDisks", "cannot be modified").check(t, rules.VSphereVM(old, vm))
	})
	t.Run("VS-V26 what becomes known later is written once, too", func(t *testing.T) {
		old, vm := newVM(), newVM()
		vm.Spec.BiosUUID, vm.Spec.OS = "1", v1beta1.Linux
		vm.Spec.BootstrapRef = &corev1.ObjectReference{Name: "secret"}
		accepted.check(t, rules.VSphereVM(old, vm))
		later := vm.DeepCopy()
		later.Spec.BiosUUID = "2"
		refused(field.ErrorTypeForbidden, "spec.biosUUID", "cannot be modified").check(t, rules.VSphereVM(vm, later))
	})
	t.Run("a Windows machine has a short name", func(t *testing.T) {
		vm := newVM()
		vm.Spec.OS = v1beta1.Windows
		refused(field.ErrorTypeInvalid, "metadata.name", "at most 15").check(t, rules.VSphereVM(nil, vm))
	})
	t.Run("decision V9: it goes with its machine", func(t *testing.T) {
		owner := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		refused(field.ErrorTypeForbidden, "metadata.ownerReferences", "while its VSphereMachine m lives").check(t, rules.VSphereVMDelete(newVM(), owner))
		owner.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		accepted.check(t, rules.VSphereVMDelete(newVM(), owner))
		accepted.check(t, rules.VSphereVMDelete(newVM(), nil))
	})
	t.Run("decision D16: clusterctl takes originals away after a move, dependents first", func(t *testing.T) {
		owner := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		moved := map[string]string{v1beta1.DeleteForMoveAnnotation: ""}
		vm := newVM()
		vm.Annotations = moved
		accepted.check(t, rules.VSphereVMDelete(vm, owner))
		owner.Annotations = moved
		accepted.check(t, rules.VSphereMachineDelete(owner, "a-living-machine"))
	})
}

// VS-B29: names made at the same time with different templates do not mix.
func TestNamesMadeAtTheSameTime(t *testing.T) {
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 50 {
				want := fmt.Sprintf("a%d-m%d", i, i)
				if got, err := rules.VMName(fmt.Sprintf("a%d-{{ .machine.name }}", i), fmt.Sprintf("m%d", i)); err != nil || got != want {
					t.Errorf("%q (%v), want %q", got, err, want)
				}
			}
		})
	}
	all.Wait()
}

func TestVMName(t *testing.T) {
	g := NewWithT(t)
	for _, c := range []struct{ naming, machine, want string }{
		{"", "md-0-abcde", "md-0-abcde"},
		{"", strings.Repeat("m", 70), strings.Repeat("m", 63)},
		{"{{ .machine.name }}", "md-0-abcde", "md-0-abcde"},
		{`{{ .machine.name | trunc 4 }}`, "md-0-abcde", "md-0"},
		{`{{ .machine.name | trunc -5 }}`, "md-0-abcde", "abcde"},
		{`{{ .machine.name | trimSuffix "-abcde" }}`, "md-0-abcde", "md-0"},
		{`vm-{{ .machine.name }}`, strings.Repeat("m", 70), "vm-" + strings.Repeat("m", 60)}, // VS-V14: cut at 63 characters
	} {
		got, err := rules.VMName(c.naming, c.machine)
		g.Expect(err).NotTo(HaveOccurred(), c.naming)
		g.Expect(got).To(Equal(c.want), c.naming)
	}
	_, err := rules.VMName("{{ .machine.uid }}", "m")
	g.Expect(err).To(HaveOccurred())
}
