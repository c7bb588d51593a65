package vcenter

import (
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CloneVMTask clones as a real vCenter does: a new VM with the source's hardware, then the configuration and the device
// changes in one strict reconfiguration. vcsim's own clone drops errors of the device changes, applies them to the
// template's files, and holds the template while it works.
func (g *vmGate) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	names := append(g.strict.namesOf(g.VirtualMachine), req.Name)
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "CloneVM_Task", description: "VirtualMachine.clone", names: names,
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return g.strict.clone(ctx, g.VirtualMachine, req)
			},
		}),
	}}
}

func (s *strict) clone(ctx *simulator.Context, source *simulator.VirtualMachine, req *types.CloneVM_Task) (types.AnyType, types.BaseMethodFault) {
	if fault := gone(ctx, source); fault != nil {
		return nil, fault
	}
	folder, ok := ctx.Map.Get(req.Folder).(*simulator.Folder)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: req.Folder}
	}
	location := req.Spec.Location
	if fault := s.locate(ctx, source, folder, &location); fault != nil {
		return nil, fault
	}
	var config types.VirtualMachineConfigSpec
	if req.Spec.Config != nil {
		config = *req.Spec.Config
	}
	if fault := extraConfigAllowed(config.ExtraConfig); fault != nil {
		return nil, fault
	}
	result, fault := s.create(ctx, folder, &types.CreateVM_Task{
		Config: s.bare(ctx, source, req.Name, location, config), Pool: *location.Pool, Host: location.Host,
	})
	if fault != nil {
		return nil, fault
	}
	clone, ok := ctx.Map.Get(result).(*simulator.VirtualMachine)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: result}
	}
	if fault := s.outfit(ctx, source, clone, req, config); fault != nil {
		_ = s.destroy(ctx, clone)
		return nil, fault
	}
	return clone.Self, nil
}

// outfit turns vcsim's bare copy into what the specification asks for.
func (s *strict) outfit(ctx *simulator.Context, source, clone *simulator.VirtualMachine, req *types.CloneVM_Task, config types.VirtualMachineConfigSpec) types.BaseMethodFault {
	s.uniqueInstance(ctx, clone, clone.Config.InstanceUuid)

	// Name and files are the clone's own, the identities are set.
	config.Name, config.Files, config.Uuid, config.InstanceUuid = "", nil, "", ""
	s.inherit(ctx, source, &config)
	config.DeviceChange = append(slices.Clone(req.Spec.Location.DeviceChange), config.DeviceChange...)
	s.translate(ctx, source, clone, config.DeviceChange)
	if fault := s.reconfigure(ctx, clone, config); fault != nil {
		return fault
	}
	if req.Spec.PowerOn && !req.Spec.Template {
		if fault := s.powerOn(ctx, clone); fault != nil {
			return fault
		}
	}
	if req.Spec.Template {
		var response soap.HasFault
		ctx.WithLock(clone, func() { response = clone.MarkAsTemplate(&types.MarkAsTemplate{This: clone.Self}) })
		if fault := response.Fault(); fault != nil {
			return &types.SystemError{Reason: fault.String}
		}
	}
	return nil
}

func orNew(id string) string {
	if id != "" {
		return id
	}
	return uuid.NewString()
}

// locate checks where the clone is to go, and picks a host of the pool's cluster as DRS would: vcsim would leave it on the
// template's host, and crash on places that do not exist.
func (s *strict) locate(ctx *simulator.Context, source *simulator.VirtualMachine, folder *simulator.Folder, location *types.VirtualMachineRelocateSpec) types.BaseMethodFault {
	var vmx string
	ctx.WithLock(source, func() {
		vmx = source.Config.Files.VmPathName
		if location.Pool == nil && !source.Config.Template {
			location.Pool = source.ResourcePool
		}
	})
	if location.Pool == nil {
		return &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
	}
	hosts, fault := s.hostsOf(ctx, *location.Pool)
	if fault != nil {
		return fault
	}
	dc := s.datacenterOf(ctx, folder.Self)
	if dc == nil || dc != s.datacenterOf(ctx, *location.Pool) {
		return &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
	}
	if location.Datastore == nil {
		from := s.datacenterOf(ctx, source.Self)
		p, fault := s.resolve(ctx, &from.Self, vmx)
		if fault != nil {
			return fault
		}
		location.Datastore = &p.datastore.Self
	}
	if simulator.FindReference(dc.Datastore, *location.Datastore) == nil {
		return &types.InvalidDatastore{Datastore: location.Datastore}
	}
	if location.Host == nil {
		location.Host = s.pickHost(ctx, hosts, *location.Datastore)
	}
	if location.Host == nil || simulator.FindReference(hosts, *location.Host) == nil {
		return &types.InvalidArgument{InvalidProperty: "spec.location.host"}
	}
	return nil
}

// hostsOf are the hosts of the cluster that a resource pool belongs to.
func (s *strict) hostsOf(ctx *simulator.Context, pool types.ManagedObjectReference) ([]types.ManagedObjectReference, types.BaseMethodFault) {
	ref := pool
	for {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			return nil, &types.ManagedObjectNotFound{Obj: pool}
		}
		switch e := entity.(type) {
		case *simulator.ClusterComputeResource:
			return e.Host, nil
		case *mo.ComputeResource:
			return e.Host, nil
		}
		parent := entity.Entity().Parent
		if parent == nil {
			return nil, &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
		}
		ref = *parent
	}
}

