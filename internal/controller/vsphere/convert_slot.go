package vsphere

import (
	"net/netip"

	"k8s.io/utils/ptr"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/slot"
)

// slotOf is a slot as the engine sees it. datacenter is the pool's, for a slot that names none.
func slotOf(config infrav1.VSphereMachineConfig, datacenter string) slot.Slot {
	s := slot.Slot{HostName: config.Hostname, Location: config.Datacenter}
	if s.Location == "" {
		s.Location = datacenter
	}
	if s.Location == infrav1.AnyDatacenter {
		s.Location = "" // the engine's word for it; a place called "*" would be in no failure domain
	}
	if config.Network != nil {
		s.NICs = append(s.NICs, nicOf(config.Network.Primary))
		for _, device := range config.Network.Additional {
			s.NICs = append(s.NICs, nicOf(device))
		}
	}
	for _, d := range config.PersistentDisks {
		s.Disks = append(s.Disks, slot.Disk{
			Name: d.Name, SizeGiB: d.SizeGiB, Datastore: d.Datastore, StoragePolicy: d.StoragePolicy, Unit: d.UnitNumber,
			MountPath: d.MountPath, Filesystem: string(d.FSFormat), MountOptions: d.MountOptions,
			WipeFilesystem: ptr.Deref(d.WipeFilesystem, false),
		})
	}
	for _, d := range config.EphemeralDisks {
		s.Disks = append(s.Disks, slot.Disk{
			Name: d.Name, SizeGiB: d.SizeGiB, Ephemeral: true, Datastore: d.Datastore, StoragePolicy: d.StoragePolicy,
			MountPath: d.MountPath, Filesystem: string(d.FSFormat), MountOptions: d.MountOptions,
		})
	}
	return s
}

func nicOf(device infrav1.MachineConfigNetworkDevice) slot.NIC {
	nic := slot.NIC{
		Network: device.NetworkName, DeviceName: device.DeviceName,
		Gateway4: device.Gateway, Gateway6: device.IPv6Gateway, DNS: device.DNS,
	}
	for _, address := range []string{device.IP, device.IPv6} {
		if address != "" {
			nic.Addresses = append(nic.Addresses, address)
		}
	}
	return nic
}

// configOf is the inverse of slotOf: the copy of a slot that a VSphereVM keeps.
func configOf(s slot.Slot) *infrav1.VSphereMachineConfig {
	config := &infrav1.VSphereMachineConfig{Hostname: s.HostName, Datacenter: s.Location}
	for i, nic := range s.NICs {
		device := infrav1.MachineConfigNetworkDevice{
			NetworkName: nic.Network, DeviceName: nic.DeviceName,
			Gateway: nic.Gateway4, IPv6Gateway: nic.Gateway6, DNS: nic.DNS,
		}
		for _, address := range nic.Addresses {
			if isIPv6(address) {
				device.IPv6 = address
			} else {
				device.IP = address
			}
		}
		if config.Network == nil {
			config.Network = &infrav1.MachineConfigNetwork{}
		}
		if i == 0 {
			config.Network.Primary = device
		} else {
			config.Network.Additional = append(config.Network.Additional, device)
		}
	}
	for _, d := range s.Disks {
		if d.Ephemeral {
			config.EphemeralDisks = append(config.EphemeralDisks, infrav1.EphemeralDisk{
				Name: d.Name, SizeGiB: d.SizeGiB, Datastore: d.Datastore, StoragePolicy: d.StoragePolicy,
				MountPath: d.MountPath, FSFormat: infrav1.FSFormat(d.Filesystem), MountOptions: d.MountOptions,
			})
			continue
		}
		disk := infrav1.PersistentDisk{
			Name: d.Name, SizeGiB: d.SizeGiB, Datastore: d.Datastore, StoragePolicy: d.StoragePolicy, UnitNumber: d.Unit,
			MountPath: d.MountPath, FSFormat: infrav1.FSFormat(d.Filesystem), MountOptions: d.MountOptions,
		}
		if d.WipeFilesystem {
			disk.WipeFilesystem = ptr.To(true)
		}
		config.PersistentDisks = append(config.PersistentDisks, disk)
	}
	return config
}

// isIPv6 tells the family of an address in CIDR form; what is neither is treated as IPv4, where its own check complains.
func isIPv6(cidr string) bool {
	prefix, err := netip.ParsePrefix(cidr)
	return err == nil && prefix.Addr().Is6()
}
