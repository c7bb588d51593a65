package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// findings are what is true of slots without a record: who sits in them by the machines' own records and, where somebody does,
// which of their disks exist. At a pool's first use there is nothing to find; after the status was lost it is all that tells
// whose places and disks they are (promise 5, D17).
type findings struct {
	occupants map[string]slot.Holder
	// leaving: see Facts.Leaving.
	leaving map[string]slot.Holder
	// data: slots of which a persistent disk exists.
	data map[string]bool
	at      time.Time
	disks   []disk.Record
}

// record completes a state by what was found. What is on record already is not touched.
func (f *findings) record(s *State) {
	for _, d := range f.disks {
		if s.record(d.HostName) == nil && s.disk(d.HostName, d.Name) == nil {
			s.put(d)
		}
	}
	s.Records, _ = slot.Rebuild(s.Slots, s.Records, slot.Evidence{Occupants: f.occupants, Leaving: f.leaving, Data: f.data}, f.at)
}

// look asks who sits in the slots that have no record, and for their disks by their marks. The disks belong to whoever sits
// there: a machine in the making goes on with them, and they are not reclaimed under a running one.
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
	for _, place := range s.Slots {
		holder, occupied := occupants[place.HostName]
		if !occupied || s.record(place.HostName) != nil {
			continue
		}
		for _, want := range place.Disks {
			if want.Ephemeral || s.disk(place.HostName, want.Name) != nil {
				continue
			}
			rec, err := w.find(ctx, &s, place, want)
			if err != nil {
				return nil, &machine.Error{
					Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Err: err,
					Message: fmt.Sprintf("the pool's status was lost, and whether disk %s of %s exists cannot be told yet", want.Name, place.HostName),
				}
			}
			if !rec.Live() {
				continue
			}
			rec.OwnerName, rec.OwnerMark = holder.Name, holder.Mark
			if rec.Phase, err = w.phase(ctx, place.Location, rec); err != nil {
				return nil, err
			}
			out.disks = append(out.disks, rec)
		}
	}
	return out, nil
}

// phase of a disk that was found: whether a server has it.
func (w *Writer) phase(ctx context.Context, location string, rec disk.Record) (disk.Phase, error) {
	platform, err := w.platform(ctx)
	if err != nil {
		return rec.Phase, err
	}
	holders, err := platform.Holders(ctx, location, []machine.Volume{{Disk: rec.Name, Volume: rec.Volume, Identity: rec.Identity}})
	if _, held := holders[rec.Volume]; err == nil && held {
		return disk.Attached, nil
	}
	return rec.Phase, err
}
