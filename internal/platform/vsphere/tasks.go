package vsphere

import (
	"context"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

var taskProperties = []string{"info.state", "info.error", "info.result", "info.entity"}

// watchedTask is a vCenter task: ours, or somebody's on one of our virtual machines.
type watchedTask struct {
	op   machine.Operation
	ours bool
	// told is when the collector or a live read last told its state.
	told time.Time
	// listed: it is in the watched list.
	listed bool
	state  types.TaskInfoState
	fault  *types.LocalizedMethodFault
	result any
	entity types.ManagedObjectReference
	// since is when we first heard of it, started when this session started it, ended when it was seen to end.
	since, started, ended time.Time
	// making is the name of the virtual machine it makes, "" if none.
	making string
	// promise is what the virtual machine shows after its success; nil promises nothing.
	promise func(vm) bool
	// ready is closed when it has ended.
	ready chan struct{}
}

func newTask() *watchedTask { return &watchedTask{since: time.Now(), ready: make(chan struct{})} }

func (t *watchedTask) self() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Task", Value: t.op.Ref}
}

func (t *watchedTask) over() bool {
	return t.state == types.TaskInfoStateSuccess || t.state == types.TaskInfoStateError
}

func (t *watchedTask) set(name string, value any) {
	switch name {
	case "info.state":
		// A live read may have overtaken the long poll, whose older news follow: a task never leaves its end.
		if state, _ := value.(types.TaskInfoState); !t.over() {
			t.state = state
		}
	case "info.error":
		t.fault = nil
		if f, ok := value.(types.LocalizedMethodFault); ok {
			t.fault = &f
		}
	case "info.result":
		t.result = value
	case "info.entity":
		t.entity, _ = value.(types.ManagedObjectReference)
	}
}

// created is the virtual machine that a clone made.
func (t *watchedTask) created() (types.ManagedObjectReference, bool) {
	ref, ok := t.result.(types.ManagedObjectReference)
	return ref, ok && t.ours && t.op.Kind == machine.OpCreate && t.state == types.TaskInfoStateSuccess
}

func (o *observer) applyTask(u types.ObjectUpdate) []machine.Mark {
	t, ok := o.tasks[u.Obj.Value]
	if u.Kind == types.ObjectUpdateKindLeave {
		switch {
		case !ok:
			return nil
		case t.ours && !t.over():
			if !t.listed {
				o.listTask(u.Obj.Value, t) // it is no longer among the recent ones
			}
			return nil
		default:
			delete(o.tasks, u.Obj.Value)
			return nil
		}
	}
	if !ok {
		t = newTask()
		o.tasks[u.Obj.Value] = t
	}
	was := t.over()
	for _, change := range u.ChangeSet {
		t.set(change.Name, change.Val)
	}
	t.told = time.Now()
	if was || !t.over() {
		return nil
	}
	return o.ended(t)
}

// ended does what the end of a task is the moment for, and says who wants to know.
func (o *observer) ended(t *watchedTask) []machine.Mark {
	t.ended = time.Now()
	close(t.ready)
	if t.listed {
		o.remove[t.self()] = true
		delete(o.add, t.self())
	}
	woken := []machine.Mark{}
	if w, ok := o.vms[t.entity]; ok {
		woken = append(woken, w.mark)
		if t.state == types.TaskInfoStateSuccess && t.promise != nil {
			w.promise = t.promise
		}
	}
	if !t.ours {
		return woken
	}
	begun := t.started
	if begun.IsZero() {
		begun = t.since
	}
	o.c.cfg.Meter.task(t.op.Kind, t.ended.Sub(begun), t.state == types.TaskInfoStateError)
	if t.op.Kind == machine.OpCreate && len(o.queue) > 0 {
		woken = append(woken, o.queue[0])
		o.queue = o.queue[1:]
	}
	if ref, ok := t.created(); ok {
		w := o.watchLocked(ref, t.op.Mark)
		if !w.seen {
			// The owner is woken when the new VM is in the store (settleCreates), so that its look-up costs no call.
			mark := t.op.Mark
			time.AfterFunc(settleTime, func() { o.wake([]machine.Mark{mark}) })
			return woken
		}
	}
	return append(woken, t.op.Mark)
}

// settleCreates wakes the owner of a clone whose virtual machine has just come into the store.
func (o *observer) settleCreates(ref types.ManagedObjectReference) []machine.Mark {
	for _, t := range o.tasks {
		if made, ok := t.created(); ok && made == ref {
			return []machine.Mark{t.op.Mark}
		}
	}
	return nil
}

// settled: the task is over and its effect is in the store, or will not come.
func (o *observer) settled(t *watchedTask) bool {
	if !t.over() {
		return false
	}
	if ref, ok := t.created(); ok && o.open {
		w := o.vms[ref]
		return w == nil || w.seen || w.gone || time.Since(t.ended) >= settleTime
	}
	return true
}

// inFlight reports whether a task of ours runs on a virtual machine, or one that may be ours because we never got the answer
// to a call: for as long as the vCenter has just told of it.
func (o *observer) inFlight(ref types.ManagedObjectReference) bool {
	for _, t := range o.tasks {
		if t.entity == ref && !t.over() && t.op.Kind != machine.OpCreate && (t.ours || time.Since(t.told) < toldWithin) {
			return true
		}
	}
	return false
}

