package vcenter

import (
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// strict is the layer over vcsim. For the calls it enforces something on, it puts a gate in the object's place: a type that
// embeds vcsim's object and overrides the method.
type strict struct {
	server     *Server
	disks      diskFiles
	done       *completions
	collectors *collectors
	census     *census

	// world serialises everything that changes disks, attachments or power, so that a check and the act it allows are one.
	// Readers that look at many objects share it: vcsim fills in a new VM after it has shown it. Never taken under a lock of
	// vcsim.
	world sync.RWMutex

	mu         sync.Mutex
	violations []Violation
	known      map[string]bool
	macs       map[string]bool
	sessions   map[string]*simulator.Session
	logins     map[string]*account
	lastTask   int
}

func newStrict(server *Server) *strict {
	s := &strict{
		server: server, done: newCompletions(), census: &census{},
		known: map[string]bool{}, macs: map[string]bool{}, sessions: map[string]*simulator.Session{}, logins: map[string]*account{},
	}
	s.disks.root = server.opts.DisksDir
	s.disks.byFile = map[string]*diskFile{}
	s.collectors = newCollectors(&s.world)
	server.registry.AddHandler(s.done)
	server.registry.AddHandler(s.collectors)
	server.registry.AddHandler(s.census)
	return s
}

// gates lists the overridden methods by type of object.
var gates = map[string][]string{
	"VirtualMachine": {
		"CloneVM_Task", "ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "ResetVM_Task", "Destroy_Task", "ShutdownGuest",
	},
	"Folder":             {"CreateVM_Task", "Destroy_Task"},
	"Datastore":          {"RefreshDatastore"},
	"VirtualDiskManager": {"CreateVirtualDisk_Task", "DeleteVirtualDisk_Task", "MoveVirtualDisk_Task", "CopyVirtualDisk_Task", "ExtendVirtualDisk_Task", "QueryVirtualDiskUuid", "SetVirtualDiskUuid"},
	"FileManager":        {"DeleteDatastoreFile_Task", "MoveDatastoreFile_Task", "CopyDatastoreFile_Task", "MakeDirectory"},
	"PropertyCollector": {
		"WaitForUpdatesEx", "WaitForUpdates", "CancelWaitForUpdates", "CreateFilter", "DestroyPropertyCollector",
	},
	"PropertyFilter": {"DestroyPropertyFilter"},
	"SessionManager": {"Login", "Logout", "TerminateSession"},
}

// handle is called by vcsim for every SOAP call before it is dispatched, and may name the object that serves it.
func (s *strict) handle(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if ctx.Session != nil {
		s.track(ctx)
	}
	if !slices.Contains(gates[method.This.Type], method.Name) {
		return nil, nil
	}
	if ctx.Session == nil && method.Name != "Login" {
		return nil, nil
	}
	object := ctx.Map.Get(method.This)
	if method.This.Type == "PropertyCollector" || method.This.Type == "PropertyFilter" {
		object = ctx.Session.Get(method.This) // these live in the session
	}
	gate := s.gate(object)
	if gate != nil && ctx.Session != nil {
		// For a call with a session vcsim looks the object up once more and would find its own; under a reference that
		// nobody has, it keeps ours. The request's body still names the object.
		method.This.Type += "(strict)"
	}
	return gate, nil
}

func (s *strict) gate(object mo.Reference) mo.Reference {
	switch o := object.(type) {
	case *simulator.VirtualMachine:
		return &vmGate{VirtualMachine: o, strict: s}
	case *simulator.Folder:
		return &folderGate{Folder: o, strict: s}
	case *simulator.Datastore:
		return &datastoreGate{Datastore: o, strict: s}
	case *simulator.VirtualDiskManager:
		return &diskGate{VirtualDiskManager: o, strict: s}
	case *simulator.FileManager:
		return &fileGate{FileManager: o, strict: s}
	case *simulator.PropertyCollector:
		return &collectorGate{PropertyCollector: o, strict: s}
	case *simulator.PropertyFilter:
		return &filterGate{PropertyFilter: o, strict: s}
	case *simulator.SessionManager:
		return &sessionGate{SessionManager: o, strict: s}
	}
	return nil
}

// unlocked makes vcsim call a gate without holding the object's lock: the gates lock what they touch, and their tasks
// would otherwise wait for each other.
type unlocked struct{}

// Lock does nothing.
func (unlocked) Lock() {}

// Unlock does nothing.
func (unlocked) Unlock() {}

// Violations returns what was recorded since the start, in order.
func (s *Server) Violations() []Violation {
	s.strict.mu.Lock()
	defer s.strict.mu.Unlock()
	return append([]Violation{}, s.strict.violations...)
}

func (s *strict) record(v Violation) {
	v.Time = time.Now()
	s.server.opts.Log.Warn("violation", "kind", v.Kind, "vm", v.VM, "disk", v.Disk, "detail", v.Detail)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, v)
}

// recordOnce records a state that lasts, which would be found again and again.
func (s *strict) recordOnce(key string, v Violation) {
	s.mu.Lock()
	seen := s.known[key]
	s.known[key] = true
	s.mu.Unlock()
	if !seen {
		s.record(v)
	}
}
