package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

const maxWindowsName = 15

var hardwareVersion = regexp.MustCompile(`^vmx-[1-9][0-9]?$`)

// VSphereMachine judges a new machine (old is nil) or a changed one.
func VSphereMachine(old, m *v1beta1.VSphereMachine) Verdict {
	var v Verdict
	if m.DeletionTimestamp != nil || old != nil && reflect.DeepEqual(old.Spec, m.Spec) {
		return v
	}
	spec := field.NewPath("spec")
	v.Merge(cloneSpec(spec, &m.Spec.VirtualMachineCloneSpec))
	v.Errors = append(v.Errors, powerOff(spec, m.Spec.PowerOffMode, m.Spec.GuestSoftPowerOffTimeout)...)
	v.Merge(leftovers(spec, &m.Spec, m.Namespace))
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
	for _, name := range changedFields(*before, *after) {
		v.refuse(field.Forbidden(spec.Child(name), "cannot be modified: a running machine is not rebuilt by an edit; make a new VSphereMachineTemplate and point the owner of the machines at it"))
	}
	return v
}

// VSphereTemplateWorld is what the rules for a machine template look at beside it.
type VSphereTemplateWorld struct {
	// Pool that it names, nil if it does not exist (yet).
	Pool *v1beta1.VSphereMachineConfigPool
	// TopologyDryRun: the request is a dry run of a managed topology, which must see what a change would do.
	TopologyDryRun bool
}

// VSphereMachineTemplate judges a new template (old is nil) or a changed one.
func VSphereMachineTemplate(old, t *v1beta1.VSphereMachineTemplate, w VSphereTemplateWorld) Verdict {
	var v Verdict
	spec, path := &t.Spec.Template.Spec, field.NewPath("spec", "template", "spec")
	if t.DeletionTimestamp != nil {
		return v
	}
	if old != nil {
		if !w.TopologyDryRun {
			for _, name := range changedFields(old.Spec.Template.Spec, *spec) {
				was, _ := plainField(reflect.ValueOf(old.Spec.Template.Spec), name)
				now, plain := plainField(reflect.ValueOf(*spec), name)
				change := ""
				if plain {
					change = fmt.Sprintf("cannot change from %#v to %#v: ", was, now)
				}
				v.refuse(field.Invalid(path.Child(name), now, fmt.Sprintf("%sfield is immutable, create a new resource: export %s, give it another name, change that and point the owner of the machines at it", change, t.Name)))
			}
		}
		return v
	}

	v.Merge(cloneSpec(path, &spec.VirtualMachineCloneSpec))
	v.Errors = append(v.Errors, powerOff(path, spec.PowerOffMode, spec.GuestSoftPowerOffTimeout)...)
	v.Merge(leftovers(path, spec, t.Namespace))
	if spec.ProviderID != nil {
		v.refuse(field.Forbidden(path.Child("providerID"), fmt.Sprintf("cannot be set in templates, each machine gets its own; remove %q", *spec.ProviderID)))
	}
	for i, d := range spec.Network.Devices {
		if len(d.IPAddrs) > 0 {
			v.refuse(field.Forbidden(path.Child("network", "devices").Index(i).Child("ipAddrs"), fmt.Sprintf("cannot be set in templates, %v would go to every machine; declare the addresses in the slots of a VSphereMachineConfigPool", d.IPAddrs)))
		}
	}
	if len(spec.Network.Devices) == 0 {
		v.refuse(field.Required(path.Child("network", "devices"), "a machine needs at least one network device"))
	}
	if hw := spec.HardwareVersion; hw != "" && !hardwareVersion.MatchString(hw) {
		v.refuse(field.Invalid(path.Child("hardwareVersion"), hw, "must be vmx- and a number from 1 to 99, such as vmx-19"))
	}
	switch spec.CloneMode {
	case "", v1beta1.FullClone, v1beta1.LinkedClone:
	default:
		v.refuse(field.NotSupported(path.Child("cloneMode"), spec.CloneMode, []v1beta1.CloneMode{v1beta1.FullClone, v1beta1.LinkedClone}))
	}
	if spec.DiskGiB != 0 && spec.CloneMode != v1beta1.FullClone {
		v.warn(path.Child("diskGiB"), "%d counts for full clones only, and cloneMode is %q", spec.DiskGiB, cmp.Or(spec.CloneMode, v1beta1.LinkedClone))
	}
	if n := spec.NamingStrategy; n != nil && n.Template != nil {
		if _, err := VMName(*n.Template, "machine-0a1b2"); err != nil {
			v.refuse(field.Invalid(path.Child("namingStrategy", "template"), *n.Template, "must make a valid name from .machine.name with trimSuffix and trunc: "+err.Error()))
		}
	}
	if w.Pool != nil {
		v.Merge(templatePool(path, t, w.Pool))
	}
	return v
}

// templatePool checks a template against the pool that it names.
func templatePool(path *field.Path, t *v1beta1.VSphereMachineTemplate, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	if detail := nicMismatch(pool, t); detail != "" {
		v.refuse(field.Invalid(path.Child("network", "devices"), len(t.Spec.Template.Spec.Network.Devices), detail+": make both lists the same length, first the slots, then the template"))
	}
	for i := range pool.Spec.Configs {
		for _, d := range slotDisks(nil, &pool.Spec.Configs[i]) {
			if hasDataDisk(t, d.Name) {
				v.refuse(field.Invalid(path.Child("dataDisks").Key(d.Name), d.Name, fmt.Sprintf("slot %s of pool %s/%s has a disk of this name; disks of one machine need different names", pool.Spec.Configs[i].Hostname, pool.Namespace, pool.Name)))
			}
		}
		if n := len(t.Spec.Template.Spec.DataDisks) + len(pool.Spec.Configs[i].PersistentDisks) + len(pool.Spec.Configs[i].EphemeralDisks); n > maxSlotDisks {
			v.refuse(field.Invalid(path.Child("dataDisks"), len(t.Spec.Template.Spec.DataDisks), fmt.Sprintf("together with the disks of slot %s of pool %s/%s these are %d disks; a machine can have %d beside its system disk", pool.Spec.Configs[i].Hostname, pool.Namespace, pool.Name, n, maxSlotDisks)))
			break
		}
	}
	return v
}

