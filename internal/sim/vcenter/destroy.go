package vcenter

import (
	"os"
	"path"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// DestroyTask deletes the VM and everything attached to it, wherever it lies: the semantics that make it dangerous.
func (g *vmGate) DestroyTask(ctx *simulator.Context, _ *types.Destroy_Task) soap.HasFault {
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "Destroy_Task", description: "VirtualMachine.destroy", names: g.strict.namesOf(g.VirtualMachine),
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return nil, g.strict.destroy(ctx, g.VirtualMachine)
			},
		}),
	}}
}

// destroy does not use vcsim's, which reports success before the files are gone and would later delete those of a new VM
// with the same name.
func (s *strict) destroy(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if fault := gone(ctx, vm); fault != nil {
		return fault
	}
	dc := s.datacenterOf(ctx, vm.Self)
	var name, directory string
	var disks []*types.VirtualDisk
	var power types.VirtualMachinePowerState
	ctx.WithLock(vm, func() {
		name, power, disks = vm.Name, vm.Runtime.PowerState, disksOf(vm)
		directory = path.Dir(vm.Config.Files.VmPathName)
	})
	if power == types.VirtualMachinePowerStatePoweredOn {
		return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: power}
	}
	places, fault := s.destroyable(ctx, vm, dc, disks)
	if fault != nil {
		return fault
	}
	cluster := s.clusterOf(ctx, vm)
	var response soap.HasFault
	ctx.WithLock(vm, func() { response = vm.UnregisterVM(ctx, &types.UnregisterVM{This: vm.Self}) })
	if soapFault := response.Fault(); soapFault != nil {
		fault, _ := soapFault.VimFault().(types.BaseMethodFault)
		return fault
	}
	s.evict(ctx, cluster, vm.Self)
	for _, p := range places {
		if path.Dir(p.path) != directory {
			s.record(Violation{
				Kind: ForeignDiskDestroyed, VM: name, Ref: vm.Self.Value, Disk: p.path,
				Detail: "the disk was attached when the VM was destroyed, and was deleted with it",
			})
		}
		s.deleteFiles(p)
	}
	if home, fault := s.resolve(ctx, &dc.Self, directory); fault == nil && !home.root {
		_ = os.RemoveAll(home.file)
		s.disks.drop(home.file)
	}
	s.account(ctx)
	return nil
}

// destroyable refuses when a disk is in use by another VM that runs; what only hangs on one that is off is deleted, and
// recorded.
func (s *strict) destroyable(ctx *simulator.Context, vm *simulator.VirtualMachine, dc *simulator.Datacenter, disks []*types.VirtualDisk) ([]place, types.BaseMethodFault) {
	holders := s.holdersOf(ctx, vm.Self)
	var places []place
	for _, device := range disks {
		p, fault := s.resolve(ctx, &dc.Self, backingFile(device))
		if fault != nil {
			continue
		}
		for _, h := range holders[backingUUID(device)] {
			s.record(Violation{
				Kind: DeletedWhileAttached, VM: s.server.nameOf(vm.Self), Ref: vm.Self.Value, Disk: p.path,
				Detail: "the VM was to be destroyed with a disk that is attached to " + h.name + " too",
			})
			if h.runs() {
				return nil, &types.FileLocked{FileFault: types.FileFault{File: p.path}}
			}
		}
		places = append(places, p)
	}
	return places, nil
}

// deleteFiles removes a VMDK: descriptor, extent, and content.
func (s *strict) deleteFiles(p place) {
	_ = os.Remove(p.file)
	_ = os.Remove(simulator.VirtualDiskBackingFileName(p.file))
	s.disks.drop(p.file)
}

// folderGate serves the calls on folders that create or destroy VMs.
type folderGate struct {
	*simulator.Folder
	unlocked
	strict *strict
}

// CreateVMTask creates a VM whose disks, adapters and UUIDs are its own.
func (g *folderGate) CreateVMTask(ctx *simulator.Context, req *types.CreateVM_Task) soap.HasFault {
	return &methods.CreateVM_TaskBody{Res: &types.CreateVM_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "CreateVM_Task", description: "Folder.createVm", names: []string{req.Config.Name},
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return g.strict.create(ctx, g.Folder, req)
			},
		}),
	}}
}

