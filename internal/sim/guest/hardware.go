package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	script "github.com/berth-dev/berth/internal/guest"
)

// machineProperties is what a guest's firmware reads of its virtual machine.
var machineProperties = []string{
	"name", "config.uuid", "config.flags.diskUuidEnabled", "config.extraConfig", "config.hardware.device",
	"config.hardware.numCPU", "config.hardware.memoryMB", "config.guestId",
}

// imageVersionKey is where a virtual machine says which Kubernetes version its image was built with; clones inherit it from
// their template. What an image holds is on its disk, of which the simulated vCenter keeps no content.
const imageVersionKey = "image.kubernetesVersion"

// hardware is a virtual machine as its guest finds it.
type hardware struct {
	Name string
	// UUID is the BIOS UUID, lower case.
	UUID string
	// GuestID is the operating system that the virtual machine was configured for.
	GuestID string
	// Image is the Kubernetes version that the image was built with, "" if the virtual machine does not say.
	Image     string
	CPUs      int32
	MemoryMiB int64
	Disks     []virtualDisk
	NICs      []adapter
	// guestinfo values by key.
	guestinfo map[string]string
}

// adapter is a network adapter.
type adapter struct {
	MAC     string
	Network string
	// Connected is the cable.
	Connected bool
}

func readHardware(vm mo.VirtualMachine, stateDir string) hardware {
	h := hardware{Name: vm.Name, guestinfo: map[string]string{}}
	if vm.Config == nil {
		return h
	}
	h.UUID = strings.ToLower(vm.Config.Uuid)
	h.GuestID = vm.Config.GuestId
	h.CPUs = vm.Config.Hardware.NumCPU
	h.MemoryMiB = int64(vm.Config.Hardware.MemoryMB)
	serial := vm.Config.Flags.DiskUuidEnabled != nil && *vm.Config.Flags.DiskUuidEnabled
	for _, option := range vm.Config.ExtraConfig {
		value := option.GetOptionValue()
		if value == nil {
			continue
		}
		text := fmt.Sprint(value.Value)
		switch key := strings.ToLower(value.Key); {
		case strings.HasPrefix(key, "guestinfo."):
			h.guestinfo[key] = text
		case key == "disk.enableuuid":
			serial = serial || strings.EqualFold(text, "true")
		case key == strings.ToLower(imageVersionKey):
			h.Image = text
		}
	}
	buses := map[int32]int32{}
	for _, device := range vm.Config.Hardware.Device {
		if c, ok := device.(types.BaseVirtualController); ok {
			// Disks of different kinds of controllers keep the order of their controllers' keys.
			buses[c.GetVirtualController().Key] = c.GetVirtualController().Key
		}
	}
	for _, device := range vm.Config.Hardware.Device {
		switch d := device.(type) {
		case *types.VirtualDisk:
			h.Disks = append(h.Disks, readDisk(d, buses, serial, stateDir))
		case types.BaseVirtualEthernetCard:
			h.NICs = append(h.NICs, readAdapter(d.GetVirtualEthernetCard()))
		}
	}
	sort.SliceStable(h.Disks, func(i, j int) bool {
		a, b := h.Disks[i], h.Disks[j]
		return a.Bus < b.Bus || (a.Bus == b.Bus && a.Unit < b.Unit)
	})
	return h
}

func readDisk(d *types.VirtualDisk, buses map[int32]int32, serial bool, stateDir string) virtualDisk {
	v := virtualDisk{Bus: buses[d.ControllerKey], serial: serial, Bytes: d.CapacityInBytes, stateDir: stateDir}
	if d.UnitNumber != nil {
		v.Unit = *d.UnitNumber
	}
	if v.Bytes == 0 {
		v.Bytes = d.CapacityInKB * 1024
	}
	switch b := d.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		v.UUID = script.NormalIdentity(b.Uuid)
	case *types.VirtualDiskSeSparseBackingInfo:
		v.UUID = script.NormalIdentity(b.Uuid)
	case *types.VirtualDiskSparseVer2BackingInfo:
		v.UUID = script.NormalIdentity(b.Uuid)
	}
	return v
}

func readAdapter(c *types.VirtualEthernetCard) adapter {
	a := adapter{MAC: strings.ToLower(c.MacAddress), Connected: true}
	if c.Connectable != nil {
		a.Connected = c.Connectable.Connected || c.Connectable.StartConnected
	}
	if b, ok := c.Backing.(*types.VirtualEthernetCardNetworkBackingInfo); ok {
		a.Network = b.DeviceName
	}
	return a
}

// info returns a guestinfo value, decoded as its ".encoding" says, as cloud-init's VMware datasource does.
func (h hardware) info(key string) (string, error) {
	key = "guestinfo." + key
	value := h.guestinfo[key]
	if value == "" || value == "---" {
		return "", nil
	}
	encoding := strings.ToLower(strings.TrimSpace(h.guestinfo[key+".encoding"]))
	switch encoding {
	case "":
		return value, nil
	case "base64", "b64", "gzip+base64", "gz+b64":
	default:
		return "", fmt.Errorf("%s has the unknown encoding %q", key, encoding)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
	if err != nil {
		return "", fmt.Errorf("%s is not base64: %w", key, err)
	}
	if strings.HasPrefix(encoding, "gz") {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return "", fmt.Errorf("%s is not gzip: %w", key, err)
		}
		const limit = 64 << 20
		if raw, err = io.ReadAll(io.LimitReader(z, limit)); err != nil {
			return "", fmt.Errorf("%s is not gzip: %w", key, err)
		}
	}
	return string(raw), nil
}

// power is the state of a virtual machine as the watch reports it.
type power struct {
	name     string
	template bool
	on       bool
	// shuttingDown: somebody asked the guest to shut down.
	shuttingDown bool
	// boot is when it was last powered on; a new value is a new life of the guest.
	boot time.Time
}
