package vsphere

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// VS-V7: a template is found by instance UUID, by path and by name; one name for several is refused, and all are named.
func TestTemplateLookup(t *testing.T) {
	l := newLab(t)
	inv, err := l.inventory.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dc, err := inv.datacenter("dc-a", "")
	if err != nil {
		t.Fatal(err)
	}
	source, err := l.admin.VirtualMachine(t.Context(), "os-v136-3")
	if err != nil {
		t.Fatal(err)
	}
	vmFolder, err := l.admin.Folder(t.Context(), "/dc-a/vm")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := l.admin.ResourcePool(t.Context(), "cl-a/Resources/k8s")
	if err != nil {
		t.Fatal(err)
	}
	ref := pool.Reference()
	copies := map[string]types.ManagedObjectReference{}
	for _, name := range []string{"east", "west"} {
		folder, err := vmFolder.CreateFolder(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, copied := range []string{"twin", "only-" + name} {
			task, err := source.Clone(t.Context(), folder, copied, types.VirtualMachineCloneSpec{
				Location: types.VirtualMachineRelocateSpec{Pool: &ref}, Config: &types.VirtualMachineConfigSpec{InstanceUuid: uuid.NewString()},
			})
			if err != nil {
				t.Fatal(err)
			}
			info, err := task.WaitForResult(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			copies[name+"/"+copied] = info.Result.(types.ManagedObjectReference)
		}
	}
	l.inventory.forget()
	if inv, err = l.inventory.get(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := l.client.readVM(t.Context(), copies["west/twin"])
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]types.ManagedObjectReference{
		v.instanceUUID: copies["west/twin"], strings.ToUpper(v.instanceUUID): copies["west/twin"],
		"east/twin": copies["east/twin"], "/dc-a/vm/west/twin": copies["west/twin"],
		"only-east": copies["east/only-east"], "os-v136-3": source.Reference(),
	} {
		got, err := l.findTemplate(t.Context(), inv, dc, value)
		if err != nil || got != want {
			t.Errorf("%q leads to %v (%v), want %v", value, got, err, want)
		}
	}
	_, err = l.findTemplate(t.Context(), inv, dc, "twin")
	isRefused(t, err, ReasonTemplate, `"twin"`, "2 virtual machines", "east/twin", "west/twin", "path")
	_, err = l.findTemplate(t.Context(), inv, dc, uuid.NewString())
	isRefused(t, err, ReasonTemplate, "spec.template", "os-v136-3", "os-v137-0")
}

// What a machine can be connected to is listed, and nothing else; of many names twenty are.
func TestRefusalListsWhatThereIs(t *testing.T) {
	l := newLab(t)
	_, err := l.asks(aSpec(func(s *Shape) { s.Devices[0].NetworkName = "pg-x" }))
	isRefused(t, err, ReasonNetwork, "spec.network.devices[0].networkName", "pg-node, pg-stor", "name one of these")
	if strings.Contains(err.Error(), "Uplink") {
		t.Errorf("%v: no machine can be connected to an uplink", err)
	}
	var many []string
	for range 25 {
		many = append(many, "n")
	}
	if got := listNames(many); strings.Count(got, "n,")+1 > 21 || !strings.Contains(got, "5 more") {
		t.Errorf("25 names are listed as %q", got)
	}
}

// VS-D9, VS-B17: disks of a slot go to a SCSI controller, whatever the system disk is on; without one there is a sentence.
// VS-D10, VS-D11, VS-D12: units leave out the controller's own, a wanted one wins, more disks go to further controllers.
func TestDisksBesideAnotherBootController(t *testing.T) {
	sata, ide := &types.VirtualAHCIController{}, &types.VirtualIDEController{}
	sata.Key, ide.Key = 15000, 200
	boot := func(controller int32) *types.VirtualDisk {
		unit := int32(0)
		return &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 2000, ControllerKey: controller, UnitNumber: &unit}}
	}
	for name, list := range map[string]object.VirtualDeviceList{"SATA": {sata, boot(15000)}, "IDE": {ide, boot(200)}} {
		_, err := newBoard(list, "template "+name)
		isRefused(t, err, ReasonNoController, "template "+name, "SCSI controller")
		b, err := newBoard(append(slices.Clone(list), devices()...), name)
		if err != nil {
			t.Fatal(err)
		}
		wanted := int32(3)
		if u, key, err := b.take(&wanted, true); err != nil || key != 1000 || u != (unit{0, 3}) {
			t.Errorf("%s: unit %+v on controller %d (%v), wanted 3 on 1000", name, u, key, err)
		}
		var got []int32
		for range 16 {
			u, _, err := b.take(nil, false)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, u.number())
		}
		if want := []int32{0, 1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}; !slices.Equal(got, want) {
			t.Errorf("%s: units %v, want %v", name, got, want)
		}
	}
}

// VS-V31: a power state that is as wanted is success, another one is not.
func TestPowerStateThatIsThereAlready(t *testing.T) {
	on, off := types.VirtualMachinePowerStatePoweredOn, types.VirtualMachinePowerStatePoweredOff
	if !alreadyThere(&types.InvalidPowerState{RequestedState: on, ExistingState: on}) || alreadyThere(&types.InvalidPowerState{RequestedState: on, ExistingState: off}) {
		t.Error("only the state asked for counts as success")
	}
	l := newLab(t)
	fault := &types.LocalizedMethodFault{Fault: &types.InvalidPowerState{RequestedState: off, ExistingState: off}}
	if err := l.outcome(t.Context(), machine.Operation{Kind: machine.OpPowerOff}, fault); err != nil {
		t.Errorf("powering off what is off: %v", err)
	}
}

// Virtual hardware is raised where the specification asks for more, and never lowered.
func TestHardwareIsOnlyRaised(t *testing.T) {
	for _, tc := range []struct {
		want, have string
		raised     bool
	}{{"vmx-20", "vmx-19", true}, {"vmx-19", "vmx-19", false}, {"vmx-9", "vmx-19", false}, {"", "vmx-19", false}, {"vmx-x", "vmx-19", false}} {
		if got := newer(tc.want, tc.have); got != tc.raised {
			t.Errorf("hardware %q asked for, %q there: raised %t", tc.want, tc.have, got)
		}
	}
}
