// Package slot decides who may hold which place. It is pure: values in, values out, no I/O and no clock of its own.
//
// A place (slot) is a declared host name with addresses, a location and disks. It outlives the server in it. Two rules
// govern everything here: a slot has at most one holder and a holder at most one slot; a slot becomes claimable only after
// its last holder's server, Machine and Node are proven gone.
package slot

import "time"

// State is where a slot is in its life. The published word of each state is in the comment.
type State string

const (
	// Available: never used, or emptied (published: Available).
	Available State = "Available"
	// Held: one machine has it (published: InUse).
	Held State = "Held"
	// Vacating: the holder's server is gone and its disks are detached; its Machine or Node is not gone yet
	// (published: InUse with the time vacated).
	Vacating State = "Vacating"
	// Released: nobody holds it and its disks wait for a successor (published: Released).
	Released State = "Released"
	// Reclaiming: its disks are being deleted; nobody may claim it (published: Released, disks Reclaiming).
	Reclaiming State = "Reclaiming"
	// Quarantined: reality contradicts the record and a human must look (published word unchanged, pool condition
	// SlotQuarantined).
	Quarantined State = "Quarantined"
)

// Slot is a place as declared in the pool's spec.
type Slot struct {
	// HostName is the slot's key in its pool, the guest's host name and the Node's name.
	HostName string
	// Location is the datacenter or zone; "" fits any request.
	Location string
	// NICs in the order of the guest's interfaces.
	NICs []NIC
	// Disks wanted in this place, persistent and ephemeral, in the order declared.
	Disks []Disk
}

// NIC is one declared network interface.
type NIC struct {
	Network    string
	DeviceName string
	// Addresses in CIDR form, IPv4 before IPv6; empty means DHCP as the template says.
	Addresses []string
	Gateway4  string
	Gateway6  string
	DNS       []string
}

// Disk is one declared disk of a slot.
type Disk struct {
	Name    string
	SizeGiB int32
	// Ephemeral disks live and die with the server; the others are the reason a slot exists.
	Ephemeral bool
	// Datastore and StoragePolicy place the volume; both empty means the server's own.
	Datastore     string
	StoragePolicy string
	// Unit is the requested unit number, nil for any.
	Unit *int32
	// MountPath and Filesystem are both empty for a raw disk.
	MountPath      string
	Filesystem     string
	MountOptions   []string
	WipeFilesystem bool
}

// Holder is the machine that has a slot, as the claim records it.
type Holder struct {
	// Name of the infrastructure machine in the pool's namespace.
	Name string
	// UID of the infrastructure machine object that made the claim.
	UID string
	// Mark is the infrastructure machine's UID at first sight; it survives a move or a restore, UID does not.
	Mark string
	// OwnerName and OwnerUID are the CAPI Machine's; the slot waits for exactly this object to be gone.
	OwnerName string
	OwnerUID  string
}

// Record is what the pool's status knows about one slot.
type Record struct {
	HostName   string
	State      State
	Holder     Holder
	VacatedAt  *time.Time
	ReleasedAt *time.Time
	// Contradiction says, when Quarantined, what is wrong in one sentence.
	Contradiction string
}

// Consumer is the owner of the machines a pool serves: one KubeadmControlPlane or MachineDeployment.
type Consumer struct {
	// Group is the API group without version (versions change, identity does not).
	Group, Kind, Namespace, Name string
	// APIVersion is kept as it was found, for people; it takes no part in comparison.
	APIVersion string
}

// Same reports whether two consumers are the same object by group, kind, namespace and name.
func (c Consumer) Same(o Consumer) bool {
	return c.Group == o.Group && c.Kind == o.Kind && c.Namespace == o.Namespace && c.Name == o.Name
}

// View is all that a decision about one pool needs.
type View struct {
	// Pool names it in messages: namespace/name.
	Pool string
	// Cluster that the pool belongs to.
	Cluster  string
	Consumer *Consumer
	Slots    []Slot
	Records  []Record
	// Busy holds host names whose disks forbid a claim, with the reason in words (reclaim running, disk in error).
	Busy map[string]string
	// Invalid holds host names whose declaration is refused, with the reason in words. Who has such a slot keeps it.
	Invalid map[string]string
}
