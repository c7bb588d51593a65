package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Rules of SCSI controllers (VS-D9, VS-D10, VS-V2): sixteen units of which the controller takes one, four controllers.
const (
	unitsPerController = 16
	controllerUnit     = 7
	maxControllers     = 4
)

// unit is a place on a SCSI controller.
type unit struct {
	Bus  int32 `json:"bus"`
	Unit int32 `json:"unit"`
}

// number is how a unit is told to the rest of Berth: the unit on the first controller, bus*16+unit on further ones.
func (u unit) number() int32 { return u.Bus*unitsPerController + u.Unit }

func unitOf(number int32) unit {
	return unit{Bus: number / unitsPerController, Unit: number % unitsPerController}
}

// attachedDisk is one virtual disk of a VM with what decides about it.
type attachedDisk struct {
	device *types.VirtualDisk
	// path is the normalised backing file, identity the normalised backing UUID.
	path, identity string
	at             *unit
	chained        bool
	// chain lists all files of a snapshot chain, path included.
	chain []string
}

func (v vm) attached() []attachedDisk {
	buses := v.buses()
	var out []attachedDisk
	for _, device := range v.devices {
		disk, ok := device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		d := attachedDisk{device: disk}
		d.path, d.identity, d.chain = backing(disk.Backing)
		d.chained = len(d.chain) > 1
		if bus, ok := buses[disk.ControllerKey]; ok && disk.UnitNumber != nil {
			d.at = &unit{Bus: bus, Unit: *disk.UnitNumber}
		}
		out = append(out, d)
	}
	return out
}

// backing reads file, UUID and parents of a disk's backing.
func backing(b types.BaseVirtualDeviceBackingInfo) (path, identity string, chain []string) {
	switch x := b.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		for p := x; p != nil; p = p.Parent {
			chain = append(chain, normalPath(p.FileName))
		}
		identity = x.Uuid
	case *types.VirtualDiskSeSparseBackingInfo:
		for p := x; p != nil; p = p.Parent {
			chain = append(chain, normalPath(p.FileName))
		}
		identity = x.Uuid
	case *types.VirtualDiskSparseVer2BackingInfo:
		for p := x; p != nil; p = p.Parent {
			chain = append(chain, normalPath(p.FileName))
		}
		identity = x.Uuid
	case types.BaseVirtualDeviceFileBackingInfo:
		chain = []string{normalPath(x.GetVirtualDeviceFileBackingInfo().FileName)}
	}
	if len(chain) > 0 {
		path = chain[0]
	}
	return path, normalUUID(identity), chain
}

// normalPath brings "[ds] dir/file" into one spelling.
func normalPath(path string) string {
	var p object.DatastorePath
	if !p.FromString(path) {
		return path
	}
	p.Path = strings.Trim(p.Path, "/")
	return p.String()
}

// NormalUUID brings the spellings of a disk's UUID that records and guests have into the one that this package reports.
func NormalUUID(text string) string { return normalUUID(text) }

// normalUUID brings the spellings of a disk UUID (with spaces, without dashes, upper case) into the canonical one.
func normalUUID(text string) string {
	hex := digits(text)
	if len(hex) != 32 {
		return strings.ToLower(text)
	}
	return strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-")
}

// buses maps the keys of SCSI controllers to their bus numbers.
func (v vm) buses() map[int32]int32 { return busesOf(v.devices) }

func busesOf(devices object.VirtualDeviceList) map[int32]int32 {
	out := map[int32]int32{}
	for _, d := range devices {
		if c, ok := d.(types.BaseVirtualSCSIController); ok {
			s := c.GetVirtualSCSIController()
			out[s.Key] = s.BusNumber
		}
	}
	return out
}

