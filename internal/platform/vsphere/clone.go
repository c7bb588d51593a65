package vsphere

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

const (
	minCPUs       = 2
	defaultMemory = 2048
)

// shapeOf reads the platform part of a specification.
func shapeOf(shape any) (Shape, error) {
	switch s := shape.(type) {
	case Shape:
		return s, nil
	case *Shape:
		if s != nil {
			return *s, nil
		}
	case nil:
		return Shape{}, nil
	}
	return Shape{}, refused(ReasonBadShape, "the machine's shape is %T, not vSphere's", shape)
}

// locationOf is where a server goes: its place wins, then the specification.
func locationOf(spec machine.ServerSpec) string {
	if spec.Place != nil && spec.Place.Location != "" {
		return spec.Place.Location
	}
	return spec.Location
}

// Create implements machine.Platform: one clone, powered off, with its mark, its network cards and its own disks.
func (s *Session) Create(ctx context.Context, spec machine.ServerSpec) (machine.Operation, error) {
	shape, err := shapeOf(spec.Shape)
	if err != nil {
		return machine.Operation{}, err
	}
	var (
		folder types.ManagedObjectReference
		t      *template
		clone  *types.VirtualMachineCloneSpec
	)
	err = s.inventory.with(ctx, func(inv *inventory) error {
		dc, err := inv.datacenter(locationOf(spec), shape.Datacenter)
		if err != nil {
			return err
		}
		if folder, err = inv.folder(dc, shape.Folder); err != nil {
			return err
		}
		if t, err = s.template(ctx, inv, dc, shape.Template); err != nil {
			return err
		}
		clone, err = s.cloneSpec(ctx, inv, dc, t, spec, shape)
		return err
	})
	if err != nil {
		return machine.Operation{}, err
	}
	return s.start(ctx, act{
		kind: machine.OpCreate, mark: spec.Mark, entity: t.vm.ref, making: spec.Name, doing: "cloning " + t.vm.name + " to " + spec.Name,
	},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.CloneVM_Task(ctx, s.client.vim, &types.CloneVM_Task{
				This: t.vm.ref, Folder: folder, Name: spec.Name, Spec: *clone,
			})
			if err != nil {
				return types.ManagedObjectReference{}, s.cloneFault(ctx, err, spec.Mark)
			}
			return res.Returnval, nil
		})
}

// cloneFault handles what a clone may meet at the call itself: a name that is taken, a cached path that went stale.
func (s *Session) cloneFault(ctx context.Context, err error, mark machine.Mark) error {
	m, _ := methodFault(err)
	switch f := m.(type) {
	case *types.DuplicateName:
		if verdict := s.whoHasTheName(ctx, f, mark); verdict != nil {
			return verdict
		}
		return busy(ReasonNameTaken, 0, "an earlier clone of this machine is there already; looking it up")
	case *types.ManagedObjectNotFound:
		s.inventory.forget()
		s.templates.forget()
		return busy(ReasonTask, 0, "something this clone refers to (%s) is gone from the inventory; reading it anew", f.Obj)
	default:
		return err
	}
}

func (s *Session) cloneSpec(ctx context.Context, inv *inventory, dc *node, t *template, spec machine.ServerSpec, shape Shape) (*types.VirtualMachineCloneSpec, error) {
	pool, err := inv.resourcePool(dc, shape.ResourcePool)
	if err != nil {
		return nil, err
	}
	ds, policy, err := s.datastore(ctx, inv, dc, kindDatastore, shape.Datastore, shape.StoragePolicyName, "")
	if err != nil {
		return nil, err
	}
	snapshot, err := t.link(shape.CloneMode, shape.Snapshot)
	if err != nil {
		return nil, err
	}
	config, err := machineConfig(spec, shape)
	if err != nil {
		return nil, err
	}
	location := types.VirtualMachineRelocateSpec{Pool: &pool, Datastore: &ds.ref, Profile: storageProfile(policy)}
	if location.Host, err = s.hostFor(ctx, inv, dc, pool, ds, spec); err != nil {
		return nil, err
	}
	if snapshot != nil {
		location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	} else {
		location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndConsolidate)
		for _, d := range t.vm.attached() {
			location.Disk = append(location.Disk, types.VirtualMachineRelocateSpecDiskLocator{
				DiskId: d.device.Key, Datastore: ds.ref, Profile: storageProfile(policy),
				DiskMoveType: string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndDisallowSharing),
			})
		}
	}
	grow, err := growTemplateDisks(t, shape, snapshot != nil)
	if err != nil {
		return nil, err
	}
	cards, err := s.networkCards(inv, dc, t, spec, shape)
	if err != nil {
		return nil, err
	}
	own, record, err := s.ownDisks(ctx, inv, dc, t, spec, shape, ds)
	if err != nil {
		return nil, err
	}
	config.DeviceChange = slices.Concat(grow, cards, own)
	if len(record) > 0 {
		text, err := json.Marshal(record)
		if err != nil {
			return nil, failed(err, "recording the disks of %s", spec.Name)
		}
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: keyDisks, Value: string(text)})
	}
	if len(shape.PCIDevices) > 0 {
		config.DeviceChange = append(config.DeviceChange, pciDevices(shape.PCIDevices)...)
		config.MemoryReservationLockedToMax = types.NewBool(true)
	}
	system := int32(0)
	for _, d := range t.vm.attached() {
		system += sizeGiB(d.device)
	}
	if snapshot == nil {
		if err := s.promise(ctx, ds, "the system disk of "+spec.Name, max(system, shape.DiskGiB)); err != nil {
			return nil, err
		}
	}
	return &types.VirtualMachineCloneSpec{Location: location, Config: config, Snapshot: snapshot, PowerOn: false}, nil
}

