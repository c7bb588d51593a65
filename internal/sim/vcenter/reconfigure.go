package vcenter

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vmdk"
)

// vmGate serves the calls on virtual machines that the strict layer has a say in.
type vmGate struct {
	*simulator.VirtualMachine
	unlocked
	strict *strict
}

// ReconfigVMTask checks and completes the device changes, then lets vcsim apply the specification.
func (g *vmGate) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "ReconfigVM_Task", description: "VirtualMachine.reconfigure", names: g.strict.namesOf(g.VirtualMachine),
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return nil, g.strict.reconfigure(ctx, g.VirtualMachine, req.Spec)
			},
		}),
	}}
}

func (s *strict) namesOf(vm *simulator.VirtualMachine) []string {
	return []string{vm.Self.Value, s.server.nameOf(vm.Self)}
}

// gone is the answer to a task whose VM was destroyed before the task began.
func gone(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if ctx.Map.Get(vm.Self) == nil {
		return &types.ManagedObjectNotFound{Obj: vm.Self}
	}
	return nil
}

func (s *strict) reconfigure(ctx *simulator.Context, vm *simulator.VirtualMachine, spec types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if fault := gone(ctx, vm); fault != nil {
		return fault
	}
	if fault := extraConfigAllowed(spec.ExtraConfig); fault != nil {
		return fault
	}
	check := &deviceCheck{strict: s, ctx: ctx, dc: s.datacenterOf(ctx, vm.Self), vm: vm.Self}
	var before []types.BaseVirtualDevice
	var fault types.BaseMethodFault
	ctx.WithLock(vm, func() {
		before = slices.Clone(vm.Config.Hardware.Device)
		check.devices, check.name = before, vm.Name
		check.powered = vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
		check.home = path.Dir(vm.Config.Files.VmPathName)
		fault = hotChange(vm, &spec)
		if spec.Flags != nil {
			spec.Flags = mergedFlags(vm.Config.Flags, *spec.Flags)
		}
	})
	if fault != nil {
		return fault
	}
	if fault := check.prepare(spec.DeviceChange); fault != nil {
		return fault
	}
	_, fault = s.inner(ctx, vm, func() soap.HasFault {
		copied(vm)
		return vm.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: vm.Self, Spec: spec})
	})
	if fault != nil {
		// vcsim edits the list of devices in place and leaves it broken when a later change fails.
		ctx.WithLock(vm, func() {
			ctx.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: before}})
		})
	}
	s.settle(ctx, vm, check, fault == nil)
	if spec.InstanceUuid != "" {
		s.uniqueInstance(ctx, vm, spec.InstanceUuid)
	}
	return fault
}

// extraConfigAllowed refuses keys that would crash the simulator or start containers on this machine.
func extraConfigAllowed(options []types.BaseOptionValue) types.BaseMethodFault {
	for _, option := range options {
		key := option.GetOptionValue().Key
		if strings.HasPrefix(key, "RUN.") {
			return &types.NotSupported{}
		}
		set, ok := strings.CutPrefix(key, "SET.")
		if !ok {
			continue
		}
		if _, text := option.GetOptionValue().Value.(string); !text ||
			!slices.Contains([]string{"guest.ipAddress", "guest.hostName", "guest.toolsRunningStatus", "guest.toolsVersion"}, set) {
			return &types.InvalidArgument{InvalidProperty: "extraConfig." + key}
		}
	}
	return nil
}

// hotChange refuses CPU and memory changes that the VM does not allow while it runs. It runs under the VM's lock.
func hotChange(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	allowed := func(b *bool) bool { return b != nil && *b }
	cpus, memory := spec.NumCPUs, spec.MemoryMB
	hardware := vm.Config.Hardware
	cold := cpus > hardware.NumCPU && !allowed(vm.Config.CpuHotAddEnabled) ||
		cpus != 0 && cpus < hardware.NumCPU && !allowed(vm.Config.CpuHotRemoveEnabled) ||
		memory > int64(hardware.MemoryMB) && !allowed(vm.Config.MemoryHotAddEnabled) ||
		memory != 0 && memory < int64(hardware.MemoryMB) ||
		spec.Uuid != "" && spec.Uuid != vm.Config.Uuid
	if !cold {
		return nil
	}
	return &types.InvalidPowerState{
		RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: types.VirtualMachinePowerStatePoweredOn,
	}
}

