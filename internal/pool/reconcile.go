package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Reconcile carries the pool itself one pass further. In this order: every slot gets a record; slots whose holder vanished are
// repaired; vacated slots are freed from facts; released slots that are due are taken out of allocation, and their disks
// deleted; an empty pool forgets its consumer; records of removed slots go. A pool being deleted reclaims everything that no
// machine holds, whatever the delay. What could not be told or done this time is in the summary; the error is about the
// records themselves.
func (w *Writer) Reconcile(ctx context.Context) (Summary, error) {
	w.passing.Lock()
	defer w.passing.Unlock()

	if _, err := w.read(ctx); err != nil {
		return Summary{}, err
	}
	pass := &round{waiting: map[string]string{}}
	for _, step := range []func(context.Context, *round) error{
		w.complete,
		w.repair,
		w.free,
		w.recheck,
		w.discover,
		w.announce,
		w.reclaim,
		w.tidy,
	} {
		if err := step(ctx, pass); err != nil {
			return Summary{}, err
		}
	}
	state, err := w.current(ctx)
	if err != nil {
		return Summary{}, err
	}
	return w.summary(state, pass), nil
}

// round is what one Reconcile remembers.
type round struct {
	// waiting says why a slot is not free yet.
	waiting  map[string]string
	troubles []string
	// soon: something is under way whose end is no event, or for the end of which an event may be missed.
	soon bool
}

func (p *round) trouble(format string, args ...any) {
	p.troubles = append(p.troubles, fmt.Sprintf(format, args...))
	p.soon = true
}

// complete gives every declared slot a record.
func (w *Writer) complete(ctx context.Context, p *round) error {
	s, err := w.current(ctx)
	if err != nil || s.complete() {
		return err
	}
	found, err := w.look(ctx)
	if err != nil {
		p.trouble("the pool's status cannot be completed: %v", err)
		return nil
	}
	return w.update(ctx, func(s *State) error {
		found.record(s)
		return nil
	})
}

