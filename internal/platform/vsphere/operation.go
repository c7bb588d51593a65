package vsphere

import (
	"context"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// readTask reads a task live. ok is false when the vCenter has forgotten it.
func (s *Session) readTask(ctx context.Context, op machine.Operation) (ok bool, err error) {
	ref := types.ManagedObjectReference{Type: "Task", Value: op.Ref}
	content, err := s.client.retrieve(ctx, properties("Task", taskProperties, ref))
	if isFault[*types.ManagedObjectNotFound](err) || (err == nil && len(content) == 0) {
		s.observer.mu.Lock()
		defer s.observer.mu.Unlock()
		if t, known := s.observer.tasks[op.Ref]; known && !t.over() {
			delete(s.observer.tasks, op.Ref)
		}
		return false, nil
	}
	if err != nil {
		return false, failed(err, "reading task %s", op.Ref)
	}
	o := s.observer
	o.mu.Lock()
	t := o.register(op, types.ManagedObjectReference{})
	was := t.over()
	for _, p := range content[0].PropSet {
		t.set(p.Name, p.Val)
	}
	t.told = time.Now()
	if !t.over() && !t.listed {
		o.listTask(op.Ref, t) // somebody else started it, or it takes long
	}
	var woken []machine.Mark
	if !was && t.over() {
		woken = o.ended(t)
		if t.promise == nil {
			o.doubt(t.entity) // nothing else tells when the store has caught up
		}
	}
	o.mu.Unlock()
	o.wake(woken)
	return true, nil
}

// Operation implements machine.Platform. A task that was started a moment ago is given that moment to end, so that the caller
// goes on in the same pass where the vCenter is quick.
func (s *Session) Operation(ctx context.Context, op machine.Operation) (machine.OperationState, error) {
	if op.Ref == "" {
		return machine.OperationState{Done: true}, nil
	}
	o := s.observer
	t := o.linger(ctx, op)
	o.mu.Lock()
	// What the collector has not told of yet has just been started here; it will be told. What it has not told of for long is
	// asked after.
	expected := time.Since(t.started) < toldWithin || time.Since(t.told) < toldWithin
	fresh := expected && o.open || t.over()
	o.mu.Unlock()
	if !fresh {
		ok, err := s.readTask(ctx, op)
		if err != nil {
			return machine.OperationState{}, err
		}
		if !ok {
			return machine.OperationState{Done: true, Unknown: true}, nil
		}
	}
	o.mu.Lock()
	settled := o.settled(t)
	fault := t.fault
	success := t.state == types.TaskInfoStateSuccess
	o.mu.Unlock()
	switch {
	case !settled:
		return machine.OperationState{}, nil
	case success:
		return machine.OperationState{Done: true}, nil
	default:
		return machine.OperationState{Done: true, Err: s.outcome(ctx, op, fault)}, nil
	}
}

const (
	// lingerTime is the moment that Operation gives a new task.
	lingerTime = 250 * time.Millisecond
	// toldWithin is when the collector has told of a task that this session started, at the latest, and how long its last
	// word is believed.
	toldWithin = 20 * time.Second
)

// linger returns the task of an operation, after a short wait for its end if this session has only just started it.
func (o *observer) linger(ctx context.Context, op machine.Operation) *watchedTask {
	for {
		o.mu.Lock()
		t := o.register(op, types.ManagedObjectReference{})
		left := lingerTime - time.Since(t.started)
		pulse := o.pulse
		wait := o.open && left > 0 && !o.settled(t)
		o.mu.Unlock()
		if !wait {
			return t
		}
		timer := time.NewTimer(left)
		select {
		case <-pulse:
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return t
		}
	}
}

// outcome says what a failed task means for the one who started it.
func (s *Session) outcome(ctx context.Context, op machine.Operation, fault *types.LocalizedMethodFault) error {
	if fault == nil {
		return &machine.Error{Kind: machine.Broken, Reason: ReasonTask, Message: op.Kind + ": the task failed without a reason"}
	}
	switch f := fault.Fault.(type) {
	case *types.InvalidPowerState:
		if alreadyThere(f) {
			return nil
		}
	case *types.DuplicateName:
		if op.Kind == machine.OpCreate {
			return s.whoHasTheName(ctx, f, op.Mark)
		}
	case *types.FileNotFound, *types.ManagedObjectNotFound:
		if op.Kind == machine.OpDeleteVolume || op.Kind == machine.OpDestroy {
			return nil
		}
	}
	return faultError(fault.Fault, fault.LocalizedMessage, doingWords[op.Kind])
}

var doingWords = map[string]string{
	machine.OpCreate: "cloning the virtual machine", machine.OpFit: "reconfiguring the virtual machine",
	machine.OpPowerOn: "powering on", machine.OpPowerOff: "powering off", machine.OpDetach: "detaching disks",
	machine.OpDestroy: "destroying the virtual machine", machine.OpCreateVolume: "creating the disk",
	machine.OpDeleteVolume: "deleting the disk",
}

// whoHasTheName decides about a clone that met its name: ours from an earlier call whose reply was lost, or somebody else's.
func (s *Session) whoHasTheName(ctx context.Context, f *types.DuplicateName, mark machine.Mark) error {
	v, err := s.client.readVM(ctx, f.Object)
	if err != nil && !isFault[*types.ManagedObjectNotFound](err) && !machine.Is(err, machine.NotFound) {
		return failed(err, "reading who has the name %s", f.Name)
	}
	if err == nil && ours(v, mark) {
		s.observer.watch(v.ref, mark)
		return nil
	}
	if err == nil && v.instanceUUID == "" {
		return busy(ReasonNameTaken, 5*time.Second, "the name %s is taken by %s, whose identity cannot be read yet", f.Name,
			f.Object.Value)
	}
	id := v.instanceUUID
	return conflict(ReasonNameTaken, "the name %s is taken by %s (instance UUID %s), which is not this machine's: it carries "+
		"neither its mark nor its instance UUID and is left alone; rename or remove it, or replace this machine", f.Name,
		f.Object.Value, id)
}

// await waits for a task of the adapter's own, one that no record keeps. They take a moment; a worker does not wait longer than for
// a call, since others have work for it: the answer is Busy then, and the next pass looks at what the task has done meanwhile.
func (s *Session) await(ctx context.Context, ref types.ManagedObjectReference, kind, doing string) (*watchedTask, error) {
	limit := s.client.cfg.CallTimeout
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t, err := s.awaitEnd(within, ref, kind)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, busy(ReasonTask, 5*time.Second, "%s: vCenter has not ended the task within %s; trying again", doing, limit)
	}
	return t, err
}

