package pool

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// run carries the disks of one slot through the state machine: it looks, asks and acts on the platform, and writes the records
// of all of them together before anything with an effect and once at the end. It never waits for an operation.
type run struct {
	writer   *Writer
	platform machine.Platform
	hostName string
	location string
	// mark is whom the end of an operation wakes.
	mark machine.Mark
	// may says, on the state about to be written, whether these disks are still ours to handle.
	may   func(*State) error
	disks []*running
}

// running is one disk on its way.
type running struct {
	spec machine.VolumeSpec
	want disk.Want
	// stored is the record as it was last read or written, rec as it shall be.
	stored, rec disk.Record
	seen        disk.Observation
	act         disk.Act
	// err is why the platform did not do or tell something; the disk goes on in a later pass.
	err error
}

// stepBudget bounds the steps of one disk in one pass: the longest honest way has nine. More means that the platform
// contradicts itself.
const stepBudget = 16

func (r *run) add(s *State, place slot.Slot, want slot.Disk, shape any, wish disk.Want) {
	d := &running{want: wish, spec: volumeSpec(s, place, want, r.location, shape)}
	if have := s.disk(place.HostName, want.Name); have != nil {
		d.stored = *have
	} else {
		d.stored = disk.Record{HostName: place.HostName, Name: want.Name}
	}
	d.rec = d.stored
	r.disks = append(r.disks, d)
}

// volumeSpec names a disk of a place for the platform; the key depends on nothing that a loss of status or a move changes (D17).
func volumeSpec(s *State, place slot.Slot, want slot.Disk, location string, shape any) machine.VolumeSpec {
	return machine.VolumeSpec{
		Key:      machine.VolumeKey{Namespace: s.Namespace, Cluster: s.Cluster, Pool: s.Name, HostName: place.HostName, Disk: want.Name, Address: firstAddress(place)},
		Want:     want,
		Location: location,
		Shape:    shape,
	}
}

// firstAddress is a place's first IP address without its prefix; it is part of published paths.
func firstAddress(place slot.Slot) string {
	if len(place.NICs) == 0 || len(place.NICs[0].Addresses) == 0 {
		return ""
	}
	address := place.NICs[0].Addresses[0]
	for i := range address {
		if address[i] == '/' {
			return address[:i]
		}
	}
	return address
}

// all runs every disk as far as it goes. The error is of writing the records, or that the disks are not ours any more; what
// happened to a single disk stays with it.
func (r *run) all(ctx context.Context) error {
	for range stepBudget {
		if !r.ask(ctx) {
			break
		}
		if err := r.persist(ctx); err != nil {
			return err
		}
		for _, d := range r.disks {
			if d.err == nil && (d.act == disk.Create || d.act == disk.Delete) {
				r.effect(ctx, d)
			}
		}
	}
	return r.persist(ctx)
}

// ask takes every disk to its next act with an effect, or to its end, and reports whether there is any of the former.
func (r *run) ask(ctx context.Context) bool {
	effects := false
	for range stepBudget {
		var scan []*running
		for _, d := range r.disks {
			if r.tell(ctx, d) == disk.Scan {
				scan = append(scan, d)
			}
		}
		if len(scan) == 0 {
			break
		}
		r.scan(ctx, scan)
	}
	for _, d := range r.disks {
		effects = effects || d.err == nil && (d.act == disk.Create || d.act == disk.Delete)
	}
	return effects
}

// tell runs the acts of one disk that only ask something.
func (r *run) tell(ctx context.Context, d *running) disk.Act {
	for range stepBudget {
		if d.err != nil {
			return disk.Idle
		}
		d.rec, d.act = disk.Next(d.rec, d.want, d.seen, r.writer.options.Now())
		d.spec.Address = d.rec.Volume
		switch d.act {
		case disk.Plan:
			d.spec.Address = ""
			d.seen.Planned, d.err = r.platform.PlanVolume(ctx, d.spec)
			if d.err == nil && d.seen.Planned == "" {
				d.err = fmt.Errorf("the platform names no address for disk %s of %s", d.rec.Name, d.rec.HostName)
			}
			d.refused(r.writer.options.Now())
		case disk.Poll:
			r.poll(ctx, d)
		case disk.Look:
			r.look(ctx, d)
		case disk.Scan, disk.Create, disk.Delete, disk.Idle, disk.Wait, disk.Stop, disk.Ready, disk.Gone:
			return d.act
		}
	}
	d.err = fmt.Errorf("disk %s of %s does not settle", d.rec.Name, d.rec.HostName)
	return disk.Idle
}

