package vsphere

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/rules"
	"github.com/berth-dev/berth/internal/slot"
)

// placement is what a failure domain says about a machine; nil when the machine has none.
type placement struct {
	zone       infrav1.VSphereDeploymentZone
	domain     infrav1.VSphereFailureDomain
	networks   []string
	datacenter string
}

func newPlacement(zone infrav1.VSphereDeploymentZone, domain infrav1.VSphereFailureDomain) *placement {
	p := &placement{zone: zone, domain: domain, datacenter: domain.Spec.Topology.Datacenter}
	p.networks = append(p.networks, domain.Spec.Topology.Networks...)
	for _, n := range domain.Spec.Topology.NetworkConfigurations {
		p.networks = append(p.networks, n.NetworkName)
	}
	return p
}

// buildVM decides the VSphereVM of a machine: its specification, the slot over it, the failure domain over both, the slot's
// datacenter last. It is evaluated once in a machine's life; the object that comes of it is what counts from then on.
func buildVM(m *infrav1.VSphereMachine, owner *clusterv1.Machine, place *slot.Slot, in *placement) (*infrav1.VSphereVM, error) {
	name, err := vmName(m)
	if err != nil {
		return nil, err
	}
	vm := &infrav1.VSphereVM{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   m.Namespace,
			Name:        name,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: m.Labels[clusterv1.ClusterNameLabel]},
			Annotations: map[string]string{infrav1.MarkAnnotation: m.Annotations[infrav1.MarkAnnotation]},
			Finalizers:  []string{infrav1.VMFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m, infrav1.GroupVersion.WithKind("VSphereMachine")),
			},
		},
		Spec: infrav1.VSphereVMSpec{
			VirtualMachineCloneSpec:  *m.Spec.VirtualMachineCloneSpec.DeepCopy(),
			PowerOffMode:             m.Spec.PowerOffMode,
			GuestSoftPowerOffTimeout: m.Spec.GuestSoftPowerOffTimeout,
		},
	}
	if vm.Labels[clusterv1.ClusterNameLabel] == "" && owner != nil {
		vm.Labels[clusterv1.ClusterNameLabel] = owner.Spec.ClusterName
	}
	for _, key := range []string{clusterv1.MachineControlPlaneLabel, clusterv1.WatchLabel} {
		if value, set := m.Labels[key]; set {
			vm.Labels[key] = value
		}
	}
	if owner != nil && owner.Spec.Bootstrap.DataSecretName != nil {
		vm.Spec.BootstrapRef = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: owner.Namespace, Name: *owner.Spec.Bootstrap.DataSecretName,
		}
	}
	if place != nil {
		vm.Annotations[infrav1.SlotHostnameAnnotation] = place.HostName
		vm.Spec.Slot = configOf(*place)
	}
	if err := checkTopology(m, place, in); err != nil {
		return nil, err
	}
	spec := &vm.Spec.VirtualMachineCloneSpec
	if place != nil {
		mergePlace(spec, place)
	}
	if in != nil {
		mergePlacement(spec, in)
		mergeNetworkConfigurations(spec, in, place)
	}
	if place != nil && place.Location != "" {
		spec.Datacenter = place.Location
	}
	return vm, checkAddresses(spec)
}

// mergePlace lays the slot's interfaces over the template's, by index.
func mergePlace(spec *infrav1.VirtualMachineCloneSpec, place *slot.Slot) {
	for i, nic := range place.NICs {
		device := &spec.Network.Devices[i]
		device.NetworkName = nic.Network
		if nic.DeviceName != "" {
			device.DeviceName = nic.DeviceName
		}
		if len(nic.DNS) > 0 {
			device.Nameservers = slices.Clone(nic.DNS)
		}
		if len(nic.Addresses) == 0 {
			continue
		}
		device.IPAddrs = slices.Clone(nic.Addresses)
		device.AddressesFromPools = nil
		for _, address := range nic.Addresses {
			if isIPv6(address) {
				device.DHCP6, device.Gateway6 = false, nic.Gateway6
			} else {
				device.DHCP4, device.Gateway4 = false, nic.Gateway4
			}
		}
	}
}