// repair vacates slots whose holder is gone without having given them back (VS-A16): only after the same proofs as a normal
// deletion.
func (w *Writer) repair(ctx context.Context, p *round) error {
	s, err := w.current(ctx)
	if err != nil {
		return err
	}
	for _, rec := range s.Records {
		if rec.State != slot.Held {
			continue
		}
		gone, err := w.facts.HolderGone(ctx, rec.Holder)
		if err != nil {
			p.trouble("slot %s: cannot tell whether machine %s still exists: %v", rec.HostName, rec.Holder.Name, err)
			continue
		}
		if !gone {
			continue
		}
		if why := w.absent(ctx, &s, rec); why != "" {
			p.waiting[rec.HostName] = why
			p.soon = true
			continue
		}
		if err := w.update(ctx, func(s *State) error {
			if now := s.heldBy(rec.Holder); now != nil && now.State == slot.Held && now.HostName == rec.HostName {
				s.vacate(now, rec.Holder, w.options.Now())
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// absent proves that nothing of a vanished holder's server is left; it says why not.
func (w *Writer) absent(ctx context.Context, s *State, rec slot.Record) string {
	platform, err := w.platform(ctx)
	if err != nil {
		return fmt.Sprintf("the platform cannot be asked whether the server of machine %s is gone: %v", rec.Holder.Name, err)
	}
	location := s.location(rec.HostName)
	mark := rec.Holder.Mark
	if mark == "" {
		mark = rec.Holder.UID
	}
	server, err := platform.LookupLive(ctx, machine.Identity{Mark: machine.Mark(mark), Location: location})
	switch {
	case err == nil && server != nil:
		return fmt.Sprintf("machine %s is gone, its server %s is not: delete the server on the platform", rec.Holder.Name, server.Name)
	case !machine.Is(err, machine.NotFound):
		return fmt.Sprintf("cannot tell whether the server of machine %s is gone: %v", rec.Holder.Name, err)
	}
	if unfinished, ok := platform.(machine.Unfinished); ok {
		// Its records may have gone while a server was being made: what does not show yet is not absent.
		creating, err := unfinished.Creating(ctx, machine.Identity{Mark: machine.Mark(mark), Name: rec.Holder.Name, Location: location})
		switch {
		case err != nil:
			return fmt.Sprintf("cannot tell whether a server of machine %s is still being created: %v", rec.Holder.Name, err)
		case creating:
			return fmt.Sprintf("machine %s is gone, and the platform still creates a server that may be its", rec.Holder.Name)
		}
	}
	volumes := s.volumes(rec.HostName)
	if len(volumes) == 0 {
		return ""
	}
	holders, err := platform.Holders(ctx, location, volumes)
	if err != nil {
		return fmt.Sprintf("cannot tell whether the disks of the slot are detached: %v", err)
	}
	for volume, holder := range holders {
		return fmt.Sprintf("%s is still attached to server %s", volume, holder)
	}
	return ""
}

func (s *State) location(hostName string) string {
	for i := range s.Slots {
		if s.Slots[i].HostName == hostName {
			return s.Slots[i].Location
		}
	}
	return ""
}

// free makes vacated slots claimable once Machine and Node are gone.
func (w *Writer) free(ctx context.Context, p *round) error {
	s, err := w.current(ctx)
	if err != nil {
		return err
	}
	var freed []slot.Record
	for _, rec := range s.Records {
		if rec.State != slot.Vacating {
			continue
		}
		facts := slot.FreeFacts{}
		if facts.MachineGone, err = w.facts.MachineGone(ctx, rec.Holder); err != nil {
			p.waiting[rec.HostName] = fmt.Sprintf("cannot tell whether Machine %s still exists: %v", rec.Holder.OwnerName, err)
			p.soon = true
			continue
		}
		var unasked error
		if facts.MachineGone {
			if facts.Node, unasked = w.facts.Node(ctx, rec.HostName, rec.Holder); unasked != nil {
				facts.Node = slot.NodeUnknown
			}
		}
		next, wait := slot.Free(rec, facts, w.options.Now())
		if wait != "" {
			if unasked != nil {
				wait = fmt.Sprintf("%s: %v", wait, unasked)
			}
			p.waiting[rec.HostName] = wait
			// The end of a Machine is an event; the end of a Node in another cluster is not.
			p.soon = p.soon || facts.MachineGone
			continue
		}
		freed = append(freed, next)
	}
	if len(freed) == 0 {
		return nil
	}
	err = w.update(ctx, func(s *State) error {
		for _, next := range freed {
			if now := s.record(next.HostName); now != nil && now.State == slot.Vacating && now.Holder.Same(next.Holder) {
				*now = next
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, next := range freed {
		w.options.Emit(machine.Event{Reason: machine.EventSlotReleased, Message: fmt.Sprintf("slot %s is free for the next machine, %s is gone", next.HostName, next.Holder.Name)})
	}
	return nil
}

// recheck looks again at disks in trouble that nobody uses, so that what a human repaired frees its slot.
func (w *Writer) recheck(ctx context.Context, p *round) error {
	return w.eachSlot(ctx, p, func(s *State, rec slot.Record) (disk.Want, bool) {
		if rec.State != slot.Released && rec.State != slot.Available {
			return disk.Want{}, false
		}
		now := w.options.Now()
		for _, d := range s.Disks {
			if d.HostName == rec.HostName && d.Phase == disk.Error && (d.RetryAfter == nil || !now.Before(*d.RetryAfter)) {
				return disk.Want{Purpose: disk.Keep}, true
			}
		}
		return disk.Want{}, false
	}, nil)
}

// tidy unbinds an empty pool (VS-A5) and prunes records of slots that are not declared any more and of which nothing is left
// (VS-A17).
func (w *Writer) tidy(ctx context.Context, _ *round) error {
	var unbound *slot.Consumer
	err := w.change(ctx, func(s *State) error {
		unbound = nil
		declared := map[string]bool{}
		for _, place := range s.Slots {
			declared[place.HostName] = true
		}
		s.Records = slices.DeleteFunc(slices.Clone(s.Records), func(r slot.Record) bool {
			return !declared[r.HostName] && slot.Prunable(r) && !s.live(r.HostName)
		})
		s.Disks = slices.DeleteFunc(slices.Clone(s.Disks), func(d disk.Record) bool {
			return !declared[d.HostName] && !d.Live()
		})
		live := 0
		for _, d := range s.Disks {
			if d.Live() {
				live++
			}
		}
		if s.Consumer != nil && slot.Unbindable(s.Records, live) {
			unbound, s.Consumer = s.Consumer, nil
		}
		return nil
	})
	if err == nil && unbound != nil {
		w.options.Emit(machine.Event{Reason: machine.EventConsumerUnbound, Message: fmt.Sprintf("the pool is empty and serves %s no more; anybody may use it", unbound)})
	}
	return err
}

func (w *Writer) summary(s State, p *round) Summary {
	now := w.options.Now()
	out := Summary{State: s, Vacating: p.waiting, Quarantined: map[string]string{}, DiskErrors: map[string]string{}, Interrupted: map[string]disk.Phase{}, Troubles: p.troubles}
	var next time.Time
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if p.soon {
		at(now.Add(pollAgain))
	}
	for _, r := range s.Records {
		switch r.State {
		case slot.Held:
			out.Held = append(out.Held, r.HostName)
		case slot.Quarantined:
			out.Quarantined[r.HostName] = r.Contradiction
		case slot.Vacating:
			if out.Vacating[r.HostName] == "" {
				out.Vacating[r.HostName] = "it was vacated just now"
				at(now.Add(pollAgain))
			}
		case slot.Released:
			if s.keptBack(r) {
				out.KeptBack = append(out.KeptBack, r.HostName)
			} else if due, ok := slot.ReclaimAt(r, s.delay()); ok && !s.Retain {
				at(due)
			}
		case slot.Available, slot.Reclaiming:
		}
	}
	out.Empty = len(out.Held) == 0 && len(out.Vacating) == 0 && len(out.Quarantined) == 0
	for _, d := range s.Disks {
		key := d.HostName + "/" + d.Name
		switch {
		case d.Phase == disk.Error:
			out.DiskErrors[key] = d.LastError
			out.Interrupted[key] = d.Interrupted
			if d.Attached() {
				out.StillAttached = append(out.StillAttached, key)
			}
			switch {
			case d.RetryAfter == nil:
			case d.RetryAfter.After(now):
				at(*d.RetryAfter)
			default:
				// It was due in this pass already, so it is not the pool's turn: a machine has the disk, or the platform is away.
				at(now.Add(pollAgain))
			}
		case d.Phase == disk.Reclaiming:
			out.Reclaiming = append(out.Reclaiming, key)
		case d.Phase == disk.Creating && d.Identity == "":
			out.Provisioning = append(out.Provisioning, key)
		}
		out.Empty = out.Empty && (s.Retain || !d.Live())
	}
	out.Empty = out.Empty && (s.Retain || !p.soon)
	if !next.IsZero() {
		out.Next = max(next.Sub(now), time.Second)
	}
	return out
}

// pollAgain is when a pool that waits for something without an event looks again.
const pollAgain = 30 * time.Second
