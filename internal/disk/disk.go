// Package disk is the life of one persistent disk as a pure state machine: record and observation in, next record and act
// out. It never does I/O. Its first rule: no act destroys or hides data that was declared persistent.
package disk

import "time"

// Phase is where a persistent disk is in its life. The words are the published ones.
type Phase string

const (
	// Absent: never created.
	Absent Phase = ""
	// Creating: the intent is recorded; the volume may or may not exist yet.
	Creating Phase = "Creating"
	// Attached: observed on its owner's server.
	Attached Phase = "Attached"
	// Available: exists and is attached to nothing.
	Available Phase = "Available"
	// Reclaiming: deletion decided, its operation may be running.
	Reclaiming Phase = "Reclaiming"
	// Reclaimed: deleted; kept as a tombstone.
	Reclaimed Phase = "Reclaimed"
	// Error: the last operation failed or reality contradicts the record; LastError says which.
	Error Phase = "Error"
)

// Record is what is known of one persistent disk. It is written before every act on the platform.
type Record struct {
	HostName string
	Name     string
	// Volume is the platform's address of the volume (vSphere: "[datastore] dir/file.vmdk"), fixed before it is created.
	Volume string
	// Identity is how the guest recognises it (vSphere: backing UUID); "" until read back.
	Identity string
	// Unit on the controller as observed, nil while unknown.
	Unit    *int32
	SizeGiB int32
	Phase   Phase
	// Interrupted is the phase that an Error came from, and the phase to return to.
	Interrupted Phase
	// OwnerName and OwnerMark are the infrastructure machine's that holds it.
	OwnerName, OwnerMark string
	// Operation is the platform's reference of the operation in flight, "" when none.
	Operation  string
	RetryAfter *time.Time
	LastError  string
	Changed    time.Time
}