// own reports whether a disk lives and dies with the VM: it lies in the VM's directory, or is one that we recorded when we
// created the VM and lies in a directory of the VM's name on another datastore. Anything else is not the VM's to destroy.
func (v vm) own(d attachedDisk) (isOwn bool, name string) {
	home := v.folder()
	var p object.DatastorePath
	if !p.FromString(d.path) {
		return false, ""
	}
	dir, _, _ := cutLast(p.Path)
	if d.at != nil {
		for n, u := range v.disks {
			if u == *d.at {
				name = n
			}
		}
	}
	same := p.Datastore == home.Datastore && dir == home.Path
	// vCenter names the directory after the VM, with a number behind an underscore where that is taken. A place's directory
	// begins with the cluster's name, which a VM may have, too.
	named := dir == home.Path || dir == v.name || strings.HasPrefix(dir, v.name+"_")
	elsewhere := name != "" && p.Datastore != home.Datastore && named
	if same || elsewhere {
		return true, name
	}
	return false, ""
}

func cutLast(path string) (dir, file string, ok bool) {
	i := strings.LastIndex(path, "/")
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

func (v vm) volumes() []machine.AttachedVolume {
	var out []machine.AttachedVolume
	for _, d := range v.attached() {
		a := machine.AttachedVolume{
			Volume: d.path, Identity: d.identity, SizeGiB: sizeGiB(d.device), Chained: d.chained,
		}
		if d.at != nil {
			n := d.at.number()
			a.Unit = &n
		}
		a.Own, a.Name = v.own(d)
		out = append(out, a)
	}
	return out
}

func sizeGiB(d *types.VirtualDisk) int32 {
	if d.CapacityInBytes > 0 {
		return int32(d.CapacityInBytes >> 30) //nolint:gosec // a disk has at most 62 TiB
	}
	return int32(d.CapacityInKB >> 20) //nolint:gosec // as above
}

// board is the state of a VM's SCSI controllers while disks are being placed.
type board struct {
	devices object.VirtualDeviceList
	// keys of controllers by bus; negative for those that are to be added.
	keys  map[int32]int32
	taken map[unit]bool
	// first is the bus that disks go to first.
	first int32
	added []types.BaseVirtualDevice
}

// newBoard finds the controller of the system disk, else the first SCSI controller.
func newBoard(devices object.VirtualDeviceList, name string) (*board, error) {
	b := &board{devices: devices, keys: map[int32]int32{}, taken: map[unit]bool{}, first: -1}
	buses := busesOf(devices)
	for key, bus := range buses {
		b.keys[bus] = key
	}
	for _, d := range devices {
		base := d.GetVirtualDevice()
		bus, ok := buses[base.ControllerKey]
		if !ok || base.UnitNumber == nil {
			continue
		}
		b.taken[unit{bus, *base.UnitNumber}] = true
		if _, isDisk := d.(*types.VirtualDisk); isDisk && b.first < 0 {
			b.first = bus
		}
	}
	for bus := range b.keys {
		b.taken[unit{bus, controllerUnit}] = true
	}
	if b.first < 0 {
		if len(b.keys) == 0 {
			return nil, refused(ReasonNoController, "%s has no SCSI controller, and disks of a slot need one: give the "+
				"template a paravirtual SCSI controller", name)
		}
		list := make([]int32, 0, len(b.keys))
		for bus := range b.keys {
			list = append(list, bus)
		}
		b.first = slices.Min(list)
	}
	return b, nil
}

// take occupies the wanted unit, or the lowest free one: on the first controller, then on further ones, adding a
// paravirtual controller where there is no room. A wanted unit that is taken gives way to the lowest free one unless must.
func (b *board) take(want *int32, must bool) (unit, int32, error) {
	if want != nil {
		u := unitOf(*want)
		if u.Bus == 0 {
			u.Bus = b.first // published numbers count on the system disk's controller
		}
		if !b.taken[u] && u.Unit != controllerUnit && u.Bus < maxControllers {
			key, err := b.controller(u.Bus)
			if err == nil {
				b.taken[u] = true
				return u, key, nil
			}
		}
		if must {
			return unit{}, 0, refused(ReasonNoController, "unit %d is taken", *want)
		}
	}
	order := []int32{b.first}
	for bus := int32(0); bus < maxControllers; bus++ {
		if bus != b.first {
			order = append(order, bus)
		}
	}
	slices.SortStableFunc(order[1:], func(x, y int32) int {
		_, hasX := b.keys[x]
		_, hasY := b.keys[y]
		return cmp.Compare(rank(hasX), rank(hasY))
	})
	for _, bus := range order {
		for n := int32(0); n < unitsPerController; n++ {
			u := unit{bus, n}
			if n == controllerUnit || b.taken[u] {
				continue
			}
			key, err := b.controller(bus)
			if err != nil {
				return unit{}, 0, err
			}
			b.taken[u] = true
			return u, key, nil
		}
	}
	return unit{}, 0, refused(ReasonNoController, "all %d units of %d SCSI controllers are taken: a virtual machine cannot "+
		"have more disks", (unitsPerController-1)*maxControllers, maxControllers)
}

func rank(has bool) int {
	if has {
		return 0
	}
	return 1
}

// controller returns the key of the controller with this bus number, adding one if there is none.
func (b *board) controller(bus int32) (int32, error) {
	if key, ok := b.keys[bus]; ok {
		return key, nil
	}
	if len(b.keys) >= maxControllers {
		return 0, refused(ReasonNoController, "the virtual machine already has %d SCSI controllers", maxControllers)
	}
	key := -100 - bus
	b.keys[bus] = key
	b.taken[unit{bus, controllerUnit}] = true
	b.added = append(b.added, &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
		VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: key}, BusNumber: bus},
		SharedBus:         types.VirtualSCSISharingNoSharing,
	}})
	return key, nil
}

