package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

func (p *pass) guard(context.Context) Result {
	for _, g := range p.life.Guards {
		if !g.Holds {
			return wait(g.Reason, g.Message, 0)
		}
	}
	return done()
}

// claimPlace asks until the server was powered on once; from then on the machine's own record says which place it has.
func (p *pass) claimPlace(ctx context.Context) Result {
	if p.life.Places == nil || p.notes.PoweredOn {
		return done()
	}
	place, err := p.life.Places.Claim(ctx, p.life.Request)
	if err != nil {
		return placeFailed(err)
	}
	p.report.Place = &place
	return done()
}

func (p *pass) recordIntent(ctx context.Context) Result {
	claimed := p.report.Place
	spec, err := p.life.Journal.Intend(ctx, claimed)
	if Is(err, Busy) {
		e := asError(err)
		p.intended(spec) // what it needs besides is not complete
		return wait(e.Reason, e.Error(), e.RetryAfter)
	}
	if err != nil {
		if Is(err, Refused) || Is(err, Conflict) {
			refused := asError(err)
			return stop(refused.Reason, refused.Error(), refused.RetryAfter)
		}
		return recordingFailed(err)
	}
	if claimed != nil && (spec.Place == nil || spec.Place.HostName != claimed.HostName) {
		recorded := "none"
		if spec.Place != nil {
			recorded = spec.Place.HostName
		}
		return stop(ReasonSlotQuarantined, fmt.Sprintf("the pool gave slot %s, on record for this machine is %s: a human must decide", claimed.HostName, recorded), safetyNet)
	}
	p.intended(spec)
	return done()
}

// intended takes over what is on record about the server to be.
func (p *pass) intended(spec ServerSpec) {
	p.spec = spec
	p.report.Place = spec.Place
	p.notes.Identity.Name, p.notes.Identity.Location = spec.Name, spec.Location
	if !p.notes.Intended {
		p.notes.Intended = true
		if spec.Place != nil {
			p.event(false, EventSlotAllocated, fmt.Sprintf("slot %s is this machine's place", spec.Place.HostName))
		}
	}
}

// ensureDisks asks the pool until the power-on was decided.
func (p *pass) ensureDisks(ctx context.Context) Result {
	if p.life.Places == nil || p.notes.PoweredOn {
		return done()
	}
	volumes, err := p.life.Places.Ensure(ctx, p.life.Request.Holder, p.spec)
	if err != nil {
		return placeFailed(err)
	}
	p.volumes = volumes
	return done()
}

// findServer knows three cases: it is there, it was never seen (then it is created), it was seen and is gone. Before the first
// sight the look is a live one: there is no create without it, and a watch may be behind.
func (p *pass) findServer(ctx context.Context) Result {
	live := !p.notes.Seen() || p.ended == OpFit
	var r Result
	if live {
		r = p.lookLive(ctx)
	} else {
		r = p.look(ctx, func(s *Server) bool { return s != nil })
	}
	if r.Outcome != Done || p.server != nil || !p.notes.Seen() {
		return r
	}
	// Once is not absence, and what was lost is never made again: its disks may have gone with it.
	if !live {
		if r := p.lookLive(ctx); r.Outcome != Done || p.server != nil {
			return r
		}
	}
	p.report.Lost = true
	id := p.notes.Identity
	return wait(ReasonServerLost, fmt.Sprintf("server %s (%s, %s) is gone from the platform; it is not made again, replace the machine", id.Name, id.ServerID, id.HardwareID), lostLook)
}