func (s *strict) create(ctx *simulator.Context, folder *simulator.Folder, req *types.CreateVM_Task) (types.ManagedObjectReference, types.BaseMethodFault) {
	var none types.ManagedObjectReference
	config := req.Config
	if config.Name == "" || config.Files == nil || config.Files.VmPathName == "" {
		return none, &types.InvalidVmConfig{Property: "configSpec.files.vmPathName"}
	}
	if fault := extraConfigAllowed(config.ExtraConfig); fault != nil {
		return none, fault
	}
	dc := s.datacenterOf(ctx, folder.Self)
	if dc == nil {
		return none, &types.NotSupported{}
	}
	if fault := s.nameFree(ctx, folder, config.Name); fault != nil {
		return none, fault
	}
	home, fault := s.resolve(ctx, &dc.Self, config.Files.VmPathName)
	if fault != nil {
		return none, fault
	}
	host := req.Host
	if host == nil {
		hosts, fault := s.hostsOf(ctx, req.Pool)
		if fault != nil {
			return none, fault
		}
		if host = s.pickHost(ctx, hosts, home.datastore.Self); host == nil {
			return none, &types.InvalidDatastore{Name: home.datastore.Name}
		}
	}
	config.Uuid, config.InstanceUuid = orNew(config.Uuid), orNew(config.InstanceUuid)
	check := &deviceCheck{
		strict: s, ctx: ctx, dc: dc, name: config.Name, creating: true, devices: esx.VirtualDevice, home: "[" + home.datastore.Name + "]",
	}
	if fault := check.prepare(config.DeviceChange); fault != nil {
		return none, fault
	}
	result, fault := s.inner(ctx, folder, func() soap.HasFault {
		return folder.CreateVMTask(ctx, &types.CreateVM_Task{This: folder.Self, Config: config, Pool: req.Pool, Host: host})
	})
	if fault != nil {
		s.account(ctx)
		return none, fault
	}
	vm, ok := ctx.Map.Get(result.(types.ManagedObjectReference)).(*simulator.VirtualMachine)
	if !ok {
		return none, &types.ManagedObjectNotFound{Obj: result.(types.ManagedObjectReference)}
	}
	check.vm = vm.Self
	s.settle(ctx, vm, check, true)
	return vm.Self, nil
}

// nameFree: a name is given once in a folder.
func (s *strict) nameFree(ctx *simulator.Context, folder *simulator.Folder, name string) types.BaseMethodFault {
	var children []types.ManagedObjectReference
	ctx.WithLock(folder, func() { children = append(children, folder.ChildEntity...) })
	if other := ctx.Map.FindByName(name, children); other != nil {
		return &types.DuplicateName{Name: name, Object: other.Reference()}
	}
	return nil
}

// DestroyTask destroys what is in a folder, then the folder. vcsim would leave its VMs without a parent.
func (g *folderGate) DestroyTask(ctx *simulator.Context, req *types.Destroy_Task) soap.HasFault {
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{
		Returnval: g.strict.start(ctx, job{
			entity: g.Self, method: "Destroy_Task", description: "Folder.destroy", names: []string{g.Self.Value, g.strict.server.nameOf(g.Self)},
			run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
				return nil, g.strict.destroyFolder(ctx, g.Folder, req)
			},
		}),
	}}
}

func (s *strict) destroyFolder(ctx *simulator.Context, folder *simulator.Folder, req *types.Destroy_Task) types.BaseMethodFault {
	var children []types.ManagedObjectReference
	ctx.WithLock(folder, func() { children = append(children, folder.ChildEntity...) })
	for _, child := range children {
		var fault types.BaseMethodFault
		switch object := ctx.Map.Get(child).(type) {
		case *simulator.VirtualMachine:
			fault = s.destroy(ctx, object)
		case *simulator.Folder:
			fault = s.destroyFolder(ctx, object, &types.Destroy_Task{This: child})
		}
		if fault != nil {
			return fault
		}
	}
	_, fault := s.inner(ctx, folder, func() soap.HasFault { return folder.DestroyTask(ctx, req) })
	return fault
}