// planned is one of a VM's own disks with its unit.
type planned struct {
	name string
	size int32
	mode string
	// datastore and policy are as declared.
	datastore, policy string
	at                unit
	key               int32
}

// planOwn places the disks that are born with the VM. Units that persistent disks of the place ask for stay free, and those
// that ask for none count too, so that units follow the order of declaration (VS-D11).
func planOwn(b *board, place *slot.Slot, extra []DataDisk) ([]planned, error) {
	var out []planned
	names := map[string]bool{}
	asked := map[string]unit{}
	if place != nil {
		for _, d := range place.Disks {
			names[d.Name] = true
			if d.Unit != nil {
				u, _, err := b.take(d.Unit, true)
				if err != nil {
					return nil, refused(ReasonNoController, "disk %s asks for unit %d, which the template's own devices or "+
						"another disk take: choose another unitNumber or none", d.Name, *d.Unit)
				}
				asked[d.Name] = u
			}
		}
		for _, d := range place.Disks {
			at, ok := asked[d.Name]
			key := b.keys[at.Bus]
			if !ok {
				var err error
				if at, key, err = b.take(nil, false); err != nil {
					return nil, err
				}
			}
			if d.Ephemeral {
				out = append(out, planned{name: d.Name, size: d.SizeGiB, datastore: d.Datastore, policy: d.StoragePolicy, at: at, key: key})
			}
		}
	}
	for _, d := range extra {
		if names[d.Name] {
			continue // the published spec lists the place's disks here again
		}
		at, key, err := b.take(nil, false)
		if err != nil {
			return nil, err
		}
		out = append(out, planned{name: d.Name, size: d.SizeGiB, mode: d.ProvisioningMode, at: at, key: key})
	}
	for _, p := range out {
		if p.size <= 0 {
			return nil, refused(ReasonDiskSize, "disk %s has a size of %d GiB: give it at least 1", p.name, p.size)
		}
	}
	return out, nil
}

func (p planned) String() string { return fmt.Sprintf("%s@%d:%d", p.name, p.at.Bus, p.at.Unit) }
