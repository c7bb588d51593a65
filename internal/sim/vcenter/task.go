package vcenter

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// job is a task of the strict layer.
type job struct {
	entity types.ManagedObjectReference
	// method is the API method, description vCenter's name of the operation ("VirtualMachine.clone").
	method, description string
	// names are the names by which a fault rule may mean this task's object.
	names []string
	run   func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault)
}

// start creates the task and runs it in the background: first the time it takes, with no lock held, so that everything
// stays readable and other tasks go on; then the injected faults; then the work, alone in the world.
func (s *strict) start(ctx *simulator.Context, j job) types.ManagedObjectReference {
	own := *ctx
	own.Context = context.Background()
	task := s.newTask(&own, j)
	s.server.background.Go(func() {
		result, fault := s.perform(&own, j)
		s.finish(&own, task, result, fault)
	})
	return task.Self
}

func (s *strict) newTask(ctx *simulator.Context, j job) *simulator.Task {
	s.mu.Lock()
	s.lastTask++
	n := s.lastTask
	s.mu.Unlock()
	now := time.Now()
	task := &simulator.Task{}
	task.Self = types.ManagedObjectReference{Type: "Task", Value: fmt.Sprintf("task-%d", 1_000_000+n)}
	task.Info = types.TaskInfo{
		Key: task.Self.Value, Task: task.Self, Name: j.method, DescriptionId: j.description, Entity: &j.entity,
		EntityName: s.server.nameOf(j.entity), State: types.TaskInfoStateRunning, QueueTime: now, StartTime: &now,
		Reason: &types.TaskReasonUser{UserName: userOf(ctx)}, EventChainId: int32(n),
	}
	ctx.Map.Put(task)
	return task
}

func userOf(ctx *simulator.Context) string {
	if ctx.Session == nil {
		return ""
	}
	return ctx.Session.UserName
}

func (s *strict) perform(ctx *simulator.Context, j job) (types.AnyType, types.BaseMethodFault) {
	if !s.wait(s.duration(j.method)) {
		return nil, &types.RequestCanceled{}
	}
	rule, struck := s.server.faults.strike(true, j.method, "", func() []string { return j.names })
	if struck && rule.Kind == FaultTaskHang && !s.wait(rule.hang()) {
		return nil, &types.RequestCanceled{}
	}
	fails := struck && rule.Kind != FaultTaskHang
	if fails && rule.Kind == FaultTask {
		return nil, taskFault(rule)
	}
	s.world.Lock()
	defer s.world.Unlock()
	result, fault := j.run(ctx)
	if fails && fault == nil {
		return nil, taskFault(rule)
	}
	return result, fault
}

func taskFault(rule Fault) types.BaseMethodFault {
	fault, err := rule.build("GenericVmConfigFault")
	if err != nil {
		return &types.SystemError{Reason: err.Error()}
	}
	return fault
}

func (s *strict) duration(method string) time.Duration {
	if method == "CloneVM_Task" && s.server.opts.CloneTime > 0 {
		return s.server.opts.CloneTime
	}
	return s.server.opts.TaskTimes[method]
}

// wait lets time pass; false means that the server stops.
func (s *strict) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.server.stopped:
		return false
	}
}

func (s *strict) finish(ctx *simulator.Context, task *simulator.Task, result types.AnyType, fault types.BaseMethodFault) {
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()},
		{Name: "info.result", Val: result},
		{Name: "info.state", Val: types.TaskInfoStateSuccess},
	}
	if fault != nil {
		changes[1] = types.PropertyChange{Name: "info.error", Val: types.LocalizedMethodFault{Fault: fault, LocalizedMessage: messageOf(fault)}}
		changes[2].Val = types.TaskInfoStateError
		s.server.opts.Log.Debug("task failed", "task", task.Info.Name, "entity", task.Info.EntityName, "fault", fmt.Sprintf("%T", fault))
	}
	ctx.Map.AtomicUpdate(ctx, task, changes)
}

// sweepTasks forgets tasks that ended before the time given, as vCenter does: who asks for one later learns that it is not
// there.
func (s *strict) sweepTasks(before time.Time) {
	ctx := s.server.internalContext()
	for _, object := range s.server.registry.AllReference("Task") {
		task, ok := object.(*simulator.Task)
		if !ok {
			continue
		}
		old := false
		ctx.WithLock(task, func() {
			old = ended(task.Info.State) && task.Info.CompleteTime != nil && task.Info.CompleteTime.Before(before)
		})
		if old {
			s.server.registry.Remove(ctx, task.Self)
		}
	}
}

