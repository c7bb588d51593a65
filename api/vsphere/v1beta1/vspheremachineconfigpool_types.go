package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VSphereMachineConfigPoolSpec is a list of places for the machines of one KubeadmControlPlane or one MachineDeployment.
type VSphereMachineConfigPoolSpec struct {
	// clusterRef is the Cluster that the pool belongs to, in the pool's namespace. It cannot change while the pool has a
	// consumer.
	// +required
	ClusterRef corev1.ObjectReference `json:"clusterRef"`

	// datacenter of slots that name none.
	// +optional
	Datacenter string `json:"datacenter,omitempty"`

	// releaseDelayHours is how long the disks of a released slot wait for a successor before they are deleted; absent means 24.
	// A successor may take the slot at any time before that.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReleaseDelayHours *int `json:"releaseDelayHours,omitempty"`

	// configs are the slots, in the order in which they are given out.
	// +required
	// +kubebuilder:validation:MinItems=1
	Configs []VSphereMachineConfig `json:"configs"`
}

// VSphereMachineConfig is a slot: a place for one machine that outlives the virtual machine in it.
type VSphereMachineConfig struct {
	// hostname is the slot's key, the guest's host name and the Node's name. It is unique among all pools of a cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname"`

	// datacenter of this slot; empty means the pool's.
	// +optional
	Datacenter string `json:"datacenter,omitempty"`

	// network has the addresses of the slot.
	// +required
	Network *MachineConfigNetwork `json:"network"`

	// persistentDisks survive the virtual machine; the slot's next one gets them again.
	// +optional
	// +kubebuilder:validation:MaxItems=29
	PersistentDisks []PersistentDisk `json:"persistentDisks,omitempty"`

	// ephemeralDisks are created blank with each virtual machine and destroyed with it.
	// +optional
	// +kubebuilder:validation:MaxItems=29
	EphemeralDisks []EphemeralDisk `json:"ephemeralDisks,omitempty"`
}

// MachineConfigNetwork has the interfaces of a slot. Their number and order are those of the machine template's devices.
type MachineConfigNetwork struct {
	// primary is the first interface.
	// +required
	Primary MachineConfigNetworkDevice `json:"primary"`

	// additional are the others, in order.
	// +optional
	Additional []MachineConfigNetworkDevice `json:"additional,omitempty"`
}

// MachineConfigNetworkDevice is one interface of a slot.
type MachineConfigNetworkDevice struct {
	// networkName is the network or port group.
	// +required
	NetworkName string `json:"networkName"`

	// deviceName is the name inside the guest; empty means the template's, or eth0, eth1 and so on.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`

	// ip is the IPv4 address with its prefix length, "192.0.2.31/24"; empty means DHCP as the template says.
	// +optional
	IP string `json:"ip,omitempty"`

	// gateway is the IPv4 default gateway.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// ipv6 is the IPv6 address with its prefix length.
	// +optional
	IPv6 string `json:"ipv6,omitempty"`

	// ipv6Gateway is the IPv6 default gateway.
	// +optional
	IPv6Gateway string `json:"ipv6Gateway,omitempty"`

	// dns are the name servers.
	// +optional
	DNS []string `json:"dns,omitempty"`
}

// FSFormat is a file system made on a blank disk; empty together with an empty mount path means a raw disk.
// +kubebuilder:validation:Enum=ext4;xfs;""
type FSFormat string

const (
	// Ext4 is the fourth extended file system.
	Ext4 FSFormat = "ext4"
	// XFS is the other one.
	XFS FSFormat = "xfs"
)

