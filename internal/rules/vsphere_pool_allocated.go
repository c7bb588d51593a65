package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// quarantined is what a slot is called that waits for a person's decision.
const quarantined = "quarantined"

// allocation says in words why a slot counts as allocated, "" if it does not. A pool that we have taken over before (it has our
// finalizer) but that has no slot states has lost its status, in a move or a restore; until it is rebuilt every slot counts
// as allocated.
func allocation(pool *v1beta1.VSphereMachineConfigPool, hostName string) string {
	if len(pool.Status.ConfigStatuses) == 0 {
		if slices.Contains(pool.Finalizers, v1beta1.MachineConfigPoolFinalizer) {
			return "of unknown state (the status of the pool is being rebuilt, try again shortly)"
		}
		return ""
	}
	for _, s := range pool.Status.ConfigStatuses {
		if s.Hostname != hostName {
			continue
		}
		switch {
		case s.Quarantine != "":
			return quarantined
		case s.State == v1beta1.ConfigStateInUse, s.State == v1beta1.ConfigStateReleased:
			return string(s.State)
		}
	}
	return ""
}

// allocatedSlots protects what must not change while a slot has a machine or data. The states are the old object's: an update
// of the spec carries no status worth believing.
func allocatedSlots(old, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	configs := field.NewPath("spec", "configs")
	index := map[string]int{}
	for i := range pool.Spec.Configs {
		index[pool.Spec.Configs[i].Hostname] = i
	}
	for i := range old.Spec.Configs {
		was := &old.Spec.Configs[i]
		state := allocation(old, was.Hostname)
		if state == "" {
			continue
		}
		j, kept := index[was.Hostname]
		if !kept {
			v.refuse(field.Forbidden(configs, fmt.Sprintf("slot %s cannot be removed or renamed while it is %s; %s", was.Hostname, state, wayOut(state))))
			continue
		}
		now, path := &pool.Spec.Configs[j], configs.Index(j)

		before, after := cmp.Or(was.Datacenter, old.Spec.Datacenter), cmp.Or(now.Datacenter, pool.Spec.Datacenter)
		if before != after {
			v.refuse(field.Forbidden(path.Child("datacenter"), fmt.Sprintf("slot %s is %s, its datacenter cannot change from %q to %q, its disks would stay behind; add a new slot there instead", was.Hostname, state, before, after)))
		}
		v.Merge(allocatedNetwork(path, was, now, state))
		v.Merge(allocatedPersistent(path, was, now, state))
		v.Merge(allocatedEphemeral(path, was, now, state))
	}
	return v
}

func wayOut(state string) string {
	switch state {
	case string(v1beta1.ConfigStateInUse):
		// A Machine that is deleted and not scaled in has a successor, and that gets the slot.
		return "annotate its Machine with cluster.x-k8s.io/delete-machine and scale in by one, then wait until its disks are reclaimed and the slot is Available"
	case string(v1beta1.ConfigStateReleased):
		return "wait until its disks are reclaimed and the slot is Available (spec.releaseDelayHours says when)"
	case quarantined:
		return "decide which machine has it and end the quarantine with the annotation " + v1beta1.ReleaseQuarantinedAnnotation + " on the pool first"
	default:
		return "the state must be known and Available first"
	}
}

func allocatedNetwork(path *field.Path, was, now *v1beta1.VSphereMachineConfig, state string) Verdict {
	var v Verdict
	if was.Network == nil || now.Network == nil {
		return v // a slot without network cannot be allocated, and a removed one is refused elsewhere
	}
	a, b := was.Network.Primary, now.Network.Primary
	primary := path.Child("network", "primary")
	for _, f := range []struct{ name, before, after string }{{"ip", a.IP, b.IP}, {"ipv6", a.IPv6, b.IPv6}} {
		if f.before != f.after {
			v.refuse(field.Forbidden(primary.Child(f.name), fmt.Sprintf("slot %s is %s, its address cannot change from %q to %q; add a new slot with the new address instead", was.Hostname, state, f.before, f.after)))
		}
	}
	a.IP, a.IPv6, b.IP, b.IPv6 = "", "", "", ""
	if !equality.Semantic.DeepEqual(a, b) || !equality.Semantic.DeepEqual(was.Network.Additional, now.Network.Additional) {
		v.warn(path.Child("network"), "slot %s is %s: the change takes effect when its machine is replaced", was.Hostname, state)
	}
	return v
}

