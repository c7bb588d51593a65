package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CloneMode says how the system disk is made from the template's.
type CloneMode string

const (
	// FullClone copies the template's disks. Only a full clone can change the size of the system disk.
	FullClone CloneMode = "fullClone"
	// LinkedClone makes disks that build on a snapshot of the template. An empty clone mode means the same.
	LinkedClone CloneMode = "linkedClone"
)

// OS is the family of the guest's operating system.
type OS string

const (
	// Linux is the default.
	Linux OS = "Linux"
	// Windows guests have names of at most 15 characters.
	Windows OS = "Windows"
)

// VirtualMachinePowerOpMode says how a virtual machine is stopped before it is deleted.
// +kubebuilder:validation:Enum=hard;soft;trySoft
type VirtualMachinePowerOpMode string

const (
	// VirtualMachinePowerOpModeHard pulls the plug.
	VirtualMachinePowerOpModeHard VirtualMachinePowerOpMode = "hard"
	// VirtualMachinePowerOpModeSoft asks the guest, and waits for ever.
	VirtualMachinePowerOpModeSoft VirtualMachinePowerOpMode = "soft"
	// VirtualMachinePowerOpModeTrySoft asks the guest, and pulls the plug after guestSoftPowerOffTimeout.
	VirtualMachinePowerOpModeTrySoft VirtualMachinePowerOpMode = "trySoft"
)

// ProvisioningMode says how space for a disk is taken from the datastore.
// +kubebuilder:validation:Enum=Thin;Thick;EagerlyZeroed
type ProvisioningMode string

const (
	// ThinProvisioningMode takes space when it is written to.
	ThinProvisioningMode ProvisioningMode = "Thin"
	// ThickProvisioningMode takes all space at once and zeroes it when it is first written to.
	ThickProvisioningMode ProvisioningMode = "Thick"
	// EagerlyZeroedProvisioningMode takes and zeroes all space at once.
	EagerlyZeroedProvisioningMode ProvisioningMode = "EagerlyZeroed"
)

// VirtualMachineCloneSpec describes a virtual machine as a clone of a template.
type VirtualMachineCloneSpec struct {
	// template is the source: the instance UUID of a template, else its name or inventory path inside the datacenter.
	// +required
	// +kubebuilder:validation:MinLength=1
	Template string `json:"template"`

	// cloneMode is fullClone or linkedClone; empty means linkedClone. A linked clone of a template without a snapshot is a full
	// clone. VSphereVM.status.cloneMode says what was done.
	// +optional
	CloneMode CloneMode `json:"cloneMode,omitempty"`

	// snapshot to build a linked clone on; empty means the template's current one.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// server is the name or address of vCenter, without a scheme; empty means the VSphereCluster's.
	// +optional
	Server string `json:"server,omitempty"`

	// thumbprint of vCenter's certificate in hexadecimal with colons; empty means that the certificate is not checked.
	// +optional
	Thumbprint string `json:"thumbprint,omitempty"`

	// datacenter by name or path. "*" fits any slot, and means vCenter's default datacenter without one. A slot's own datacenter
	// wins.
	// +optional
	Datacenter string `json:"datacenter,omitempty"`

	// folder is the path of the folder that holds the virtual machine; empty means the datacenter's default.
	// +optional
	Folder string `json:"folder,omitempty"`

	// datastore of the system disk, and of other disks that name none.
	// +optional
	Datastore string `json:"datastore,omitempty"`

	// storagePolicyName chooses the datastore by a storage policy when none is named.
	// +optional
	StoragePolicyName string `json:"storagePolicyName,omitempty"`

	// resourcePool by path; empty means the default one, which must then be the only one.
	// +optional
	ResourcePool string `json:"resourcePool,omitempty"`

	// network describes the interfaces.
	// +required
	Network NetworkSpec `json:"network"`

	// numCPUs is the number of virtual processors; values below 2 become 2.
	// +optional
	NumCPUs int32 `json:"numCPUs,omitempty"`

	// numCoresPerSocket is the number of cores that share a virtual socket.
	// +optional
	NumCoresPerSocket int32 `json:"numCoresPerSocket,omitempty"`

	// memoryMiB is the size of the memory in MiB; 0 means 2048.
	// +optional
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// diskGiB is the size of the system disk in GiB, for full clones; 0 keeps the template's, and less than that is refused.
	// +optional
	DiskGiB int32 `json:"diskGiB,omitempty"`

	// additionalDisksGiB are the sizes of the further disks that the template has, in its order. No disk is created by it.
	// +optional
	AdditionalDisksGiB []int32 `json:"additionalDisksGiB,omitempty"`

	// customVMXKeys are added to the extra configuration of the virtual machine.
	// +optional
	CustomVMXKeys map[string]string `json:"customVMXKeys,omitempty"`

	// tagIDs are the identifiers (URNs) of tags to attach.
	// +optional
	TagIDs []string `json:"tagIDs,omitempty"`

	// pciDevices are passed through to the virtual machine.
	// +optional
	PciDevices []PCIDeviceSpec `json:"pciDevices,omitempty"`

	// os is Linux or Windows; empty means Linux.
	// +optional
	OS OS `json:"os,omitempty"`

	// hardwareVersion to upgrade to ("vmx-19"), never to downgrade.
	// +optional
	HardwareVersion string `json:"hardwareVersion,omitempty"`

	// dataDisks are created blank with the virtual machine and destroyed with it. Disks that must survive are declared in a
	// pool.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=29
	DataDisks []VSphereDisk `json:"dataDisks,omitempty"`
}

