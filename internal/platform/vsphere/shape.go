package vsphere

// Shape describes a virtual machine in vSphere's words: a copy of the published clone specification without Kubernetes
// types. It travels through the engine in machine.ServerSpec.Shape and machine.VolumeSpec.Shape; only this package reads it.
// Empty strings mean what the published fields mean when omitted.
type Shape struct {
	// Template is an instance UUID, or a name or inventory path inside the datacenter.
	Template string
	// CloneMode is "fullClone" or "linkedClone"; empty is a linked clone if the template has a snapshot, else a full one.
	CloneMode string
	// Snapshot names the snapshot to link from; empty is the current one.
	Snapshot string

	// Datacenter is a name or path; empty or "*" is the only datacenter. A place's location wins over it.
	Datacenter string
	// Folder is a VM folder's name or path; empty is the datacenter's VM folder.
	Folder string
	// ResourcePool is a name or path; empty is the only one there is.
	ResourcePool string
	// Datastore for the system disk and for every disk that names none.
	Datastore string
	// StoragePolicyName picks a datastore when Datastore is empty, and must allow it when it is not.
	StoragePolicyName string

	// NumCPUs below 2 is 2.
	NumCPUs           int32
	NumCoresPerSocket int32
	// MemoryMiB of 0 is 2048.
	MemoryMiB int64
	// DiskGiB is the system disk's size; 0 keeps the template's. Full clones only.
	DiskGiB int32
	// AdditionalDisksGiB are sizes of the template's further disks, in order; 0 keeps the template's.
	AdditionalDisksGiB []int32
	// DataDisks are blank disks that live and die with the VM.
	DataDisks []DataDisk

	// Devices are the NICs in the order of the guest's interfaces.
	Devices []Device
	// Routes are added to every device.
	Routes []Route

	// CustomVMXKeys are extra configuration entries.
	CustomVMXKeys map[string]string
	// HardwareVersion is "vmx-NN"; only ever raised.
	HardwareVersion string
	PCIDevices      []PCIDevice
	// TagIDs are vSphere tag URNs to attach.
	TagIDs []string
	// OS is "Linux" (or empty) or "Windows".
	OS string

	// VMGroup of ComputeCluster is the group that the VM joins before its first start; empty joins none. A rule of the cluster
	// ties the group to hosts.
	VMGroup, ComputeCluster string
	// Module is the UUID of the cluster module that the VM joins; empty joins none.
	Module string
	// Fields are custom attributes of the VM, by name.
	Fields map[string]string
}

// DataDisk is a blank disk created with the VM and destroyed with it.
type DataDisk struct {
	Name    string
	SizeGiB int32
	// ProvisioningMode is Thin, Thick or EagerlyZeroed; empty is thin.
	ProvisioningMode string
}

// Device is one NIC and what the guest does with it.
type Device struct {
	// NetworkName is a port group's or network's name or path.
	NetworkName string
	// DeviceName in the guest; empty is eth<index>.
	DeviceName string
	// MACAddr is a manual MAC; empty lets vCenter generate one.
	MACAddr        string
	DHCP4, DHCP6   bool
	DHCP4Overrides *DHCPOverrides
	DHCP6Overrides *DHCPOverrides
	Gateway4       string
	Gateway6       string
	// IPAddrs in CIDR form.
	IPAddrs          []string
	MTU              *int64
	Nameservers      []string
	SearchDomains    []string
	Routes           []Route
	SkipIPAllocation bool
}

// Route is one static route.
type Route struct {
	To, Via string
	Metric  int32
}

// DHCPOverrides are netplan's dhcp4-overrides and dhcp6-overrides; nil keeps netplan's default.
type DHCPOverrides struct {
	Hostname     *string
	RouteMetric  *int
	SendHostname *bool
	UseDNS       *bool
	UseDomains   *string
	UseHostname  *bool
	UseMTU       *bool
	UseNTP       *bool
	UseRoutes    *string
}

// PCIDevice is a passed-through device or a vGPU.
type PCIDevice struct {
	DeviceID, VendorID *int32
	VGPUProfile        string
	CustomLabel        string
}