func (s *Session) awaitEnd(ctx context.Context, ref types.ManagedObjectReference, kind string) (*watchedTask, error) {
	o := s.observer
	op := machine.Operation{Ref: ref.Value, Kind: kind}
	for {
		o.mu.Lock()
		t := o.register(op, types.ManagedObjectReference{})
		if t.started.IsZero() {
			t.started = time.Now()
			o.followSlow(t)
		}
		open := o.open
		o.mu.Unlock()
		if !open {
			if err := s.mustRead(ctx, op); err != nil {
				return nil, err
			}
		}
		select {
		case <-t.ready:
			o.mu.Lock()
			defer o.mu.Unlock()
			if t.fault != nil {
				return t, taskFault{t.fault}
			}
			return t, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Second):
			if err := s.mustRead(ctx, op); err != nil {
				return nil, err
			}
		}
	}
}

func (s *Session) mustRead(ctx context.Context, op machine.Operation) error {
	ok, err := s.readTask(ctx, op)
	if err == nil && !ok {
		err = busy(ReasonTask, 5*time.Second, "vCenter has forgotten task %s", op.Ref)
	}
	return err
}

// taskFault is a failed task as an error.
type taskFault struct{ fault *types.LocalizedMethodFault }

func (e taskFault) Error() string { return e.fault.LocalizedMessage }

// Fault lets methodFault find vCenter's fault.
func (e taskFault) Fault() types.BaseMethodFault { return e.fault.Fault }
