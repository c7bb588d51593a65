package pool

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// safetyNet is when a machine that waits for the pool looks again although no event woke it.
const safetyNet = time.Minute

// Claim implements machine.Places. The decision is made on the state that is written, so two machines never get one slot.
func (w *Writer) Claim(ctx context.Context, request slot.Request) (slot.Slot, error) {
	if place := w.known().has(request.Holder); place != nil {
		return *place, nil
	}
	given, err := w.claim(ctx, request, nil)
	if errors.Is(err, errIncomplete) {
		found, err := w.look(ctx)
		if err != nil {
			return slot.Slot{}, err
		}
		return w.claim(ctx, request, found)
	}
	return given, err
}

// errIncomplete: a slot has no record, so it must be asked first who sits where: at the pool's first use, after a slot was
// added, after the status was lost; or an older version's records of disks are not taken over yet.
var errIncomplete = errors.New("a slot of the pool has no record")

func (w *Writer) claim(ctx context.Context, request slot.Request, found *findings) (slot.Slot, error) {
	var given slot.Slot
	err := w.update(ctx, func(s *State) error {
		next := clone(*s)
		if !s.complete() {
			if found == nil {
				return errIncomplete
			}
			found.record(&next)
		}
		view := slot.View{Pool: s.Key(), Cluster: s.Cluster, Consumer: s.Consumer, Slots: s.Slots, Records: next.Records, Busy: busy(&next), Invalid: s.Invalid}
		choice, _, err := slot.Pick(view, request)
		if err != nil {
			return claimError(err)
		}
		if s.Deleting && next.heldBy(request.Holder) == nil {
			return &machine.Error{Kind: machine.Refused, Reason: machine.ReasonPoolDeleting, RetryAfter: safetyNet, Message: fmt.Sprintf("pool %s is being deleted and gives no more slots", s.Key())}
		}
		given = choice.Slot
		if !choice.Changed {
			return nil
		}
		*next.record(choice.Record.HostName) = choice.Record
		if choice.Consumer.Name != "" {
			consumer := choice.Consumer
			next.Consumer = &consumer
		}
		*s = next
		return nil
	})
	if held := (*slot.SlotHeldByOther)(nil); errors.As(err, &held) {
		return slot.Slot{}, w.contest(ctx, held.HostName, request.Holder, err)
	}
	if err != nil {
		return slot.Slot{}, err
	}
	return given, nil
}

// contest quarantines a slot in use that another machine's own record names, too: nothing may happen to it until a person has
// said whose it is. A holder that is gone contests nothing; its slot is repaired. It returns what the machine is told.
func (w *Writer) contest(ctx context.Context, hostName string, asks slot.Holder, refusal error) error {
	s, err := w.current(ctx)
	if err != nil {
		return err
	}
	rec := s.record(hostName)
	if rec == nil || rec.State != slot.Held {
		return refusal
	}
	if gone, err := w.facts.HolderGone(ctx, rec.Holder); err != nil || gone {
		return refusal
	}
	err = w.update(ctx, func(s *State) error {
		if now := s.record(hostName); now != nil && now.State == slot.Held && now.Holder.Same(rec.Holder) {
			*now = slot.Quarantine(*now, fmt.Sprintf("it is on record as the place of machine %s and as that of machine %s", rec.Holder.Name, asks.Name))
		}
		return nil
	})
	if err == nil {
		w.options.Emit(machine.Event{Warning: true, Reason: machine.ReasonSlotQuarantined, Message: refusal.Error()})
	}
	return refusal
}

// has finds the place of a machine whose claim needs no further write.
func (s *State) has(holder slot.Holder) *slot.Slot {
	if s == nil || s.Consumer == nil {
		return nil
	}
	for i := range s.Records {
		if s.Records[i].State != slot.Held || s.Records[i].Holder != holder {
			continue
		}
		for j := range s.Slots {
			if s.Slots[j].HostName == s.Records[i].HostName {
				place := s.Slots[j]
				return &place
			}
		}
	}
	return nil
}