// VSphereDisk is a disk that lives and dies with its virtual machine.
type VSphereDisk struct {
	// name of the disk, unique in the virtual machine.
	// +required
	Name string `json:"name"`

	// sizeGiB is the size in GiB.
	// +required
	SizeGiB int32 `json:"sizeGiB"`

	// provisioningMode says how space is taken; empty leaves it to the datastore.
	// +optional
	ProvisioningMode ProvisioningMode `json:"provisioningMode,omitempty"`
}

// PCIDeviceSpec names a device to pass through: by vendor and device, or a profile of a virtual graphics processor.
type PCIDeviceSpec struct {
	// deviceId is the PCI device identifier; it needs vendorId.
	// +optional
	DeviceID *int32 `json:"deviceId,omitempty"`

	// vendorId is the PCI vendor identifier; it needs deviceId.
	// +optional
	VendorID *int32 `json:"vendorId,omitempty"`

	// vGPUProfile excludes deviceId and vendorId.
	// +optional
	VGPUProfile string `json:"vGPUProfile,omitempty"`

	// customLabel restricts a dynamic pass-through device.
	// +optional
	CustomLabel string `json:"customLabel,omitempty"`
}

// NetworkSpec describes the interfaces of a virtual machine.
type NetworkSpec struct {
	// devices in the order in which the guest sees them.
	// +required
	Devices []NetworkDeviceSpec `json:"devices"`

	// routes are added to every device.
	// +optional
	Routes []NetworkRouteSpec `json:"routes,omitempty"`

	// preferredAPIServerCidr has no effect any more and is refused when it is set.
	// +optional
	PreferredAPIServerCIDR string `json:"preferredAPIServerCidr,omitempty"`
}

