package vcenter

import (
	"os"
	"path"
	"path/filepath"
	"reflect"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// deviceCheck checks the device changes of one call before vcsim gets them, and completes them with what vCenter would
// fill in: identities, addresses, capacities.
type deviceCheck struct {
	*strict
	ctx *simulator.Context
	dc  *simulator.Datacenter
	vm  types.ManagedObjectReference
	// devices are those the VM has.
	devices object.VirtualDeviceList
	// powered: the VM runs.
	powered bool
	name    string
	// creating: the VM is being created, its directory does not exist yet.
	creating bool
	// home is the VM's directory, for disks without a path.
	home string

	units map[int32]map[int32]bool
	buses map[string]map[int32]bool
	// controllers by key, those added in this call included.
	controllers map[int32]types.BaseVirtualController

	// What the call does, in order.
	created  []plannedDisk
	removed  []place
	grown    []plannedDisk
	findings []Violation
	needs    map[types.ManagedObjectReference]int64
}

type plannedDisk struct {
	// place is zero when vcsim chooses the path.
	place    place
	uuid     string
	capacity int64
}

func (c *deviceCheck) prepare(changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	c.units, c.buses = map[int32]map[int32]bool{}, map[string]map[int32]bool{}
	c.controllers, c.needs = map[int32]types.BaseVirtualController{}, map[types.ManagedObjectReference]int64{}
	for _, device := range c.devices {
		c.occupy(device)
	}
	for i, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Device == nil {
			return invalidDevice(i, "device")
		}
		var fault types.BaseMethodFault
		switch spec.Operation {
		case types.VirtualDeviceConfigSpecOperationAdd:
			fault = c.add(i, spec)
		case types.VirtualDeviceConfigSpecOperationEdit:
			fault = c.edit(i, spec)
		case types.VirtualDeviceConfigSpecOperationRemove:
			fault = c.remove(i, spec)
		default:
			fault = invalidDevice(i, "operation")
		}
		if fault != nil {
			return fault
		}
	}
	return nil
}

func invalidDevice(index int, property string) types.BaseMethodFault {
	return &types.InvalidDeviceSpec{
		InvalidVmConfig: types.InvalidVmConfig{Property: "virtualDeviceSpec." + property}, DeviceIndex: int32(index),
	}
}

// scsiSelf is the unit that a SCSI controller takes for itself.
const scsiSelf = 7

func (c *deviceCheck) occupy(device types.BaseVirtualDevice) {
	d := device.GetVirtualDevice()
	if controller, ok := device.(types.BaseVirtualController); ok {
		c.controllers[d.Key] = controller
		kind, bus := busOf(controller)
		if c.buses[kind] == nil {
			c.buses[kind] = map[int32]bool{}
		}
		c.buses[kind][bus] = true
	}
	if d.UnitNumber != nil {
		c.takeUnit(d.ControllerKey, *d.UnitNumber)
	}
}

func (c *deviceCheck) takeUnit(controller, unit int32) {
	if c.units[controller] == nil {
		c.units[controller] = map[int32]bool{}
	}
	c.units[controller][unit] = true
}

// busOf tells which bus numbers a controller competes for.
func busOf(controller types.BaseVirtualController) (string, int32) {
	kind := reflect.TypeOf(controller).Elem().Name()
	if _, ok := controller.(types.BaseVirtualSCSIController); ok {
		kind = "scsi"
	}
	return kind, controller.GetVirtualController().BusNumber
}

// maxSCSI is how many SCSI controllers a VM can have.
const maxSCSI = 4

func (c *deviceCheck) add(i int, spec *types.VirtualDeviceConfigSpec) types.BaseMethodFault {
	switch device := spec.Device.(type) {
	case types.BaseVirtualController:
		kind, bus := busOf(device)
		if kind == "scsi" && (c.buses[kind][bus] || len(c.buses[kind]) >= maxSCSI || bus < 0 || bus >= maxSCSI) {
			return invalidDevice(i, "device.busNumber")
		}
		c.occupy(spec.Device)
	case *types.VirtualDisk:
		return c.addDisk(i, spec, device)
	case types.BaseVirtualEthernetCard:
		card := device.GetVirtualEthernetCard()
		if !c.networkExists(card.Backing) {
			return invalidDevice(i, "device.backing")
		}
		if card.MacAddress == "" {
			card.MacAddress = c.newMAC()
			card.AddressType = string(types.VirtualEthernetCardMacTypeAssigned)
		}
	}
	return nil
}