// claimError gives the typed refusals of the slot package their reasons.
func claimError(err error) error {
	e := &machine.Error{Kind: machine.Busy, RetryAfter: safetyNet, Err: err}
	var (
		full        *slot.NoAvailableSlots
		bound       *slot.PoolBoundToOtherConsumer
		unknown     *slot.ConsumerUnknown
		other       *slot.OtherCluster
		quarantined *slot.SlotQuarantined
		contested   *slot.SlotHeldByOther
		gone        *slot.SlotGone
	)
	switch {
	case errors.As(err, &full):
		e.Reason = machine.ReasonNoAvailableSlots
	case errors.As(err, &bound):
		e.Reason = machine.ReasonPoolBound
	case errors.As(err, &unknown):
		e.Reason = machine.ReasonConsumerUnknown
	case errors.As(err, &other):
		e.Kind, e.Reason = machine.Refused, machine.ReasonPoolOfOtherCluster
	case errors.As(err, &quarantined), errors.As(err, &contested):
		e.Kind, e.Reason = machine.Refused, machine.ReasonSlotQuarantined
	case errors.As(err, &gone):
		e.Kind, e.Reason = machine.Refused, machine.ReasonPlaceUnknown
	default:
		e.Reason = machine.ReasonNoAvailableSlots
	}
	return e
}

// busy says which slots nobody may claim because of their disks (VS-A12).
func busy(s *State) map[string]string {
	out := map[string]string{}
	for _, d := range s.Disks {
		switch {
		case d.Phase == disk.Reclaiming, d.Phase == disk.Error && d.Interrupted == disk.Reclaiming:
			out[d.HostName] = fmt.Sprintf("disk %s is being deleted", d.Name)
		case d.Phase == disk.Error:
			out[d.HostName] = fmt.Sprintf("disk %s: %s", d.Name, d.LastError)
		}
	}
	return out
}

// Ensure implements machine.Places. Volumes are made when a place is claimed, not when it is declared: a spare slot costs
// nothing.
func (w *Writer) Ensure(ctx context.Context, holder slot.Holder, spec machine.ServerSpec) ([]machine.Volume, error) {
	if spec.Place == nil {
		return nil, nil
	}
	persistent := 0
	for _, d := range spec.Place.Disks {
		if !d.Ephemeral {
			persistent++
		}
	}
	if persistent == 0 {
		return nil, nil
	}
	platform, err := w.platform(ctx)
	if err != nil {
		return nil, err
	}
	s := w.known()
	if s.has(holder) == nil {
		fresh, err := w.read(ctx)
		if err != nil {
			return nil, err
		}
		s = &fresh
	}
	rec := s.heldBy(holder)
	if rec == nil || rec.State != slot.Held || rec.HostName != spec.Place.HostName {
		return nil, placeUnknown(s, holder)
	}
	run := &run{
		writer: w, platform: platform, hostName: spec.Place.HostName, location: spec.Location, mark: machine.Mark(holder.Mark),
		may: func(s *State) error {
			if r := s.heldBy(holder); r == nil || r.State != slot.Held || r.HostName != spec.Place.HostName {
				return placeUnknown(s, holder)
			}
			return nil
		},
	}
	for _, d := range spec.Place.Disks {
		if d.Ephemeral {
			continue
		}
		run.add(s, *spec.Place, d, spec.Shape, disk.Want{Purpose: disk.Use, SizeGiB: d.SizeGiB, OwnerName: holder.Name, OwnerMark: holder.Mark})
	}
	if err := run.all(ctx); err != nil {
		return nil, err
	}
	return run.volumes()
}

func placeUnknown(s *State, holder slot.Holder) error {
	return &machine.Error{
		Kind: machine.NotFound, Reason: machine.ReasonPlaceUnknown,
		Message: fmt.Sprintf("pool %s has no slot on record for machine %s", s.Key(), holder.Name),
	}
}

// Attached implements machine.Places.
func (w *Writer) Attached(ctx context.Context, holder slot.Holder, server *machine.Server) error {
	left, err := w.moved(ctx, holder, server)
	if err != nil {
		return err
	}
	now := w.options.Now()
	return w.update(ctx, func(s *State) error {
		rec := s.heldBy(holder)
		if rec == nil {
			return placeUnknown(s, holder)
		}
		disks := slices.Clone(s.Disks)
		var ephemeral []Ephemeral
		for _, v := range server.Volumes {
			if v.Own {
				if v.Name != "" {
					ephemeral = append(ephemeral, Ephemeral{HostName: rec.HostName, Name: v.Name, Unit: v.Unit, Identity: v.Identity})
				}
				continue
			}
			for i := range disks {
				d := &disks[i]
				if d.HostName != rec.HostName || d.Identity == "" || d.Identity != v.Identity {
					continue
				}
				if d.Volume != v.Volume && !left[d.Volume] {
					return &machine.Error{Kind: machine.Busy, Reason: machine.ReasonDisksProvisioning, Message: d.Volume + " was recorded meanwhile"}
				}
				next, err := disk.Attach(*d, holder.Name, holder.Mark, v.Volume, v.Identity, v.Unit, now)
				if err != nil {
					return &machine.Error{Kind: machine.Conflict, Reason: machine.ReasonDiskError, Message: err.Error()}
				}
				*d = next
			}
		}
		s.Disks = disks
		s.setEphemeral(rec.HostName, ephemeral)
		return nil
	})
}

