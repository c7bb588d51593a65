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

// discover finds, for a pool being deleted, volumes of its slots that are not on record because the status was lost (D17):
// otherwise their data would be left behind unnoticed.
func (w *Writer) discover(ctx context.Context, p *round) error {
	s, err := w.current(ctx)
	if err != nil || !s.Deleting || s.Retain {
		return err
	}
	var missing []disk.Record
	for _, place := range s.Slots {
		rec := s.record(place.HostName)
		if rec == nil || rec.State != slot.Available && rec.State != slot.Released {
			continue
		}
		for _, want := range place.Disks {
			if want.Ephemeral || s.disk(place.HostName, want.Name) != nil {
				continue
			}
			found, err := w.find(ctx, &s, place, want)
			if machine.IsNowhere(err) {
				// No disk of this place is on record and the place that it names does not exist: there is nothing to wait for.
				missing = append(missing, found)
				continue
			}
			if err != nil {
				p.trouble("disk %s of %s: cannot tell whether it exists: %v", want.Name, place.HostName, err)
				continue
			}
			missing = append(missing, found)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.update(ctx, func(s *State) error {
		for _, rec := range missing {
			if s.disk(rec.HostName, rec.Name) == nil {
				s.put(rec)
			}
		}
		return nil
	})
}

// find looks a disk up by its mark; without one there is nothing to reclaim and a tombstone says so.
func (w *Writer) find(ctx context.Context, s *State, place slot.Slot, want slot.Disk) (disk.Record, error) {
	rec := disk.Record{HostName: place.HostName, Name: want.Name, SizeGiB: want.SizeGiB, Phase: disk.Reclaimed, Changed: w.options.Now()}
	platform, err := w.platform(ctx)
	if err != nil {
		return rec, err
	}
	shape, err := w.facts.Shape(ctx)
	if err != nil {
		return rec, err
	}
	spec := volumeSpec(s, place, want, place.Location, shape)
	spec.Existing = true
	spec.Address, err = platform.PlanVolume(ctx, spec)
	if machine.Is(err, machine.NotFound) {
		return rec, nil
	}
	if err != nil {
		return rec, err
	}
	volume, err := platform.LookupVolume(ctx, spec)
	switch {
	case machine.Is(err, machine.NotFound):
		return rec, nil
	case err != nil:
		return rec, err
	case !volume.Marked:
		return rec, nil
	}
	rec.Volume, rec.Identity, rec.Phase = spec.Address, volume.Identity, disk.Available
	return rec, nil
}

// announce takes slots whose disks must go out of allocation. The write decides between a claim and the reclaim (VS-D43); the
// event says what will be deleted, before anything is: a process that finds the decision of another one, and nothing begun, says it
// again, for the other one may have ended in between.
func (w *Writer) announce(ctx context.Context, _ *round) error {
	var announced map[string][]string
	var retained []string
	var deleting bool
	var going map[string]bool
	now := w.options.Now()
	err := w.change(ctx, func(s *State) error {
		announced, retained, deleting, going = map[string][]string{}, nil, s.Deleting, map[string]bool{}
		for i := range s.Records {
			rec := &s.Records[i]
			if s.keptBack(*rec) {
				continue
			}
			if rec.State == slot.Reclaiming {
				going[rec.HostName] = true
				if !s.Retain && !w.announced[rec.HostName] && !s.begun(rec.HostName) {
					for _, v := range s.volumes(rec.HostName) {
						announced[rec.HostName] = append(announced[rec.HostName], v.Volume)
					}
				}
				continue
			}
			next, due := slot.Reclaim(*rec, now, s.delay())
			if !due && s.Deleting && rec.State == slot.Available && s.live(rec.HostName) {
				next, due = *rec, true
				next.State = slot.Reclaiming
			}
			if !due {
				continue
			}
			volumes := s.volumes(rec.HostName)
			if s.Retain {
				for _, v := range volumes {
					retained = append(retained, v.Volume)
				}
				continue
			}
			*rec, going[rec.HostName] = next, true
			if !s.live(rec.HostName) {
				*rec = slot.Empty(next)
			}
			for j := range s.Disks { // what failed before for another purpose is no reason to rest now
				if s.Disks[j].HostName == rec.HostName {
					s.Disks[j].RetryAfter = nil
				}
			}
			for _, v := range volumes {
				announced[rec.HostName] = append(announced[rec.HostName], v.Volume)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, hostName := range sorted(announced) {
		w.tell(machine.Event{
			Warning: true, Reason: machine.EventReclaimAnnounced,
			Message: fmt.Sprintf("the disks of slot %s and their data are deleted now: ", hostName),
		}, announced[hostName])
	}
	w.announced = going
	if len(retained) > 0 && deleting {
		w.tell(machine.Event{
			Reason:  machine.EventVolumesRetained,
			Message: "kept because of the retain-disks annotation: ",
		}, retained)
	}
	return nil
}

// keptBack: no machine may have this released slot because of its declaration. Its successor waits for the data, which is not deleted
// meanwhile.
func (s *State) keptBack(rec slot.Record) bool {
	return rec.State == slot.Released && s.Invalid[rec.HostName] != "" && !s.Deleting
}

// begun reports whether the deletion of any disk of a slot is on record: that is written before the platform is asked.
func (s *State) begun(hostName string) bool {
	return slices.ContainsFunc(s.Disks, func(d disk.Record) bool {
		return d.HostName == hostName && (d.Phase == disk.Reclaiming || d.Phase == disk.Error && d.Interrupted == disk.Reclaiming)
	})
}

// live reports whether any volume of a slot exists or may exist.
func (s *State) live(hostName string) bool {
	return slices.ContainsFunc(s.Disks, func(d disk.Record) bool { return d.HostName == hostName && d.Live() })
}

// delay is how long a released slot waits; a pool being deleted does not.
func (s *State) delay() time.Duration {
	if s.Deleting {
		return 0
	}
	return s.ReleaseDelay
}

// reclaim deletes the disks of slots that are out of allocation for it, or takes that decision back if they are to be kept now.
func (w *Writer) reclaim(ctx context.Context, p *round) error {
	s, err := w.current(ctx)
	if err != nil {
		return err
	}
	if s.Retain {
		return w.spare(ctx, p)
	}
	return w.eachSlot(ctx, p, func(_ *State, rec slot.Record) (disk.Want, bool) {
		return disk.Want{Purpose: disk.Reclaim}, rec.State == slot.Reclaiming
	}, func(r *run) error {
		for _, d := range r.disks {
			if d.act != disk.Gone {
				return nil
			}
		}
		return w.emptied(ctx, p, r)
	})
}

// spare takes back the deletion of disks that somebody wants kept after it was decided. One that is under way is followed to its
// end.
func (w *Writer) spare(ctx context.Context, p *round) error {
	return w.eachSlot(ctx, p, func(_ *State, rec slot.Record) (disk.Want, bool) {
		return disk.Want{Purpose: disk.Keep}, rec.State == slot.Reclaiming
	}, func(r *run) error {
		if slices.ContainsFunc(r.disks, func(d *running) bool { return d.err != nil || d.act != disk.Idle && d.act != disk.Gone }) {
			return nil // what is under way, or cannot be told, is told by the disk itself
		}
		var kept []machine.Volume
		err := w.update(ctx, func(s *State) error {
			kept = nil
			rec := s.record(r.hostName)
			if rec == nil || rec.State != slot.Reclaiming {
				return nil
			}
			if kept = s.volumes(r.hostName); len(kept) > 0 {
				*rec = slot.Spare(*rec, w.options.Now())
			} else {
				*rec = slot.Empty(*rec)
			}
			return nil
		})
		if err == nil && len(kept) > 0 {
			names := make([]string, 0, len(kept))
			for _, v := range kept {
				names = append(names, v.Volume)
			}
			w.tell(machine.Event{
				Reason:  machine.EventVolumesRetained,
				Message: fmt.Sprintf("the disks of slot %s are kept after all, because of the retain-disks annotation: ", r.hostName),
			}, names)
		}
		return err
	})
}

// emptied removes what is left of a place on the platform, wherever one of its disks was, and makes its slot new again.
func (w *Writer) emptied(ctx context.Context, p *round, r *run) error {
	for _, d := range r.disks {
		if d.spec.Address == "" {
			continue
		}
		switch err := r.platform.Forget(ctx, d.spec); {
		case err == nil, machine.Is(err, machine.NotFound):
		case machine.Is(err, machine.Refused), machine.Is(err, machine.Conflict):
			// Something that is not ours is in it: that is for a human, and no reason to keep the slot back.
			message := fmt.Sprintf("slot %s: its disks are deleted, what is left of its place is not: %v", r.hostName, err)
			p.troubles = append(p.troubles, message)
			w.options.Emit(machine.Event{Warning: true, Reason: machine.EventReclaimFailed, Message: message})
		default:
			p.trouble("slot %s: its disks are deleted, what is left of its place could not be removed yet: %v", r.hostName, err)
			return nil
		}
	}
	return w.update(ctx, func(s *State) error {
		if rec := s.record(r.hostName); rec != nil && !s.live(r.hostName) {
			*rec = slot.Empty(*rec)
		}
		return nil
	})
}

// eachSlot runs the disks of every slot that choose names, and then finally, if given.
func (w *Writer) eachSlot(ctx context.Context, p *round, choose func(*State, slot.Record) (disk.Want, bool), finally func(*run) error) error {
	s, err := w.current(ctx)
	if err != nil {
		return err
	}
	var shape any
	var platform machine.Platform
	for _, rec := range s.Records {
		want, chosen := choose(&s, rec)
		if !chosen {
			continue
		}
		if platform == nil {
			if platform, err = w.platform(ctx); err != nil {
				p.trouble("the platform cannot be reached: %v", err)
				return nil
			}
			if shape, err = w.facts.Shape(ctx); err != nil {
				p.trouble("cannot tell what servers of this pool look like: %v", err)
				return nil
			}
		}
		state := rec.State
		r := &run{
			writer: w, platform: platform, hostName: rec.HostName, location: s.location(rec.HostName), mark: Mark(s.Namespace, s.Name),
			may: func(s *State) error {
				if now := s.record(rec.HostName); now == nil || now.State != state {
					return &machine.Error{Kind: machine.Busy, Reason: machine.ReasonDisksProvisioning, Message: fmt.Sprintf("slot %s was claimed meanwhile", rec.HostName)}
				}
				return nil
			},
		}
		for _, d := range s.Disks {
			if d.HostName == rec.HostName {
				place, disk := s.declared(d)
				r.add(&s, place, disk, shape, want)
			}
		}
		switch err := r.all(ctx); {
		case machine.Is(err, machine.Busy):
			p.soon = true
			continue
		case err != nil:
			return err
		}
		for _, d := range r.disks {
			if d.err != nil {
				p.trouble("disk %s of %s: %v", d.rec.Name, d.rec.HostName, d.err)
			}
			p.soon = p.soon || d.act == disk.Wait
		}
		if finally != nil {
			if err := finally(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// declared finds the declaration behind a disk's record; a removed one is pieced together from the record.
func (s *State) declared(rec disk.Record) (slot.Slot, slot.Disk) {
	for _, place := range s.Slots {
		if place.HostName != rec.HostName {
			continue
		}
		for _, d := range place.Disks {
			if d.Name == rec.Name && !d.Ephemeral {
				return place, d
			}
		}
		return place, slot.Disk{Name: rec.Name, SizeGiB: rec.SizeGiB}
	}
	return slot.Slot{HostName: rec.HostName}, slot.Disk{Name: rec.Name, SizeGiB: rec.SizeGiB}
}

func sorted(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
