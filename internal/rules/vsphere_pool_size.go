package rules

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// The size of a pool. A pool with all that its status may come to say is one object, and etcd refuses requests of more than
// 1.5 MiB: a pool that outgrew it could not record a claim or a disk any more. What the status takes beside the declaration was
// measured with names of the longest kind and every disk in error, including the API server's own notes on who owns which field.
const (
	// MaxPoolBytes is what a pool may come to: etcd's limit less a reserve for annotations and the request's own frame.
	MaxPoolBytes = 1536<<10 - 64<<10
	// poolBase is for metadata, conditions and counters.
	poolBase = 40 << 10
	// slotBytes, persistentBytes and ephemeralBytes are what the record of a slot and of a disk takes without the host name.
	slotBytes       = 700
	persistentBytes = 1400
	ephemeralBytes  = 260
	// The host name is in each record and in the API server's note of it, and four more times in a persistent disk's path and in
	// what is said of it.
	namesInRecord     = 2
	namesInPersistent = 6
)

// PoolBytes is what a pool comes to at most when all of its slots are in use and all of its disks are in trouble.
func PoolBytes(pool *v1beta1.VSphereMachineConfigPool) int {
	declared := *pool
	declared.ManagedFields, declared.Status = nil, v1beta1.VSphereMachineConfigPoolStatus{}
	text, err := json.Marshal(&declared)
	if err != nil {
		return 0 // it came as JSON
	}
	size := poolBase + len(text)
	for i := range pool.Spec.Configs {
		slot := &pool.Spec.Configs[i]
		name := len(slot.Hostname)
		size += slotBytes + namesInRecord*name +
			len(slot.PersistentDisks)*(persistentBytes+namesInPersistent*name) +
			len(slot.EphemeralDisks)*(ephemeralBytes+namesInRecord*name)
	}
	return size
}

// poolSize refuses a pool that may outgrow what the API server keeps. One that is too large already may only become smaller.
func poolSize(old, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	size, slots := PoolBytes(pool), len(pool.Spec.Configs)
	if size <= MaxPoolBytes || slots == 0 || old != nil && PoolBytes(old) >= size {
		return v
	}
	most := (MaxPoolBytes - poolBase) / ((size - poolBase + slots - 1) / slots)
	v.refuse(field.Invalid(field.NewPath("spec", "configs"), slots, fmt.Sprintf(
		"%d slots with their disks may come to %d KiB on record, and an object holds %d KiB: the records of the last slots and disks could not be written; "+
			"at most %d slots like these fit in one pool, declare the others in a second one for a MachineDeployment of its own",
		slots, size>>10, MaxPoolBytes>>10, most)))
	return v
}
