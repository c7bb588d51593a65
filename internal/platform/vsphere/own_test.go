package vsphere

import (
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// A template that was made from one of our machines hands its extra configuration on: what was handed to that one was not
// handed to its clones.
func TestFitOfAnotherMachine(t *testing.T) {
	v := vm{mark: "b", fit: &fitRecord{Digest: "d", Mark: "b"}}
	if !v.fitted() {
		t.Error("its own fit does not count")
	}
	v.fit = &fitRecord{Digest: "d", Mark: "a"}
	if v.fitted() {
		t.Error("another machine's fit counts")
	}
}

// Hazard H3, VS-D21, VS-D22: a disk in the directory of a place is never the VM's own, whatever unit it has and whatever the VM is called.
func TestOwnDisks(t *testing.T) {
	number := int32(1)
	disk := func(path string) vm {
		return vm{
			name: "demo", vmx: "[ds-a] demo/demo.vmx", disks: map[string]unit{"scratch": {Unit: number}},
			devices: object.VirtualDeviceList{
				&types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
					VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: 1000}},
				}},
				&types.VirtualDisk{VirtualDevice: types.VirtualDevice{
					ControllerKey: 1000, UnitNumber: &number,
					Backing: &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: path}},
				}},
			},
		}
	}
	for path, own := range map[string]bool{
		"[ds-a] demo/demo_1.vmdk":                             true,
		"[ds-b] demo/demo.vmdk":                               true,
		"[ds-b] demo_1/demo.vmdk":                             true,
		"[ds-b] demo-w-1-192.0.2.31/w-1-192.0.2.31-data.vmdk": false,
		"[ds-a] demo-w-1-192.0.2.31/w-1-192.0.2.31-data.vmdk": false,
		"[ds-b] demonstration/somebody.vmdk":                  false,
	} {
		v := disk(path)
		if got, _ := v.own(v.attached()[0]); got != own {
			t.Errorf("%s: own %v, wanted %v", path, got, own)
		}
	}
}
