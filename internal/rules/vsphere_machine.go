package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

const maxWindowsName = 15

var hardwareVersion = regexp.MustCompile(`^vmx-[1-9][0-9]?$`)

// VSphereMachine judges a new machine (old is nil) or a changed one.
func VSphereMachine(old, m *v1beta1.VSphereMachine) Verdict {
	var v Verdict
	if m.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(old.Spec, m.Spec) {
		return v
	}
	v.since(old != nil, func() Verdict { return machineSpec(&old.Spec, m.Namespace) }, machineSpec(&m.Spec, m.Namespace))
	if old == nil {
		return v
	}
	before, after := old.Spec.DeepCopy(), m.Spec.DeepCopy()
	for _, s := range []*v1beta1.VSphereMachineSpec{before, after} {
		s.ProviderID = nil
		s.PowerOffMode = ""
		s.GuestSoftPowerOffTimeout = nil
		s.Network.Devices = nil
	}
	for _, d := range differences(field.NewPath("spec"), *before, *after) {
		v.refuse(field.Forbidden(d.path, fmt.Sprintf("%s: the spec of machine %s cannot be modified, a running machine is not rebuilt by an edit; make a new VSphereMachineTemplate and point the owner of the machines at it", d, m.Name)))
	}
	return v
}

func machineSpec(s *v1beta1.VSphereMachineSpec, namespace string) Verdict {
	spec := field.NewPath("spec")
	v := cloneSpec(spec, &s.VirtualMachineCloneSpec)
	v.Errors = append(v.Errors, powerOff(spec, s.PowerOffMode, s.GuestSoftPowerOffTimeout)...)
	v.Merge(leftovers(spec, s, namespace))
	return v
}

// VSphereMachineDelete judges the deletion of a machine object. owner is the name of its Machine, "" if that is gone or going.
func VSphereMachineDelete(m *v1beta1.VSphereMachine, owner string) Verdict {
	var v Verdict
	if m.DeletionTimestamp == nil && owner != "" && !movedAway(m) {
		v.warn(nil, "VSphereMachine %s/%s is deleted while its Machine %s lives: the node goes without being drained, and the Machine stays behind without one; delete the Machine instead", m.Namespace, m.Name, owner)
	}
	return v
}

// VSphereVM judges a new virtual machine object (old is nil) or a changed one.
func VSphereVM(old, vm *v1beta1.VSphereVM) Verdict {
	var v Verdict
	if vm.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(old.Spec, vm.Spec) {
		return v
	}
	spec := field.NewPath("spec")
	own := func(s *v1beta1.VSphereVMSpec) Verdict {
		return Verdict{Errors: append(staticAddresses(spec, s.Network.Devices), powerOff(spec, s.PowerOffMode, s.GuestSoftPowerOffTimeout)...)}
	}
	v.since(old != nil, func() Verdict { return own(&old.Spec) }, own(&vm.Spec))
	if old == nil {
		if vm.Spec.OS == v1beta1.Windows && len(vm.Name) > maxWindowsName {
			v.refuse(field.Invalid(field.NewPath("metadata", "name"), vm.Name, fmt.Sprintf("has %d characters, and the name of a Windows machine at most %d; use a namingStrategy that shortens it", len(vm.Name), maxWindowsName)))
		}
		return v
	}
	before, after := old.Spec.DeepCopy(), vm.Spec.DeepCopy()
	if before.OS == "" {
		after.OS = ""
	}
	if before.BiosUUID == "" {
		after.BiosUUID = ""
	}
	for _, s := range []*v1beta1.VSphereVMSpec{before, after} {
		s.BootstrapRef = nil
		s.Thumbprint = ""
		s.PowerOffMode = ""
		s.GuestSoftPowerOffTimeout = nil
		s.Network.Devices = nil
	}
	for _, d := range differences(spec, *before, *after) {
		v.refuse(field.Forbidden(d.path, fmt.Sprintf("%s: the spec of virtual machine %s cannot be modified, it was decided once, when the machine got its place; replace the machine instead", d, vm.Name)))
	}
	return v
}

