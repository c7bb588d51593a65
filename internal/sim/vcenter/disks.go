package vcenter

import (
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vmdk"
)

// diskFile is a VMDK.
type diskFile struct {
	// file is the descriptor's path on the host, the key.
	file string
	// path is the datastore path, normalised.
	path       string
	datastore  types.ManagedObjectReference
	datacenter string
	uuid       string
	capacity   int64
	created    time.Time
}

// diskFiles knows every VMDK there is.
type diskFiles struct {
	// root has the disks' contents.
	root string

	mu     sync.Mutex
	byFile map[string]*diskFile
}

func (d *diskFiles) get(file string) (diskFile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk, ok := d.byFile[file]
	if !ok {
		return diskFile{}, false
	}
	return *disk, true
}

func (d *diskFiles) put(disk diskFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byFile[disk.file] = &disk
}

// drop forgets the VMDK of a descriptor, or all below a directory, and removes their contents.
func (d *diskFiles) drop(file string) {
	for _, disk := range d.under(file) {
		d.mu.Lock()
		delete(d.byFile, disk.file)
		d.mu.Unlock()
		if disk.uuid != "" {
			_ = os.RemoveAll(d.content(disk.uuid))
		}
	}
}

// move follows a renamed file or directory.
func (d *diskFiles) move(from, to, toPath string, datastore types.ManagedObjectReference, datacenter string) {
	for _, disk := range d.under(from) {
		d.mu.Lock()
		delete(d.byFile, disk.file)
		d.mu.Unlock()
		rest := strings.TrimPrefix(disk.file, from)
		disk.file, disk.path, disk.datastore, disk.datacenter = to+rest, toPath+filepath.ToSlash(rest), datastore, datacenter
		d.put(disk)
	}
}

// under returns the VMDK with this descriptor, or those below this directory.
func (d *diskFiles) under(file string) []diskFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []diskFile
	for name, disk := range d.byFile {
		if name == file || strings.HasPrefix(name, file+string(filepath.Separator)) {
			list = append(list, *disk)
		}
	}
	return list
}

func (d *diskFiles) usedOn(datastore types.ManagedObjectReference) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var used int64
	for _, disk := range d.byFile {
		if disk.datastore == datastore {
			used += disk.capacity
		}
	}
	return used
}

// content is the directory of a disk's content.
func (d *diskFiles) content(id string) string {
	return filepath.Join(d.root, strings.ToLower(strings.ReplaceAll(id, "-", "")))
}

func (d *diskFiles) list() []Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Disk, 0, len(d.byFile))
	for _, file := range sortedKeys(d.byFile) {
		disk := d.byFile[file]
		_, err := os.Stat(d.content(disk.uuid))
		list = append(list, Disk{
			Datacenter: disk.datacenter, Path: disk.path, UUID: disk.uuid, CapacityBytes: disk.capacity,
			AttachedTo: []string{}, HasContent: err == nil, Created: disk.created,
		})
	}
	return list
}

// newDiskUUID is random, with the prefix that VMware's disks have.
func newDiskUUID() string {
	id := uuid.New()
	id[0], id[1], id[2] = 0x60, 0x00, 0xC2
	id[3] = 0x90 | id[3]&0x0f
	return id.String()
}

// newMAC is a random address of vCenter's range that no adapter has.
func (s *strict) newMAC() string {
	for {
		var b [3]byte
		_, _ = rand.Read(b[:])
		mac := fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80|b[0]&0x3f, b[1], b[2])
		s.mu.Lock()
		taken := s.macs[mac]
		s.macs[mac] = true
		s.mu.Unlock()
		if !taken {
			return mac
		}
	}
}

// place is a resolved datastore path.
type place struct {
	datastore  *simulator.Datastore
	datacenter *simulator.Datacenter
	// path is the normalised datastore path, file the path on the host.
	path, file string
	// root: the datastore itself.
	root bool
}

// resolve finds a datastore path in a datacenter.
func (s *strict) resolve(ctx *simulator.Context, dc *types.ManagedObjectReference, name string) (place, types.BaseMethodFault) {
	var p object.DatastorePath
	if !p.FromString(name) || slices.Contains(strings.Split(p.Path, "/"), "..") {
		return place{}, &types.InvalidDatastorePath{InvalidDatastore: types.InvalidDatastore{Name: p.Datastore}, DatastorePath: name}
	}
	if dc == nil {
		return place{}, &types.InvalidArgument{InvalidProperty: "datacenter"}
	}
	datacenter, ok := ctx.Map.Get(*dc).(*simulator.Datacenter)
	if !ok {
		return place{}, &types.ManagedObjectNotFound{Obj: *dc}
	}
	datastore, ok := ctx.Map.FindByName(p.Datastore, datacenter.Datastore).(*simulator.Datastore)
	if !ok {
		return place{}, &types.InvalidDatastore{Name: p.Datastore}
	}
	p.Path = strings.TrimPrefix(path.Clean("/"+p.Path), "/")
	return place{
		datastore: datastore, datacenter: datacenter, path: strings.TrimSpace(p.String()),
		file: filepath.Join(datastore.Summary.Url, filepath.FromSlash(p.Path)), root: p.Path == "",
	}, nil
}

