package machine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/slot"
)

// Mark is our identity on the platform's objects: the infrastructure machine's UID at first sight. Nothing is ever looked
// up, adopted or destroyed by its name.
type Mark string

// PowerState of a server.
type PowerState string

// The power states a platform reports.
const (
	PowerOn        PowerState = "On"
	PowerOff       PowerState = "Off"
	PowerSuspended PowerState = "Suspended"
	PowerUnknown   PowerState = "Unknown"
)

// Identity is everything by which a server can be found; empty fields are not yet known.
type Identity struct {
	Mark Mark
	// ServerID is the platform's handle (vSphere: "VirtualMachine:vm-12").
	ServerID string
	// HardwareID is what the guest and the cloud provider see (vSphere: BIOS UUID).
	HardwareID string
	// Location narrows the search where the platform needs it (datacenter, zone).
	Location string
	// Name is the server's name: for messages and conflict reports, never proof of identity.
	Name string
}

// Server is a virtual machine as the platform reports it.
type Server struct {
	Identity
	Power PowerState
	// Readable is false when the platform cannot vouch for what it says (host disconnected, server inaccessible).
	Readable bool
	// Unreadable says why, in the platform's words.
	Unreadable string
	// Volumes lists everything attached, the system disk included.
	Volumes []AttachedVolume
	NICs    []ObservedNIC
	// Host is the physical host's name, "" if unknown.
	Host string
	// GuestRunning: the guest's tools answer.
	GuestRunning bool
	// Fitted: the guest data of the server's Fit is on it, complete.
	Fitted bool
	// PassedThrough counts the devices of its host that were handed to it.
	PassedThrough int
}

// AttachedVolume is one disk of a server.
type AttachedVolume struct {
	// Volume is its address (vSphere: "[datastore] dir/file.vmdk").
	Volume string
	// Identity is what the guest sees (vSphere: backing UUID).
	Identity string
	SizeGiB  int32
	Unit     *int32
	// Own: it lives with the server and dies with it (system disk, ephemeral disks).
	Own bool
	// Name is the slot disk's name for an ephemeral disk that we created with the server, else "".
	Name string
	// Chained: it has snapshots, so that a detach would leave part of it behind.
	Chained bool
}

// ObservedNIC is one interface as the platform and the guest's tools report it.
type ObservedNIC struct {
	MAC       string
	Network   string
	Connected bool
	Addresses []string
}

// ServerSpec is a server to create, powered off.
type ServerSpec struct {
	Name string
	Mark Mark
	// Location is where it is created (datacenter, zone): the place's when it names one, else the shape's.
	Location string
	// Place is the copy of the slot taken at the claim, nil when the machine has no pool.
	Place *slot.Slot
	// PlaceKey names the place for ever (namespace/cluster/host name). It goes into the file systems of the place's disks, so
	// that a disk of another place is recognised; "" without a place.
	PlaceKey string
	// Interfaces are the server's network interfaces in order, as far as its readiness depends on them; nil means those of Place.
	Interfaces []Interface
	// Reach lists the addresses of volumes that are going to be attached: the server is made where they can be.
	Reach []string
	// Shape is the platform's own description (image, sizes, folder, network devices); only its adapter reads it.
	Shape any
}

// Interface is what a server's guest must report of one network interface before the machine is ready.
type Interface struct {
	Network string
	// Addresses that are planned, with or without prefix: each is waited for.
	Addresses []string
	// Optional: without planned addresses the interface may stay without any.
	Optional bool
}

// Fit is what a powered-off server gets before its first start.
type Fit struct {
	// Spec as it was created from.
	Spec ServerSpec
	// Volumes to attach: the persistent disks of the place, identities known.
	Volumes []Volume
	// UserData is the bootstrap data, complete, before any encoding.
	UserData []byte
	// Format of the bootstrap data: cloud-config or ignition.
	Format string
}

// Volume is a persistent volume on the platform.
type Volume struct {
	// Disk is the slot disk's name.
	Disk     string
	Volume   string
	Identity string
	SizeGiB  int32
	Unit     *int32
	// Marked: the mark beside the volume names exactly the key it was looked up with. Without it nothing found at an address
	// is adopted or deleted.
	Marked bool
}

// VolumeSpec is a persistent volume to create or to find.
type VolumeSpec struct {
	// Key is the volume's mark: the same for the same disk of the same place, whatever happened to our records.
	Key VolumeKey
	// Want is the declaration.
	Want slot.Disk
	// Location is the place's.
	Location string
	// Address is the volume's address once chosen; "" asks the platform to choose (PlanVolume).
	Address string
	// Existing asks PlanVolume for a volume that is there, not for a place to make one: free space and the declaration do not
	// matter, and what cannot be looked at may have it.
	Existing bool
	// Shape is the server's; it names the default datastore and the like.
	Shape any
}