// machineConfig is the part of a configuration that a clone sets and a fit repeats (VS-V11).
func machineConfig(spec machine.ServerSpec, shape Shape) (*types.VirtualMachineConfigSpec, error) {
	config := &types.VirtualMachineConfigSpec{
		InstanceUuid:      instanceUUID(spec.Mark),
		NumCPUs:           max(shape.NumCPUs, minCPUs),
		MemoryMB:          shape.MemoryMiB,
		Flags:             &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(true)},
		VAppConfigRemoved: types.NewBool(true),
		ExtraConfig:       []types.BaseOptionValue{&types.OptionValue{Key: keyMark, Value: string(spec.Mark)}},
	}
	if config.MemoryMB <= 0 {
		config.MemoryMB = defaultMemory
	}
	if shape.NumCoresPerSocket > 0 {
		config.NumCoresPerSocket = &shape.NumCoresPerSocket
	}
	keys := make([]string, 0, len(shape.CustomVMXKeys))
	for key := range shape.CustomVMXKeys {
		if strings.HasPrefix(key, "berth.") || strings.HasPrefix(key, "guestinfo.userdata") || strings.HasPrefix(key, "guestinfo.metadata") {
			return nil, refused(ReasonBadShape, "spec.customVMXKeys[%s]: this key is set by the provider; remove it", key)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: key, Value: shape.CustomVMXKeys[key]})
	}
	return config, nil
}

// growTemplateDisks edits the template's own disks (VS-V9).
func growTemplateDisks(t *template, shape Shape, linked bool) ([]types.BaseVirtualDeviceConfigSpec, error) {
	sizes := append([]int32{shape.DiskGiB}, shape.AdditionalDisksGiB...)
	disks := t.vm.attached()
	var out []types.BaseVirtualDeviceConfigSpec
	for i, want := range sizes {
		field := "spec.diskGiB"
		if i > 0 {
			field = "spec.additionalDisksGiB"
		}
		if want == 0 {
			continue
		}
		if i >= len(disks) {
			return nil, refused(ReasonDiskSize, "%s gives a size for disk %d, template %s has %d disks: additionalDisksGiB "+
				"resizes disks of the template, it does not add any", field, i+1, t.vm.name, len(disks))
		}
		have := sizeGiB(disks[i].device)
		switch {
		case want < have:
			return nil, refused(ReasonDiskSize, "%s is %d, disk %d of template %s has %d GiB: a disk cannot shrink; give at "+
				"least %d or 0", field, want, i+1, t.vm.name, have, have)
		case want == have:
			continue
		case linked:
			return nil, refused(ReasonDiskSize, "%s is %d, but a linked clone keeps the size of the template's disk (%d GiB): "+
				"set cloneMode to fullClone, or remove the size", field, want, have)
		}
		edited := *disks[i].device
		edited.CapacityInKB, edited.CapacityInBytes = int64(want)<<20, int64(want)<<30
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &edited})
	}
	return out, nil
}

// networkCards removes the template's cards and adds one per device, in order (VS-V10).
func (s *Session) networkCards(inv *inventory, dc *node, t *template, spec machine.ServerSpec, shape Shape) ([]types.BaseVirtualDeviceConfigSpec, error) {
	devices, err := devicesOf(shape, spec.Place)
	if err != nil {
		return nil, err
	}
	var out []types.BaseVirtualDeviceConfigSpec
	for _, d := range t.vm.devices {
		if _, ok := d.(types.BaseVirtualEthernetCard); ok {
			out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: d})
		}
	}
	for i, device := range devices {
		backing, err := inv.network(dc, i, device.NetworkName)
		if err != nil {
			return nil, err
		}
		card := &types.VirtualVmxnet3{}
		card.Key = int32(-10 - i) //nolint:gosec // a VM has at most ten cards
		card.Backing = backing
		card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, Connected: true, AllowGuestControl: true}
		card.WakeOnLanEnabled = types.NewBool(true)
		card.AddressType = string(types.VirtualEthernetCardMacTypeGenerated)
		if device.MACAddr != "" {
			card.AddressType, card.MacAddress = string(types.VirtualEthernetCardMacTypeManual), device.MACAddr
		}
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: card})
	}
	return out, nil
}

