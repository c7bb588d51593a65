package vsphere

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// PowerOn implements machine.Platform.
func (s *Session) PowerOn(ctx context.Context, server *machine.Server) (machine.Operation, error) {
	v, err := s.current(ctx, server)
	if err != nil {
		return machine.Operation{}, err
	}
	switch {
	case v.template:
		return machine.Operation{}, refused(ReasonTemplateVM, "virtual machine %s was turned into a template", v.name)
	case v.power == types.VirtualMachinePowerStatePoweredOn:
		return machine.Operation{Kind: machine.OpPowerOn, Mark: server.Mark}, nil
	}
	return s.start(ctx, act{
		kind: machine.OpPowerOn, mark: server.Mark, entity: v.ref, doing: "powering on " + v.name,
		promise: func(v vm) bool { return v.power == types.VirtualMachinePowerStatePoweredOn },
	},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.PowerOnVM_Task(ctx, s.client.vim, &types.PowerOnVM_Task{This: v.ref})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
}

// PowerOff implements machine.Platform. A soft stop is a request to the guest: the operation it returns has already ended
// and the server goes off when the guest is done, which Changes tells. It is repeated with every call, at most once in
// softRepeat. Soft without HardAfter never becomes hard; when the guest's tools do not run, that is Refused.
func (s *Session) PowerOff(ctx context.Context, server *machine.Server, mode machine.PowerOffMode, since time.Time) (machine.Operation, error) {
	done := machine.Operation{Kind: machine.OpPowerOff, Mark: server.Mark}
	v, err := s.current(ctx, server)
	if err != nil {
		return machine.Operation{}, err
	}
	if v.power == types.VirtualMachinePowerStatePoweredOff {
		return done, nil
	}
	tools := v.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	if mode.Soft && v.power == types.VirtualMachinePowerStatePoweredOn {
		late := mode.HardAfter > 0 && time.Since(since) >= mode.HardAfter
		switch {
		case tools && !late:
			return done, s.askToStop(ctx, v, server.Mark, mode, since)
		case !tools && mode.HardAfter == 0:
			return machine.Operation{}, refused(ReasonSoftPowerOff, "the guest of %s cannot be asked to shut down: its tools do "+
				"not run (%s); start them, shut the guest down by hand, or set powerOffMode to trySoft or hard", v.name, v.tools)
		}
	}
	return s.start(ctx, act{
		kind: machine.OpPowerOff, mark: server.Mark, entity: v.ref, doing: "powering off " + v.name,
		promise: func(v vm) bool { return v.power == types.VirtualMachinePowerStatePoweredOff },
	},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.PowerOffVM_Task(ctx, s.client.vim, &types.PowerOffVM_Task{This: v.ref})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
}

const softRepeat = time.Minute

// askToStop asks the guest to shut down, unless it was asked a moment ago, and sees to it that the owner is woken when the
// time for a soft stop is over.
func (s *Session) askToStop(ctx context.Context, v vm, mark machine.Mark, mode machine.PowerOffMode, since time.Time) error {
	s.softMu.Lock()
	asked, ok := s.softAsked[v.ref]
	recent := ok && time.Since(asked) < softRepeat
	if !recent {
		s.softAsked[v.ref] = time.Now()
	}
	s.softMu.Unlock()
	if recent {
		return nil
	}
	_, err := methods.ShutdownGuest(ctx, s.client.vim, &types.ShutdownGuest{This: v.ref})
	if m, _ := methodFault(err); err != nil && !alreadyThere(m) {
		s.softMu.Lock()
		delete(s.softAsked, v.ref)
		s.softMu.Unlock()
		return failed(err, "asking the guest of %s to shut down", v.name)
	}
	if mode.HardAfter > 0 {
		time.AfterFunc(time.Until(since.Add(mode.HardAfter))+time.Millisecond, func() { s.observer.wake([]machine.Mark{mark}) })
	}
	return nil
}

// Detach implements machine.Platform: all volumes in one reconfiguration that touches no file. Volumes are recognised by
// path or UUID, never by unit or size (VS-D22).
func (s *Session) Detach(ctx context.Context, server *machine.Server, volumes []machine.AttachedVolume) (machine.Operation, error) {
	v, err := s.current(ctx, server)
	if err != nil {
		return machine.Operation{}, err
	}
	if v.power != types.VirtualMachinePowerStatePoweredOff {
		return machine.Operation{}, refused(ReasonNotOff, "virtual machine %s is %s: disks are never taken from a machine that "+
			"runs", v.name, v.power)
	}
	var changes []types.BaseVirtualDeviceConfigSpec
	var chained []string
	taken := map[string]bool{}
	for _, d := range v.attached() {
		for _, volume := range volumes {
			if d.path != normalPath(volume.Volume) && (volume.Identity == "" || d.identity != normalUUID(volume.Identity)) {
				continue
			}
			if d.chained {
				chained = append(chained, d.path)
			}
			taken[d.path] = true
			changes = append(changes, &types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: d.device,
			})
			break
		}
	}
	if len(chained) > 0 {
		return machine.Operation{}, refused(ReasonSnapshotInTheWay, "virtual machine %s has snapshots, and detaching %s would "+
			"leave the data written since behind: delete or consolidate the snapshots of this virtual machine", v.name,
			strings.Join(chained, ", "))
	}
	if len(changes) == 0 {
		return machine.Operation{Kind: machine.OpDetach, Mark: server.Mark}, nil
	}
	without := func(v vm) bool {
		return !slices.ContainsFunc(v.attached(), func(d attachedDisk) bool { return taken[d.path] })
	}
	return s.reconfigure(ctx, act{
		kind: machine.OpDetach, mark: server.Mark, entity: v.ref, doing: "detaching disks from " + v.name, promise: without,
	}, types.VirtualMachineConfigSpec{DeviceChange: changes})
}

// Destroy implements machine.Platform. The live read right before it is part of the call.
func (s *Session) Destroy(ctx context.Context, server *machine.Server) (machine.Operation, error) {
	done := machine.Operation{Kind: machine.OpDestroy, Mark: server.Mark}
	v, err := s.live(ctx, server)
	if machine.Is(err, machine.NotFound) {
		return done, nil
	}
	if err != nil {
		return machine.Operation{}, err
	}
	if err := v.destroyable(); err != nil {
		return machine.Operation{}, err
	}
	return s.start(ctx, act{
		kind: machine.OpDestroy, mark: server.Mark, entity: v.ref, doing: "destroying " + v.name,
		promise: func(vm) bool { return false }, // what is destroyed is never known again
	},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.Destroy_Task(ctx, s.client.vim, &types.Destroy_Task{This: v.ref})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
}

// destroyable proves that destroying a VM destroys nothing but the VM (VS-D21, D23, V38).
func (v vm) destroyable() error {
	switch why := v.unreadable(); {
	case v.template:
		return refused(ReasonTemplateVM, "virtual machine %s was turned into a template, and templates are never destroyed: "+
			"turn it back into a virtual machine or remove it by hand", v.name)
	case why != "":
		return busy(ReasonAttachments, 30*time.Second, "virtual machine %s is not destroyed while nobody can tell what is "+
			"attached to it: %s", v.name, why)
	case v.power != types.VirtualMachinePowerStatePoweredOff:
		return refused(ReasonNotOff, "virtual machine %s is %s and is not destroyed before it is off", v.name, v.power)
	}
	var foreign []string
	home := v.folder()
	for _, d := range v.attached() {
		for _, file := range d.chain {
			part := d
			part.path = file
			if isOwn, _ := v.own(part); !isOwn && !v.linked(d, file) {
				foreign = append(foreign, file)
			}
		}
	}
	if len(foreign) > 0 {
		return refused(ReasonForeignDisk, "virtual machine %s is not destroyed: it would take along %s, which lies outside its "+
			"own directory %s; detach it first", v.name, strings.Join(foreign, ", "), home.String())
	}
	return nil
}

// linked reports whether file is the template's part of a linked clone's disk: destroying the clone leaves it alone.
func (v vm) linked(d attachedDisk, file string) bool {
	isOwn, _ := v.own(d)
	return isOwn && file != d.path
}