func (c *deviceCheck) addDisk(i int, spec *types.VirtualDeviceConfigSpec, disk *types.VirtualDisk) types.BaseMethodFault {
	controller, ok := c.controllers[disk.ControllerKey]
	if !ok {
		return invalidDevice(i, "device.controllerKey")
	}
	if disk.UnitNumber == nil || !validUnit(controller, *disk.UnitNumber) || c.units[disk.ControllerKey][*disk.UnitNumber] {
		return invalidDevice(i, "device.unitNumber")
	}
	c.takeUnit(disk.ControllerKey, *disk.UnitNumber)
	backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok {
		// Raw device mappings and the like are vcsim's business.
		return nil
	}
	if c.powered {
		c.found(HotDiskChange, backing.FileName, "a disk was added while the VM runs")
	}
	if spec.FileOperation == "" {
		return c.attach(disk, backing)
	}
	return c.createDisk(i, spec, disk, backing)
}

// validUnit knows the units of the controllers: a SCSI controller has 15 for disks, and one for itself.
func validUnit(controller types.BaseVirtualController, unit int32) bool {
	limit := int32(14)
	switch controller.(type) {
	case types.BaseVirtualSCSIController:
		limit = 15
		if unit == scsiSelf {
			return false
		}
	case types.BaseVirtualSATAController:
		limit = 29
	case *types.VirtualIDEController:
		limit = 1
	}
	return unit >= 0 && unit <= limit
}

// attach checks an existing VMDK; its identity and capacity come from the file, whatever the caller says.
func (c *deviceCheck) attach(device *types.VirtualDisk, backing *types.VirtualDiskFlatVer2BackingInfo) types.BaseMethodFault {
	p, fault := c.resolve(c.ctx, &c.dc.Self, backing.FileName)
	if fault != nil {
		return fault
	}
	disk, ok := c.disk(p)
	if !ok {
		return &types.FileNotFound{FileFault: types.FileFault{File: backing.FileName}}
	}
	for _, own := range c.devices {
		if other, ok := own.(*types.VirtualDisk); ok && c.sameFile(other, p) {
			return &types.FileLocked{FileFault: types.FileFault{File: p.path}}
		}
	}
	for _, h := range c.holders(c.ctx, disk, c.vm) {
		if h.shared && multiWriter(device) {
			continue
		}
		if c.powered && h.runs() {
			c.server.opts.Log.Info("refused", "vm", c.name, "disk", p.path, "holder", h.name)
			return &types.FileLocked{FileFault: types.FileFault{File: p.path}}
		}
		c.found(AttachedTwice, p.path, "the disk is attached to "+h.name+" too")
	}
	device.CapacityInBytes, device.CapacityInKB = disk.capacity, disk.capacity/1024
	backing.FileName, backing.Uuid = p.path, disk.uuid
	return nil
}

// sameFile tells whether a device's backing is the file at a place.
func (c *deviceCheck) sameFile(device *types.VirtualDisk, p place) bool {
	own, fault := c.resolve(c.ctx, &c.dc.Self, backingFile(device))
	return fault == nil && own.file == p.file
}

func (c *deviceCheck) createDisk(i int, spec *types.VirtualDeviceConfigSpec, device *types.VirtualDisk, backing *types.VirtualDiskFlatVer2BackingInfo) types.BaseMethodFault {
	if spec.FileOperation != types.VirtualDeviceConfigSpecFileOperationCreate && spec.FileOperation != types.VirtualDeviceConfigSpecFileOperationReplace {
		return invalidDevice(i, "fileOperation")
	}
	capacity := capacityOf(device)
	if capacity <= 0 {
		return invalidDevice(i, "device.capacityInBytes")
	}
	device.CapacityInBytes, device.CapacityInKB = capacity, capacity/1024
	name := backing.FileName
	if name == "" {
		name = c.home
	}
	p, fault := c.resolve(c.ctx, &c.dc.Self, name)
	if fault != nil {
		return fault
	}
	if fault := c.reserve(p, capacity); fault != nil {
		return fault
	}
	backing.Uuid = newDiskUUID()
	planned := plannedDisk{uuid: backing.Uuid, capacity: capacity}
	if path.Ext(p.path) == ".vmdk" {
		planned.place = p
		if !c.creating {
			if _, err := os.Stat(filepath.Dir(p.file)); err != nil {
				return &types.FileNotFound{FileFault: types.FileFault{File: path.Dir(p.path)}}
			}
		}
	}
	c.created = append(c.created, planned)
	return nil
}

// reserve counts what the whole call needs on a datastore.
func (c *deviceCheck) reserve(p place, bytes int64) types.BaseMethodFault {
	c.needs[p.datastore.Self] += bytes
	return c.fits(p, c.needs[p.datastore.Self])
}

func capacityOf(disk *types.VirtualDisk) int64 {
	if disk.CapacityInBytes > 0 {
		return disk.CapacityInBytes
	}
	return disk.CapacityInKB * 1024
}

