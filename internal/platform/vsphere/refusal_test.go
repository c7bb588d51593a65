package vsphere_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/slot"
)

const mark machine.Mark = "0c6a5f7e-52d1-4f0e-8a41-00000000000a"

// TestWrongInput: what only the vCenter knows is refused with the field, the value, where it was looked for and what there is.
func TestWrongInput(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	before := len(c.World().VMs)
	for name, tc := range map[string]struct {
		change func(*vsphere.Shape, *machine.ServerSpec)
		reason string
		says   []string
	}{
		"template": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Template = "os-v999" }, vsphere.ReasonTemplate,
			[]string{"spec.template", `"os-v999"`, "datacenter dc-a", "os-v136-3", "os-v137-0"},
		},
		"template by unknown UUID": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Template = "11111111-2222-3333-4444-555555555555" },
			vsphere.ReasonTemplate,
			[]string{"spec.template", "11111111"},
		},
		"datacenter": {
			func(s *vsphere.Shape, spec *machine.ServerSpec) { s.Datacenter, spec.Location = "dc-x", "" }, vsphere.ReasonDatacenter,
			[]string{"spec.datacenter", `"dc-x"`, "dc-a", "dc-b"},
		},
		"no datacenter of two": {
			func(s *vsphere.Shape, spec *machine.ServerSpec) { s.Datacenter, spec.Location = "*", "*" }, vsphere.ReasonDatacenter,
			[]string{"spec.datacenter", "2 datacenters", "dc-a", "dc-b"},
		},
		"folder": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Folder = "nowhere" }, vsphere.ReasonFolder,
			[]string{"spec.folder", `"nowhere"`, "k8s"},
		},
		"resource pool": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.ResourcePool = "rp-x" }, vsphere.ReasonResourcePool,
			[]string{"spec.resourcePool", `"rp-x"`, "cl-a/Resources/k8s"},
		},
		"datastore": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Datastore = "ds-x" }, vsphere.ReasonDatastore,
			[]string{"spec.datastore", `"ds-x"`, "ds-shared-a", "ds-shared-a2"},
		},
		"no datastore of two": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Datastore = "" }, vsphere.ReasonDatastore,
			[]string{"spec.datastore is empty", "2 datastores"},
		},
		"network": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Devices[0].NetworkName = "pg-x" }, vsphere.ReasonNetwork,
			[]string{"spec.network.devices[0].networkName", `"pg-x"`, "pg-node", "pg-stor"},
		},
		"storage policy": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.StoragePolicyName = "gold" }, vsphere.ReasonStoragePolicy,
			[]string{`"gold"`},
		},
		"snapshot": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.Snapshot = "golden" }, vsphere.ReasonSnapshot,
			[]string{"spec.snapshot", `"golden"`, "none"},
		},
		"clone mode": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.CloneMode = "instant" }, vsphere.ReasonBadShape,
			[]string{"spec.cloneMode", `"instant"`},
		},
		"disk smaller than the template's": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.DiskGiB = 10 }, vsphere.ReasonDiskSize,
			[]string{"spec.diskGiB", "10", "20 GiB"},
		},
		"more disks than the template": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.AdditionalDisksGiB = []int32{30} }, vsphere.ReasonDiskSize,
			[]string{"spec.additionalDisksGiB", "has 1 disks"},
		},
		"disk larger than the datastore": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.DiskGiB = 1 << 20 }, vsphere.ReasonDatastoreFull,
			[]string{"ds-shared-a", "GiB free"},
		},
		"our own keys": {
			func(s *vsphere.Shape, _ *machine.ServerSpec) { s.CustomVMXKeys = map[string]string{"berth.mark": "x"} },
			vsphere.ReasonBadShape,
			[]string{"spec.customVMXKeys[berth.mark]"},
		},
		"slot and template disagree about interfaces": {
			func(_ *vsphere.Shape, spec *machine.ServerSpec) {
				spec.Place = &slot.Slot{HostName: "w", Location: "dc-a", NICs: []slot.NIC{{Network: "pg-node"}, {Network: "pg-stor"}}}
			}, vsphere.ReasonTopology, []string{"slot w has 2", "has 1"},
		},
		"a unit that the system disk has": {
			func(_ *vsphere.Shape, spec *machine.ServerSpec) {
				unit := int32(0)
				spec.Place = &slot.Slot{HostName: "w", Location: "dc-a", Disks: []slot.Disk{{Name: "d", SizeGiB: 1, Unit: &unit}}}
			}, vsphere.ReasonNoController, []string{"disk d", "unit 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sh := shape()
			spec := machine.ServerSpec{Name: "demo", Mark: mark, Location: "dc-a"}
			tc.change(&sh, &spec)
			spec.Shape = sh
			_, err := s.Create(t.Context(), spec)
			refusal(t, err, machine.Refused, tc.reason, tc.says...)
		})
	}
	if world := c.World(); len(world.VMs) != before {
		t.Fatalf("refusals left %d virtual machines, before them there were %d", len(world.VMs), before)
	}
}

