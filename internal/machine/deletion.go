package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// guardDeletion: a machine for which the platform was never asked for anything needs nothing of it to go.
func (p *pass) guardDeletion(ctx context.Context) Result {
	if !p.notes.Intended {
		return done()
	}
	return p.guard(ctx)
}

// settleForDeletion waits like settle. How a step of the creation ended does not matter any more.
func (p *pass) settleForDeletion(ctx context.Context) Result {
	if !p.notes.Intended {
		return done()
	}
	switch kind := p.notes.Operation.Kind; kind {
	case OpPowerOff, OpDetach, OpDestroy:
		return p.settle(ctx)
	default:
		r := p.settle(ctx)
		if r.Outcome == Fail && p.notes.Operation.Ref == "" {
			return done()
		}
		return r
	}
}

func (p *pass) findForDeletion(ctx context.Context) Result {
	if !p.notes.Intended {
		return done()
	}
	ended := p.ended
	if ended == OpDestroy {
		return p.lookLive(ctx) // of what is gone only a live read tells; it is the proof of absence too
	}
	return p.look(ctx, func(s *Server) bool { return s != nil && (ended != OpPowerOff || s.Power == PowerOff) })
}

func (p *pass) powerOff(ctx context.Context) Result {
	if p.server == nil || p.server.Power == PowerOff {
		return done()
	}
	if p.server.Power == PowerUnknown {
		return wait(ReasonServerUnreadable, fmt.Sprintf("the platform does not know whether server %s runs", p.server.Name), unreadableLook)
	}
	op, err := p.life.Platform.PowerOff(ctx, p.server, p.life.PowerOff, p.life.DeletedAt)
	if err != nil {
		return platformFailed(ReasonDeletionFailed, err)
	}
	if r := p.started(ctx, op, OpPowerOff); r.Outcome != Done {
		return r
	}
	if r := p.look(ctx, func(s *Server) bool { return s != nil && s.Power == PowerOff }); r.Outcome != Done || p.server == nil {
		return r
	}
	if p.server.Power != PowerOff {
		return wait(ReasonPoweringOff, fmt.Sprintf("the guest of server %s was asked to shut down", p.server.Name), p.stopAgain())
	}
	return done()
}

// stopAgain is when a soft stop must be looked at again: when its time is over at the latest.
func (p *pass) stopAgain() time.Duration {
	again := 20 * time.Second
	if after := p.life.PowerOff.HardAfter; after > 0 {
		if left := after - p.now().Sub(p.life.DeletedAt); left > 0 && left < again {
			again = left
		}
	}
	return again
}

// detachDisks takes off everything that must not die with the server: the disks of the place, and disks of strangers (D21).
func (p *pass) detachDisks(ctx context.Context) Result {
	if p.server == nil {
		return done()
	}
	if r := p.readRecorded(ctx); r.Outcome != Done {
		return r
	}
	if r := p.followMoved(ctx); r.Outcome != Done {
		return r
	}
	take := p.mustStay()
	if len(take) == 0 {
		return done()
	}
	if p.unknown {
		return stop(ReasonPlaceUnknown, fmt.Sprintf("server %s has disks that are not its own (%s) and the pool does not know the machine's slot: nothing is deleted", p.server.Name, names(take)), safetyNet)
	}
	if i := slices.IndexFunc(take, func(v AttachedVolume) bool { return v.Chained }); i >= 0 {
		return stop(ReasonSnapshotInTheWay, fmt.Sprintf("%s on server %s has snapshots and cannot be detached whole: delete the snapshots", take[i].Volume, p.server.Name), safetyNet)
	}
	op, err := p.life.Platform.Detach(ctx, p.server, take)
	if err != nil {
		return platformFailed(ReasonDeletionFailed, err)
	}
	for _, v := range take {
		if p.isRecorded(v) {
			p.event(false, EventDetached, fmt.Sprintf("%s was taken off server %s and stays", v.Volume, p.server.Name))
		} else {
			p.event(true, EventForeignDetached, fmt.Sprintf("%s, which Berth did not create, was taken off server %s and stays", v.Volume, p.server.Name))
		}
	}
	return p.started(ctx, op, OpDetach)
}

// followMoved records where volumes of the place are that were moved while they were attached, before they are taken off: afterwards
// nobody could tell. One that was moved among the server's own disks would be deleted with them.
func (p *pass) followMoved(ctx context.Context) Result {
	found := false
	for _, want := range p.recorded {
		there := slices.ContainsFunc(p.server.Volumes, func(v AttachedVolume) bool { return v.Volume == want.Volume })
		now := attached(p.server, want.Identity)
		if there || now == nil {
			continue
		}
		if now.Own {
			return stop(ReasonDeletionFailed, fmt.Sprintf("disk %s was moved to %s, among the own disks of server %s, and would be deleted with it: detach it there and move it back to %s",
				want.Disk, now.Volume, p.server.Name, want.Volume), safetyNet)
		}
		found = true
	}
	if !found {
		return done()
	}
	if err := p.life.Places.Attached(ctx, p.life.Request.Holder, p.server); err != nil {
		return placeFailed(err)
	}
	p.asked = false
	return p.readRecorded(ctx)
}