// VSphereVMDelete judges the deletion of a virtual machine object. owner is its VSphereMachine, nil if that is gone.
func VSphereVMDelete(vm *v1beta1.VSphereVM, owner *v1beta1.VSphereMachine) Verdict {
	var v Verdict
	if vm.DeletionTimestamp == nil && owner != nil && owner.DeletionTimestamp == nil && !movedAway(vm) {
		v.refuse(field.Forbidden(field.NewPath("metadata", "ownerReferences"), fmt.Sprintf("cannot delete VSphereVM %s/%s while its VSphereMachine %s lives; delete the Machine instead, or annotate it with cluster.x-k8s.io/delete-machine and scale down", vm.Namespace, vm.Name, owner.Name)))
	}
	return v
}

// movedAway: clusterctl takes an original away after it has copied it to another management cluster, dependents first. It must not
// be held up halfway (decision D16), and nothing happens to what the object stands for: its Cluster is paused.
func movedAway(obj metav1.Object) bool {
	_, ok := obj.GetAnnotations()[v1beta1.DeleteForMoveAnnotation]
	return ok
}

// cloneSpec checks what machines, templates and virtual machines have in common.
func cloneSpec(path *field.Path, s *v1beta1.VirtualMachineCloneSpec) Verdict {
	var v Verdict
	network := path.Child("network")
	if s.Network.PreferredAPIServerCIDR != "" {
		v.refuse(field.Forbidden(network.Child("preferredAPIServerCidr"), fmt.Sprintf("has no effect any more; remove %q", s.Network.PreferredAPIServerCIDR)))
	}
	v.Errors = append(v.Errors, staticAddresses(path, s.Network.Devices)...)
	v.Errors = append(v.Errors, sizes(path, s)...)
	for i, d := range s.PciDevices {
		p := path.Child("pciDevices").Index(i)
		byID, byProfile := d.DeviceID != nil || d.VendorID != nil, d.VGPUProfile != ""
		switch {
		case byID && byProfile:
			v.refuse(field.Forbidden(p, fmt.Sprintf("vGPUProfile %q excludes deviceId and vendorId; name the device in one way", d.VGPUProfile)))
		case !byProfile && (d.DeviceID == nil || d.VendorID == nil):
			v.refuse(field.Invalid(p, inWords(reflect.ValueOf(d)), "needs both deviceId and vendorId, or vGPUProfile; name the device in one of the two ways"))
		}
	}
	return v
}

func staticAddresses(spec *field.Path, devices []v1beta1.NetworkDeviceSpec) field.ErrorList {
	var errs field.ErrorList
	for i, d := range devices {
		for j, a := range d.IPAddrs {
			if _, err := netip.ParsePrefix(a); err != nil {
				errs = append(errs, field.Invalid(spec.Child("network", "devices").Index(i).Child("ipAddrs").Index(j), a, "must be an address in CIDR form, such as 192.0.2.31/24"))
			}
		}
	}
	return errs
}

func powerOff(path *field.Path, mode v1beta1.VirtualMachinePowerOpMode, timeout *metav1.Duration) field.ErrorList {
	if timeout == nil {
		return nil
	}
	p := path.Child("guestSoftPowerOffTimeout")
	switch {
	case mode != v1beta1.VirtualMachinePowerOpModeTrySoft:
		return field.ErrorList{field.Forbidden(p, fmt.Sprintf("%s counts only when powerOffMode is trySoft, and it is %q; change the mode or remove the timeout", timeout.Duration, cmp.Or(mode, v1beta1.VirtualMachinePowerOpModeHard)))}
	case timeout.Duration <= 0:
		return field.ErrorList{field.Invalid(p, timeout.Duration.String(), "must be longer than zero, such as 5m")}
	}
	return nil
}