// PersistentDisk is a disk that belongs to a slot.
type PersistentDisk struct {
	// name is the disk's key in the slot, and the name of its link in the guest: /dev/disk/by-capv/<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// sizeGiB is the size at creation, in GiB.
	// +required
	// +kubebuilder:validation:Minimum=1
	SizeGiB int32 `json:"sizeGiB"`

	// datastore of this disk; empty means by storage policy, or else the virtual machine's.
	// +optional
	Datastore string `json:"datastore,omitempty"`

	// storagePolicy chooses the datastore when none is named.
	// +optional
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// unitNumber on the SCSI controller, if it matters; 7 is the controller's own.
	// +optional
	// +kubebuilder:validation:Enum=0;1;2;3;4;5;6;8;9;10;11;12;13;14;15
	UnitNumber *int32 `json:"unitNumber,omitempty"`

	// mountPath is where the disk is mounted; empty together with fsFormat means a raw disk.
	// +optional
	MountPath string `json:"mountPath,omitempty"`

	// mountOptions for mount(8); empty means "defaults".
	// +optional
	MountOptions []string `json:"mountOptions,omitempty"`

	// fsFormat is made on a disk that is proven blank, and never over anything.
	// +optional
	FSFormat FSFormat `json:"fsFormat,omitempty"`

	// wipeFilesystem empties the file system on the first start of each new virtual machine.
	// +optional
	WipeFilesystem *bool `json:"wipeFilesystem,omitempty"`

	// volumePath is where older versions recorded the VMDK. status.persistentDiskStatuses counts.
	// +optional
	VolumePath string `json:"volumePath,omitempty"`

	// diskUUID is where older versions recorded its identity. status.persistentDiskStatuses counts.
	// +optional
	DiskUUID string `json:"diskUUID,omitempty"`
}

// EphemeralDisk is a disk that each virtual machine of a slot gets anew.
type EphemeralDisk struct {
	// name is the disk's key in the slot, and the name of its link in the guest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// sizeGiB is the size in GiB.
	// +required
	// +kubebuilder:validation:Minimum=1
	SizeGiB int32 `json:"sizeGiB"`

	// datastore of this disk; empty means by storage policy, or else the virtual machine's.
	// +optional
	Datastore string `json:"datastore,omitempty"`

	// storagePolicy chooses the datastore when none is named.
	// +optional
	StoragePolicy string `json:"storagePolicy,omitempty"`

	// mountPath is where the disk is mounted; empty together with fsFormat means a raw disk.
	// +optional
	MountPath string `json:"mountPath,omitempty"`

	// mountOptions for mount(8); empty means "defaults".
	// +optional
	MountOptions []string `json:"mountOptions,omitempty"`

	// fsFormat is made on the blank disk.
	// +optional
	FSFormat FSFormat `json:"fsFormat,omitempty"`
}

// ConfigState is the published state of a slot.
// +kubebuilder:validation:Enum=Available;InUse;Released
type ConfigState string

const (
	// ConfigStateAvailable: nobody has it, and none of its disks exists.
	ConfigStateAvailable ConfigState = "Available"
	// ConfigStateInUse: a machine has it, or its last machine is not quite gone (vacatedTime is set then).
	ConfigStateInUse ConfigState = "InUse"
	// ConfigStateReleased: nobody has it, and its disks wait for a successor or are being deleted.
	ConfigStateReleased ConfigState = "Released"
)

// DiskPhase is where a persistent disk is in its life.
// +kubebuilder:validation:Enum=Creating;Attached;Available;Reclaiming;Reclaimed;Error
type DiskPhase string

const (
	// DiskPhaseCreating: the intent is recorded; the VMDK may or may not exist.
	DiskPhaseCreating DiskPhase = "Creating"
	// DiskPhaseAttached: observed on its owner's virtual machine.
	DiskPhaseAttached DiskPhase = "Attached"
	// DiskPhaseAvailable: exists and is attached to nothing.
	DiskPhaseAvailable DiskPhase = "Available"
	// DiskPhaseReclaiming: being deleted.
	DiskPhaseReclaiming DiskPhase = "Reclaiming"
	// DiskPhaseReclaimed: deleted; the record stays as a tombstone.
	DiskPhaseReclaimed DiskPhase = "Reclaimed"
	// DiskPhaseError: lastError says what is wrong.
	DiskPhaseError DiskPhase = "Error"
)

