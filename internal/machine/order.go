package machine

import "context"

// phase is one step of a life. It holds or it does not: a phase that holds already answers Done without doing anything, so
// every pass starts at the top and a crash anywhere costs nothing but the look. No phase knows what comes next.
type phase struct {
	name string
	run  func(*pass, context.Context) Result
}

// PhaseClaim is the phase (Report.Phase) in which a machine asks its pool for a place.
const PhaseClaim = "ClaimPlace"

// creation is the life of a machine until it is ready, in order.
var creation = []phase{
	{"Guard", (*pass).guard},               // cluster ready, bootstrap data there, not paused
	{"Operation", (*pass).settle},          // what an earlier pass started has ended
	{PhaseClaim, (*pass).claimPlace},       // host name, addresses and disks are ours, on record
	{"RecordIntent", (*pass).recordIntent}, // from here on a server of our mark may exist
	{"EnsureDisks", (*pass).ensureDisks},   // every persistent volume exists, its identity on record
	{"FindServer", (*pass).findServer},     // by mark; a server that vanished is lost, not made again
	{"CreateServer", (*pass).createServer}, // powered off, with our mark
	{"FitServer", (*pass).fitServer},       // volumes attached, guest data handed over, in one operation
	{"VerifyServer", (*pass).verifyServer}, // by a live read: exactly the disks of this place
	{"PowerOn", (*pass).powerOn},           // once in a life
	{"Addresses", (*pass).addresses},       // every planned address is reported
	{"Ready", (*pass).ready},               // from here on it is only watched
}

// deletion is the end of a machine, in order. Destroying a server takes attached disks along, hence detach, proof, destroy,
// proof.
var deletion = []phase{
	{"Guard", (*pass).guardDeletion},         // the platform can be asked, if it was ever asked for anything
	{"Operation", (*pass).settleForDeletion}, // what an earlier pass started has ended
	{"FindServer", (*pass).findForDeletion},
	{"PowerOff", (*pass).powerOff},           // never detach under a running guest
	{"DetachDisks", (*pass).detachDisks},     // every persistent and every foreign one
	{"DestroyServer", (*pass).destroyServer}, // after a live read that nothing but its own is attached
	{"ProveAbsence", (*pass).proveAbsence},   // by every identity we have; not found once is not absence
	{"ProveDetached", (*pass).proveDetached}, // no server anywhere has a disk of the place
	{"VacatePlace", (*pass).vacatePlace},     // the pool frees it when Machine and Node are gone
}
