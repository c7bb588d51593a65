package rules

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// What a machine gets when its template says less.
const (
	leastCPUs        = 2
	defaultMemoryMiB = 2048
)

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
			for _, d := range differences(path, old.Spec.Template.Spec, *spec) {
				v.refuse(field.Invalid(d.path, field.OmitValueType{}, fmt.Sprintf("%s: field is immutable, create a new resource: export %s, give it another name, change that and point the owner of the machines at it", d, t.Name)))
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
		v.refuse(field.Required(path.Child("network", "devices"), "a machine needs at least one network device; list one for each interface of the slots"))
	}
	if hw := spec.HardwareVersion; hw != "" && !hardwareVersion.MatchString(hw) {
		v.refuse(field.Invalid(path.Child("hardwareVersion"), hw, "must be vmx- and a number from 1 to 99, such as vmx-19"))
	}
	if n := spec.NamingStrategy; n != nil && n.Template != nil {
		if _, err := VMName(*n.Template, "machine-0a1b2"); err != nil {
			v.refuse(field.Invalid(path.Child("namingStrategy", "template"), *n.Template, "must make a valid name from .machine.name with trimSuffix and trunc: "+err.Error()))
		}
	}
	v.Merge(cloneMode(path, spec))
	v.Merge(sizesLeftOpen(path, spec))

	key, pooled := PoolKey(spec.MachineConfigPoolRef, t.Namespace)
	switch {
	case !pooled:
		v.Merge(devicesAlone(path, spec))
	case w.Pool == nil:
		v.warn(path.Child("machineConfigPoolRef", "name"), "machine config pool %s/%s does not exist yet: create it before an owner of machines names template %s", key.Namespace, key.Name, t.Name)
	default:
		v.Merge(templatePool(path, t, w.Pool))
	}
	return v
}

// cloneMode checks what only one way of cloning can do.
func cloneMode(path *field.Path, s *v1beta1.VSphereMachineSpec) Verdict {
	var v Verdict
	switch s.CloneMode {
	case "", v1beta1.FullClone, v1beta1.LinkedClone:
	default:
		v.refuse(field.NotSupported(path.Child("cloneMode"), s.CloneMode, []v1beta1.CloneMode{v1beta1.FullClone, v1beta1.LinkedClone}))
	}
	switch {
	case s.DiskGiB <= 0:
	case s.CloneMode == v1beta1.LinkedClone:
		v.refuse(field.Invalid(path.Child("diskGiB"), s.DiskGiB, "has no effect with cloneMode linkedClone, which keeps the size of the image's disk; set cloneMode: fullClone, or remove diskGiB"))
	case s.CloneMode == "":
		v.warn(path.Child("diskGiB"), "%d counts for full clones only, and an empty cloneMode means linkedClone where the image has a snapshot; set cloneMode: fullClone", s.DiskGiB)
	}
	if len(s.AdditionalDisksGiB) > 0 {
		v.warn(path.Child("additionalDisksGiB"), "%v are sizes for further disks that the image has already, and create none; declare new disks in the slots of a pool, or in dataDisks", s.AdditionalDisksGiB)
	}
	return v
}

// sizesLeftOpen tells what a machine gets where the template says less than there must be.
func sizesLeftOpen(path *field.Path, s *v1beta1.VSphereMachineSpec) Verdict {
	var v Verdict
	if s.NumCPUs >= 0 && s.NumCPUs < leastCPUs {
		v.warn(path.Child("numCPUs"), "is %d, and machines get %d processors, the least there is; set the number you want", s.NumCPUs, leastCPUs)
	}
	if s.MemoryMiB == 0 {
		v.warn(path.Child("memoryMiB"), "is 0, and machines get %d MiB; set the amount you want", defaultMemoryMiB)
	}
	return v
}

// sizes checks numbers that no machine can have.
func sizes(path *field.Path, s *v1beta1.VirtualMachineCloneSpec) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"numCPUs", int64(s.NumCPUs)},
		{"numCoresPerSocket", int64(s.NumCoresPerSocket)},
		{"memoryMiB", s.MemoryMiB},
		{"diskGiB", int64(s.DiskGiB)},
	} {
		if f.value < 0 {
			errs = append(errs, field.Invalid(path.Child(f.name), f.value, "must not be negative; leave it out for the default"))
		}
	}
	if cpus, cores := max(s.NumCPUs, leastCPUs), s.NumCoresPerSocket; cores > 0 && cpus%cores != 0 {
		errs = append(errs, field.Invalid(path.Child("numCoresPerSocket"), cores, fmt.Sprintf("does not divide the %d processors into whole sockets; choose a divisor of %d, or leave it out", cpus, cpus)))
	}
	for i, size := range s.AdditionalDisksGiB {
		if size < 0 {
			errs = append(errs, field.Invalid(path.Child("additionalDisksGiB").Index(i), size, "must not be negative; 0 keeps the size that the disk has in the image"))
		}
	}
	for _, d := range s.DataDisks {
		if d.SizeGiB < 1 {
			errs = append(errs, field.Invalid(path.Child("dataDisks").Key(d.Name).Child("sizeGiB"), d.SizeGiB, fmt.Sprintf("disk %q must have at least 1 GiB", d.Name)))
		}
	}
	return errs
}