func names(volumes []AttachedVolume) string {
	out := make([]string, 0, len(volumes))
	for _, v := range volumes {
		out = append(out, v.Volume)
	}
	return strings.Join(out, ", ")
}

// readRecorded asks the pool which volumes belong to the machine's place. That it does not know is an answer too; that it
// cannot be asked is not.
func (p *pass) readRecorded(ctx context.Context) Result {
	if p.asked || p.life.Places == nil {
		return done()
	}
	volumes, err := p.life.Places.Volumes(ctx, p.life.Request.Holder)
	switch {
	case Is(err, NotFound):
		p.unknown = true
	case err != nil:
		return placeFailed(err)
	}
	p.recorded, p.asked = volumes, true
	return done()
}

// mustStay lists what is attached and must survive the server.
func (p *pass) mustStay() []AttachedVolume {
	var out []AttachedVolume
	for _, v := range p.server.Volumes {
		if !v.Own || p.isRecorded(v) {
			out = append(out, v)
		}
	}
	return out
}

// isRecorded matches by address or identity, never by size or unit (VS-D22).
func (p *pass) isRecorded(v AttachedVolume) bool {
	return slices.ContainsFunc(p.recorded, func(r Volume) bool {
		return r.Volume == v.Volume || r.Identity != "" && r.Identity == v.Identity
	})
}

// destroyServer deletes the server right after a live read that it is off and that nothing but its own is attached (VS-D21).
func (p *pass) destroyServer(ctx context.Context) Result {
	if p.server == nil {
		return done()
	}
	if r := p.lookLive(ctx); r.Outcome != Done || p.server == nil {
		return r
	}
	if p.server.Power != PowerOff {
		return wait(ReasonPoweringOff, fmt.Sprintf("server %s is not off", p.server.Name), lookAgain)
	}
	if left := p.mustStay(); len(left) > 0 {
		return wait(ReasonDetaching, fmt.Sprintf("%s is still attached to server %s", names(left), p.server.Name), lookAgain)
	}
	op, err := p.life.Platform.Destroy(ctx, p.server)
	if Is(err, NotFound) {
		return done()
	}
	if err != nil {
		return platformFailed(ReasonDeletionFailed, err)
	}
	p.event(false, EventDestroyStarted, describe(OpDestroy, p.server.Name))
	return p.started(ctx, op, OpDestroy)
}

// proveAbsence: by every identity, live (VS-A22). A server that never showed, although one was asked for, may still be on its
// way: it must stay away for a while.
func (p *pass) proveAbsence(ctx context.Context) Result {
	if !p.notes.Intended {
		return done()
	}
	if p.server != nil || !p.live {
		if r := p.lookLive(ctx); r.Outcome != Done {
			return r
		}
	}
	if p.server != nil {
		return wait(ReasonDeleting, fmt.Sprintf("server %s still exists", p.server.Name), lookAgain)
	}
	if p.notes.Seen() || p.notes.CreateEnded {
		return done()
	}
	if platform, ok := p.life.Platform.(Unfinished); ok {
		creating, err := platform.Creating(ctx, p.notes.Identity)
		if err != nil {
			return platformFailed(ReasonDeletionFailed, err)
		}
		if creating {
			// What runs may end with a server of ours: it is absent only from then on.
			p.notes.AbsentSince = nil
			return wait(ReasonDeleting, fmt.Sprintf("server %s was asked for and never seen, and the platform still creates one that may be it", p.notes.Identity.Name), attachedAgain)
		}
	}
	settle := p.engine.Settle
	if settle == 0 {
		settle = DefaultSettle
	}
	now := p.now()
	if p.notes.AbsentSince == nil {
		p.notes.AbsentSince = &now
	}
	if left := settle - now.Sub(*p.notes.AbsentSince); left > 0 {
		return wait(ReasonDeleting, fmt.Sprintf("server %s was asked for and never seen; it may still appear", p.notes.Identity.Name), left)
	}
	return done()
}

// proveDetached: no server of the platform has a disk of the place; whatever cannot be read counts as having it (VS-A23).
func (p *pass) proveDetached(ctx context.Context) Result {
	if !p.notes.Intended {
		return done()
	}
	if r := p.readRecorded(ctx); r.Outcome != Done || len(p.recorded) == 0 {
		return r
	}
	holders, err := p.life.Platform.Holders(ctx, p.notes.Identity.Location, p.recorded)
	if err != nil {
		return platformFailed(ReasonDeletionFailed, err)
	}
	for _, v := range p.recorded {
		if server, held := holders[v.Volume]; held {
			return stop(ReasonDiskStillAttached, fmt.Sprintf("%s is still attached to server %s: detach it there", v.Volume, server), attachedAgain)
		}
	}
	return done()
}

func (p *pass) vacatePlace(ctx context.Context) Result {
	if p.life.Places == nil {
		return done()
	}
	err := p.life.Places.Vacate(ctx, p.life.Request.Holder)
	if err != nil && !Is(err, NotFound) {
		return placeFailed(err)
	}
	if p.notes.Intended && err == nil {
		p.event(false, EventSlotVacated, "the slot is given back; it is free when the Machine and the Node are gone")
	}
	return done()
}

// asError gives the platform-style form of any error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Broken, Message: err.Error(), Err: err}
}
