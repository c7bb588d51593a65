package vcenter

import (
	"cmp"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// World returns what exists now.
func (s *Server) World() *World {
	s.strict.world.RLock()
	defer s.strict.world.RUnlock()
	ctx := s.internalContext()
	world := &World{
		Time: time.Now(), VMs: []VM{}, Disks: s.strict.disks.list(), Files: []File{}, Datastores: []Datastore{},
		Folders: []string{}, Sessions: append(s.sessions(), s.rest.list(s.opts.SessionIdle)...),
	}
	for _, vm := range s.vms() {
		ctx.WithLock(vm, func() { world.VMs = append(world.VMs, s.describe(ctx, vm)) })
	}
	byPath := map[string]int{}
	for i := range world.Disks {
		byPath[world.Disks[i].Datacenter+world.Disks[i].Path] = i
	}
	for _, vm := range world.VMs {
		for _, disk := range vm.Disks {
			if i, ok := byPath[vm.Datacenter+disk.Path]; ok {
				world.Disks[i].AttachedTo = append(world.Disks[i].AttachedTo, vm.Ref)
			}
		}
	}
	for _, ds := range s.strict.census.stores() {
		ctx.WithLock(ds, func() { world.Datastores = append(world.Datastores, s.describeDatastore(ds)) })
	}
	slices.SortFunc(world.Datastores, func(a, b Datastore) int {
		return cmp.Or(cmp.Compare(a.Datacenter, b.Datacenter), cmp.Compare(a.Name, b.Name))
	})
	for _, ds := range world.Datastores {
		world.Files = append(world.Files, s.files(ds)...)
	}
	for _, entity := range s.registry.All("Folder") {
		if p := s.inventoryPath(entity.Reference()); strings.Contains(p, "/vm/") {
			world.Folders = append(world.Folders, p)
		}
	}
	slices.Sort(world.Folders)
	return world
}

// vms are all VMs and templates, in the order of their creation.
func (s *Server) vms() []*simulator.VirtualMachine { return s.strict.census.machines() }

// describe runs under the VM's lock.
func (s *Server) describe(ctx *simulator.Context, vm *simulator.VirtualMachine) VM {
	out := VM{
		Ref: vm.Self.Value, Name: vm.Name, Path: s.inventoryPath(vm.Self), Power: string(vm.Runtime.PowerState),
		Disks: []AttachedDisk{}, NICs: []NIC{}, ExtraConfig: []string{},
	}
	out.Datacenter, _, _ = strings.Cut(strings.TrimPrefix(out.Path, "/"), "/")
	if vm.Runtime.Host != nil {
		out.Host = s.entityName(*vm.Runtime.Host)
	}
	if vm.ResourcePool != nil {
		out.ResourcePool = s.entityName(*vm.ResourcePool)
	}
	if vm.Snapshot != nil {
		out.Snapshots = countSnapshots(vm.Snapshot.RootSnapshotList)
	}
	if vm.Config == nil {
		return out
	}
	out.Template, out.UUID, out.InstanceUUID = vm.Config.Template, vm.Config.Uuid, vm.Config.InstanceUuid
	out.HardwareVersion, out.NumCPUs, out.MemoryMiB = vm.Config.Version, vm.Config.Hardware.NumCPU, vm.Config.Hardware.MemoryMB
	out.DiskUUIDEnabled = vm.Config.Flags.DiskUuidEnabled != nil && *vm.Config.Flags.DiskUuidEnabled
	out.Directory = path.Dir(vm.Config.Files.VmPathName)
	for _, option := range vm.Config.ExtraConfig {
		out.ExtraConfig = append(out.ExtraConfig, option.GetOptionValue().Key)
	}
	buses := map[int32]int32{}
	for _, device := range vm.Config.Hardware.Device {
		if controller, ok := device.(types.BaseVirtualController); ok {
			buses[device.GetVirtualDevice().Key] = controller.GetVirtualController().BusNumber
		}
	}
	for _, device := range vm.Config.Hardware.Device {
		d := device.GetVirtualDevice()
		if card, ok := device.(types.BaseVirtualEthernetCard); ok {
			out.NICs = append(out.NICs, NIC{Key: d.Key, MAC: card.GetVirtualEthernetCard().MacAddress, Network: s.networkName(d.Backing)})
		}
		if disk, ok := device.(*types.VirtualDisk); ok {
			attached := AttachedDisk{Key: d.Key, Bus: buses[d.ControllerKey], Path: backingFile(disk), UUID: backingUUID(disk), CapacityBytes: disk.CapacityInBytes}
			if d.UnitNumber != nil {
				attached.Unit = *d.UnitNumber
			}
			attached.Own = path.Dir(attached.Path) == out.Directory
			out.Disks = append(out.Disks, attached)
		}
	}
	if vm.Guest != nil {
		out.Guest = Guest{HostName: vm.Guest.HostName, ToolsRunning: toolsRun(vm)}
		for _, nic := range vm.Guest.Net {
			out.Guest.NICs = append(out.Guest.NICs, GuestNIC{MAC: nic.MacAddress, Network: nic.Network, Addresses: nic.IpAddress})
		}
	}
	return out
}

func toolsRun(vm *simulator.VirtualMachine) bool {
	return vm.Guest != nil && vm.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
}

func countSnapshots(tree []types.VirtualMachineSnapshotTree) int {
	n := len(tree)
	for i := range tree {
		n += countSnapshots(tree[i].ChildSnapshotList)
	}
	return n
}

func (s *Server) describeDatastore(ds *simulator.Datastore) Datastore {
	datacenter, _, _ := strings.Cut(strings.TrimPrefix(s.inventoryPath(ds.Self), "/"), "/")
	return Datastore{
		Ref: ds.Self.Value, Name: ds.Name, Datacenter: datacenter,
		CapacityBytes: ds.Summary.Capacity, FreeBytes: ds.Summary.FreeSpace,
	}
}

func (s *Server) files(ds Datastore) []File {
	root := filepath.Join(s.opts.Dir, "datastores", ds.Datacenter, ds.Name)
	var list []File
	_ = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == root {
			return nil //nolint:nilerr // a file that vanishes during the walk is not there
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		list = append(list, File{Datacenter: ds.Datacenter, Path: "[" + ds.Name + "] " + filepath.ToSlash(rel), Directory: entry.IsDir()})
		return nil
	})
	return list
}