func allocatedPersistent(path *field.Path, was, now *v1beta1.VSphereMachineConfig, state string) Verdict {
	var v Verdict
	list := path.Child("persistentDisks")
	index := map[string]int{}
	for i, d := range now.PersistentDisks {
		index[d.Name] = i
	}
	known := map[string]bool{}
	for _, a := range was.PersistentDisks {
		known[a.Name] = true
		i, kept := index[a.Name]
		if !kept {
			v.refuse(field.Forbidden(list, fmt.Sprintf("persistent disk %q of slot %s cannot be removed while the slot is %s, it may hold data; %s", a.Name, was.Hostname, state, wayOut(state))))
			continue
		}
		b, p := now.PersistentDisks[i], list.Index(i)
		frozen := func(name string, before, after any) {
			v.refuse(field.Forbidden(p.Child(name), fmt.Sprintf("slot %s is %s, %s of disk %q cannot change from %v to %v; add a new slot with a disk of the wanted form instead", was.Hostname, state, name, a.Name, before, after)))
		}
		if a.SizeGiB != b.SizeGiB {
			frozen("sizeGiB", a.SizeGiB, b.SizeGiB)
		}
		if !SamePath(a.MountPath, b.MountPath) {
			frozen("mountPath", quote(a.MountPath), quote(b.MountPath))
		}
		if a.UnitNumber != nil && b.UnitNumber != nil && *a.UnitNumber != *b.UnitNumber {
			frozen("unitNumber", *a.UnitNumber, *b.UnitNumber)
		}
		if a.Datastore != b.Datastore {
			frozen("datastore", quote(a.Datastore), quote(b.Datastore))
		}
		if a.StoragePolicy != b.StoragePolicy {
			v.warn(p.Child("storagePolicy"), "disk %q of slot %s exists: the policy %q counts only for a disk that is still to be created", a.Name, was.Hostname, b.StoragePolicy)
		}
		if a.FSFormat != b.FSFormat {
			v.warn(p.Child("fsFormat"), "disk %q of slot %s keeps its file system: only a blank disk is formatted, as %q", a.Name, was.Hostname, b.FSFormat)
		}
		if !equality.Semantic.DeepEqual(a.MountOptions, b.MountOptions) {
			v.warn(p.Child("mountOptions"), "slot %s is %s: new mount options of disk %q take effect when its machine is replaced", was.Hostname, state, a.Name)
		}
		if wipes(b) && !wipes(a) {
			v.warn(p.Child("wipeFilesystem"), "slot %s is %s: disk %q will be emptied on the first start of the next machine, and every one after it; leave it false to keep the data", was.Hostname, state, a.Name)
		}
		if a.VolumePath != b.VolumePath || a.DiskUUID != b.DiskUUID {
			v.warn(p, "volumePath and diskUUID of disk %q of slot %s are a record of older versions: the change has no effect, status.persistentDiskStatuses counts", a.Name, was.Hostname)
		}
	}
	for i, d := range now.PersistentDisks {
		if !known[d.Name] {
			v.warn(list.Index(i), "slot %s is %s: disk %q will be created when its machine is replaced, the running machine does not get it", was.Hostname, state, d.Name)
		}
	}
	return v
}

