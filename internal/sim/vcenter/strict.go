package vcenter

import (
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// strict is the layer over vcsim.
type strict struct {
	server *Server
	disks  diskFiles

	mu         sync.Mutex
	violations []Violation
}

func newStrict(s *Server) *strict {
	return &strict{server: s}
}

// handle is called by vcsim for every SOAP call before it is dispatched.
func (s *strict) handle(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	return nil, nil
}

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

func (s *strict) reported(ref, name string, guest Guest) {}

func (s *strict) watchSessions() { <-s.server.stopped }

func (s *Server) sessions() []Session { return []Session{} }

// diskFiles knows every VMDK.
type diskFiles struct{}

func (d *diskFiles) list() []Disk { return []Disk{} }