// pickHost takes the host with the fewest VMs of those that reach the datastore.
func (s *strict) pickHost(ctx *simulator.Context, hosts []types.ManagedObjectReference, datastore types.ManagedObjectReference) *types.ManagedObjectReference {
	var best *types.ManagedObjectReference
	fewest := 0
	for _, ref := range hosts {
		host, ok := ctx.Map.Get(ref).(*simulator.HostSystem)
		if !ok {
			continue
		}
		ctx.WithLock(host, func() {
			usable := !host.Runtime.InMaintenanceMode && simulator.FindReference(host.Datastore, datastore) != nil
			if usable && (best == nil || len(host.Vm) < fewest) {
				best, fewest = &ref, len(host.Vm)
			}
		})
	}
	return best
}

// bare is the specification of a VM with the hardware of the source, and nothing that is the source's own: new disk files
// in the clone's directory, new addresses.
func (s *strict) bare(ctx *simulator.Context, source *simulator.VirtualMachine, name string, location types.VirtualMachineRelocateSpec, wanted types.VirtualMachineConfigSpec) types.VirtualMachineConfigSpec {
	datastore := s.server.entityName(*location.Datastore)
	config := types.VirtualMachineConfigSpec{
		Name: name, Uuid: wanted.Uuid, InstanceUuid: wanted.InstanceUuid,
		Files: &types.VirtualMachineFileInfo{VmPathName: "[" + datastore + "] " + name},
	}
	var devices object.VirtualDeviceList
	ctx.WithLock(source, func() {
		from := source.Config
		config.Version, config.GuestId = from.Version, from.GuestId
		config.NumCPUs, config.NumCoresPerSocket, config.MemoryMB = from.Hardware.NumCPU, from.Hardware.NumCoresPerSocket, int64(from.Hardware.MemoryMB)
		devices = slices.Clone(from.Hardware.Device)
	})
	standard := object.VirtualDeviceList(esx.VirtualDevice)
	var controllers, others []types.BaseVirtualDeviceConfigSpec
	for _, device := range devices {
		if standard.Find(devices.Name(device)) != nil {
			continue // every new VM has it
		}
		spec := &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: duplicate(device)}
		switch d := spec.Device.(type) {
		case types.BaseVirtualController:
			d.GetVirtualController().Device = nil
			controllers = append(controllers, spec)
			continue
		case types.BaseVirtualEthernetCard:
			d.GetVirtualEthernetCard().MacAddress = ""
		case *types.VirtualDisk:
			if backing, ok := d.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
				own := *backing
				own.FileName, own.Uuid, own.Datastore, own.Parent = "["+datastore+"]", "", nil, nil
				d.Backing = &own
				spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
			}
		}
		others = append(others, spec)
	}
	config.DeviceChange = append(controllers, others...)
	return config
}

// duplicate copies a device, so that changing the copy leaves the original alone. What the backing points to is shared.
func duplicate(device types.BaseVirtualDevice) types.BaseVirtualDevice {
	original := reflect.ValueOf(device).Elem()
	result := reflect.New(original.Type())
	result.Elem().Set(original)
	copied := result.Interface().(types.BaseVirtualDevice)
	if connectable := copied.GetVirtualDevice().Connectable; connectable != nil {
		own := *connectable
		copied.GetVirtualDevice().Connectable = &own
	}
	return copied
}

// inherit fills what a clone takes over from its source where the specification says nothing, and vcsim leaves out.
func (s *strict) inherit(ctx *simulator.Context, source *simulator.VirtualMachine, config *types.VirtualMachineConfigSpec) {
	ctx.WithLock(source, func() {
		from := source.Config
		var wanted types.VirtualMachineFlagInfo
		if config.Flags != nil {
			wanted = *config.Flags
		}
		config.Flags = mergedFlags(from.Flags, wanted)
		setDefault(&config.Firmware, from.Firmware)
		setDefault(&config.Annotation, from.Annotation)
		setDefault(&config.CpuHotAddEnabled, from.CpuHotAddEnabled)
		setDefault(&config.CpuHotRemoveEnabled, from.CpuHotRemoveEnabled)
		setDefault(&config.MemoryHotAddEnabled, from.MemoryHotAddEnabled)
		setDefault(&config.NestedHVEnabled, from.NestedHVEnabled)
		setDefault(&config.BootOptions, from.BootOptions)
		given := map[string]bool{"govcsim": true}
		for _, option := range config.ExtraConfig {
			given[option.GetOptionValue().Key] = true
		}
		for _, option := range from.ExtraConfig {
			if !given[option.GetOptionValue().Key] {
				config.ExtraConfig = append(config.ExtraConfig, option)
			}
		}
	})
}

// translate points the device changes, which speak of the source's devices, at the clone's. A disk that is left out of the
// clone leaves no file behind.
func (s *strict) translate(ctx *simulator.Context, source, clone *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) {
	var theirs, mine object.VirtualDeviceList
	ctx.WithLock(source, func() { theirs = slices.Clone(source.Config.Hardware.Device) })
	ctx.WithLock(clone, func() { mine = slices.Clone(clone.Config.Hardware.Device) })
	keys := map[int32]int32{}
	for _, device := range theirs {
		if own := findDevice(mine, theirs, device); own != nil {
			keys[device.GetVirtualDevice().Key] = own.GetVirtualDevice().Key
		}
	}
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Device == nil {
			continue
		}
		d := spec.Device.GetVirtualDevice()
		if key, ok := keys[d.ControllerKey]; ok && d.ControllerKey > 0 {
			d.ControllerKey = key
		}
		if spec.Operation == types.VirtualDeviceConfigSpecOperationAdd {
			continue
		}
		if key, ok := keys[d.Key]; ok {
			d.Key = key
		}
		disk, ok := spec.Device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
			spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationDestroy
		}
		if backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			backing.FileName, backing.Uuid = "", ""
		}
	}
}