func mergePlacement(spec *infrav1.VirtualMachineCloneSpec, in *placement) {
	for value, into := range map[string]*string{
		in.zone.Spec.Server:                           &spec.Server,
		in.datacenter:                                 &spec.Datacenter,
		in.zone.Spec.PlacementConstraint.Folder:       &spec.Folder,
		in.zone.Spec.PlacementConstraint.ResourcePool: &spec.ResourcePool,
		in.domain.Spec.Topology.Datastore:             &spec.Datastore,
	} {
		if value != "" {
			*into = value
		}
	}
	if cluster := ptr.Deref(in.domain.Spec.Topology.ComputeCluster, ""); spec.ResourcePool == "" && cluster != "" {
		// A failure domain of one compute cluster, and nobody names a resource pool: the cluster's own, and no other cluster's.
		spec.ResourcePool = cluster
	}
	for i, network := range in.networks {
		if i < len(spec.Network.Devices) {
			spec.Network.Devices[i].NetworkName = network
		}
	}
}

// checkTopology refuses a slot, a template and a failure domain that do not describe the same interfaces (VS-A19, VS-A20): a
// machine built from them would come up with a NIC in the wrong network or none at all.
func checkTopology(m *infrav1.VSphereMachine, place *slot.Slot, in *placement) error {
	devices := len(m.Spec.Network.Devices)
	refuse := func(format string, args ...any) error {
		return &machine.Error{Kind: machine.Refused, Reason: infrav1.NetworkTopologyMismatchReason, Message: fmt.Sprintf(format, args...)}
	}
	if place != nil && len(place.NICs) > 0 && len(place.NICs) != devices {
		return refuse("slot %s has %d network interfaces and VSphereMachine %s has %d in spec.network.devices: "+
			"give the slot as many interfaces as the machine template, or the template as many devices as the slot",
			place.HostName, len(place.NICs), m.Name, devices)
	}
	if in == nil || len(in.networks) == 0 {
		return nil
	}
	if len(in.networks) != devices {
		return refuse("failure domain %s names %d networks and VSphereMachine %s has %d in spec.network.devices: make both the same",
			in.domain.Name, len(in.networks), m.Name, devices)
	}
	if place == nil {
		return nil
	}
	for i, nic := range place.NICs {
		if nic.Network != "" && nic.Network != in.networks[i] {
			return refuse("slot %s names network %q for interface %d (0 is the primary) and failure domain %s names %q: make both the same, or leave the networks out of the failure domain",
				place.HostName, nic.Network, i, in.domain.Name, in.networks[i])
		}
	}
	return nil
}

// checkAddresses finds interfaces that would never get an address (VS-V24).
func checkAddresses(spec *infrav1.VirtualMachineCloneSpec) error {
	var without []string
	for i, d := range spec.Network.Devices {
		if !d.DHCP4 && !d.DHCP6 && !d.SkipIPAllocation && len(d.IPAddrs) == 0 && len(d.AddressesFromPools) == 0 {
			without = append(without, fmt.Sprintf("spec.network.devices[%d] (network %q)", i, d.NetworkName))
		}
	}
	if len(without) > 0 {
		return &machine.Error{
			Kind: machine.Refused, Reason: infrav1.WaitingForStaticIPAllocationReason,
			Message: strings.Join(without, ", ") + ": neither DHCP nor an address: set dhcp4 or dhcp6, ipAddrs, addressesFromPools or skipIPAllocation, or take a slot that has an address for it",
		}
	}
	return nil
}

// vmName is the name of a machine's virtual machine and VSphereVM.
func vmName(m *infrav1.VSphereMachine) (string, error) {
	naming := ""
	if m.Spec.NamingStrategy != nil {
		naming = ptr.Deref(m.Spec.NamingStrategy.Template, "")
	}
	name, err := rules.VMName(naming, m.Name)
	if err != nil {
		return "", &machine.Error{
			Kind: machine.Refused, Reason: infrav1.CloningFailedReason, Err: err,
			Message: fmt.Sprintf("spec.namingStrategy.template %q gives no name for a virtual machine", naming),
		}
	}
	return name, nil
}

// serverSpec is what the engine hands to the adapter. It comes from the VSphereVM, so that it never changes under a machine, and
// from the address claims that the VSphereVM has.
func serverSpec(vm *infrav1.VSphereVM, claimed map[int]claimedAddresses) machine.ServerSpec {
	clone := vm.Spec.DeepCopy()
	for i, claims := range claimed {
		claims.onto(&clone.Network.Devices[i])
	}
	spec := machine.ServerSpec{
		Name:       vm.Name,
		Mark:       machine.Mark(vm.Annotations[infrav1.MarkAnnotation]),
		Shape:      shapeOf(&clone.VirtualMachineCloneSpec),
		Location:   vm.Spec.Datacenter,
		Interfaces: interfacesOf(&clone.VirtualMachineCloneSpec, vm.Spec.Slot != nil),
	}
	if vm.Spec.Slot != nil {
		place := slotOf(*vm.Spec.Slot, "")
		spec.Place = &place
		// No UID in it: it survives a move, and goes into the file systems of the place's disks.
		spec.PlaceKey = strings.Join([]string{vm.Namespace, vm.Labels[clusterv1.ClusterNameLabel], place.HostName}, "/")
	}
	return spec
}