// datacenterOf walks up from an inventory object.
func (s *strict) datacenterOf(ctx *simulator.Context, ref types.ManagedObjectReference) *simulator.Datacenter {
	for {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			return nil
		}
		if dc, ok := entity.(*simulator.Datacenter); ok {
			return dc
		}
		parent := entity.Entity().Parent
		if parent == nil {
			return nil
		}
		ref = *parent
	}
}

// disk returns the VMDK at a place. One that came to be by other means (an upload) is taken up.
func (s *strict) disk(p place) (diskFile, bool) {
	if disk, ok := s.disks.get(p.file); ok {
		return disk, true
	}
	if path.Ext(p.path) != ".vmdk" || strings.HasSuffix(p.path, "-flat.vmdk") {
		return diskFile{}, false
	}
	f, err := os.Open(p.file)
	if err != nil {
		return diskFile{}, false
	}
	defer func() { _ = f.Close() }()
	descriptor, err := vmdk.ParseDescriptor(f)
	if err != nil {
		return diskFile{}, false
	}
	return s.register(p, s.shownUUID(p), descriptor.Capacity()), true
}

// shownUUID is the UUID that a device backed by the file shows already, in a VM that came to be without the strict layer
// (an import).
func (s *strict) shownUUID(p place) string {
	ctx := s.server.internalContext()
	for _, vm := range s.census.machines() {
		id := ""
		ctx.WithLock(vm, func() {
			for _, disk := range disksOf(vm) {
				if backingFile(disk) == p.path {
					id = backingUUID(disk)
				}
			}
		})
		if dc := s.datacenterOf(ctx, vm.Self); id != "" && dc == p.datacenter {
			return id
		}
	}
	return ""
}

// register records a VMDK that now exists. An empty id means a new one.
func (s *strict) register(p place, id string, capacity int64) diskFile {
	if id == "" {
		id = newDiskUUID()
	}
	disk := diskFile{
		file: p.file, path: p.path, datastore: p.datastore.Self, datacenter: p.datacenter.Name, uuid: id, capacity: capacity, created: time.Now(),
	}
	s.disks.put(disk)
	return disk
}

// holder is a VM that has a disk.
type holder struct {
	vm    *simulator.VirtualMachine
	name  string
	power types.VirtualMachinePowerState
	// shared: the device allows several writers.
	shared bool
}

func (h holder) runs() bool { return h.power != types.VirtualMachinePowerStatePoweredOff }

// holders are the VMs that have a VMDK as a device, without the one given.
func (s *strict) holders(ctx *simulator.Context, disk diskFile, except types.ManagedObjectReference) []holder {
	return s.holdersOf(ctx, except)[disk.uuid]
}

// holdersOf maps the UUID of every VMDK in use to the VMs that have it.
func (s *strict) holdersOf(ctx *simulator.Context, except types.ManagedObjectReference) map[string][]holder {
	all := map[string][]holder{}
	for _, vm := range s.server.vms() {
		if vm.Self == except {
			continue
		}
		ctx.WithLock(vm, func() {
			for _, disk := range disksOf(vm) {
				id := backingUUID(disk)
				all[id] = append(all[id], holder{vm: vm, name: vm.Name, power: vm.Runtime.PowerState, shared: multiWriter(disk)})
			}
		})
	}
	return all
}

func multiWriter(disk *types.VirtualDisk) bool {
	b, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	return ok && b.Sharing == string(types.VirtualDiskSharingSharingMultiWriter)
}

// disksOf runs under the VM's lock.
func disksOf(vm *simulator.VirtualMachine) []*types.VirtualDisk {
	if vm.Config == nil {
		return nil
	}
	var list []*types.VirtualDisk
	for _, device := range vm.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			list = append(list, disk)
		}
	}
	return list
}

// fits refuses what the datastore has no room for.
func (s *strict) fits(p place, bytes int64) types.BaseMethodFault {
	if bytes > p.datastore.Summary.Capacity-s.disks.usedOn(p.datastore.Self) {
		return &types.NoDiskSpace{FileFault: types.FileFault{File: p.path}, Datastore: p.datastore.Name}
	}
	return nil
}

// account writes the free space after disks came or went; vcsim's own sums forget detached disks and count attached ones
// twice.
func (s *strict) account(ctx *simulator.Context) {
	for _, ds := range s.census.stores() {
		ctx.WithLock(ds, func() {
			free := ds.Summary.Capacity - s.disks.usedOn(ds.Self)
			if free == ds.Summary.FreeSpace {
				return
			}
			ds.Info.GetDatastoreInfo().FreeSpace = free
			ctx.Update(ds, []types.PropertyChange{{Name: "summary.freeSpace", Val: free}})
		})
	}
}
