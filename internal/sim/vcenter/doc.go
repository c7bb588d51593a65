// Package vcenter is a simulated vCenter that is strict where real ones are.
//
// It runs govmomi's simulator (vcsim) in process, serves it over TLS with vcsim's REST (tags, cluster modules, content
// library) and storage policy endpoints, and puts a layer over it that enforces what vcsim lets pass: a VMDK belongs to at
// most one powered-on VM, a disk that is attached cannot be deleted, a full datastore refuses, every VMDK that is created
// has a UUID of its own even when it takes the path of a deleted one, a clone owns its disks, its MAC addresses and its
// BIOS UUID, and an error in a clone's device changes fails the clone. What a client should never do but a real vCenter
// would let it do (detach a disk under a running guest, destroy a VM with a disk from another directory attached) succeeds
// and is recorded as a [Violation].
//
// A second listener, the admin side channel, plays the parts that are not vSphere's API: the guests' tools report their
// addresses there, tests inject faults and read the world, the violations and the call counters. [Admin] is its client.
//
// Nothing here knows Berth: any vSphere client can be pointed at it. What a disk contains is not this package's business
// either, with one exception: when a VMDK is deleted, the directory named after its UUID under [Options.DisksDir] goes with
// it, so that whoever keeps disk contents there (simulated guests do) finds a new disk blank.
package vcenter
