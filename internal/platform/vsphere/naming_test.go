package vsphere

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

func key(namespace, cluster, host, ip, disk string) machine.VolumeKey {
	return machine.VolumeKey{Namespace: namespace, Cluster: cluster, Pool: "p", HostName: host, Address: ip, Disk: disk}
}

func TestVolumeAddress(t *testing.T) { // VS-D1, VS-D2, VS-D3, D17, hazard H14
	k := key("cpaas-system", "demo", "worker-1", "10.0.0.31", "var-cpaas")
	got := address("ds", k)
	if !strings.HasPrefix(got, "[ds] demo-worker-1-10.0.0.31-") || !strings.HasSuffix(got, "/worker-1-10.0.0.31-var-cpaas.vmdk") {
		t.Errorf("address %q", got)
	}
	if again := address("ds", k); again != got {
		t.Errorf("the address changed from %q to %q", got, again)
	}
	if other := address("ds", key("other", "demo", "worker-1", "10.0.0.31", "var-cpaas")); other == got {
		t.Errorf("equally named clusters of two namespaces share %q", got)
	}
	if dhcp := fileName(key("n", "demo", "worker-1", "", "d")); dhcp != "worker-1-d.vmdk" {
		t.Errorf("without an address: %q", dhcp)
	}
	v6, v6other := fileName(key("n", "c", "w", "fd00::1", "d")), fileName(key("n", "c", "w", "fd00-:1", "d"))
	if v6 == v6other || strings.Contains(v6, ":") {
		t.Errorf("cleaned names meet: %q, %q", v6, v6other)
	}
}

