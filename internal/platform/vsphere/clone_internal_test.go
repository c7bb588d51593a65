package vsphere

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/slot"
)

// lab is a session on a simulated vCenter, with an administrator beside it.
type lab struct {
	*Session
	t     *testing.T
	sim   *vcenter.Server
	admin *find.Finder
}

func newLab(t *testing.T, change ...func(*vcenter.Options)) *lab {
	t.Helper()
	options := vcenter.Options{Dir: t.TempDir()}
	for _, c := range change {
		c(&options)
	}
	server, err := vcenter.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s, err := Dial(t.Context(), Config{
		Server: server.Address(), Username: vcenter.DefaultUsername, Password: vcenter.DefaultPassword, Thumbprint: server.Thumbprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	u := server.URL()
	u.User = server.Userinfo()
	client, err := govmomi.NewClient(t.Context(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Logout(context.Background()) })
	finder := find.NewFinder(client.Client)
	dc, err := finder.Datacenter(t.Context(), "dc-a")
	if err != nil {
		t.Fatal(err)
	}
	return &lab{Session: s, t: t, sim: server, admin: finder.SetDatacenter(dc)}
}

// asks is the specification that vCenter is given for a clone.
func (l *lab) asks(spec machine.ServerSpec) (*types.VirtualMachineCloneSpec, error) {
	l.t.Helper()
	shape, err := shapeOf(spec.Shape)
	if err != nil {
		return nil, err
	}
	inv, err := l.inventory.get(l.t.Context())
	if err != nil {
		return nil, err
	}
	dc, err := inv.datacenter(locationOf(spec), shape.Datacenter)
	if err != nil {
		return nil, err
	}
	tmpl, err := l.template(l.t.Context(), inv, dc, shape.Template)
	if err != nil {
		return nil, err
	}
	return l.cloneSpec(l.t.Context(), inv, dc, tmpl, spec, shape)
}

func (l *lab) must(spec machine.ServerSpec) *types.VirtualMachineCloneSpec {
	l.t.Helper()
	clone, err := l.asks(spec)
	if err != nil {
		l.t.Fatal(err)
	}
	return clone
}

func aShape() Shape {
	return Shape{
		Template: "os-v136-3", Datacenter: "dc-a", Folder: "k8s", ResourcePool: "k8s", Datastore: "ds-shared-a",
		NumCPUs: 4, MemoryMiB: 4096, Devices: []Device{{NetworkName: "pg-node"}},
	}
}

func aSpec(change ...func(*Shape)) machine.ServerSpec {
	shape := aShape()
	for _, c := range change {
		c(&shape)
	}
	return machine.ServerSpec{Name: "demo", Mark: "0c6a5f7e-52d1-4f0e-8a41-00000000000a", Location: "dc-a", Shape: shape}
}

func (l *lab) snapshot(template, name string) {
	l.t.Helper()
	vm, err := l.admin.VirtualMachine(l.t.Context(), template)
	if err != nil {
		l.t.Fatal(err)
	}
	task, err := vm.CreateSnapshot(l.t.Context(), name, "", false, false)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := task.Wait(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.templates.forget()
}

// VS-V3, VS-V8, VS-V9, VS-B25, pain 87: full and linked clones, and what a size means for each.
func TestCloneModes(t *testing.T) {
	l := newLab(t)
	full := string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndConsolidate)
	link := string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	check := func(name string, spec machine.ServerSpec, mode string, linked bool) {
		t.Helper()
		clone := l.must(spec)
		if clone.Location.DiskMoveType != mode || (clone.Snapshot != nil) != linked || clone.PowerOn {
			t.Errorf("%s: disks are moved by %q, snapshot %v, power on %t", name, clone.Location.DiskMoveType, clone.Snapshot, clone.PowerOn)
		}
		if !linked && (len(clone.Location.Disk) != 1 || clone.Location.Disk[0].DiskMoveType !=
			string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndDisallowSharing)) {
			t.Errorf("%s: the disks of a full clone share the template's: %+v", name, clone.Location.Disk)
		}
		if clone.Config.InstanceUuid != string(spec.Mark) {
			t.Errorf("%s: the instance UUID is %q, the mark %q", name, clone.Config.InstanceUuid, spec.Mark)
		}
	}
	check("no snapshot", aSpec(), full, false)
	check("a link without a snapshot", aSpec(func(s *Shape) { s.CloneMode = "linkedClone" }), full, false)
	l.snapshot("os-v136-3", "golden")
	check("nothing said", aSpec(), link, true)
	check("a link", aSpec(func(s *Shape) { s.CloneMode = "linkedClone" }), link, true)
	check("a link by name", aSpec(func(s *Shape) { s.Snapshot = "golden" }), link, true)
	check("a full clone", aSpec(func(s *Shape) { s.CloneMode, s.DiskGiB = "fullClone", 40 }), full, false)
	check("a link of the template's own size", aSpec(func(s *Shape) { s.DiskGiB = 20 }), link, true)

	_, err := l.asks(aSpec(func(s *Shape) { s.Snapshot = "silver" }))
	isRefused(t, err, ReasonSnapshot, "spec.snapshot", `"silver"`, "golden")
	_, err = l.asks(aSpec(func(s *Shape) { s.CloneMode, s.DiskGiB = "linkedClone", 40 }))
	isRefused(t, err, ReasonDiskSize, "spec.diskGiB is 40", "linked clone", "20 GiB", "fullClone")
	_, err = l.asks(aSpec(func(s *Shape) { s.DiskGiB = 40 }))
	isRefused(t, err, ReasonDiskSize, "spec.diskGiB is 40", "linked clone", "fullClone")
}

func isRefused(t *testing.T, err error, reason string, says ...string) {
	t.Helper()
	e, ok := err.(*machine.Error) //nolint:errorlint // the adapter answers with it itself
	if !ok || e.Kind != machine.Refused || e.Reason != reason {
		t.Errorf("%v, want a refusal with reason %s", err, reason)
		return
	}
	for _, word := range says {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%q does not say %q", e.Error(), word)
		}
	}
}

