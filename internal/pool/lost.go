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

// findings are what is true of slots without a record: who sits in them by the machines' own records, and which of their disks
// exist. At a pool's first use there is nothing to find; after the status was lost it is all that tells whose places and disks
// they are (promise 5, D17). They also have the disks that only an older version's records speak of.
type findings struct {
	occupants map[string]slot.Holder
	// leaving: see Facts.Leaving.
	leaving map[string]slot.Holder
	at      time.Time
	disks   []disk.Record
}

// complete: every slot has a record, and every disk that an older version recorded.
func (s *State) complete() bool {
	if !slot.Complete(s.Slots, s.Records) {
		return false
	}
	for _, old := range s.Inherited {
		if s.disk(old.HostName, old.Name) == nil {
			return false
		}
	}
	return true
}

// inherited is an older version's record of a disk, nil if there is none.
func (s *State) inherited(hostName, name string) *disk.Record {
	for i := range s.Inherited {
		if s.Inherited[i].HostName == hostName && s.Inherited[i].Name == name {
			return &s.Inherited[i]
		}
	}
	return nil
}

// record completes a state by what was found. What is on record already is not touched, except that a slot with data is not new.
func (f *findings) record(s *State) {
	data := map[string]bool{}
	for _, d := range f.disks {
		if s.disk(d.HostName, d.Name) != nil || s.record(d.HostName) != nil && s.inherited(d.HostName, d.Name) == nil {
			continue
		}
		s.put(d)
		data[d.HostName] = data[d.HostName] || d.Live()
	}
	s.Records, _ = slot.Rebuild(s.Slots, s.Records, slot.Evidence{Occupants: f.occupants, Leaving: f.leaving, Data: data}, f.at)
	for i := range s.Records {
		if r := &s.Records[i]; r.State == slot.Available && data[r.HostName] {
			*r = slot.Record{HostName: r.HostName, State: slot.Released, ReleasedAt: &f.at}
		}
	}
}

// look asks who sits in the slots that have no record, and for their disks by their marks. The disks belong to whoever sits
// there: a machine in the making goes on with them, and they are not reclaimed under a running one. A slot of a pool that was
// never used has no disks to look for.
func (w *Writer) look(ctx context.Context) (*findings, error) {
	occupants, err := w.facts.Occupants(ctx)
	if err != nil {
		return nil, &machine.Error{Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Message: "cannot tell which machines have a slot of the pool", Err: err}
	}
	leaving, err := w.facts.Leaving(ctx)
	if err != nil {
		return nil, &machine.Error{Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Message: "cannot tell which slots of the pool were left a moment ago", Err: err}
	}
	s, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	out := &findings{occupants: occupants, leaving: leaving, at: w.options.Now()}
	used := s.Lost || len(occupants) > 0 || len(leaving) > 0
	for _, place := range s.Slots {
		for _, want := range place.Disks {
			if want.Ephemeral || s.disk(place.HostName, want.Name) != nil {
				continue
			}
			known, old := s.record(place.HostName), s.inherited(place.HostName, want.Name)
			if old == nil && (known != nil || !used) {
				continue
			}
			rec, err := w.trace(ctx, &s, place, want, known, old)
			if err != nil {
				return nil, &machine.Error{
					Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Err: err,
					Message: fmt.Sprintf("the pool's status does not say whether disk %s of %s exists, and that cannot be told yet", want.Name, place.HostName),
				}
			}
			if rec.Live() {
				if err := w.assign(ctx, place, known, occupants, &rec); err != nil {
					return nil, err
				}
			} else if old == nil {
				continue
			}
			out.disks = append(out.disks, rec)
		}
	}
	return out, nil
}

// trace finds a disk that is not on record: by its mark where nothing at all is on record of its slot, else where an older
// version said that it is. What that version recorded as there and is not there is kept on record all the same: whoever wants
// to use it is told that it is lost, and gets no blank one (VS-D25).
func (w *Writer) trace(ctx context.Context, s *State, place slot.Slot, want slot.Disk, known *slot.Record, old *disk.Record) (disk.Record, error) {
	if old != nil && !old.Live() {
		return *old, nil
	}
	if known == nil {
		rec, err := w.find(ctx, s, place, want)
		if err != nil && !machine.IsNowhere(err) || rec.Live() || old == nil {
			if machine.IsNowhere(err) {
				err = nil // a place that does not exist has no disks
			}
			return rec, err
		}
	}
	platform, err := w.platform(ctx)
	if err != nil {
		return *old, err
	}
	shape, err := w.facts.Shape(ctx)
	if err != nil {
		return *old, err
	}
	rec := *old
	rec.SizeGiB, rec.Changed = want.SizeGiB, w.options.Now()
	spec := volumeSpec(s, place, want, place.Location, shape)
	spec.Address = old.Volume
	volume, err := platform.LookupVolume(ctx, spec)
	switch {
	case machine.Is(err, machine.NotFound) && known != nil && known.State == slot.Available:
		// That version had deleted it and left its address in the declaration.
		rec.Phase = disk.Reclaimed
	case machine.Is(err, machine.NotFound):
	case machine.Is(err, machine.Refused):
		// An address that means nothing here is for a human, and keeps no other slot back.
		rec = disk.Fail(rec, err.Error(), time.Minute, w.options.Now())
	case err != nil:
		return rec, err
	case rec.Identity == "" && volume.Marked:
		rec.Identity = volume.Identity
	}
	return rec, nil
}

// assign gives a disk that was found to whoever sits in its slot, unless a server that is not that one's has it.
func (w *Writer) assign(ctx context.Context, place slot.Slot, known *slot.Record, occupants map[string]slot.Holder, rec *disk.Record) error {
	holder, occupied := occupants[place.HostName]
	if rec.Phase == disk.Error {
		return nil
	}
	if known != nil {
		holder, occupied = known.Holder, known.State == slot.Held || known.State == slot.Quarantined
	}
	if !occupied {
		return nil
	}
	mark := holder.Mark
	if mark == "" {
		mark = holder.UID
	}
	platform, err := w.platform(ctx)
	if err != nil {
		return err
	}
	holders, err := platform.Holders(ctx, place.Location, []machine.Volume{{Disk: rec.Name, Volume: rec.Volume, Identity: rec.Identity}})
	if err != nil {
		return err
	}
	if _, held := holders[rec.Volume]; held {
		server, err := platform.LookupLive(ctx, machine.Identity{Mark: machine.Mark(mark), Location: place.Location})
		if err != nil && !machine.Is(err, machine.NotFound) {
			return err
		}
		if server == nil || !slices.ContainsFunc(server.Volumes, func(v machine.AttachedVolume) bool { return v.Volume == rec.Volume }) {
			return nil // a stranger has it: it is nobody's until that one lets go
		}
		rec.Phase = disk.Attached
	}
	rec.OwnerName, rec.OwnerMark = holder.Name, mark
	return nil
}