func (p *pass) createServer(ctx context.Context) Result {
	if p.server != nil {
		return done()
	}
	if p.ended == OpCreate {
		return wait(ReasonCreating, fmt.Sprintf("server %s was created and does not show yet", p.spec.Name), lookAgain)
	}
	if p.notes.CreateEnded {
		p.notes.CreateEnded = false
		if failed := p.save(ctx, ReasonCreating, describe(OpCreate, p.spec.Name)); failed != nil {
			return *failed
		}
	}
	spec := p.spec
	for _, v := range p.volumes {
		spec.Reach = append(spec.Reach, v.Volume)
	}
	op, err := p.life.Platform.Create(ctx, spec)
	switch {
	case Is(err, Conflict):
		return p.nameTaken(ctx, err)
	case Is(err, Refused):
		p.notes.CreateEnded = true
		return platformFailed(ReasonCreateFailed, err)
	case err != nil:
		return platformFailed(ReasonCreateFailed, err)
	}
	p.event(false, EventCreateStarted, describe(OpCreate, p.spec.Name))
	if r := p.started(ctx, op, OpCreate); r.Outcome != Done {
		return r
	}
	if r := p.lookLive(ctx); r.Outcome != Done || p.server != nil {
		return r
	}
	return wait(ReasonCreating, fmt.Sprintf("server %s was created and does not show yet", p.spec.Name), lookAgain)
}

// nameTaken: a server of this name exists. It is ours only if its mark says so (VS-V5, VS-V6).
func (p *pass) nameTaken(ctx context.Context, conflict error) Result {
	if r := p.lookLive(ctx); r.Outcome != Done || p.server != nil {
		return r
	}
	return platformFailed(ReasonServerNotOurs, conflict)
}

func (p *pass) fitServer(ctx context.Context) Result {
	if p.notes.PoweredOn {
		return done()
	}
	switch p.server.Power {
	case PowerOff:
	case PowerOn:
		if p.notes.PowerOnAsked != nil || p.server.Fitted {
			return done() // the answer to our power-on was lost, or with our notes all memory of it
		}
		return stop(ReasonUnexpectedPower, fmt.Sprintf("server %s runs before it got its disks and guest data: power it off", p.server.Name), safetyNet)
	case PowerSuspended, PowerUnknown:
		return wait(ReasonSuspended, fmt.Sprintf("server %s is in power state %s before its first start", p.server.Name, p.server.Power), safetyNet)
	}
	if p.fits() {
		return done()
	}
	fit := Fit{Spec: p.spec, Volumes: p.volumes}
	if p.life.UserData != nil {
		data, format, err := p.life.UserData(ctx)
		if err != nil {
			if e := asError(err); Is(err, Refused) && e.Reason != "" {
				return stop(e.Reason, e.Error(), e.RetryAfter)
			}
			return wait(ReasonBootstrapUnavailable, err.Error(), safetyNet)
		}
		fit.UserData, fit.Format = data, format
	}
	op, err := p.life.Platform.Fit(ctx, p.server, fit)
	if err != nil {
		return platformFailed(ReasonFitFailed, err)
	}
	if r := p.started(ctx, op, OpFit); r.Outcome != Done {
		return r
	}
	if r := p.lookLive(ctx); r.Outcome != Done || p.server == nil {
		return p.orLost(r)
	}
	if !p.fits() {
		return platformFailed(ReasonFitFailed, &Error{Kind: Broken, Message: fmt.Sprintf("the platform says that server %s got its disks and guest data; it does not show them", p.server.Name)})
	}
	return done()
}

// fits: guest data is on it and every volume of the place, recognised by identity.
func (p *pass) fits() bool {
	if !p.server.Fitted {
		return false
	}
	for _, want := range p.volumes {
		if attached(p.server, want.Identity) == nil {
			return false
		}
	}
	return true
}

func attached(server *Server, identity string) *AttachedVolume {
	for i := range server.Volumes {
		if identity != "" && server.Volumes[i].Identity == identity {
			return &server.Volumes[i]
		}
	}
	return nil
}

func (p *pass) orLost(r Result) Result {
	if r.Outcome == Done && p.server == nil {
		return wait(ReasonServerLost, fmt.Sprintf("server %s vanished", p.notes.Identity.Name), lookAgain)
	}
	return r
}