func (r *run) poll(ctx context.Context, d *running) {
	kind := machine.OpCreateVolume
	if d.rec.Phase == disk.Reclaiming {
		kind = machine.OpDeleteVolume
	}
	state, err := r.platform.Operation(ctx, machine.Operation{Ref: d.rec.Operation, Kind: kind, Mark: r.mark})
	switch {
	case err != nil:
		d.err = err
	case state.Unknown:
		d.seen.Progress = disk.Forgotten
	case !state.Done:
		d.seen.Progress = disk.Running
	case kind == machine.OpCreateVolume && machine.Is(state.Err, machine.Conflict):
		// The same answer as a call that is refused at once: look at what is there instead of resting.
		d.seen.Progress, d.seen.Exists = disk.Succeeded, true
	case state.Err != nil:
		d.seen.Progress, d.seen.Failure = disk.Failed, state.Err.Error()
	default:
		d.seen.Progress = disk.Succeeded
		d.seen.Created = kind == machine.OpCreateVolume
	}
	d.seen.Looked = false
}

func (r *run) look(ctx context.Context, d *running) {
	volume, err := r.platform.LookupVolume(ctx, d.spec)
	switch {
	case machine.Is(err, machine.NotFound):
		d.seen.Looked, d.seen.Found = true, false
	case err != nil:
		d.err = err
	case volume == nil:
		d.err = fmt.Errorf("the platform says nothing about volume %s", d.spec.Address)
	default:
		d.seen.Looked, d.seen.Found = true, true
		d.seen.Identity, d.seen.SizeGiB, d.seen.Marked = volume.Identity, volume.SizeGiB, volume.Marked
	}
}

// scan asks once for all disks that need to know who has them.
func (r *run) scan(ctx context.Context, disks []*running) {
	volumes := make([]machine.Volume, 0, len(disks))
	for _, d := range disks {
		volumes = append(volumes, machine.Volume{Disk: d.rec.Name, Volume: d.rec.Volume, Identity: d.seen.Identity})
	}
	holders, err := r.platform.Holders(ctx, r.location, volumes)
	for _, d := range disks {
		if err != nil {
			d.err = err
			continue
		}
		d.seen.Scanned, d.seen.Holder = true, holders[d.rec.Volume]
	}
}

// effect creates or deletes; the record that says so is durable.
func (r *run) effect(ctx context.Context, d *running) {
	var (
		op  machine.Operation
		err error
	)
	act := d.act
	if act == disk.Create {
		op, err = r.platform.CreateVolume(ctx, d.spec)
	} else {
		op, err = r.platform.DeleteVolume(ctx, d.spec, machine.Volume{Disk: d.rec.Name, Volume: d.rec.Volume, Identity: d.rec.Identity, SizeGiB: d.rec.SizeGiB})
	}
	now := r.writer.options.Now()
	d.seen.Looked, d.seen.Scanned, d.seen.Progress = false, false, disk.NotAsked
	switch {
	case err == nil && op.Ref != "":
		d.rec.Operation = op.Ref
	case err == nil && act == disk.Create:
		d.seen.Created = true
	case err == nil:
	case act == disk.Create && machine.Is(err, machine.Conflict):
		d.seen.Exists = true
	case act == disk.Delete && machine.Is(err, machine.NotFound):
	default:
		d.err = err
		d.refused(now)
	}
}

// refused keeps a platform's no in the record, where people look for it; other failures are retried by the caller's back-off.
func (d *running) refused(now time.Time) {
	if d.err == nil || !machine.Is(d.err, machine.Refused) {
		return
	}
	if d.rec.Phase == disk.Absent || d.rec.Phase == disk.Reclaimed {
		return // nothing was written down yet, so there is nothing to keep it in
	}
	d.rec = disk.Fail(d.rec, d.err.Error(), time.Minute, now)
}

