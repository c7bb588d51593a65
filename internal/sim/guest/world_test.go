package guest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/sim/guest"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// world is a simulated vCenter with guests, and a client that makes virtual machines by hand: nothing of Berth is between.
type world struct {
	t       *testing.T
	ctx     context.Context
	server  *vcenter.Server
	client  *govmomi.Client
	finder  *find.Finder
	options guest.Options
	stop    func()
	disks   int
}

func newWorld(t *testing.T, edit ...func(*guest.Options)) *world {
	t.Helper()
	dir := t.TempDir()
	server, err := vcenter.Start(vcenter.Options{
		Dir: filepath.Join(dir, "vcenter"), DisksDir: filepath.Join(dir, "disks"), ShutdownTime: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	w := &world{t: t, ctx: context.Background(), server: server}
	u := server.URL()
	u.User = server.Userinfo()
	if w.client, err = govmomi.NewClient(w.ctx, u, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Logout(context.Background()) })
	w.finder = find.NewFinder(w.client.Client)
	dc, err := w.finder.Datacenter(w.ctx, "dc-a")
	w.must(err)
	w.finder.SetDatacenter(dc)
	password, _ := server.Userinfo().Password()
	w.options = guest.Options{
		VCenter: server.URL().String(), Username: server.Userinfo().Username(), Password: password,
		Admin: server.Admin().URL, StateDir: dir, DieWithParent: true, Patience: 50 * time.Millisecond, Log: logger(t),
	}
	for _, f := range edit {
		f(&w.options)
	}
	w.startGuests()
	t.Cleanup(func() { w.stop() })
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}
	})
	return w
}

// startGuests runs the guests' daemon; w.stop ends it.
func (w *world) startGuests() {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- guest.Run(ctx, w.options) }()
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("the guests' daemon ended with %v", err)
		}
		w.stop = func() {}
	}
}

func (w *world) dump() {
	logs, _ := filepath.Glob(filepath.Join(w.options.StateDir, "guests", "*", "console.log"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		w.t.Logf("%s:\n%s", path, data)
	}
}

func logger(t *testing.T) logr.Logger {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return funcr.New(func(prefix, args string) {
		if ctx.Err() == nil {
			t.Log(prefix, args)
		}
	}, funcr.Options{})
}

// in makes helpers fail the subtest.
func (w *world) in(t *testing.T) *world {
	c := *w
	c.t = t
	return &c
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// vm is a virtual machine made by hand.
type vm struct {
	*object.VirtualMachine
	w    *world
	name string
	mac  string
	uuid string
}

// clone makes a powered-off virtual machine from the template.
func (w *world) clone(name string) *vm {
	w.t.Helper()
	return w.cloneOf("os-v136-3", name)
}

func (w *world) cloneOf(image, name string) *vm {
	w.t.Helper()
	template, err := w.finder.VirtualMachine(w.ctx, image)
	w.must(err)
	folder, err := w.finder.Folder(w.ctx, "k8s")
	w.must(err)
	pool, err := w.finder.ResourcePool(w.ctx, "k8s")
	w.must(err)
	ref := pool.Reference()
	task, err := template.Clone(w.ctx, folder, name, types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &ref}})
	w.must(err)
	info, err := task.WaitForResult(w.ctx, nil)
	w.must(err)
	v := &vm{VirtualMachine: object.NewVirtualMachine(w.client.Client, info.Result.(types.ManagedObjectReference)), w: w, name: name}
	v.configure(types.VirtualMachineConfigSpec{Flags: &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(true)}})
	props := v.read()
	v.uuid = strings.ToLower(props.Config.Uuid)
	for _, d := range props.Config.Hardware.Device {
		if card, ok := d.(types.BaseVirtualEthernetCard); ok {
			v.mac = strings.ToLower(card.GetVirtualEthernetCard().MacAddress)
		}
	}
	return v
}

func (v *vm) read() mo.VirtualMachine {
	v.w.t.Helper()
	var props mo.VirtualMachine
	v.w.must(v.Properties(v.w.ctx, v.Reference(), nil, &props))
	return props
}

func (v *vm) configure(spec types.VirtualMachineConfigSpec) {
	v.w.t.Helper()
	task, err := v.Reconfigure(v.w.ctx, spec)
	v.w.must(err)
	v.w.must(task.Wait(v.w.ctx))
}

// persistentDisk makes a VMDK outside of any VM's directory and returns its path.
func (w *world) persistentDisk(name string) string {
	w.t.Helper()
	dc, err := w.finder.Datacenter(w.ctx, "dc-a")
	w.must(err)
	w.must(object.NewFileManager(w.client.Client).MakeDirectory(w.ctx, "[ds-shared-a] slots", dc, true))
	path := "[ds-shared-a] slots/" + name + ".vmdk"
	task, err := object.NewVirtualDiskManager(w.client.Client).CreateVirtualDisk(w.ctx, path, dc, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{DiskType: "thin", AdapterType: "lsiLogic"}, CapacityKb: 1 << 20,
	})
	w.must(err)
	w.must(task.Wait(w.ctx))
	return path
}