// TestPaths: every way of writing a place of the inventory that published manifests use.
func TestPaths(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	for i, change := range []func(*vsphere.Shape){
		func(*vsphere.Shape) {},
		func(s *vsphere.Shape) { s.Datacenter = "/dc-a"; s.Folder = "/dc-a/vm/k8s" },
		func(s *vsphere.Shape) { s.Folder = ""; s.ResourcePool = "cl-a/Resources/k8s" },
		func(s *vsphere.Shape) {
			s.ResourcePool = "/dc-a/host/cl-a/Resources/k8s"
			s.Template = "/dc-a/vm/os-v137-0"
		},
		func(s *vsphere.Shape) { s.ResourcePool = ""; s.Datastore = "/dc-a/datastore/ds-shared-a2" },
		func(s *vsphere.Shape) { s.ResourcePool = "cl-a"; s.Devices[0].NetworkName = "/dc-a/network/pg-stor" },
		func(s *vsphere.Shape) { s.CloneMode = "fullClone"; s.Folder = "k8s/" },
		func(s *vsphere.Shape) { s.Datastore, s.StoragePolicyName = "", "vSAN Default Storage Policy" },
		func(s *vsphere.Shape) { s.StoragePolicyName = "vSAN Default Storage Policy" },
	} {
		sh := shape()
		change(&sh)
		m := machine.Mark("mark-" + string(rune('a'+i)))
		op, err := s.Create(t.Context(), machine.ServerSpec{Name: "demo-" + string(rune('a'+i)), Mark: m, Shape: sh})
		if err := f.end(m, op, err); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestTaskFault: a failed task is told in vCenter's own words (VS-V30, pain 72).
func TestTaskFault(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	err := c.Admin().Inject(t.Context(), vcenter.Fault{
		Method: "CloneVM_Task", Kind: vcenter.FaultTask, Type: "NoDiskSpace", Message: "There is not enough space on the datastore.",
	})
	if err != nil {
		t.Fatal(err)
	}
	op, err := s.Create(t.Context(), machine.ServerSpec{Name: "demo", Mark: mark, Location: "dc-a", Shape: shape()})
	refusal(t, f.end(mark, op, err), machine.Refused, vsphere.ReasonDatastoreFull, "cloning", "not enough space", "NoDiskSpace")
}

// TestSoftPowerOff: the guest is asked first; hard comes after the time given, or never (6.7).
func TestSoftPowerOff(t *testing.T) {
	c := newCloud(t, vcenter.Options{ShutdownTime: time.Hour})
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(1, f.create)
	m := f.state["0c6a5f7e-52d1-4f0e-8a41-000000000000"]
	ctx, since := t.Context(), time.Now()
	for range 3 {
		op, err := s.PowerOff(ctx, m.server, machine.PowerOffMode{Soft: true}, since)
		if err != nil || op.Ref != "" {
			t.Fatalf("asking the guest gave %+v, %v", op, err)
		}
	}
	if got := c.meter.Snapshot().Calls["ShutdownGuest"]; got != 1 {
		t.Fatalf("the guest was asked %d times at once, want once", got)
	}
	server, err := s.LookupLive(ctx, m.server.Identity)
	if err != nil || server.Power != machine.PowerOn {
		t.Fatalf("a guest that does not stop: %v, %v", server, err)
	}
	op, err := s.PowerOff(ctx, m.server, machine.PowerOffMode{Soft: true, HardAfter: time.Minute}, since.Add(-time.Hour))
	if err := f.end(m.spec.Mark, op, err); err != nil {
		t.Fatal(err)
	}
	if server, err = s.Lookup(ctx, m.server.Identity); err != nil || server.Power != machine.PowerOff {
		t.Fatalf("after the time for a soft stop: %v, %v", server, err)
	}
}

// TestFitExtras: tags, virtual hardware, sizes and keys of the specification arrive on the machine.
func TestFitExtras(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	client, _, _ := c.admin(t)
	r := rest.NewClient(client.Client)
	if err := r.Login(t.Context(), c.Userinfo()); err != nil {
		t.Fatal(err)
	}
	manager := tags.NewManager(r)
	category, err := manager.CreateCategory(t.Context(), &tags.Category{Name: "zone", Cardinality: "MULTIPLE"})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := manager.CreateTag(t.Context(), &tags.Tag{Name: "a", CategoryID: category})
	if err != nil {
		t.Fatal(err)
	}
	sh := shape()
	sh.TagIDs, sh.HardwareVersion, sh.NumCPUs, sh.MemoryMiB = []string{tag}, "vmx-20", 1, 0
	sh.CustomVMXKeys = map[string]string{"sched.mem.pin": "TRUE"}
	sh.DataDisks = []vsphere.DataDisk{{Name: "scratch", SizeGiB: 7}}
	spec := machine.ServerSpec{Name: "demo", Mark: mark, Location: "dc-a", Shape: sh}
	op, err := s.Create(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	server, err := s.Lookup(t.Context(), machine.Identity{Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	op, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte("#cloud-config\n"), Format: "cloud-config"})
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	for _, vm := range c.World().VMs {
		if vm.Name != "demo" {
			continue
		}
		if vm.HardwareVersion != "vmx-20" || vm.NumCPUs != 2 || vm.MemoryMiB != 2048 || !vm.DiskUUIDEnabled || len(vm.Disks) != 2 {
			t.Errorf("the machine is %+v", vm)
		}
		for _, key := range []string{"sched.mem.pin", "guestinfo.userdata", "guestinfo.userdata.encoding", "guestinfo.metadata", "guestinfo.metadata.encoding"} {
			if !slices.Contains(vm.ExtraConfig, key) {
				t.Errorf("key %s is not among %v", key, vm.ExtraConfig)
			}
		}
		for _, disk := range vm.Disks {
			if want := map[int32]int64{0: 40 << 30, 1: 7 << 30}[disk.Unit]; disk.CapacityBytes != want || !disk.Own {
				t.Errorf("disk %+v, want %d bytes", disk, want)
			}
		}
	}
	attached, err := manager.ListAttachedObjects(t.Context(), tag)
	if err != nil || len(attached) != 1 {
		t.Errorf("the tag is on %v (%v)", attached, err)
	}
	// A vCenter that is busy is not a wrong tag, and a login that has ended is made anew.
	attaching := vcenter.Fault{Method: "REST POST /rest/com/vmware/cis/tagging/tag-association", Kind: vcenter.FaultBefore, Client: "adapter"}
	if err := c.Admin().Inject(t.Context(), attaching); err != nil {
		t.Fatal(err)
	}
	_, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte("#cloud-config\n")})
	refusal(t, err, machine.Busy, vsphere.ReasonTask, "attaching tags to virtual machine demo")
	attaching.Type = "NotAuthenticated"
	if err := c.Admin().Inject(t.Context(), attaching); err != nil {
		t.Fatal(err)
	}
	op, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte("#cloud-config\n"), Format: "cloud-config"})
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	sh.TagIDs = []string{"urn:vmomi:InventoryServiceTag:nope:GLOBAL"}
	spec.Shape = sh
	_, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte("#cloud-config\n")})
	refusal(t, err, machine.Refused, vsphere.ReasonTags, "spec.tagIDs", "nope")
}