// TestVolumeNamesFit: whatever the inputs, names are legal, short enough for the data file's name beside them, and parse.
func TestVolumeNamesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zA-Z0-9._/\[\] :-]{1,300}`)
		k := key(text.Draw(t, "namespace"), text.Draw(t, "cluster"), text.Draw(t, "host"), text.Draw(t, "ip"), text.Draw(t, "disk"))
		at, err := parseAddress(address("ds", k))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{at.dir, at.file, strings.Replace(at.file, ".vmdk", "-flat.vmdk", 1)} {
			if len(name) > maxName || strings.ContainsAny(name, "/[] :") {
				t.Fatalf("name %q (%d)", name, len(name))
			}
		}
	})
}

func TestParseAddress(t *testing.T) { // VS-D46
	for _, bad := range []string{"", "x.vmdk", "[ds] x.vmdk", "[ds] /x.vmdk", "[ds] ../x.vmdk", "[ds] a/b/x.vmdk", "[ds] a/", "[ds] a/x.iso", "[] a/x.vmdk"} {
		if at, err := parseAddress(bad); err == nil {
			t.Errorf("%q was accepted as %+v", bad, at)
		}
	}
}

func TestNormalUUID(t *testing.T) { // VS-D5
	const want = "6000c296-b57e-11ee-8a4f-0123456789ab"
	for _, spelling := range []string{
		want, strings.ToUpper(want), "60 00 C2 96 b5 7e 11 ee-8a 4f 01 23 45 67 89 ab", strings.ReplaceAll(want, "-", ""),
	} {
		if got := normalUUID(spelling); got != want {
			t.Errorf("%q became %q", spelling, got)
		}
	}
}

// devices is a VM with a paravirtual controller on bus 0 and disks on these units.
func devices(units ...int32) object.VirtualDeviceList {
	controller := &types.ParaVirtualSCSIController{}
	controller.Key = 1000
	list := object.VirtualDeviceList{controller}
	for i, unit := range units {
		list = append(list, &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
			Key: int32(2000 + i), ControllerKey: 1000, UnitNumber: &unit,
		}})
	}
	return list
}

func TestUnits(t *testing.T) { // VS-D9 to VS-D12, V2
	at := func(n int32) *int32 { return &n }
	place := &slot.Slot{Disks: []slot.Disk{
		{Name: "a", SizeGiB: 1, Ephemeral: true},
		{Name: "b", SizeGiB: 1, Unit: at(1)},
		{Name: "c", SizeGiB: 1},
		{Name: "d", SizeGiB: 1, Ephemeral: true},
	}}
	b, err := newBoard(devices(0), "vm")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planOwn(b, place, []DataDisk{{Name: "d", SizeGiB: 1}, {Name: "e", SizeGiB: 2}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"a": 2, "d": 4, "e": 5} // 0 is the system disk's, 1 is asked for by b, 3 is c's
	if len(plan) != len(want) {
		t.Fatalf("plan %+v", plan)
	}
	for _, p := range plan {
		if p.at.number() != want[p.name] {
			t.Errorf("%s is on unit %d, want %d", p.name, p.at.number(), want[p.name])
		}
	}

	b, err = newBoard(devices(0), "vm")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[unit]bool{{0, 0}: true}
	for range 4*15 - 1 {
		u, key, err := b.take(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if seen[u] || u.Unit == controllerUnit || u.Unit >= unitsPerController || u.Bus >= maxControllers || key == 0 {
			t.Fatalf("unit %+v (key %d)", u, key)
		}
		if unitOf(u.number()) != u {
			t.Fatalf("%+v is told as %d and read as %+v", u, u.number(), unitOf(u.number()))
		}
		seen[u] = true
	}
	if len(b.added) != 3 {
		t.Errorf("%d controllers were added, want 3", len(b.added))
	}
	if _, _, err := b.take(nil, false); !machine.Is(err, machine.Refused) {
		t.Errorf("a disk beyond all units: %v", err)
	}
	if _, err := newBoard(object.VirtualDeviceList{}, "vm"); !machine.Is(err, machine.Refused) {
		t.Errorf("a VM without a SCSI controller: %v", err)
	}
}

// TestDestroyable: what a destroy would take along (hazard H1, hazard H15, VS-D21, VS-D23, VS-D24, VS-V38).
func TestDestroyable(t *testing.T) {
	disk := func(unit int32, files ...string) *types.VirtualDisk {
		var back *types.VirtualDiskFlatVer2BackingInfo
		for i := len(files) - 1; i >= 0; i-- {
			back = &types.VirtualDiskFlatVer2BackingInfo{Parent: back}
			back.FileName = files[i]
		}
		return &types.VirtualDisk{VirtualDevice: types.VirtualDevice{ControllerKey: 1000, UnitNumber: &unit, Backing: back}}
	}
	base := func(disks ...types.BaseVirtualDevice) vm {
		return vm{
			name: "demo", vmx: "[ds] demo/demo.vmx", power: types.VirtualMachinePowerStatePoweredOff,
			connection: types.VirtualMachineConnectionStateConnected, devices: append(devices(), disks...),
		}
	}
	for name, tc := range map[string]struct {
		vm   vm
		want machine.Kind
	}{
		"only its own":                  {base(disk(0, "[ds] demo/demo.vmdk"), disk(1, "[ds] demo/demo_1.vmdk")), ""},
		"a volume":                      {base(disk(0, "[ds] demo/demo.vmdk"), disk(1, "[ds] demo-w-1/w-1-d.vmdk")), machine.Refused},
		"a volume on another datastore": {base(disk(0, "[other] demo/demo.vmdk")), machine.Refused},
		"a volume with snapshots":       {base(disk(0, "[ds] demo-w-1/d-000001.vmdk", "[ds] demo-w-1/d.vmdk")), machine.Refused},
		"a linked clone":                {base(disk(0, "[ds] demo/demo.vmdk", "[ds] template/template.vmdk")), ""},
		"a running one": {func() vm {
			v := base(disk(0, "[ds] demo/demo.vmdk"))
			v.power = types.VirtualMachinePowerStatePoweredOn
			return v
		}(), machine.Refused},
		"a template": {func() vm { v := base(disk(0, "[ds] demo/demo.vmdk")); v.template = true; return v }(), machine.Refused},
		"an inaccessible one": {func() vm {
			v := base(disk(0, "[ds] demo/demo.vmdk"))
			v.connection = types.VirtualMachineConnectionStateInaccessible
			return v
		}(), machine.Busy},
		"one without devices": {vm{name: "demo", power: types.VirtualMachinePowerStatePoweredOff}, machine.Busy},
		"an ephemeral disk on another datastore": {func() vm {
			v := base(disk(0, "[ds] demo/demo.vmdk"), disk(1, "[other] demo/demo.vmdk"))
			v.disks = map[string]unit{"kubelet": {0, 1}}
			return v
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := machine.KindOf(tc.vm.destroyable()); got != tc.want {
				t.Errorf("got %q (%v), want %q", got, tc.vm.destroyable(), tc.want)
			}
		})
	}
}