// messageOf is the sentence vCenter would show for a fault.
func messageOf(fault types.BaseMethodFault) string {
	if list := fault.GetMethodFault().FaultMessage; len(list) > 0 {
		return list[0].Message
	}
	switch f := fault.(type) {
	case *types.FileLocked:
		return fmt.Sprintf("Failed to lock the file %s: it is in use by a virtual machine.", f.File)
	case *types.FileNotFound:
		return fmt.Sprintf("File %s was not found.", f.File)
	case *types.FileAlreadyExists:
		return fmt.Sprintf("Cannot complete the operation because the file or folder %s already exists.", f.File)
	case *types.NoDiskSpace:
		return fmt.Sprintf("There is not enough space on the datastore %q for the file %s.", f.Datastore, f.File)
	case *types.InvalidDeviceSpec:
		return fmt.Sprintf("Invalid configuration for device '%d'.", f.DeviceIndex)
	case *types.DuplicateName:
		return fmt.Sprintf("The name '%s' already exists.", f.Name)
	case *types.InvalidPowerState:
		return fmt.Sprintf("The attempted operation cannot be performed in the current state (%s).", f.ExistingState)
	case *types.ManagedObjectNotFound:
		return fmt.Sprintf("The object '%s' has already been deleted or has not been completely created.", f.Obj.Encode())
	case *types.InvalidArgument:
		return "A specified parameter was not correct: " + f.InvalidProperty
	case *types.SystemError:
		return f.Reason
	}
	return fmt.Sprintf("%T", fault)[len("*types."):]
}

// inner runs a method of vcsim that starts a task and waits for it. The call runs with the object's lock held, which vcsim
// hands over to its task.
func (s *strict) inner(ctx *simulator.Context, object mo.Reference, call func() soap.HasFault) (types.AnyType, types.BaseMethodFault) {
	var response soap.HasFault
	ctx.WithLock(object, func() { response = call() })
	if soapFault := response.Fault(); soapFault != nil {
		if fault, ok := soapFault.VimFault().(types.BaseMethodFault); ok {
			return nil, fault
		}
		return nil, &types.SystemError{Reason: soapFault.String}
	}
	info := s.done.await(ctx, taskOf(response))
	if info.Error != nil {
		return nil, info.Error.Fault
	}
	return info.Result, nil
}

// taskOf digs the task's reference out of the response of a _Task method.
func taskOf(response soap.HasFault) types.ManagedObjectReference {
	ref, _ := reflect.ValueOf(response).Elem().FieldByName("Res").Elem().FieldByName("Returnval").Interface().(types.ManagedObjectReference)
	return ref
}

// completions tells when tasks of vcsim have ended, by vcsim's own notification of changed objects.
type completions struct {
	mu      sync.Mutex
	waiting map[types.ManagedObjectReference]chan struct{}
}

func newCompletions() *completions {
	return &completions{waiting: map[types.ManagedObjectReference]chan struct{}{}}
}

// Reference identifies the handler among vcsim's.
func (c *completions) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Completions", Value: "strict"}
}

// PutObject is of no interest.
func (c *completions) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject is of no interest.
func (c *completions) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

// UpdateObject runs under the task's lock.
func (c *completions) UpdateObject(_ *simulator.Context, object mo.Reference, _ []types.PropertyChange) {
	task, ok := object.(*mo.Task)
	if !ok || !ended(task.Info.State) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.waiting[task.Self]; ok {
		close(ch)
		delete(c.waiting, task.Self)
	}
}

func ended(state types.TaskInfoState) bool {
	return state == types.TaskInfoStateSuccess || state == types.TaskInfoStateError
}

func (c *completions) await(ctx *simulator.Context, ref types.ManagedObjectReference) types.TaskInfo {
	task, ok := ctx.Map.Get(ref).(*simulator.Task)
	if !ok {
		return types.TaskInfo{Error: &types.LocalizedMethodFault{Fault: &types.ManagedObjectNotFound{Obj: ref}}}
	}
	ch := make(chan struct{})
	c.mu.Lock()
	c.waiting[ref] = ch
	c.mu.Unlock()

	// vcsim's task runs with our context and may hold the lock for it: look with another.
	other := &simulator.Context{Map: ctx.Map}
	var info types.TaskInfo
	look := func() { ctx.Map.WithLock(other, task, func() { info = task.Info }) }
	if look(); !ended(info.State) {
		<-ch
		look()
	}
	c.mu.Lock()
	delete(c.waiting, ref)
	c.mu.Unlock()
	return info
}

// copied replaces the lists that vcsim edits in place by copies, so that an answer that is being encoded cannot change
// under the encoder. It runs under the VM's lock, which must be kept until vcsim's task has taken it over.
func copied(vm *simulator.VirtualMachine) {
	vm.Config.Hardware.Device = slices.Clone(vm.Config.Hardware.Device)
	vm.Config.ExtraConfig = slices.Clone(vm.Config.ExtraConfig)
	vm.Network = slices.Clone(vm.Network)
	vm.Datastore = slices.Clone(vm.Datastore)
	if vm.Guest != nil {
		vm.Guest.Net = slices.Clone(vm.Guest.Net)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