// VSphereVM judges a new virtual machine object (old is nil) or a changed one.
func VSphereVM(old, vm *v1beta1.VSphereVM) Verdict {
	var v Verdict
	if vm.DeletionTimestamp != nil || old != nil && reflect.DeepEqual(old.Spec, vm.Spec) {
		return v
	}
	spec := field.NewPath("spec")
	v.Errors = append(v.Errors, staticAddresses(spec, vm.Spec.Network.Devices)...)
	v.Errors = append(v.Errors, powerOff(spec, vm.Spec.PowerOffMode, vm.Spec.GuestSoftPowerOffTimeout)...)
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
	for _, name := range changedFields(*before, *after) {
		v.refuse(field.Forbidden(spec.Child(name), "cannot be modified: it was decided once, when the virtual machine got its place; replace the machine instead"))
	}
	return v
}

// VSphereVMDelete judges the deletion of a virtual machine object. owner is its VSphereMachine, nil if that is gone.
func VSphereVMDelete(vm *v1beta1.VSphereVM, owner *v1beta1.VSphereMachine) Verdict {
	var v Verdict
	if vm.DeletionTimestamp == nil && owner != nil && owner.DeletionTimestamp == nil {
		v.refuse(field.Forbidden(field.NewPath("metadata", "ownerReferences"), fmt.Sprintf("cannot delete VSphereVM %s/%s while its VSphereMachine %s lives; delete the Machine instead, or annotate it with cluster.x-k8s.io/delete-machine and scale down", vm.Namespace, vm.Name, owner.Name)))
	}
	return v
}

// cloneSpec checks what machines, templates and virtual machines have in common.
func cloneSpec(path *field.Path, s *v1beta1.VirtualMachineCloneSpec) Verdict {
	var v Verdict
	network := path.Child("network")
	if s.Network.PreferredAPIServerCIDR != "" {
		v.refuse(field.Forbidden(network.Child("preferredAPIServerCidr"), fmt.Sprintf("has no effect any more; remove %q", s.Network.PreferredAPIServerCIDR)))
	}
	v.Errors = append(v.Errors, staticAddresses(path, s.Network.Devices)...)
	for i, d := range s.PciDevices {
		p := path.Child("pciDevices").Index(i)
		byID, byProfile := d.DeviceID != nil || d.VendorID != nil, d.VGPUProfile != ""
		switch {
		case byID && byProfile:
			v.refuse(field.Forbidden(p, fmt.Sprintf("vGPUProfile %q excludes deviceId and vendorId; name the device in one way", d.VGPUProfile)))
		case !byProfile && (d.DeviceID == nil || d.VendorID == nil):
			v.refuse(field.Invalid(p, d, "needs both deviceId and vendorId, or vGPUProfile"))
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

// leftovers checks the fields that machine and template have beyond the clone spec.
func leftovers(path *field.Path, s *v1beta1.VSphereMachineSpec, namespace string) Verdict {
	var v Verdict
	if s.FailureDomain != nil && *s.FailureDomain != "" {
		v.warn(path.Child("failureDomain"), "%q has no effect here; set failureDomain in the Machine's owner", *s.FailureDomain)
	}
	ref := s.MachineConfigPoolRef
	if ref == nil {
		return v
	}
	p := path.Child("machineConfigPoolRef")
	if ref.Name == "" {
		v.refuse(field.Required(p.Child("name"), "name the VSphereMachineConfigPool, or remove machineConfigPoolRef"))
	}
	if ref.Namespace != "" && namespace != "" && ref.Namespace != namespace {
		v.refuse(field.Invalid(p.Child("namespace"), ref.Namespace, fmt.Sprintf("must be %s: pool, template and machines live in one namespace", namespace)))
	}
	if ref.Kind != "" && ref.Kind != "VSphereMachineConfigPool" {
		v.refuse(field.Invalid(p.Child("kind"), ref.Kind, "must be VSphereMachineConfigPool"))
	}
	return v
}

// changedFields names the fields of two values of one struct type that differ, by their JSON names.
func changedFields(a, b any) []string {
	return changed(reflect.ValueOf(a), reflect.ValueOf(b))
}

func changed(a, b reflect.Value) []string {
	var names []string
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.Anonymous {
			names = append(names, changed(a.Field(i), b.Field(i))...)
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, jsonName(f))
		}
	}
	return names
}

// plainField is the value of a field by its JSON name if that is a number, a text or a truth value, else an empty text.
func plainField(v reflect.Value, name string) (value any, plain bool) {
	for i := range v.NumField() {
		f, of := v.Field(i), v.Type().Field(i)
		if of.Anonymous {
			if value, plain = plainField(f, name); plain {
				return value, true
			}
			continue
		}
		if jsonName(of) != name {
			continue
		}
		switch {
		case f.CanInt():
			return f.Int(), true
		case f.Kind() == reflect.String:
			return f.String(), true
		case f.Kind() == reflect.Bool:
			return f.Bool(), true
		}
	}
	return "", false
}

func jsonName(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	for i := range len(tag) {
		if tag[i] == ',' {
			return tag[:i]
		}
	}
	return tag
}