// interfacesOf says what the guest must report before the machine is ready: every static and every claimed address, and for a
// machine in a slot an address on each interface. One that is to be left alone is never waited for.
func interfacesOf(spec *infrav1.VirtualMachineCloneSpec, placed bool) []machine.Interface {
	out := make([]machine.Interface, 0, len(spec.Network.Devices))
	for _, d := range spec.Network.Devices {
		nic := machine.Interface{Network: d.NetworkName, Optional: !placed || d.SkipIPAllocation}
		if !d.SkipIPAllocation {
			nic.Addresses = slices.Clone(d.IPAddrs)
		}
		out = append(out, nic)
	}
	return out
}

// shapeOf is a clone specification in the adapter's words.
func shapeOf(spec *infrav1.VirtualMachineCloneSpec) vsphere.Shape {
	shape := vsphere.Shape{
		Template: spec.Template, CloneMode: string(spec.CloneMode), Snapshot: spec.Snapshot,
		Datacenter: spec.Datacenter, Folder: spec.Folder, ResourcePool: spec.ResourcePool,
		Datastore: spec.Datastore, StoragePolicyName: spec.StoragePolicyName,
		NumCPUs: spec.NumCPUs, NumCoresPerSocket: spec.NumCoresPerSocket, MemoryMiB: spec.MemoryMiB,
		DiskGiB: spec.DiskGiB, AdditionalDisksGiB: slices.Clone(spec.AdditionalDisksGiB),
		CustomVMXKeys: maps.Clone(spec.CustomVMXKeys), HardwareVersion: spec.HardwareVersion,
		TagIDs: slices.Clone(spec.TagIDs), OS: string(spec.OS),
		Routes: routesOf(spec.Network.Routes),
	}
	for _, d := range spec.DataDisks {
		shape.DataDisks = append(shape.DataDisks, vsphere.DataDisk{Name: d.Name, SizeGiB: d.SizeGiB, ProvisioningMode: string(d.ProvisioningMode)})
	}
	for _, d := range spec.Network.Devices {
		shape.Devices = append(shape.Devices, vsphere.Device{
			NetworkName: d.NetworkName, DeviceName: d.DeviceName, MACAddr: d.MACAddr,
			DHCP4: d.DHCP4, DHCP6: d.DHCP6, DHCP4Overrides: overridesOf(d.DHCP4Overrides), DHCP6Overrides: overridesOf(d.DHCP6Overrides),
			Gateway4: d.Gateway4, Gateway6: d.Gateway6, IPAddrs: slices.Clone(d.IPAddrs), MTU: d.MTU,
			Nameservers: slices.Clone(d.Nameservers), SearchDomains: slices.Clone(d.SearchDomains),
			Routes: routesOf(d.Routes), SkipIPAllocation: d.SkipIPAllocation,
		})
	}
	for _, d := range spec.PciDevices {
		shape.PCIDevices = append(shape.PCIDevices, vsphere.PCIDevice{
			DeviceID: d.DeviceID, VendorID: d.VendorID, VGPUProfile: d.VGPUProfile, CustomLabel: d.CustomLabel,
		})
	}
	return shape
}

func routesOf(routes []infrav1.NetworkRouteSpec) []vsphere.Route {
	var out []vsphere.Route
	for _, r := range routes {
		out = append(out, vsphere.Route{To: r.To, Via: r.Via, Metric: r.Metric})
	}
	return out
}

func overridesOf(o *infrav1.DHCPOverrides) *vsphere.DHCPOverrides {
	if o == nil {
		return nil
	}
	return &vsphere.DHCPOverrides{
		Hostname: o.Hostname, RouteMetric: o.RouteMetric, SendHostname: o.SendHostname, UseDNS: o.UseDNS,
		UseDomains: o.UseDomains, UseHostname: o.UseHostname, UseMTU: o.UseMTU, UseNTP: o.UseNTP, UseRoutes: o.UseRoutes,
	}
}