func allocatedEphemeral(path *field.Path, was, now *v1beta1.VSphereMachineConfig, state string) Verdict {
	var v Verdict
	list := path.Child("ephemeralDisks")
	left := map[string]bool{}
	for i, d := range now.EphemeralDisks {
		left[d.Name] = true
		n := slices.IndexFunc(was.EphemeralDisks, func(e v1beta1.EphemeralDisk) bool { return e.Name == d.Name })
		switch {
		case n >= 0 && !equality.Semantic.DeepEqual(was.EphemeralDisks[n], d):
			v.warn(list.Index(i), "slot %s is %s: the change of ephemeral disk %q takes effect when its machine is replaced", was.Hostname, state, d.Name)
		case n < 0:
			v.warn(list.Index(i), "slot %s is %s: disk %q will be created when its machine is replaced, the running machine does not get it", was.Hostname, state, d.Name)
		}
	}
	for _, d := range was.EphemeralDisks {
		if !left[d.Name] {
			v.warn(list, "slot %s is %s: ephemeral disk %q goes away when its machine is replaced", was.Hostname, state, d.Name)
		}
	}
	return v
}

func wipes(d v1beta1.PersistentDisk) bool { return d.WipeFilesystem != nil && *d.WipeFilesystem }

// restored is the changed pool with everything put back that allocatedSlots forbids to change, so that a forbidden edit is not
// judged a second time by rules that would only be about its spelling.
func restored(old, pool *v1beta1.VSphereMachineConfigPool) *v1beta1.VSphereMachineConfigPool {
	pool = pool.DeepCopy()
	before := slotsByName(old)
	for i := range pool.Spec.Configs {
		now := &pool.Spec.Configs[i]
		was := before[now.Hostname]
		if was == nil || allocation(old, now.Hostname) == "" {
			continue
		}
		if was.Network != nil && now.Network != nil {
			a, b := &was.Network.Primary, &now.Network.Primary
			if a.IP != b.IP {
				b.IP, b.Gateway = a.IP, a.Gateway
			}
			if a.IPv6 != b.IPv6 {
				b.IPv6, b.IPv6Gateway = a.IPv6, a.IPv6Gateway
			}
		}
		for _, a := range was.PersistentDisks {
			for j := range now.PersistentDisks {
				if b := &now.PersistentDisks[j]; a.Name == b.Name {
					restoreDisk(a, b)
				}
			}
		}
	}
	return pool
}

func restoreDisk(was v1beta1.PersistentDisk, now *v1beta1.PersistentDisk) {
	now.SizeGiB, now.Datastore = was.SizeGiB, was.Datastore
	if was.UnitNumber != nil && now.UnitNumber != nil {
		now.UnitNumber = was.UnitNumber
	}
	if !SamePath(was.MountPath, now.MountPath) {
		// How a disk is used belongs to where it is mounted.
		now.MountPath, now.FSFormat, now.MountOptions, now.WipeFilesystem = was.MountPath, was.FSFormat, was.MountOptions, was.WipeFilesystem
	}
}

// poolLayout warns about slots whose disks differ from those of the others.
func poolLayout(old, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	if len(pool.Spec.Configs) == 0 {
		return v
	}
	before := slotsByName(old)
	// The pattern is the first slot that was there already, else the first one.
	pattern := &pool.Spec.Configs[0]
	for i := range pool.Spec.Configs {
		if _, existed := before[pool.Spec.Configs[i].Hostname]; existed {
			pattern = &pool.Spec.Configs[i]
			break
		}
	}
	want := layout(pattern)
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		if _, existed := before[slot.Hostname]; existed || slot == pattern {
			continue
		}
		if got := layout(slot); got != want {
			v.warn(field.NewPath("spec", "configs").Index(i), "slot %s has the disks [%s], slot %s has [%s]: slots of one pool should have the same layout", slot.Hostname, got, pattern.Hostname, want)
		}
	}
	return v
}

// layout is the set of (kind, name, mount path) of a slot's disks, in words.
func layout(slot *v1beta1.VSphereMachineConfig) string {
	var parts []string
	add := func(kind, name, mountPath string) {
		parts = append(parts, fmt.Sprintf("%s %s on %s", kind, name, cmp.Or(cleanPath(mountPath), "no mount path")))
	}
	for _, d := range slot.PersistentDisks {
		add("persistent", d.Name, d.MountPath)
	}
	for _, d := range slot.EphemeralDisks {
		add("ephemeral", d.Name, d.MountPath)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