// verifyServer is the gate before the first start (VS-D18, VS-D19): every disk of the place and no disk of anybody else.
func (p *pass) verifyServer(ctx context.Context) Result {
	if p.notes.PoweredOn || p.server.Power == PowerOn {
		return done()
	}
	if !p.live {
		if r := p.lookLive(ctx); r.Outcome != Done || p.server == nil {
			return p.orLost(r)
		}
	}
	if !p.fits() {
		return wait(ReasonFitting, fmt.Sprintf("server %s does not show all its disks and guest data", p.server.Name), lookAgain)
	}
	for _, v := range p.server.Volumes {
		ours := v.Own || slices.ContainsFunc(p.volumes, func(w Volume) bool { return w.Identity == v.Identity })
		if !ours {
			return stop(ReasonUnexpectedDisk, fmt.Sprintf("server %s has %s attached, which is no disk of its place: detach it", p.server.Name, v.Volume), safetyNet)
		}
	}
	if p.spec.Place != nil {
		for _, want := range p.spec.Place.Disks {
			if want.Ephemeral && !slices.ContainsFunc(p.server.Volumes, func(v AttachedVolume) bool { return v.Own && v.Name == want.Name && v.Identity != "" }) {
				return wait(ReasonFitting, fmt.Sprintf("server %s does not show ephemeral disk %s", p.server.Name, want.Name), lookAgain)
			}
		}
	}
	if p.life.Places != nil {
		if err := p.life.Places.Attached(ctx, p.life.Request.Holder, p.server); err != nil {
			return placeFailed(err)
		}
	}
	return done()
}

// powerOn starts the server once in its life (VS-V22). The decision is on record before the call.
func (p *pass) powerOn(ctx context.Context) Result {
	if p.notes.PoweredOn {
		return done()
	}
	if p.server.Power == PowerOn {
		p.notes.PoweredOn = true
		return done()
	}
	if p.life.BeforePowerOn != nil {
		if r := p.life.BeforePowerOn(ctx, p.server); r.Outcome != Done {
			return r
		}
	}
	if p.notes.PowerOnAsked == nil {
		now := p.now()
		p.notes.PowerOnAsked = &now
		if failed := p.save(ctx, ReasonPoweringOn, describe(OpPowerOn, p.spec.Name)); failed != nil {
			return *failed
		}
	}
	op, err := p.life.Platform.PowerOn(ctx, p.server)
	if err != nil {
		return platformFailed(ReasonPowerOnFailed, err)
	}
	if r := p.started(ctx, op, OpPowerOn); r.Outcome != Done {
		return r
	}
	if r := p.look(ctx, func(s *Server) bool { return s != nil && s.Power == PowerOn }); r.Outcome != Done || p.server == nil {
		return p.orLost(r)
	}
	if p.server.Power != PowerOn {
		return wait(ReasonPoweringOn, fmt.Sprintf("server %s was powered on and does not show it yet", p.server.Name), lookAgain)
	}
	p.notes.PoweredOn = true
	return done()
}

// addresses waits until every address that was planned is reported by the guest on its interface (VS-V25). A machine that was
// ready once stays so while its guest restarts.
func (p *pass) addresses(context.Context) Result {
	if p.server.Power == PowerUnknown {
		return wait(ReasonServerUnreadable, fmt.Sprintf("the platform does not know whether server %s runs", p.server.Name), unreadableLook)
	}
	if p.server.Power != PowerOn {
		p.report.Off = true
		reason := ReasonPoweredOff
		if p.server.Power == PowerSuspended {
			reason = ReasonSuspended
		}
		return wait(reason, fmt.Sprintf("server %s was running and is now %s; Berth starts a server once and leaves it to you from then on", p.server.Name, p.server.Power), safetyNet)
	}
	p.report.Addresses, p.report.Missing = planned(p.spec, p.server)
	if len(p.report.Missing) > 0 && !p.notes.Ready {
		return wait(ReasonWaitingForAddresses, fmt.Sprintf("server %s runs; its guest has not reported its address yet: %s; if that lasts, check the image (guest tools, cloud-init) and the addresses, gateway and network of the place", p.server.Name, strings.Join(p.report.Missing, ", ")), safetyNet)
	}
	return done()
}

func (p *pass) ready(context.Context) Result {
	p.notes.Ready = true
	p.report.Ready = true
	return done()
}