// NetworkDeviceSpec is one interface.
type NetworkDeviceSpec struct {
	// networkName is the network or port group, by name or path.
	// +required
	NetworkName string `json:"networkName"`

	// deviceName is the name inside the guest; empty means eth0, eth1 and so on.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`

	// dhcp4 asks for an IPv4 address by DHCP. A slot's address switches it off.
	// +optional
	DHCP4 bool `json:"dhcp4,omitempty"`

	// dhcp6 asks for an IPv6 address by DHCP. A slot's address switches it off.
	// +optional
	DHCP6 bool `json:"dhcp6,omitempty"`

	// gateway4 is the IPv4 default gateway.
	// +optional
	Gateway4 string `json:"gateway4,omitempty"`

	// gateway6 is the IPv6 default gateway.
	// +optional
	Gateway6 string `json:"gateway6,omitempty"`

	// ipAddrs are static addresses with their prefix lengths. Not allowed in a template; a slot fills them in.
	// +optional
	IPAddrs []string `json:"ipAddrs,omitempty"`

	// mtu inside the guest, in bytes.
	// +optional
	MTU *int64 `json:"mtu,omitempty"`

	// macAddr to use instead of one that vCenter makes up.
	// +optional
	MACAddr string `json:"macAddr,omitempty"`

	// nameservers of this interface.
	// +optional
	Nameservers []string `json:"nameservers,omitempty"`

	// routes of this interface.
	// +optional
	Routes []NetworkRouteSpec `json:"routes,omitempty"`

	// searchDomains of this interface.
	// +optional
	SearchDomains []string `json:"searchDomains,omitempty"`

	// addressesFromPools are the IPAM pools that addresses are claimed from. A slot's address replaces them.
	// +optional
	AddressesFromPools []corev1.TypedLocalObjectReference `json:"addressesFromPools,omitempty"`

	// dhcp4Overrides change what is taken from an answer to DHCPv4.
	// +optional
	DHCP4Overrides *DHCPOverrides `json:"dhcp4Overrides,omitempty"`

	// dhcp6Overrides change what is taken from an answer to DHCPv6.
	// +optional
	DHCP6Overrides *DHCPOverrides `json:"dhcp6Overrides,omitempty"`

	// skipIPAllocation: this interface needs no address, and nobody waits for one.
	// +optional
	SkipIPAllocation bool `json:"skipIPAllocation,omitempty"`
}

// NetworkRouteSpec is a static route.
type NetworkRouteSpec struct {
	// to is the destination in CIDR form.
	// +required
	To string `json:"to"`

	// via is the next hop.
	// +required
	Via string `json:"via"`

	// metric of the route; smaller is preferred.
	// +required
	Metric int32 `json:"metric"`
}

// DHCPOverrides change how the guest treats answers to DHCP; each field means what netplan's key of that name means.
type DHCPOverrides struct {
	// hostname sent to the server instead of the guest's own.
	// +optional
	Hostname *string `json:"hostname,omitempty"`

	// routeMetric of routes learned.
	// +optional
	RouteMetric *int `json:"routeMetric,omitempty"`

	// sendHostname: tell the server a host name.
	// +optional
	SendHostname *bool `json:"sendHostname,omitempty"`

	// useDNS: take name servers from the answer.
	// +optional
	UseDNS *bool `json:"useDNS,omitempty"`

	// useDomains is "true", "false" or "route".
	// +optional
	UseDomains *string `json:"useDomains,omitempty"`

	// useHostname: take the host name from the answer.
	// +optional
	UseHostname *bool `json:"useHostname,omitempty"`

	// useMTU: take the MTU from the answer.
	// +optional
	UseMTU *bool `json:"useMTU,omitempty"`

	// useNTP: take time servers from the answer.
	// +optional
	UseNTP *bool `json:"useNTP,omitempty"`

	// useRoutes: take routes from the answer.
	// +optional
	UseRoutes *string `json:"useRoutes,omitempty"`
}

// NetworkStatus is one interface as vCenter and the guest's tools report it.
type NetworkStatus struct {
	// connected: the virtual cable is plugged in.
	// +optional
	Connected bool `json:"connected,omitempty"`

	// ipAddrs that the guest reports, without loopback and link-local ones that nobody planned.
	// +optional
	IPAddrs []string `json:"ipAddrs,omitempty"`

	// macAddr of the interface.
	// +required
	MACAddr string `json:"macAddr"`

	// networkName that the interface is connected to.
	// +optional
	NetworkName string `json:"networkName,omitempty"`
}

// Initialization is the part of a status that Cluster API waits for.
type Initialization struct {
	// provisioned becomes true once and stays true: everything that the owner waits for is there.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// V1Beta2Status keeps a published place for conditions. We never write it: status.conditions already has that form.
type V1Beta2Status struct {
	// conditions in the form of Kubernetes.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