// mergedFlags keeps the flags that the specification does not name; vcsim would reset them.
func mergedFlags(old, wanted types.VirtualMachineFlagInfo) *types.VirtualMachineFlagInfo {
	merged := old
	from, to := reflect.ValueOf(wanted), reflect.ValueOf(&merged).Elem()
	for i := range from.NumField() {
		if field := from.Field(i); !field.IsZero() {
			to.Field(i).Set(field)
		}
	}
	return &merged
}

// settle takes over what the call did to disks: registers new ones, forgets deleted ones, and counts the space. After a
// failure some files may exist all the same.
func (s *strict) settle(ctx *simulator.Context, vm *simulator.VirtualMachine, check *deviceCheck, ok bool) {
	attached := map[string]string{}
	ctx.WithLock(vm, func() {
		for _, disk := range disksOf(vm) {
			attached[backingUUID(disk)] = backingFile(disk)
		}
	})
	for _, planned := range check.created {
		p := planned.place
		if p.file == "" {
			resolved, fault := s.resolve(ctx, &check.dc.Self, attached[planned.uuid])
			if fault != nil {
				continue
			}
			p = resolved
		}
		if known, exists := s.disks.get(p.file); exists && known.uuid != planned.uuid && !ok {
			continue // the file was there before, the creation failed
		}
		if _, err := os.Stat(p.file); err == nil {
			s.register(p, planned.uuid, planned.capacity)
		}
	}
	for _, removed := range check.removed {
		if _, err := os.Stat(removed.file); err != nil {
			s.disks.drop(removed.file)
		}
	}
	if ok {
		for _, grown := range check.grown {
			s.resize(grown.place, grown.capacity)
		}
		check.publish()
	}
	s.account(ctx)
}

// resize writes the new capacity into the descriptor, which vcsim forgets.
func (s *strict) resize(p place, capacity int64) {
	disk, ok := s.disk(p)
	if !ok {
		return
	}
	disk.capacity = capacity
	s.disks.put(disk)
	_ = writeDescriptor(p.file, capacity)
}

func writeDescriptor(file string, capacity int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	extent := vmdk.Extent{Info: filepath.Base(simulator.VirtualDiskBackingFileName(file)), Size: capacity / vmdk.SectorSize}
	if err := vmdk.NewDescriptor(extent).Write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// uniqueInstance records an instance UUID that another VM has.
func (s *strict) uniqueInstance(ctx *simulator.Context, vm *simulator.VirtualMachine, id string) {
	for _, other := range s.server.vms() {
		if other.Self == vm.Self {
			continue
		}
		var same bool
		var name string
		ctx.WithLock(other, func() { same, name = strings.EqualFold(other.Config.InstanceUuid, id), other.Name })
		if same {
			s.record(Violation{Kind: DuplicateInstanceUUID, VM: s.server.nameOf(vm.Self), Ref: vm.Self.Value, Detail: name + " has the instance UUID " + id + " too"})
		}
	}
}

// findDevice returns the device of the list that corresponds to one of another VM with the same hardware: the same key, or
// the same position among its type.
func findDevice(list, others object.VirtualDeviceList, device types.BaseVirtualDevice) types.BaseVirtualDevice {
	same := func(l object.VirtualDeviceList) object.VirtualDeviceList {
		return l.Select(func(d types.BaseVirtualDevice) bool { return reflect.TypeOf(d) == reflect.TypeOf(device) })
	}
	key := device.GetVirtualDevice().Key
	for i, other := range same(others) {
		if mine := same(list); other.GetVirtualDevice().Key == key && i < len(mine) {
			return mine[i]
		}
	}
	return nil
}
