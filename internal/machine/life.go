// Package machine is the life of one infrastructure machine, written once for all platforms: what happens from claiming a place
// to ready, and from ready to nothing left, as phases in order (order.go), over a Platform that knows no Kubernetes and a
// Journal and Places that know no platform.
//
// Three habits hold it together. The intent is durable before anything is asked of a platform, and everything is looked up by
// our mark before it is made, so a process may die anywhere. A phase that holds already does nothing, so every pass starts at
// the top and goes as far as it can. And what cannot be read proves nothing: destroying, giving back and making again need a
// live answer.
package machine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/slot"
)

// Life is everything the engine needs to carry one infrastructure machine one pass further, as values wherever possible. The
// controller builds it anew for every pass.
type Life struct {
	// Mark is the machine's UID at first sight.
	Mark Mark
	// Name of the machine for messages: namespace/name.
	Name string
	// Platform that the machine lives on, nil while it cannot be reached (then Guards must say why).
	Platform Platform
	// Journal keeps what must outlive the pass.
	Journal Journal
	// Notes are the journal's content at the start of the pass, not older than our own last write.
	Notes Notes

	// Guards must all hold before anything happens, in order; the first that does not is what the machine waits for.
	Guards []Guard
	// Places gives the machine its place; nil for a machine without a pool.
	Places Places
	// Request asks for a place; read only when Places is set. Its Holder identifies the machine to the pool in every call.
	Request slot.Request
	// UserData reads the bootstrap data, once, right before it is handed to the server.
	UserData func(ctx context.Context) (data []byte, format string, err error)
	// BeforePowerOn is asked right before the first power-on, the server being verified and off: is a stale Node in the way?
	// nil means no such question. Anything but Done holds the power-on back.
	BeforePowerOn func(ctx context.Context, server *Server) Result

	// DeletedAt is when deletion was asked for: the recorded intent to stop and destroy, and the start of a soft stop's time.
	DeletedAt time.Time
	// PowerOff says how to stop the server at deletion.
	PowerOff PowerOffMode
}

// Guard is a precondition that was evaluated before the pass.
type Guard struct {
	Holds bool
	// Reason and Message are for the condition when it does not hold.
	Reason, Message string
}

// Notes are what the engine remembers about a machine between passes. All of it is a cache of the platform, or says what we
// have asked the platform for; losing the platform references costs look-ups, not servers.
type Notes struct {
	// Identity of the server. Mark, Name and Location come with the intent (Journal.Intend); ServerID and HardwareID are
	// written once, when the server is first seen, and never changed.
	Identity Identity
	// Intended: the intent to have a server is recorded. Without it the platform was never asked for one.
	Intended bool
	// CreateEnded: the last request for a server ended without one, as the platform told us. While it is false and no server
	// was ever seen, a request may still be under way.
	CreateEnded bool
	// Operation in flight; Ref is "" when there is none.
	Operation Operation
	// PowerOnAsked is when the first power-on was decided; written before the call.
	PowerOnAsked *time.Time
	// PoweredOn is the latch: the server was seen running once and is never powered on by us again.
	PoweredOn bool
	// Ready: the machine was complete once. From then on it is only watched.
	Ready bool
	// AbsentSince is when a deletion first found nothing of a server whose creation may still be under way.
	AbsentSince *time.Time
	// RetryAt forbids to start another operation before it; set when one failed.
	RetryAt *time.Time
}

// Seen reports whether the server was ever observed.
func (n Notes) Seen() bool { return n.Identity.ServerID != "" || n.Identity.HardwareID != "" }

// Journal persists a machine's intent and notes. Every method returns only when what it wrote is durable; a write that was
// refused because somebody else wrote in between ends the pass with an error and the next one starts from a fresh read.
type Journal interface {
	// Intend records that a server shall exist in this place (nil without a pool), before it is asked for, and returns the
	// specification as it was first recorded: a place edited meanwhile does not change a server in the making. Idempotent.
	// A Refused error says what is wrong with the combination of place and template; a Busy one comes with the specification so
	// far, and says what the server has to be given before it can be made.
	Intend(ctx context.Context, place *slot.Slot) (ServerSpec, error)
	// Save writes the notes, and what people should read with them, in as few writes as possible and none if nothing differs
	// from what is stored. The engine calls it before an act that must not be repeated, and once at the end of every pass.
	Save(ctx context.Context, notes Notes, report Report) error
}

// Places is a pool as one of its machines sees it. Errors are *Error: Busy means wait (an event will follow, RetryAfter is the
// safety net), Refused needs a change by a human, NotFound that the pool or the holder's slot in it does not exist.
type Places interface {
	// Claim gives the machine its place, durable when it returns; asked again it returns the same place.
	Claim(ctx context.Context, request slot.Request) (slot.Slot, error)
	// Ensure makes every persistent volume of the place exist, on record and attached to nobody else, and returns all of
	// them, identities known. It starts what is missing and answers Busy instead of waiting for it.
	Ensure(ctx context.Context, holder slot.Holder, spec ServerSpec) ([]Volume, error)
	// Attached records what was observed on the holder's server: unit and identity of every disk of the place.
	Attached(ctx context.Context, holder slot.Holder, server *Server) error
	// Volumes lists the persistent volumes on record for the holder's slot, in whatever phase.
	Volumes(ctx context.Context, holder slot.Holder) ([]Volume, error)
	// Vacate gives the place back: its server is proven gone and its volumes proven detached. The slot becomes claimable
	// later, when the pool finds Machine and Node gone. Nothing to give back is success.
	Vacate(ctx context.Context, holder slot.Holder) error
}

// Report is what one pass found and did, for conditions, status and events.
type Report struct {
	// Phase that the pass stopped in (or the last one, when Outcome is Done).
	Phase string
	Result
	// Server as last observed, nil if there is none or it was not looked at.
	Server *Server
	// Place of the machine, nil if it has none (yet).
	Place *slot.Slot
	// Addresses accepted so far, over all interfaces, in device order.
	Addresses []string
	// Missing names what the addresses phase still waits for.
	Missing []string
	// Ready: everything holds at this moment.
	Ready bool
	// Lost: the server was seen before and is gone from the platform. It is never made again; the machine must be replaced.
	Lost bool
	// Unchanged: the machine rests after a failure; nothing was looked at, done or written, and what was said last stands.
	Unchanged bool
	// Off: the server was powered on by us once and does not run now.
	Off bool
	// Events to publish, in order.
	Events []Event
}

// Event is something that happened in this pass and that people should be told about once.
type Event struct {
	Warning         bool
	Reason, Message string
}