// devicesAlone warns about devices that get no address from anywhere when there is no slot to give one.
func devicesAlone(path *field.Path, s *v1beta1.VSphereMachineSpec) Verdict {
	var v Verdict
	for i := range s.Network.Devices {
		d := &s.Network.Devices[i]
		if !selfSupplied(d) && len(d.IPAddrs) == 0 {
			v.warn(path.Child("network", "devices").Index(i), "%s; set dhcp4, dhcp6, addressesFromPools or skipIPAllocation, or name a pool in machineConfigPoolRef", noAddress(d))
		}
	}
	return v
}

// selfSupplied devices need no address from a slot.
func selfSupplied(d *v1beta1.NetworkDeviceSpec) bool {
	return d.DHCP4 || d.DHCP6 || d.SkipIPAllocation || len(d.AddressesFromPools) > 0
}

func noAddress(d *v1beta1.NetworkDeviceSpec) string {
	return fmt.Sprintf("network %q has neither DHCP nor an address, and machines would wait for one", d.NetworkName)
}

// templatePool checks a template against the pool that it names.
func templatePool(path *field.Path, t *v1beta1.VSphereMachineTemplate, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	spec := &t.Spec.Template.Spec
	devices := path.Child("network", "devices")
	if detail := nicMismatch(pool, t); detail != "" {
		v.refuse(field.Invalid(devices, len(spec.Network.Devices), detail+": make both lists the same length, first the slots, then the template"))
	}
	// What is wrong with every slot in the same way is said of the first one.
	renamed, bare, clashing := map[int]bool{}, map[int]bool{}, map[string]bool{}
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		for _, d := range slotDisks(nil, slot) {
			if hasDataDisk(t, d.Name) && !clashing[d.Name] {
				clashing[d.Name] = true
				v.refuse(field.Invalid(path.Child("dataDisks").Key(d.Name), d.Name, fmt.Sprintf("slot %s of pool %s/%s has a disk of this name; disks of one machine need different names", slot.Hostname, pool.Namespace, pool.Name)))
			}
		}
		for n, nic := range slotNICs(nil, slot) {
			if n >= len(spec.Network.Devices) {
				break
			}
			d := &spec.Network.Devices[n]
			if d.NetworkName != nic.device.NetworkName && !renamed[n] {
				renamed[n] = true
				v.warn(devices.Index(n).Child("networkName"), "is %q, and slot %s of pool %s/%s names %q for this interface: the slot's network counts", d.NetworkName, slot.Hostname, pool.Namespace, pool.Name, nic.device.NetworkName)
			}
			if nic.device.IP == "" && nic.device.IPv6 == "" && !selfSupplied(d) && !bare[n] {
				bare[n] = true
				v.warn(devices.Index(n), "%s: slot %s of pool %s/%s gives this interface no address; give it one, or set dhcp4, dhcp6 or addressesFromPools", noAddress(d), slot.Hostname, pool.Namespace, pool.Name)
			}
		}
	}
	v.Errors = append(v.Errors, tooManyDisks(path, t, pool)...)
	return v
}

func tooManyDisks(path *field.Path, t *v1beta1.VSphereMachineTemplate, pool *v1beta1.VSphereMachineConfigPool) field.ErrorList {
	own := len(t.Spec.Template.Spec.DataDisks)
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		if n := own + len(slot.PersistentDisks) + len(slot.EphemeralDisks); own > 0 && n > maxSlotDisks {
			return field.ErrorList{field.Invalid(path.Child("dataDisks"), own, fmt.Sprintf("together with the disks of slot %s of pool %s/%s these are %d disks; a machine can have %d beside its system disk, remove some", slot.Hostname, pool.Namespace, pool.Name, n, maxSlotDisks))}
		}
	}
	return nil
}

// nicMismatch says how a template's devices and a pool's slots differ in number, "" if they agree.
func nicMismatch(pool *v1beta1.VSphereMachineConfigPool, t *v1beta1.VSphereMachineTemplate) string {
	devices := len(t.Spec.Template.Spec.Network.Devices)
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		if n := len(slotNICs(nil, slot)); n > 0 && n != devices {
			return fmt.Sprintf("slot %s of pool %s/%s has %d network interface(s), template %s has %d device(s)", slot.Hostname, pool.Namespace, pool.Name, n, t.Name, devices)
		}
	}
	return ""
}

func hasDataDisk(t *v1beta1.VSphereMachineTemplate, name string) bool {
	for _, d := range t.Spec.Template.Spec.DataDisks {
		if d.Name == name {
			return true
		}
	}
	return false
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
	if kind := cmp.Or(ref.Kind, poolKind); kind != poolKind {
		v.refuse(field.Invalid(p.Child("kind"), ref.Kind, "must be "+poolKind+", or be left out"))
	}
	if group := groupOf(ref.APIVersion); ref.APIVersion != "" && group != v1beta1.GroupVersion.Group {
		v.refuse(field.Invalid(p.Child("apiVersion"), ref.APIVersion, fmt.Sprintf("must be of the group %s, such as %s, or be left out", v1beta1.GroupVersion.Group, v1beta1.GroupVersion)))
	}
	return v
}
