package machine

import (
	"context"
	"fmt"
	"strings"
)

// wordsOf gives an operation's reasons while it runs and when it failed.
func wordsOf(kind string) (running, failed string) {
	switch kind {
	case OpCreate:
		return ReasonCreating, ReasonCreateFailed
	case OpFit:
		return ReasonFitting, ReasonFitFailed
	case OpPowerOn:
		return ReasonPoweringOn, ReasonPowerOnFailed
	case OpPowerOff:
		return ReasonPoweringOff, ReasonDeletionFailed
	case OpDetach:
		return ReasonDetaching, ReasonDeletionFailed
	case OpDestroy:
		return ReasonDeleting, ReasonDeletionFailed
	}
	return ReasonTaskFailure, ReasonTaskFailure
}

// settle waits for the operation that an earlier pass started. There is at most one (VS-V30).
func (p *pass) settle(ctx context.Context) Result {
	if p.notes.Operation.Ref == "" {
		return done()
	}
	op := p.notes.Operation
	op.Mark = p.life.Mark
	running, failed := wordsOf(op.Kind)
	state, err := p.life.Platform.Operation(ctx, op)
	switch {
	case err != nil:
		// Not knowing is not an end: clearing it now could start the same thing twice (VS-V32).
		return platformFailed(running, err)
	case !state.Done && !state.Unknown:
		return wait(running, describe(op.Kind, p.notes.Identity.Name), safetyNet)
	}
	p.notes.Operation = Operation{}
	p.engine.follow(p.life.Mark, Operation{})
	p.ended = op.Kind
	p.live = false
	if op.Kind == OpCreate && (state.Unknown || state.Err != nil) {
		p.notes.CreateEnded = true
	}
	if state.Err != nil {
		return platformFailed(failed, state.Err)
	}
	p.memory = failure{}
	return done()
}

// started notes an operation that a call returned, and follows it: a platform that answers at once costs no second pass.
func (p *pass) started(ctx context.Context, op Operation, kind string) Result {
	p.live = false
	p.ended = kind
	p.notes.RetryAt = nil
	if op.Ref == "" {
		return done()
	}
	p.notes.Operation = Operation{Ref: op.Ref, Kind: kind, Mark: p.life.Mark}
	p.engine.follow(p.life.Mark, p.notes.Operation)
	return p.settle(ctx)
}

func describe(kind, name string) string {
	switch kind {
	case OpCreate:
		return fmt.Sprintf("server %s is being created", name)
	case OpFit:
		return fmt.Sprintf("server %s gets its disks and its guest data", name)
	case OpPowerOn:
		return fmt.Sprintf("server %s is being powered on", name)
	case OpPowerOff:
		return fmt.Sprintf("server %s is being powered off", name)
	case OpDetach:
		return fmt.Sprintf("the disks of server %s are being detached", name)
	case OpDestroy:
		return fmt.Sprintf("server %s is being deleted", name)
	}
	return fmt.Sprintf("an operation on server %s is under way", name)
}

// look reads the server from the platform's watch, and live when that does not show what the end of an operation promised.
// A server that is not ours by its mark is an error, whichever identity led to it.
func (p *pass) look(ctx context.Context, promised func(*Server) bool) Result {
	server, err := p.life.Platform.Lookup(ctx, p.notes.Identity)
	if Is(err, NotFound) {
		server, err = nil, nil
	}
	if err == nil && p.ended != "" && !promised(server) {
		return p.lookLive(ctx)
	}
	return p.saw(server, err, false)
}

// lookLive reads the server by a fresh read of the platform.
func (p *pass) lookLive(ctx context.Context) Result {
	server, err := p.life.Platform.LookupLive(ctx, p.notes.Identity)
	if Is(err, NotFound) {
		server, err = nil, nil
	}
	return p.saw(server, err, true)
}

func (p *pass) saw(server *Server, err error, live bool) Result {
	if err != nil {
		return platformFailed(ReasonServerUnreadable, err)
	}
	p.server, p.live = server, live
	if server == nil {
		return done()
	}
	id := &p.notes.Identity
	switch {
	case server.Mark != p.life.Mark:
		return p.notOurs(fmt.Sprintf("server %s (%s) carries the mark %q, ours is %q: it is not touched", server.Name, server.ServerID, server.Mark, p.life.Mark))
	case !server.Readable:
		return wait(ReasonServerUnreadable, fmt.Sprintf("the platform cannot vouch for server %s: %s", server.Name, server.Unreadable), unreadableLook)
	case id.HardwareID != "" && server.HardwareID != "" && !strings.EqualFold(id.HardwareID, server.HardwareID):
		return p.notOurs(fmt.Sprintf("server %s has hardware identity %s, on record is %s: it was replaced behind our back", server.Name, server.HardwareID, id.HardwareID))
	}
	if id.HardwareID == "" {
		id.HardwareID = server.HardwareID
	}
	if id.ServerID == "" {
		id.ServerID = server.ServerID
	}
	p.notes.AbsentSince = nil
	return done()
}

func (p *pass) notOurs(message string) Result {
	return platformFailed(ReasonServerNotOurs, &Error{Kind: Conflict, Message: message})
}