// VS-V9: sizes go to the template's disks in their order; what the template does not have is not made.
func TestTemplateDisksGrow(t *testing.T) {
	size := func(key int32, giB int64) *types.VirtualDisk {
		d := &types.VirtualDisk{CapacityInBytes: giB << 30, CapacityInKB: giB << 20}
		d.Key = key
		return d
	}
	tmpl := &template{vm: vm{name: "os", devices: append(devices(), size(2000, 20), size(2001, 5), size(2002, 7))}}
	got, err := growTemplateDisks(tmpl, Shape{DiskGiB: 30, AdditionalDisksGiB: []int32{0, 8}}, false)
	if err != nil {
		t.Fatal(err)
	}
	grown := map[int32]int64{}
	for _, change := range got {
		spec := change.GetVirtualDeviceConfigSpec()
		disk := spec.Device.(*types.VirtualDisk)
		if spec.Operation != types.VirtualDeviceConfigSpecOperationEdit || spec.FileOperation != "" || disk.CapacityInKB<<10 != disk.CapacityInBytes {
			t.Errorf("change %+v", spec)
		}
		grown[disk.Key] = disk.CapacityInBytes >> 30
	}
	if len(grown) != 2 || grown[2000] != 30 || grown[2002] != 8 {
		t.Errorf("disks grow to %v, want 2000 to 30 and 2002 to 8", grown)
	}
	_, err = growTemplateDisks(tmpl, Shape{AdditionalDisksGiB: []int32{4}}, false)
	isRefused(t, err, ReasonDiskSize, "spec.additionalDisksGiB is 4", "disk 2", "5 GiB")
	_, err = growTemplateDisks(tmpl, Shape{AdditionalDisksGiB: []int32{0, 0, 9}}, false)
	isRefused(t, err, ReasonDiskSize, "disk 4", "3 disks", "does not add")
}

