package vcenter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

var (
	errNoVM       = errors.New("no such VM")
	errNotRunning = errors.New("the VM is not powered on: nothing in it can report")
)

// ReportGuest does what VMware Tools in the guest of a VM ("vm-42") would: its report becomes the VM's guest properties,
// seen by everyone who waits for updates.
func (s *Server) ReportGuest(vm string, guest Guest) error {
	object, ok := s.registry.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: vm}).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("%s: %w", vm, errNoVM)
	}
	ctx := s.internalContext()
	var err error
	var name string
	ctx.WithLock(object, func() {
		name = object.Name
		if object.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
			err = fmt.Errorf("%s (%s): %w", vm, name, errNotRunning)
			return
		}
		ctx.Update(object, guestChanges(object, guest))
	})
	if err != nil {
		return err
	}
	s.strict.reported(vm, name, guest)
	return nil
}

// guestChanges are the property updates of a report. It runs under the VM's lock.
func guestChanges(vm *simulator.VirtualMachine, guest Guest) []types.PropertyChange {
	running, status, state := types.VirtualMachineToolsRunningStatusGuestToolsNotRunning, types.VirtualMachineToolsStatusToolsNotRunning, types.VirtualMachineGuestStateUnknown
	if guest.ToolsRunning {
		running, status, state = types.VirtualMachineToolsRunningStatusGuestToolsRunning, types.VirtualMachineToolsStatusToolsOk, types.VirtualMachineGuestStateRunning
	}
	nics := make([]types.GuestNicInfo, 0, len(guest.NICs))
	first := ""
	for _, nic := range guest.NICs {
		info := types.GuestNicInfo{
			Network: nic.Network, MacAddress: strings.ToLower(nic.MAC), Connected: true, DeviceConfigId: deviceByMAC(vm, nic.MAC),
			IpAddress: slices.Clone(nic.Addresses),
			IpConfig:  &types.NetIpConfigInfo{},
		}
		for _, text := range nic.Addresses {
			prefix := int32(24)
			if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() {
				prefix = 64
			} else if first == "" {
				first = text
			}
			info.IpConfig.IpAddress = append(info.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
				IpAddress: text, PrefixLength: prefix, State: string(types.NetIpConfigInfoIpAddressStatusPreferred),
			})
		}
		nics = append(nics, info)
	}
	return []types.PropertyChange{
		{Name: "guest.net", Val: nics},
		{Name: "guest.ipAddress", Val: first},
		{Name: "guest.hostName", Val: guest.HostName},
		{Name: "guest.toolsStatus", Val: status},
		{Name: "guest.toolsRunningStatus", Val: string(running)},
		{Name: "guest.guestState", Val: string(state)},
		{Name: "guest.guestStateChangeSupported", Val: guest.ToolsRunning},
		{Name: "summary.guest.ipAddress", Val: first},
		{Name: "summary.guest.hostName", Val: guest.HostName},
		{Name: "summary.guest.toolsStatus", Val: status},
		{Name: "summary.guest.toolsRunningStatus", Val: string(running)},
	}
}

// deviceByMAC is the key of the adapter with the address, -1 for one that only the guest knows (a bridge, a pod's).
func deviceByMAC(vm *simulator.VirtualMachine, mac string) int32 {
	for _, device := range vm.Config.Hardware.Device {
		if card, ok := device.(types.BaseVirtualEthernetCard); ok && strings.EqualFold(card.GetVirtualEthernetCard().MacAddress, mac) {
			return card.GetVirtualEthernetCard().Key
		}
	}
	return -1
}