// VolumeKey names a persistent disk for ever.
type VolumeKey struct {
	Namespace, Cluster, Pool, HostName, Disk string
	// Address is the place's first IP address without prefix, "" for DHCP; it is part of published paths.
	Address string
}

// Operation is an asynchronous operation of the platform.
type Operation struct {
	// Ref is the platform's reference; "" means that the call had already finished when it returned.
	Ref string
	// Kind is remembered by us, for messages: Create, Fit, PowerOn, PowerOff, Detach, Destroy, CreateVolume, DeleteVolume.
	Kind string
	// Mark wakes the owner when the operation ends.
	Mark Mark
}

// OperationState of an Operation.
type OperationState struct {
	// Done: it ended, well or not.
	Done bool
	// Err is how it failed, nil when it succeeded or still runs.
	Err error
	// Unknown: the platform has forgotten it; look at the object itself.
	Unknown bool
}

// PowerOffMode says how to stop a server.
type PowerOffMode struct {
	// Soft asks the guest first.
	Soft bool
	// HardAfter bounds a soft stop; 0 waits for ever.
	HardAfter time.Duration
}

// Unfinished is what a Platform also is if a creation can run there for long before its server shows. The engine asks when a
// deletion finds nothing of a server whose creation has an unknown outcome.
type Unfinished interface {
	// Creating says, by a live read, whether any creation still runs that could be the one of id. In doubt it is.
	Creating(ctx context.Context, id Identity) (bool, error)
}

// Platform is a private cloud as the engine sees it. Implementations know nothing of Kubernetes. Every method takes a
// deadline from ctx and answers with *Error. Reads may be batched or served from a live watch unless the comment says live.
type Platform interface {
	// Lookup finds a server by every identity given. NotFound only if none of them leads to one.
	Lookup(ctx context.Context, id Identity) (*Server, error)
	// LookupLive is Lookup by a fresh read of the platform, for the proof right before or after a destroying act.
	LookupLive(ctx context.Context, id Identity) (*Server, error)

	// Create starts a powered-off server with its mark and its own (system, ephemeral) disks. Conflict if the name is taken
	// by a server with another mark.
	Create(ctx context.Context, spec ServerSpec) (Operation, error)
	// Fit sizes the server, attaches the volumes and hands over the guest data, in one operation.
	Fit(ctx context.Context, server *Server, fit Fit) (Operation, error)
	// PowerOn starts the server.
	PowerOn(ctx context.Context, server *Server) (Operation, error)
	// PowerOff stops it. since is when the stop was first asked for.
	PowerOff(ctx context.Context, server *Server, mode PowerOffMode, since time.Time) (Operation, error)
	// Detach takes volumes off without deleting them.
	Detach(ctx context.Context, server *Server, volumes []AttachedVolume) (Operation, error)
	// Destroy deletes the server and its own disks. The caller has just proved that nothing else is attached; the adapter
	// proves it again, live, and refuses if not.
	Destroy(ctx context.Context, server *Server) (Operation, error)
	// Operation asks after an operation in flight and makes sure that its end wakes the owner.
	Operation(ctx context.Context, op Operation) (OperationState, error)

	// PlanVolume says where the volume of spec.Key lies: where its mark is found among the locations it could have been
	// placed in, else, after a look at free space, where it is to be created. Refused with Nowhere if what the declaration names
	// does not exist and the mark is nowhere else. No side effect.
	PlanVolume(ctx context.Context, spec VolumeSpec) (address string, err error)
	// LookupVolume reads a volume at spec.Address. NotFound if there is none.
	LookupVolume(ctx context.Context, spec VolumeSpec) (*Volume, error)
	// CreateVolume makes a blank volume at spec.Address with its mark beside it. Conflict if something is there already.
	CreateVolume(ctx context.Context, spec VolumeSpec) (Operation, error)
	// DeleteVolume deletes an unattached volume. It proves, live, that nobody holds it.
	DeleteVolume(ctx context.Context, spec VolumeSpec, volume Volume) (Operation, error)
	// Forget removes what is left of a place (its directory) once all its volumes are gone; refuses if anything else is in it.
	Forget(ctx context.Context, spec VolumeSpec) error
	// Holders says, by a live read that fails closed, which servers have any of the volumes attached: address to server name.
	Holders(ctx context.Context, location string, volumes []Volume) (map[string]string, error)

	// Changes delivers the mark of every server of ours, and of every operation, that changed. Closed with the platform.
	Changes() <-chan Mark
}