// VS-V10, VS-V11, VS-V13: what a clone is configured with.
func TestCloneConfiguration(t *testing.T) {
	l := newLab(t)
	vendor, device := int32(0x10de), int32(0x1eb8)
	clone := l.must(aSpec(func(s *Shape) {
		s.Devices = []Device{{NetworkName: "pg-stor"}, {NetworkName: "pg-node", MACAddr: "00:50:56:00:00:07"}}
		s.NumCPUs, s.MemoryMiB, s.NumCoresPerSocket = 1, 0, 2
		s.PCIDevices = []PCIDevice{{VendorID: &vendor, DeviceID: &device, CustomLabel: "gpu"}, {VGPUProfile: "grid_v100"}}
	}))
	config := clone.Config
	if config.Flags.DiskUuidEnabled == nil || !*config.Flags.DiskUuidEnabled {
		t.Error("disk UUIDs are not switched on: the guest could not find its disks")
	}
	if config.VAppConfigRemoved == nil || !*config.VAppConfigRemoved {
		t.Error("vApp data stays: cloud-init could prefer it")
	}
	if config.NumCPUs != 2 || config.MemoryMB != 2048 || *config.NumCoresPerSocket != 2 {
		t.Errorf("%d processors, %d MiB, %d cores per socket", config.NumCPUs, config.MemoryMB, *config.NumCoresPerSocket)
	}
	if config.MemoryReservationLockedToMax == nil || !*config.MemoryReservationLockedToMax {
		t.Error("a machine with PCI devices does not reserve its memory")
	}
	var removed, pci int
	var macs []string
	for _, change := range config.DeviceChange {
		spec := change.GetVirtualDeviceConfigSpec()
		switch d := spec.Device.(type) {
		case *types.VirtualVmxnet3:
			if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
				removed++
			} else {
				macs = append(macs, d.AddressType+d.MacAddress)
			}
		case *types.VirtualPCIPassthrough:
			pci++
		}
	}
	if removed != 1 || !slices.Equal(macs, []string{"generated", "manual00:50:56:00:00:07"}) || pci != 2 {
		t.Errorf("%d cards removed, cards %v, %d PCI devices", removed, macs, pci)
	}
	if plain := l.must(aSpec()); plain.Config.MemoryReservationLockedToMax != nil {
		t.Error("a machine without PCI devices reserves its memory")
	}
}

// VS-V12, 5.2: of the datastores that a policy allows the roomiest one in service is taken; a named one must be among them.
func TestPolicyChoosesTheDatastore(t *testing.T) {
	l := newLab(t)
	inv, err := l.inventory.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dc, err := inv.datacenter("dc-a", "")
	if err != nil {
		t.Fatal(err)
	}
	allow := func(names ...string) {
		t.Helper()
		answer := policyAnswer{id: "gold-id"}
		for _, name := range names {
			ds, err := inv.find(kindDatastore, dc, name)
			if err != nil {
				t.Fatal(err)
			}
			answer.allowed = append(answer.allowed, ds.ref)
		}
		answer.read = inv.read
		l.policies.known[dc.ref.Value+"\x00gold"] = answer
	}
	pick := func(name string) (string, string, error) {
		ds, id, err := l.datastore(t.Context(), inv, dc, kindDatastore, name, "gold", "")
		if err != nil {
			return "", "", err
		}
		return ds.name, id, nil
	}
	allow("ds-shared-a", "ds-shared-a2")
	if name, id, err := pick(""); name != "ds-shared-a" || id != "gold-id" || err != nil {
		t.Errorf("picked %q by %q (%v), ds-shared-a has more room", name, id, err)
	}
	ds, err := inv.find(kindDatastore, dc, "ds-shared-a")
	if err != nil {
		t.Fatal(err)
	}
	summary := ds.props["summary"].(types.DatastoreSummary)
	summary.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateInMaintenance)
	ds.props["summary"] = summary
	if name, _, err := pick(""); name != "ds-shared-a2" || err != nil {
		t.Errorf("picked %q (%v) while ds-shared-a is in maintenance", name, err)
	}
	allow("ds-shared-a2")
	_, _, err = pick("ds-shared-a")
	isRefused(t, err, ReasonStoragePolicy, `"ds-shared-a"`, `"gold"`, "ds-shared-a2")
	allow()
	_, _, err = pick("")
	isRefused(t, err, ReasonStoragePolicy, `"gold"`, "dc-a", "maintenance")
}