// devicesOf lays the place's network over the shape's devices. Doing it twice changes nothing.
func devicesOf(shape Shape, place *slot.Slot) ([]Device, error) {
	devices := slices.Clone(shape.Devices)
	if place == nil || len(place.NICs) == 0 {
		return devices, nil
	}
	if len(devices) != 0 && len(devices) != len(place.NICs) {
		return nil, refused(ReasonTopology, "slot %s has %d network interfaces, the template's spec.network.devices has %d: make "+
			"them agree in number and order", place.HostName, len(place.NICs), len(devices))
	}
	if len(devices) == 0 {
		devices = make([]Device, len(place.NICs))
	}
	for i, nic := range place.NICs {
		d := &devices[i]
		if nic.Network != "" {
			d.NetworkName = nic.Network
		}
		if nic.DeviceName != "" {
			d.DeviceName = nic.DeviceName
		}
		if len(nic.Addresses) > 0 {
			d.IPAddrs = nic.Addresses
			for _, a := range nic.Addresses {
				if strings.Contains(a, ":") {
					d.DHCP6 = false
				} else {
					d.DHCP4 = false
				}
			}
		}
		if nic.Gateway4 != "" {
			d.Gateway4 = nic.Gateway4
		}
		if nic.Gateway6 != "" {
			d.Gateway6 = nic.Gateway6
		}
		if len(nic.DNS) > 0 {
			d.Nameservers = nic.DNS
		}
	}
	return devices, nil
}

// ownDisks adds the blank disks that live and die with the VM, and returns which name is on which unit.
func (s *Session) ownDisks(ctx context.Context, inv *inventory, dc *node, t *template, spec machine.ServerSpec, shape Shape, home *node) ([]types.BaseVirtualDeviceConfigSpec, map[string]unit, error) {
	if len(shape.DataDisks) == 0 && (spec.Place == nil || len(spec.Place.Disks) == 0) {
		return nil, nil, nil
	}
	b, err := newBoard(t.vm.devices, "template "+t.vm.name)
	if err != nil {
		return nil, nil, err
	}
	plan, err := planOwn(b, spec.Place, shape.DataDisks)
	if err != nil {
		return nil, nil, err
	}
	var out []types.BaseVirtualDeviceConfigSpec
	for _, c := range b.added {
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: c})
	}
	record := map[string]unit{}
	for i, p := range plan {
		ds, policy, err := s.datastore(ctx, inv, dc, kindDatastore.called("ephemeralDisks["+p.name+"].datastore"), p.datastore,
			p.policy, inv.path(home))
		if err != nil {
			return nil, nil, err
		}
		if err := s.promise(ctx, ds, "disk "+p.name+" of "+spec.Name, p.size); err != nil {
			return nil, nil, err
		}
		back := &types.VirtualDiskFlatVer2BackingInfo{DiskMode: string(types.VirtualDiskModePersistent)}
		switch p.mode {
		case "Thick":
			back.ThinProvisioned, back.EagerlyScrub = types.NewBool(false), types.NewBool(false)
		case "EagerlyZeroed":
			back.ThinProvisioned, back.EagerlyScrub = types.NewBool(false), types.NewBool(true)
		default:
			back.ThinProvisioned = types.NewBool(true)
		}
		if ds != home {
			back.FileName = "[" + ds.name + "]"
			back.Datastore = &ds.ref
		}
		at := p.at.Unit
		disk := &types.VirtualDisk{
			VirtualDevice: types.VirtualDevice{
				Key: int32(-200 - i), ControllerKey: p.key, UnitNumber: &at, Backing: back, //nolint:gosec // at most 60 disks
			},
			CapacityInKB: int64(p.size) << 20, CapacityInBytes: int64(p.size) << 30,
		}
		out = append(out, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, FileOperation: types.VirtualDeviceConfigSpecFileOperationCreate,
			Device: disk, Profile: storageProfile(policy),
		})
		record[p.name] = p.at
	}
	return out, record, nil
}

// pciDevices passes physical devices or vGPUs through (VS-V13: with all memory reserved).
func pciDevices(list []PCIDevice) []types.BaseVirtualDeviceConfigSpec {
	var out []types.BaseVirtualDeviceConfigSpec
	for i, d := range list {
		device := &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Key: int32(-300 - i)}} //nolint:gosec // few
		if d.VGPUProfile != "" {
			device.Backing = &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: d.VGPUProfile}
		} else {
			allowed := types.VirtualPCIPassthroughAllowedDevice{}
			if d.DeviceID != nil {
				allowed.DeviceId = *d.DeviceID
			}
			if d.VendorID != nil {
				allowed.VendorId = *d.VendorID
			}
			device.Backing = &types.VirtualPCIPassthroughDynamicBackingInfo{
				AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{allowed}, CustomLabel: d.CustomLabel,
			}
		}
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device})
	}
	return out
}