// persist writes the records that changed since they were read, all or none.
func (r *run) persist(ctx context.Context) error {
	var changed []*running
	for _, d := range r.disks {
		if !reflect.DeepEqual(d.rec, d.stored) {
			changed = append(changed, d)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	err := r.writer.update(ctx, func(s *State) error {
		if err := r.may(s); err != nil {
			return err
		}
		for _, d := range changed {
			have := s.disk(d.rec.HostName, d.rec.Name)
			if have == nil && d.stored.Phase == disk.Absent || have != nil && sameRecord(*have, d.stored) {
				continue
			}
			return &machine.Error{
				Kind: machine.Busy, Reason: machine.ReasonDisksProvisioning, RetryAfter: time.Second,
				Message: fmt.Sprintf("the record of disk %s of %s was changed by somebody else", d.rec.Name, d.rec.HostName),
			}
		}
		for _, d := range changed {
			s.put(d.rec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range changed {
		r.tellPeople(d)
		d.stored = d.rec
	}
	return nil
}

// sameRecord compares what the state machine decides on. Times may lose precision in a Store.
func sameRecord(a, b disk.Record) bool {
	return a.Volume == b.Volume && a.Identity == b.Identity && a.Phase == b.Phase && a.Interrupted == b.Interrupted &&
		a.OwnerMark == b.OwnerMark && a.Operation == b.Operation
}

func (r *run) tellPeople(d *running) {
	what := fmt.Sprintf("disk %s of %s: %s", d.rec.Name, d.rec.HostName, d.rec.Volume)
	was, is := d.stored, d.rec
	switch {
	case is.Phase == disk.Error && was.Phase != disk.Error && was.Phase == disk.Reclaiming:
		r.writer.options.Emit(machine.Event{Warning: true, Reason: machine.EventReclaimFailed, Message: fmt.Sprintf("disk %s of %s: %s", is.Name, is.HostName, is.LastError)})
	case is.Phase == disk.Error && was.Phase != disk.Error:
		r.writer.options.Emit(machine.Event{Warning: true, Reason: machine.EventVolumeError, Message: fmt.Sprintf("disk %s of %s: %s", is.Name, is.HostName, is.LastError)})
	case was.Identity == "" && is.Identity != "" && !d.seen.Created:
		r.writer.options.Emit(machine.Event{Reason: machine.EventVolumeAdopted, Message: what})
	case was.Identity == "" && is.Identity != "":
		r.writer.options.Emit(machine.Event{Reason: machine.EventVolumeCreated, Message: what})
	case is.Phase == disk.Reclaiming && was.Operation == "" && is.Operation != "":
		r.writer.options.Emit(machine.Event{Reason: machine.EventReclaimStarted, Message: what})
	case is.Phase == disk.Reclaimed && was.Phase != disk.Reclaimed:
		r.writer.options.Emit(machine.Event{Reason: machine.EventReclaimed, Message: what})
	}
}

// volumes is the answer to who wanted to use the disks: all of them, or why not.
func (r *run) volumes() ([]machine.Volume, error) {
	out := make([]machine.Volume, 0, len(r.disks))
	var provisioning *machine.Error
	for _, d := range r.disks {
		switch {
		case d.err != nil:
			return nil, d.err
		case d.act == disk.Ready:
			out = append(out, machine.Volume{Disk: d.rec.Name, Volume: d.rec.Volume, Identity: d.rec.Identity, SizeGiB: d.rec.SizeGiB, Unit: d.unit(), Marked: true})
		case d.rec.Phase == disk.Error:
			return nil, d.trouble(r.writer.options.Now())
		default:
			provisioning = &machine.Error{
				Kind: machine.Busy, Reason: machine.ReasonDisksProvisioning, RetryAfter: safetyNet,
				Message: fmt.Sprintf("disk %s of %s is %s", d.rec.Name, d.rec.HostName, d.doing()),
			}
		}
	}
	if provisioning != nil {
		return nil, provisioning
	}
	return out, nil
}

func (d *running) doing() string {
	switch d.rec.Phase {
	case disk.Creating:
		return "being created"
	case disk.Reclaiming:
		return "being deleted"
	case disk.Attached:
		return "still attached for " + d.rec.OwnerName
	case disk.Absent, disk.Available, disk.Reclaimed, disk.Error:
	}
	return "not ready yet"
}

// trouble is a disk's error as the machine that waits for it reads it.
func (d *running) trouble(now time.Time) error {
	e := &machine.Error{
		Kind: machine.Refused, Reason: machine.ReasonDiskError,
		Message: fmt.Sprintf("disk %s of %s: %s", d.rec.Name, d.rec.HostName, d.rec.LastError),
	}
	if d.seen.Holder != "" {
		e.Kind, e.Reason = machine.Busy, machine.ReasonDiskStillAttached
	}
	if d.rec.RetryAfter != nil {
		e.RetryAfter = max(d.rec.RetryAfter.Sub(now), time.Second)
	}
	return e
}

// unit is the wanted unit, else the one it had last.
func (d *running) unit() *int32 {
	if d.spec.Want.Unit != nil {
		return d.spec.Want.Unit
	}
	return d.rec.Unit
}