// mount lets only some hosts of cl-a see a datastore.
func (l *lab) mount(datastore string, hosts ...string) {
	l.t.Helper()
	inv, err := l.inventory.get(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	dc, err := inv.datacenter("dc-a", "")
	if err != nil {
		l.t.Fatal(err)
	}
	ds, err := inv.find(kindDatastore, dc, datastore)
	if err != nil {
		l.t.Fatal(err)
	}
	var list types.ArrayOfDatastoreHostMount
	for _, name := range hosts {
		list.DatastoreHostMount = append(list.DatastoreHostMount, types.DatastoreHostMount{Key: l.host(name)})
	}
	ds.props["host"] = list
}

func (l *lab) host(name string) types.ManagedObjectReference {
	l.t.Helper()
	h, err := l.admin.HostSystem(l.t.Context(), "cl-a/"+name)
	if err != nil {
		l.t.Fatal(err)
	}
	return h.Reference()
}

// VS-D8, 5.2: a machine is made on a host that reaches the datastores of its disks; if none does, there is a sentence and no clone.
func TestHostReachesTheDisks(t *testing.T) {
	l := newLab(t)
	spec := aSpec()
	spec.Reach = []string{"[ds-shared-a2] demo-w/w-data.vmdk"}
	if host := l.must(spec).Location.Host; host != nil {
		t.Errorf("host %v was chosen although all see everything", host)
	}
	l.mount("ds-shared-a2", "cl-a-h2")
	if host := l.must(spec).Location.Host; host == nil || *host != l.host("cl-a-h2") {
		t.Errorf("the host is %v, only cl-a-h2 sees the persistent disk", host)
	}
	pinned, err := l.Pinned(t.Context(), "dc-a", []string{spec.Reach[0], "[ds-shared-a] demo-w/w-other.vmdk"})
	if err != nil || len(pinned) != 1 || !strings.Contains(pinned["ds-shared-a2"], "cl-a-h2") {
		t.Errorf("pinned: %v, %v", pinned, err)
	}
	l.mount("ds-shared-a", "cl-a-h1", "cl-a-h3")
	_, err = l.asks(spec)
	isRefused(t, err, ReasonDatastore, "cl-a", "ds-shared-a (the system disk) is reached by cl-a-h1, cl-a-h3",
		"[ds-shared-a2] demo-w/w-data.vmdk", "cl-a-h2", "resource pool")

	unknown := aSpec()
	unknown.Place = &slot.Slot{HostName: "w", Location: "dc-a", Disks: []slot.Disk{{Name: "scratch", Ephemeral: true, SizeGiB: 1, Datastore: "ds-shared-a2"}}}
	_, err = l.asks(unknown)
	isRefused(t, err, ReasonDatastore, "ephemeral disk scratch")

	host := object.NewHostSystem(l.client.vim, l.host("cl-a-h2"))
	task, err := host.EnterMaintenanceMode(t.Context(), 0, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.mount("ds-shared-a", "cl-a-h1", "cl-a-h2")
	_, err = l.asks(spec)
	if e, ok := errors.AsType[*machine.Error](err); !ok || e.Kind != machine.Busy || e.Reason != ReasonNoHost ||
		!strings.Contains(e.Error(), "maintenance") || !strings.Contains(e.Error(), "cl-a-h2") {
		t.Errorf("%v, want to wait for cl-a-h2", err)
	}
}
