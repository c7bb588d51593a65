package vcenter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// start brings up a simulated vCenter and a site of its datacenter dc-a.
func start(t *testing.T, options vcenter.Options) *site {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	server, err := vcenter.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return newSite(t, server, "dc-a")
}

func login(t *testing.T, server *vcenter.Server) *govmomi.Client {
	t.Helper()
	u := server.URL()
	u.User = server.Userinfo()
	client, err := govmomi.NewClient(context.Background(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Logout(context.Background()) })
	return client
}

// site is a datacenter seen through a client of its own.
type site struct {
	t        *testing.T
	ctx      context.Context
	server   *vcenter.Server
	client   *govmomi.Client
	finder   *find.Finder
	dc       *object.Datacenter
	folder   *object.Folder
	pool     *object.ResourcePool
	template *object.VirtualMachine
	store    string
	network  types.BaseVirtualDeviceBackingInfo
	disks    *object.VirtualDiskManager
	files    *object.FileManager
}

func newSite(t *testing.T, server *vcenter.Server, datacenter string) *site {
	t.Helper()
	s := &site{t: t, ctx: context.Background(), server: server, client: login(t, server)}
	s.finder = find.NewFinder(s.client.Client)
	s.disks, s.files = object.NewVirtualDiskManager(s.client.Client), object.NewFileManager(s.client.Client)
	dc, err := s.finder.Datacenter(s.ctx, datacenter)
	s.must(err)
	s.dc = dc
	s.finder.SetDatacenter(dc)
	s.folder, err = s.finder.Folder(s.ctx, "k8s")
	s.must(err)
	s.pool, err = s.finder.ResourcePool(s.ctx, "k8s")
	s.must(err)
	s.template, err = s.finder.VirtualMachine(s.ctx, "os-v136-3")
	s.must(err)
	network, err := s.finder.Network(s.ctx, "pg-node")
	s.must(err)
	s.network, err = network.EthernetCardBackingInfo(s.ctx)
	s.must(err)
	s.store = "ds-shared-" + datacenter[len("dc-"):]
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// clone returns the clone, or the task's error.
func (s *site) clone(name string, edit ...func(*types.VirtualMachineCloneSpec)) (*object.VirtualMachine, error) {
	s.t.Helper()
	pool := s.pool.Reference()
	spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &pool}, Config: &types.VirtualMachineConfigSpec{}}
	for _, f := range edit {
		f(&spec)
	}
	task, err := s.template.Clone(s.ctx, s.folder, name, spec)
	s.must(err)
	info, err := task.WaitForResult(s.ctx, nil)
	if err != nil {
		return nil, err
	}
	return object.NewVirtualMachine(s.client.Client, info.Result.(types.ManagedObjectReference)), nil
}

func (s *site) mustClone(name string, edit ...func(*types.VirtualMachineCloneSpec)) *object.VirtualMachine {
	s.t.Helper()
	vm, err := s.clone(name, edit...)
	s.must(err)
	return vm
}

func (s *site) read(vm *object.VirtualMachine) mo.VirtualMachine {
	s.t.Helper()
	var out mo.VirtualMachine
	s.must(vm.Properties(s.ctx, vm.Reference(), nil, &out))
	return out
}

func (s *site) reconfigure(vm *object.VirtualMachine, spec types.VirtualMachineConfigSpec) error {
	s.t.Helper()
	task, err := vm.Reconfigure(s.ctx, spec)
	s.must(err)
	return task.Wait(s.ctx)
}

func (s *site) devices(vm *object.VirtualMachine) object.VirtualDeviceList {
	s.t.Helper()
	list, err := vm.Device(s.ctx)
	s.must(err)
	return list
}

// diskList are the VM's disks in order of their keys.
func (s *site) diskList(vm *object.VirtualMachine) []*types.VirtualDisk {
	s.t.Helper()
	var list []*types.VirtualDisk
	for _, device := range s.devices(vm).SelectByType((*types.VirtualDisk)(nil)) {
		list = append(list, device.(*types.VirtualDisk))
	}
	return list
}

func backing(disk *types.VirtualDisk) *types.VirtualDiskFlatVer2BackingInfo {
	return disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
}