// VSphereMachineConfigPoolStatus is what we know of the slots.
type VSphereMachineConfigPoolStatus struct {
	// total number of slots.
	// +optional
	Total int32 `json:"total"`

	// available is the number of slots that were never used or have been emptied.
	// +optional
	Available int32 `json:"available"`

	// allocated is the number of the others.
	// +optional
	Allocated int32 `json:"allocated"`

	// consumerRef is the KubeadmControlPlane or MachineDeployment that the pool serves.
	// +optional
	ConsumerRef *corev1.ObjectReference `json:"consumerRef,omitempty"`

	// configStatuses has one entry for each slot.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	ConfigStatuses []VSphereMachineConfigStatus `json:"configStatuses,omitempty"`

	// persistentDiskStatuses is the record of every persistent disk.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	// +listMapKey=name
	PersistentDiskStatuses []PersistentDiskStatus `json:"persistentDiskStatuses,omitempty"`

	// ephemeralDiskStatuses says how a guest recognises its ephemeral disks.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	// +listMapKey=name
	EphemeralDiskStatuses []EphemeralDiskStatus `json:"ephemeralDiskStatuses,omitempty"`

	// conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// v1beta2 is kept for manifests that have it; it is not written.
	// +optional
	V1Beta2 *V1Beta2Status `json:"v1beta2,omitempty"`
}

// VSphereMachineConfigStatus is the record of one slot.
type VSphereMachineConfigStatus struct {
	// hostname of the slot.
	// +required
	Hostname string `json:"hostname"`

	// state of the slot.
	// +required
	State ConfigState `json:"state"`

	// machineRef is the VSphereMachine that has the slot, or had it last.
	// +optional
	MachineRef *corev1.ObjectReference `json:"machineRef,omitempty"`

	// mark of that VSphereMachine: its UID at first sight, which a move does not change.
	// +optional
	Mark string `json:"mark,omitempty"`

	// capiMachineName is the Machine that owns that VSphereMachine. The slot is not released before it is gone.
	// +optional
	CAPIMachineName string `json:"capiMachineName,omitempty"`

	// capiMachineUID is that Machine's UID.
	// +optional
	CAPIMachineUID string `json:"capiMachineUID,omitempty"`

	// vacatedTime is when the virtual machine was proven gone and the disks detached. Set while the state is InUse, it means
	// that the slot only waits for the Machine and its Node to go.
	// +optional
	VacatedTime *metav1.Time `json:"vacatedTime,omitempty"`

	// lastReleasedTime is when the slot was released; absent while it is in use.
	// +optional
	LastReleasedTime *metav1.Time `json:"lastReleasedTime,omitempty"`

	// reclaiming is set while the state is Released: the deletion of the slot's disks is decided, and nobody may claim the slot
	// any more.
	// +optional
	Reclaiming bool `json:"reclaiming,omitempty"`

	// quarantine is set when reality contradicts this record, and says how. Nobody gets the slot until a person has decided
	// (see the annotation berth.infrastructure.cluster.x-k8s.io/release-quarantined).
	// +optional
	Quarantine string `json:"quarantine,omitempty"`

	// reclaimStatus is where older versions recorded the deletion of a disk. persistentDiskStatuses counts.
	// +optional
	ReclaimStatus *ReclaimStatus `json:"reclaimStatus,omitempty"`
}

// ReclaimState is a published state of a deletion.
// +kubebuilder:validation:Enum=Running;Failed;Completed
type ReclaimState string

// The states of a deletion in older records.
const (
	ReclaimStateRunning   ReclaimState = "Running"
	ReclaimStateFailed    ReclaimState = "Failed"
	ReclaimStateCompleted ReclaimState = "Completed"
)