func (c *deviceCheck) edit(i int, spec *types.VirtualDeviceConfigSpec) types.BaseMethodFault {
	old := c.devices.FindByKey(spec.Device.GetVirtualDevice().Key)
	if old == nil || reflect.TypeOf(old) != reflect.TypeOf(spec.Device) {
		return invalidDevice(i, "device.key")
	}
	switch device := spec.Device.(type) {
	case types.BaseVirtualEthernetCard:
		card := device.GetVirtualEthernetCard()
		if !c.networkExists(card.Backing) {
			return invalidDevice(i, "device.backing")
		}
		if card.MacAddress == "" {
			card.MacAddress = old.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress
		}
	case *types.VirtualDisk:
		return c.editDisk(i, device, old.(*types.VirtualDisk))
	}
	return nil
}

func (c *deviceCheck) editDisk(i int, device, old *types.VirtualDisk) types.BaseMethodFault {
	backing, ok := device.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	before, was := old.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok || !was {
		return nil
	}
	if backing.FileName != "" && backing.FileName != before.FileName {
		return invalidDevice(i, "device.backing.fileName")
	}
	backing.FileName, backing.Uuid, backing.Datastore = before.FileName, before.Uuid, before.Datastore
	capacity := editedCapacity(device, old)
	if capacity < old.CapacityInBytes {
		return &types.InvalidDeviceOperation{InvalidDeviceSpec: *invalidDevice(i, "device.capacityInBytes").(*types.InvalidDeviceSpec)}
	}
	device.CapacityInBytes, device.CapacityInKB = capacity, capacity/1024
	if c.powered {
		c.found(HotDiskChange, before.FileName, "a disk was edited while the VM runs")
	}
	if capacity == old.CapacityInBytes {
		return nil
	}
	p, fault := c.resolve(c.ctx, &c.dc.Self, before.FileName)
	if fault != nil {
		return fault
	}
	c.grown = append(c.grown, plannedDisk{place: p, uuid: before.Uuid, capacity: capacity})
	return c.reserve(p, capacity-old.CapacityInBytes)
}

// editedCapacity: the field that differs from what the disk has is the one that was meant.
func editedCapacity(device, old *types.VirtualDisk) int64 {
	switch {
	case device.CapacityInBytes > 0 && device.CapacityInBytes != old.CapacityInBytes:
		return device.CapacityInBytes
	case device.CapacityInKB > 0:
		return device.CapacityInKB * 1024
	default:
		return old.CapacityInBytes
	}
}

func (c *deviceCheck) remove(i int, spec *types.VirtualDeviceConfigSpec) types.BaseMethodFault {
	old := c.devices.FindByKey(spec.Device.GetVirtualDevice().Key)
	if old == nil {
		return invalidDevice(i, "device.key")
	}
	// Callers may send no more than the key: vcsim deletes the file that the sent device names.
	spec.Device = old
	d := old.GetVirtualDevice()
	if d.UnitNumber != nil {
		delete(c.units[d.ControllerKey], *d.UnitNumber)
	}
	disk, ok := old.(*types.VirtualDisk)
	if !ok {
		return nil
	}
	p, fault := c.resolve(c.ctx, &c.dc.Self, backingFile(disk))
	if fault != nil {
		return nil //nolint:nilerr // not a file on a datastore
	}
	if c.powered {
		c.found(HotDetach, p.path, "a disk was removed while the VM runs")
	}
	destroy := spec.FileOperation == types.VirtualDeviceConfigSpecFileOperationDestroy
	if file, ok := c.disk(p); ok && destroy {
		if others := c.holders(c.ctx, file, c.vm); len(others) > 0 {
			c.found(DeletedWhileAttached, p.path, "the disk was to be deleted, but is attached to "+others[0].name)
			c.publish()
			return &types.FileLocked{FileFault: types.FileFault{File: p.path}}
		}
	}
	c.removed = append(c.removed, p)
	return nil
}

func (c *deviceCheck) networkExists(backing types.BaseVirtualDeviceBackingInfo) bool {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		found := c.ctx.Map.FindByName(b.DeviceName, c.dc.Network)
		return found != nil && found.Reference().Type == "Network"
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		ref := types.ManagedObjectReference{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey}
		return simulator.FindReference(c.dc.Network, ref) != nil && c.ctx.Map.Get(ref) != nil
	}
	return true
}

func (c *deviceCheck) found(kind ViolationKind, disk, detail string) {
	c.findings = append(c.findings, Violation{Kind: kind, VM: c.name, Ref: c.vm.Value, Disk: disk, Detail: detail})
}

// publish records what was found, once it has taken effect.
func (c *deviceCheck) publish() {
	for _, v := range c.findings {
		c.record(v)
	}
	c.findings = nil
}