// attachSpec attaches an existing VMDK.
func (s *site) attachSpec(vm *object.VirtualMachine, path string, unit int32) *types.VirtualDeviceConfigSpec {
	s.t.Helper()
	scsi := s.devices(vm).SelectByType((*types.ParaVirtualSCSIController)(nil))[0]
	return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: &types.VirtualDisk{
		VirtualDevice: types.VirtualDevice{
			Key: -100 - unit, ControllerKey: scsi.GetVirtualDevice().Key, UnitNumber: types.NewInt32(unit),
			Backing: &types.VirtualDiskFlatVer2BackingInfo{
				DiskMode: string(types.VirtualDiskModePersistent), VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: path},
			},
		},
	}}
}

// createSpec creates a VMDK, at a path of vCenter's choice if path is "".
func (s *site) createSpec(vm *object.VirtualMachine, path string, unit int32, gib int64) *types.VirtualDeviceConfigSpec {
	s.t.Helper()
	spec := s.attachSpec(vm, path, unit)
	spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
	spec.Device.(*types.VirtualDisk).CapacityInKB = gib << 20
	backing(spec.Device.(*types.VirtualDisk)).ThinProvisioned = types.NewBool(true)
	return spec
}

func (s *site) attach(vm *object.VirtualMachine, path string, unit int32) error {
	s.t.Helper()
	return s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{s.attachSpec(vm, path, unit)}})
}

func (s *site) detach(vm *object.VirtualMachine, path string) error {
	s.t.Helper()
	for _, disk := range s.diskList(vm) {
		if backing(disk).FileName == path {
			return s.reconfigure(vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
				&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk},
			}})
		}
	}
	s.t.Fatalf("%s is not attached", path)
	return nil
}

// path is a datastore path of the site's first datastore.
func (s *site) path(format string, args ...any) string {
	return fmt.Sprintf("[%s] ", s.store) + fmt.Sprintf(format, args...)
}

// createDisk creates the directory if need be and a VMDK in it.
func (s *site) createDisk(path string, gib int64) error {
	s.t.Helper()
	var p object.DatastorePath
	p.FromString(path)
	dir := fmt.Sprintf("[%s] disks", p.Datastore)
	s.must(s.files.MakeDirectory(s.ctx, dir, s.dc, true))
	task, err := s.disks.CreateVirtualDisk(s.ctx, path, s.dc, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic)},
		CapacityKb:      gib << 20,
	})
	s.must(err)
	return task.Wait(s.ctx)
}

func (s *site) deleteDisk(path string) error {
	s.t.Helper()
	task, err := s.disks.DeleteVirtualDisk(s.ctx, path, s.dc)
	s.must(err)
	return task.Wait(s.ctx)
}

func (s *site) uuid(path string) string {
	s.t.Helper()
	id, err := s.disks.QueryVirtualDiskUuid(s.ctx, path, s.dc)
	s.must(err)
	return id
}

func (s *site) powerOn(vm *object.VirtualMachine) error {
	s.t.Helper()
	task, err := vm.PowerOn(s.ctx)
	s.must(err)
	return task.Wait(s.ctx)
}

func (s *site) powerOff(vm *object.VirtualMachine) error {
	s.t.Helper()
	task, err := vm.PowerOff(s.ctx)
	s.must(err)
	return task.Wait(s.ctx)
}

func (s *site) destroy(vm *object.VirtualMachine) error {
	s.t.Helper()
	task, err := vm.Destroy(s.ctx)
	s.must(err)
	return task.Wait(s.ctx)
}

// kinds are the kinds of the violations recorded so far.
func (s *site) kinds() []vcenter.ViolationKind {
	list := []vcenter.ViolationKind{}
	for _, v := range s.server.Violations() {
		list = append(list, v.Kind)
	}
	return list
}

// faultAs tells whether an error is a fault of the type, from a call or from a task.
func faultAs[T types.BaseMethodFault](err error) bool {
	var failed task.Error
	if errors.As(err, &failed) {
		_, ok := failed.Fault().(T)
		return ok
	}
	var target T
	_, ok := fault.As(err, &target)
	return ok
}

const shortClone = 700 * time.Millisecond