// inventoryPath walks up the parents.
func (s *Server) inventoryPath(ref types.ManagedObjectReference) string {
	var names []string
	for {
		entity, ok := s.registry.Get(ref).(mo.Entity)
		if !ok {
			break
		}
		e := entity.Entity()
		if e.Parent == nil {
			break
		}
		names = append([]string{entityName(entity)}, names...)
		ref = *e.Parent
	}
	return "/" + strings.Join(names, "/")
}

func (s *Server) entityName(ref types.ManagedObjectReference) string {
	entity, ok := s.registry.Get(ref).(mo.Entity)
	if !ok {
		return ""
	}
	return entityName(entity)
}

// entityName: network kinds keep their name beside the entity's.
func entityName(entity mo.Entity) string {
	switch e := entity.(type) {
	case *mo.Network:
		return e.Name
	case *simulator.DistributedVirtualPortgroup:
		return e.Name
	case *simulator.DistributedVirtualSwitch:
		return e.Name
	}
	return entity.Entity().Name
}

func (s *Server) networkName(backing types.BaseVirtualDeviceBackingInfo) string {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return b.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return s.entityName(types.ManagedObjectReference{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey})
	}
	return ""
}

func backingFile(disk *types.VirtualDisk) string {
	if b, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		return b.GetVirtualDeviceFileBackingInfo().FileName
	}
	return ""
}

func backingUUID(disk *types.VirtualDisk) string {
	if b, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
		return b.Uuid
	}
	return ""
}