// attach attaches a VMDK and returns the UUID that the guest sees.
func (v *vm) attach(path string) string {
	v.w.t.Helper()
	devices, err := v.Device(v.w.ctx)
	v.w.must(err)
	scsi := devices.SelectByType((*types.ParaVirtualSCSIController)(nil))[0]
	v.w.disks++
	disk := &types.VirtualDisk{CapacityInKB: 1 << 20, VirtualDevice: types.VirtualDevice{
		Key: -1, ControllerKey: scsi.GetVirtualDevice().Key, UnitNumber: types.NewInt32(int32(len(devices.SelectByType((*types.VirtualDisk)(nil))))),
		Backing: &types.VirtualDiskFlatVer2BackingInfo{
			DiskMode: string(types.VirtualDiskModePersistent), VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: path},
		},
	}}
	v.configure(types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk},
	}})
	for _, d := range v.read().Config.Hardware.Device {
		if disk, ok := d.(*types.VirtualDisk); ok {
			if b := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); b.FileName == path {
				return b.Uuid
			}
		}
	}
	v.w.t.Fatalf("%s is not attached", path)
	return ""
}

func (v *vm) detach(path string) {
	v.w.t.Helper()
	for _, d := range v.read().Config.Hardware.Device {
		if disk, ok := d.(*types.VirtualDisk); ok && disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName == path {
			v.configure(types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
				&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk},
			}})
		}
	}
}

// boot hands over the guest's data and switches the machine on. disks go into the user data with the real merge.
func (v *vm) boot(hostName, address, userData string, disks ...script.Disk) {
	v.w.t.Helper()
	v.fit(hostName, address, userData, disks...)
	v.powerOn()
}

func (v *vm) fit(hostName, address, userData string, disks ...script.Disk) {
	v.w.t.Helper()
	nic := script.NIC{MAC: v.mac}
	if address != "" {
		nic.Addresses = []string{address + "/24"}
	}
	meta, err := script.Metadata(script.Meta{InstanceID: v.uuid, HostName: hostName, NICs: []script.NIC{nic}})
	v.w.must(err)
	v.guestinfo("metadata", string(meta))
	if len(disks) > 0 {
		data, err := script.Merge(script.Input{UserData: []byte(userData), HostName: hostName, NodeIP: address, Disks: disks})
		v.w.must(err)
		userData = string(data)
	}
	v.guestinfo("userdata", userData)
}

func (v *vm) guestinfo(key, value string) {
	v.w.t.Helper()
	v.configure(types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
		&types.OptionValue{Key: "guestinfo." + key, Value: base64.StdEncoding.EncodeToString([]byte(value))},
		&types.OptionValue{Key: "guestinfo." + key + ".encoding", Value: "base64"},
	}})
}

func (v *vm) powerOn() {
	v.w.t.Helper()
	task, err := v.PowerOn(v.w.ctx)
	v.w.must(err)
	v.w.must(task.Wait(v.w.ctx))
}

func (v *vm) powerOff() {
	v.w.t.Helper()
	task, err := v.PowerOff(v.w.ctx)
	v.w.must(err)
	v.w.must(task.Wait(v.w.ctx))
}

func (v *vm) destroy() {
	v.w.t.Helper()
	task, err := v.Destroy(v.w.ctx)
	v.w.must(err)
	v.w.must(task.Wait(v.w.ctx))
}

// status is what the guest's directory says; the zero value when there is none.
func (v *vm) status() guest.Status {
	files, err := guest.Open(v.w.options.StateDir)
	if err != nil {
		return guest.Status{}
	}
	list, err := files.Guests()
	if err != nil {
		return guest.Status{}
	}
	for _, s := range list {
		if s.Ref == v.Reference().Value {
			return s
		}
	}
	return guest.Status{}
}

// reaches waits until the guest is in a phase.
func (v *vm) reaches(phase guest.Phase) guest.Status {
	v.w.t.Helper()
	return v.reachesWithin(phase, 30*time.Second)
}

func (v *vm) reachesWithin(phase guest.Phase, limit time.Duration) guest.Status {
	v.w.t.Helper()
	var s guest.Status
	NewWithT(v.w.t).Eventually(func() guest.Phase { s = v.status(); return s.Phase }).WithTimeout(limit).WithPolling(10*time.Millisecond).
		Should(Equal(phase), func() string { return fmt.Sprintf("%s: %+v\n%s", v.name, s, v.console()) })
	return s
}

func (v *vm) console() string {
	data, err := os.ReadFile(filepath.Join(v.w.options.StateDir, "guests", v.name, "console.log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// cat reads a file in the guest.
func (w *world) cat(node, path string) string {
	files, err := guest.Open(w.options.StateDir)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	if err := files.Cat(node, path, &b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (w *world) write(node, path, text string) {
	w.t.Helper()
	files, err := guest.Open(w.options.StateDir)
	w.must(err)
	w.must(files.Write(node, path, strings.NewReader(text)))
}

// address n of the network of this test process; nobody else uses it.
func address(n int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 240+(pid>>8)&7, pid&255, n)
}

// serials sets disk.EnableUUID.
func (v *vm) serials(on bool) {
	v.w.t.Helper()
	v.configure(types.VirtualMachineConfigSpec{Flags: &types.VirtualMachineFlagInfo{DiskUuidEnabled: types.NewBool(on)}})
}