// ReclaimStatus is how older versions recorded the deletion of a disk.
type ReclaimStatus struct {
	// taskRef of the deletion.
	// +optional
	TaskRef string `json:"taskRef,omitempty"`

	// state of the deletion.
	// +optional
	State ReclaimState `json:"state,omitempty"`

	// volumePath that is deleted.
	// +optional
	VolumePath string `json:"volumePath,omitempty"`

	// retryAfter is the time before which it is not tried again.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`

	// lastError says why it failed.
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// PersistentDiskStatus is the record of one persistent disk. It is written before every act on vSphere.
type PersistentDiskStatus struct {
	// hostname of the slot.
	// +required
	Hostname string `json:"hostname"`

	// name of the disk in the slot.
	// +required
	Name string `json:"name"`

	// volumePath is the VMDK, "[datastore] directory/file.vmdk", fixed before it is created.
	// +optional
	VolumePath string `json:"volumePath,omitempty"`

	// diskUUID is the VMDK's backing UUID, by which the guest recognises it.
	// +optional
	DiskUUID string `json:"diskUUID,omitempty"`

	// unitNumber on the SCSI controller, as observed.
	// +optional
	UnitNumber *int32 `json:"unitNumber,omitempty"`

	// capacityGiB is the size in GiB that the disk was created with.
	// +optional
	CapacityGiB int32 `json:"capacityGiB,omitempty"`

	// phase of the disk.
	// +optional
	Phase DiskPhase `json:"phase,omitempty"`

	// interruptedPhase is, in phase Error, the phase that the error interrupted.
	// +optional
	InterruptedPhase DiskPhase `json:"interruptedPhase,omitempty"`

	// ownerMachineUID is the VSphereMachine that has the disk.
	// +optional
	OwnerMachineUID string `json:"ownerMachineUID,omitempty"`

	// ownerMachineName is that VSphereMachine's name.
	// +optional
	OwnerMachineName string `json:"ownerMachineName,omitempty"`

	// ownerMark is that VSphereMachine's mark, which a move does not change.
	// +optional
	OwnerMark string `json:"ownerMark,omitempty"`

	// taskRef is the vCenter task in flight; empty when there is none.
	// +optional
	TaskRef string `json:"taskRef,omitempty"`

	// retryAfter is the time before which a failed act is not tried again.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`

	// lastError says what went wrong last.
	// +optional
	LastError string `json:"lastError,omitempty"`

	// lastTransitionTime is when the phase changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// EphemeralDiskStatus says how a guest recognises an ephemeral disk.
type EphemeralDiskStatus struct {
	// hostname of the slot.
	// +required
	Hostname string `json:"hostname"`

	// name of the disk in the slot.
	// +required
	Name string `json:"name"`

	// unitNumber on the SCSI controller, as observed.
	// +optional
	UnitNumber *int32 `json:"unitNumber,omitempty"`

	// diskUUID is the VMDK's backing UUID, by which the guest recognises it.
	// +optional
	DiskUUID string `json:"diskUUID,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vspheremachineconfigpools,scope=Namespaced,categories=cluster-api,shortName=vsmcp
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`,description="Slots"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.available`,description="Slots that were never used or have been emptied"
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=`.status.allocated`,description="The other slots"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Slots and disks are in order"
// +kubebuilder:printcolumn:name="Consumer",type=string,JSONPath=`.status.consumerRef.name`,description="Whom the pool serves"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="Cluster of the pool",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VSphereMachineConfigPool is a list of places for machines.
type VSphereMachineConfigPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereMachineConfigPoolSpec `json:"spec,omitempty"`
	// +optional
	Status VSphereMachineConfigPoolStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (p *VSphereMachineConfigPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions sets status.conditions.
func (p *VSphereMachineConfigPool) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// VSphereMachineConfigPoolList is a list of VSphereMachineConfigPools.
type VSphereMachineConfigPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereMachineConfigPool `json:"items"`
}