// moved proves of every disk that is attached at another address than the one on record that it was moved: nothing with its identity
// is at the old one, for a copy has the same identity. It returns the addresses that were left.
func (w *Writer) moved(ctx context.Context, holder slot.Holder, server *machine.Server) (map[string]bool, error) {
	s, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	rec := s.heldBy(holder)
	if rec == nil {
		return nil, nil // the write says so
	}
	left := map[string]bool{}
	for _, d := range s.Disks {
		i := slices.IndexFunc(server.Volumes, func(v machine.AttachedVolume) bool {
			return !v.Own && d.Identity != "" && v.Identity == d.Identity && v.Volume != d.Volume
		})
		if d.HostName != rec.HostName || i < 0 {
			continue
		}
		platform, err := w.platform(ctx)
		if err != nil {
			return nil, err
		}
		shape, err := w.facts.Shape(ctx)
		if err != nil {
			return nil, err
		}
		place, want := s.declared(d)
		spec := volumeSpec(&s, place, want, place.Location, shape)
		spec.Address = d.Volume
		switch found, err := platform.LookupVolume(ctx, spec); {
		case machine.Is(err, machine.NotFound), machine.IsNowhere(err):
		case err != nil:
			return nil, err
		case found.Identity == d.Identity:
			return nil, &machine.Error{
				Kind: machine.Conflict, Reason: machine.ReasonDiskError,
				Message: fmt.Sprintf("two disks have the identity %s: %s, which is on record as disk %s of %s, and %s, which is attached to server %s: attach the "+
					"one on record instead, or move it away if the other one is to be the disk from now on", d.Identity, d.Volume, d.Name, d.HostName, server.Volumes[i].Volume, server.Name),
			}
		}
		left[d.Volume] = true
	}
	return left, nil
}

// setEphemeral replaces what is known of the ephemeral disks of one slot, and nothing if nothing differs.
func (s *State) setEphemeral(hostName string, ephemeral []Ephemeral) {
	var have []Ephemeral
	for _, e := range s.Ephemeral {
		if e.HostName == hostName {
			have = append(have, e)
		}
	}
	if len(have) == 0 && len(ephemeral) == 0 || reflect.DeepEqual(have, ephemeral) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(s.Ephemeral), func(e Ephemeral) bool { return e.HostName == hostName })
	s.Ephemeral = append(rest, ephemeral...)
}

// Volumes implements machine.Places.
func (w *Writer) Volumes(ctx context.Context, holder slot.Holder) ([]machine.Volume, error) {
	s, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	rec := s.heldBy(holder)
	if rec == nil {
		return nil, placeUnknown(&s, holder)
	}
	return s.volumes(rec.HostName), nil
}

// volumes lists the volumes on record for a slot.
func (s *State) volumes(hostName string) []machine.Volume {
	var out []machine.Volume
	for _, d := range s.Disks {
		if d.HostName == hostName && d.Live() && d.Volume != "" {
			out = append(out, machine.Volume{Disk: d.Name, Volume: d.Volume, Identity: d.Identity, SizeGiB: d.SizeGiB, Unit: d.Unit})
		}
	}
	return out
}

// Vacate implements machine.Places. The caller proved both facts by live reads.
func (w *Writer) Vacate(ctx context.Context, holder slot.Holder) error {
	now := w.options.Now()
	return w.update(ctx, func(s *State) error {
		if rec := s.heldBy(holder); rec != nil {
			s.vacate(rec, holder, now)
		}
		return nil
	})
}

func (s *State) vacate(rec *slot.Record, holder slot.Holder, now time.Time) {
	if rec.VacatedAt != nil {
		return
	}
	next, _ := slot.Vacate(*rec, true, true, now)
	if holder.OwnerUID != "" {
		next.Holder.OwnerName, next.Holder.OwnerUID = holder.OwnerName, holder.OwnerUID
	}
	*rec = next
	for i := range s.Disks {
		if s.Disks[i].HostName == rec.HostName {
			s.Disks[i] = disk.Release(s.Disks[i], now)
		}
	}
	s.setEphemeral(rec.HostName, nil)
}
