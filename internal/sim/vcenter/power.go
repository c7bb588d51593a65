package vcenter

import (
	"fmt"
	"os"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// PowerOnVMTask takes the locks on the VM's disks, as the host does.
func (g *vmGate) PowerOnVMTask(ctx *simulator.Context, _ *types.PowerOnVM_Task) soap.HasFault {
	var template bool
	ctx.WithLock(g.VirtualMachine, func() { template = g.Config.Template })
	if template {
		return &methods.PowerOnVM_TaskBody{Fault_: simulator.Fault("a template cannot be powered on", &types.NotSupported{})}
	}
	return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "PowerOnVM_Task", description: "VirtualMachine.powerOn", names: g.strict.namesOf(g.VirtualMachine),
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return nil, g.strict.powerOn(ctx, g.VirtualMachine)
			},
		}),
	}}
}

func (s *strict) powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if fault := gone(ctx, vm); fault != nil {
		return fault
	}
	var disks []*types.VirtualDisk
	var power types.VirtualMachinePowerState
	ctx.WithLock(vm, func() { disks, power = disksOf(vm), vm.Runtime.PowerState })
	if power != types.VirtualMachinePowerStatePoweredOn {
		if fault := s.obey(ctx, vm); fault != nil {
			return fault
		}
		if fault := s.lockDisks(ctx, vm, disks); fault != nil {
			return fault
		}
	}
	_, fault := s.inner(ctx, vm, func() soap.HasFault {
		copied(vm)
		return vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self})
	})
	return fault
}

func (s *strict) lockDisks(ctx *simulator.Context, vm *simulator.VirtualMachine, disks []*types.VirtualDisk) types.BaseMethodFault {
	dc := s.datacenterOf(ctx, vm.Self)
	holders := s.holdersOf(ctx, vm.Self)
	for _, device := range disks {
		p, fault := s.resolve(ctx, &dc.Self, backingFile(device))
		if fault != nil {
			continue
		}
		if _, err := os.Stat(p.file); err != nil {
			return &types.FileNotFound{FileFault: types.FileFault{File: p.path}}
		}
		for _, h := range holders[backingUUID(device)] {
			if !h.runs() || h.shared && multiWriter(device) {
				continue
			}
			s.record(Violation{
				Kind: LockedAtPowerOn, VM: s.server.nameOf(vm.Self), Ref: vm.Self.Value, Disk: p.path,
				Detail: "the disk is in use by " + h.name + ", which runs",
			})
			return &types.FileLocked{FileFault: types.FileFault{File: p.path}}
		}
	}
	return nil
}

// PowerOffVMTask cuts the power.
func (g *vmGate) PowerOffVMTask(ctx *simulator.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "PowerOffVM_Task", description: "VirtualMachine.powerOff", names: g.strict.namesOf(g.VirtualMachine),
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return nil, g.strict.powerOff(ctx, g.VirtualMachine)
			},
		}),
	}}
}

func (s *strict) powerOff(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if fault := gone(ctx, vm); fault != nil {
		return fault
	}
	_, fault := s.inner(ctx, vm, func() soap.HasFault {
		copied(vm)
		return vm.PowerOffVMTask(ctx, &types.PowerOffVM_Task{This: vm.Self})
	})
	if fault == nil {
		s.silence(ctx, vm)
	}
	return fault
}

// ResetVMTask restarts the hardware: what the guest had reported is void until it reports again.
func (g *vmGate) ResetVMTask(ctx *simulator.Context, _ *types.ResetVM_Task) soap.HasFault {
	return &methods.ResetVM_TaskBody{Res: &types.ResetVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "ResetVM_Task", description: "VirtualMachine.reset", names: g.strict.namesOf(g.VirtualMachine),
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				if fault := g.strict.powerOff(ctx, g.VirtualMachine); fault != nil {
					return nil, fault
				}
				return nil, g.strict.powerOn(ctx, g.VirtualMachine)
			},
		}),
	}}
}