// beingMade lists the names of virtual machines that clones of ours are making, or have just made.
func (o *observer) beingMade() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]bool{}
	for _, t := range o.tasks {
		if t.making != "" && (!t.over() || time.Since(t.ended) < settleTime) {
			out[t.making] = true
		}
	}
	return out
}

// prune forgets tasks that ended long ago; vCenter lists only the most recent ones, and not all simulators say when they
// leave the list.
func (o *observer) prune() {
	const enough = 1024
	if len(o.tasks) <= enough {
		return
	}
	for ref, t := range o.tasks {
		if t.over() && time.Since(t.ended) > time.Minute {
			delete(o.tasks, ref)
		}
	}
}

// queuedLook is when a clone that waits for its turn is tried again although nobody called it: whoever was called may not have
// come.
const queuedLook = 10 * time.Second

// reserve takes part in the limits of running operations. Refusal is Busy; the mark is woken when there is room.
func (o *observer) reserve(kind string, mark machine.Mark) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, same := 0, 0
	for k, n := range o.starting {
		all += n
		if k == kind {
			same += n
		}
	}
	const lost = time.Hour // an operation that never ended in our sight does not block others for ever
	for _, t := range o.tasks {
		if t.ours && !t.over() && time.Since(t.since) < lost {
			all++
			if t.op.Kind == kind {
				same++
			}
		}
	}
	// The sentences name the limits and not how much is under way: that differs at every try, and each would be written down.
	switch {
	case kind == machine.OpCreate && same >= o.c.cfg.Clones:
		if !slices.Contains(o.queue, mark) {
			o.queue = append(o.queue, mark)
		}
		return busy(ReasonTooManyTasks, queuedLook, "vCenter %s already clones as many virtual machines for us as it may at a time "+
			"(%d); waiting for its turn", o.c.cfg.Server, o.c.cfg.Clones)
	case all >= o.c.cfg.Tasks:
		return busy(ReasonTooManyTasks, 2*time.Second, "vCenter %s already works on as many of our operations as it may at a time "+
			"(%d); waiting until one has ended", o.c.cfg.Server, o.c.cfg.Tasks)
	}
	o.starting[kind]++
	return nil
}

// act is a call that starts a task.
type act struct {
	kind   string
	mark   machine.Mark
	entity types.ManagedObjectReference
	// making is the name of the virtual machine that a clone makes.
	making string
	// promise is what the entity shows when the task has succeeded; nil promises nothing.
	promise func(vm) bool
	doing   string
}

// start runs one call that starts a task, within the limits, and registers the task.
func (s *Session) start(ctx context.Context, a act, call func(context.Context) (types.ManagedObjectReference, error)) (machine.Operation, error) {
	kind, mark, entity := a.kind, a.mark, a.entity
	o := s.observer
	if err := o.reserve(kind, mark); err != nil {
		return machine.Operation{}, err
	}
	ref, err := call(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starting[kind]--
	if err != nil {
		if m, _ := methodFault(err); alreadyThere(m) {
			return machine.Operation{Kind: kind, Mark: mark}, nil
		}
		// Whether the vCenter heard us is unknown unless it answered with a fault.
		if m, _ := methodFault(err); m == nil {
			o.doubt(entity)
		}
		return machine.Operation{}, failed(err, "%s", a.doing)
	}
	op := machine.Operation{Ref: ref.Value, Kind: kind, Mark: mark}
	t := o.register(op, entity)
	if w, ok := o.vms[entity]; ok {
		w.liveAt = time.Time{}
	}
	t.started, t.promise, t.making = time.Now(), a.promise, a.making
	if !t.over() {
		o.followSlow(t)
	}
	if w, ok := o.vms[entity]; ok && t.state == types.TaskInfoStateSuccess && a.promise != nil {
		w.promise = a.promise // it was quicker than its own answer
	}
	return op, nil
}

// doubt makes look-ups of a virtual machine live for a while.
func (o *observer) doubt(ref types.ManagedObjectReference) {
	if w, ok := o.vms[ref]; ok {
		w.liveAt, w.staleUntil = time.Time{}, time.Now().Add(o.c.cfg.CallTimeout)
	}
}

// register makes a task ours. If its end was seen before its start was known, the owner is woken at once.
func (o *observer) register(op machine.Operation, entity types.ManagedObjectReference) *watchedTask {
	t, ok := o.tasks[op.Ref]
	if !ok {
		t = newTask()
		o.tasks[op.Ref] = t
	}
	if t.entity.Value == "" {
		t.entity = entity
	}
	if t.ours && (t.op.Mark != "" || op.Mark == "") {
		return t
	}
	// An operation on a volume gets its owner only here.
	t.ours, t.op = true, op
	if t.over() {
		if ref, ok := t.created(); ok {
			o.watchLocked(ref, op.Mark)
		}
		go o.wake([]machine.Mark{op.Mark})
	}
	return t
}

// slowAfter is when a task of ours joins the watched list: most end before and cost no call.
const slowAfter = 700 * time.Millisecond

// listTask puts a task into the watched list. The caller holds the lock.
func (o *observer) listTask(ref string, t *watchedTask) {
	t.listed = true
	o.add[types.ManagedObjectReference{Type: "Task", Value: ref}] = true
	o.modifySoon()
}

// followSlow lists a task that has not ended after a while.
func (o *observer) followSlow(t *watchedTask) {
	time.AfterFunc(slowAfter, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !t.over() && !t.listed {
			o.listTask(t.op.Ref, t)
		}
	})
}