// silence clears what the tools of a guest that no longer runs had reported; vcsim would keep its address for ever.
func (s *strict) silence(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	ctx.WithLock(vm, func() {
		if vm.Guest == nil {
			return
		}
		nics := slices.Clone(vm.Guest.Net)
		nics = slices.DeleteFunc(nics, func(nic types.GuestNicInfo) bool { return nic.DeviceConfigId < 0 })
		for i := range nics {
			nics[i].IpAddress, nics[i].IpConfig, nics[i].Connected = nil, nil, false
		}
		changes := guestChanges(vm, Guest{HostName: vm.Guest.HostName})
		for i := range changes {
			switch changes[i].Name {
			case "guest.net":
				changes[i].Val = nics
			case "guest.guestState":
				changes[i].Val = string(types.VirtualMachineGuestStateNotRunning)
			}
		}
		ctx.Update(vm, changes)
	})
}

// ShutdownGuest asks the guest, which can hear it only while its tools run, and powers off some time later.
func (g *vmGate) ShutdownGuest(ctx *simulator.Context, _ *types.ShutdownGuest) soap.HasFault {
	body := &methods.ShutdownGuestBody{}
	var power types.VirtualMachinePowerState
	var tools bool
	ctx.WithLock(g.VirtualMachine, func() { power, tools = g.Runtime.PowerState, toolsRun(g.VirtualMachine) })
	switch {
	case power != types.VirtualMachinePowerStatePoweredOn:
		body.Fault_ = simulator.Fault("", &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: power,
		})
	case !tools:
		body.Fault_ = simulator.Fault("Cannot complete operation because VMware Tools is not running in this virtual machine.", &types.ToolsUnavailable{})
	default:
		body.Res = &types.ShutdownGuestResponse{}
		ctx.WithLock(g.VirtualMachine, func() {
			ctx.Update(g.VirtualMachine, []types.PropertyChange{
				{Name: "guest.guestState", Val: string(types.VirtualMachineGuestStateShuttingDown)},
			})
		})
		g.strict.shutDown(ctx, g.VirtualMachine)
	}
	return body
}

func (s *strict) shutDown(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	own := *ctx
	s.server.background.Go(func() {
		if !s.wait(s.server.opts.ShutdownTime) {
			return
		}
		s.world.Lock()
		defer s.world.Unlock()
		if fault := s.powerOff(&own, vm); fault != nil {
			s.server.opts.Log.Debug("guest shut down, but the VM is not powered off", "vm", vm.Self.Value, "fault", fmt.Sprintf("%T", fault))
		}
	})
}

// reported looks at what a guest claims beside what all others claim.
func (s *strict) reported(ref, name string, guest Guest) {
	mine := map[string]bool{}
	for _, nic := range guest.NICs {
		for _, address := range nic.Addresses {
			mine[address] = true
		}
	}
	s.world.RLock()
	defer s.world.RUnlock()
	ctx := s.server.internalContext()
	for _, other := range s.server.vms() {
		if other.Self.Value == ref {
			continue
		}
		var otherName, host string
		var addresses []string
		ctx.WithLock(other, func() {
			if other.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn || other.Guest == nil {
				return
			}
			otherName, host = other.Name, other.Guest.HostName
			for _, nic := range other.Guest.Net {
				addresses = append(addresses, nic.IpAddress...)
			}
		})
		for _, address := range addresses {
			if mine[address] {
				s.recordOnce(fmt.Sprint(DuplicateAddress, address, pair(ref, other.Self.Value)), Violation{
					Kind: DuplicateAddress, VM: name, Ref: ref, Detail: otherName + " reports the address " + address + " too",
				})
			}
		}
		if host != "" && host == guest.HostName {
			s.recordOnce(fmt.Sprint(DuplicateHostName, host, pair(ref, other.Self.Value)), Violation{
				Kind: DuplicateHostName, VM: name, Ref: ref, Detail: otherName + " reports the host name " + host + " too",
			})
		}
	}
}

func pair(a, b string) string { return min(a, b) + "," + max(a, b) }
