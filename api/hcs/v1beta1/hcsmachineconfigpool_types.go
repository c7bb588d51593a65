package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HCSMachineConfigPoolSpec is a list of places for machines.
type HCSMachineConfigPoolSpec struct {
	// configs are the places, in the order in which they are given out.
	// +optional
	// +listType=map
	// +listMapKey=hostname
	// +kubebuilder:validation:MinItems=1
	Configs []HCSMachineConfig `json:"configs,omitempty"`
}

// HCSMachineConfig is a place for one machine that outlives the server in it.
type HCSMachineConfig struct {
	// hostname is the key of the place and the guest's host name, short or fully qualified. Its first label is the Node's name
	// and is unique in the cluster.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname"`

	// networks are the interfaces, the first being the primary one.
	// +required
	// +kubebuilder:validation:MinItems=1
	Networks []HCSMachineConfigNetwork `json:"networks"`

	// persistentDisks outlive the server; the place's next one gets them again.
	// +optional
	// +listType=map
	// +listMapKey=slot
	PersistentDisks []PersistentDisk `json:"persistentDisks,omitempty"`
}

// HCSMachineConfigNetwork is one interface: a subnet, by exactly one of its selectors, and a static address.
type HCSMachineConfigNetwork struct {
	// subnetName is a name in the HCSCluster's network.subnets.
	// +optional
	SubnetName string `json:"subnetName,omitempty"`

	// subnetId is an ID in the HCSCluster's network.subnets, for names that occur twice.
	// +optional
	SubnetID string `json:"subnetId,omitempty"`

	// subenetName is the old spelling of subnetName, kept for existing manifests.
	// +optional
	SubenetName string `json:"subenetName,omitempty"`

	// ipAddress is a static IPv4 address of the subnet, without prefix length.
	// +required
	IPAddress string `json:"ipAddress"`
}

// PersistentDisk is a volume that belongs to a place. Once accepted, only its mountOptions may change.
type PersistentDisk struct {
	// slot is the disk's position: unique in the place, counted from 0 without gaps.
	// +required
	// +kubebuilder:validation:Minimum=0
	Slot int32 `json:"slot"`

	// size in GB.
	// +required
	// +kubebuilder:validation:Minimum=1
	Size int32 `json:"size"`

	// type is the name of a volume type.
	// +required
	// +kubebuilder:validation:MinLength=1
	Type string `json:"type"`

	// mountPath is where the disk is mounted; absent means a raw disk without a file system.
	// +optional
	MountPath string `json:"mountPath,omitempty"`

	// format is the file system made on a blank disk, xfs or ext4; absent means xfs. A disk with anything on it is never
	// formatted.
	// +optional
	Format string `json:"format,omitempty"`

	// mountOptions replace defaults,noatime. A change takes effect with the next server.
	// +optional
	MountOptions []string `json:"mountOptions,omitempty"`
}

// DiskPhase is a published phase of a persistent disk.
// +kubebuilder:validation:Enum=Creating;Available;Attaching;Attached;Detaching;Deleting;Error
type DiskPhase string

const (
	// DiskCreating: a volume is being made for the disk.
	DiskCreating DiskPhase = "Creating"
	// DiskAvailable: the volume exists and no server has it.
	DiskAvailable DiskPhase = "Available"
	// DiskAttaching: the volume is being attached to the machine's server.
	DiskAttaching DiskPhase = "Attaching"
	// DiskAttached: the machine's server has it.
	DiskAttached DiskPhase = "Attached"
	// DiskDetaching: the volume is being taken off a server that is about to go.
	DiskDetaching DiskPhase = "Detaching"
	// DiskDeleting: the volume is being deleted.
	DiskDeleting DiskPhase = "Deleting"
	// DiskError: there is no safe next step; lastError says why.
	DiskError DiskPhase = "Error"
)

// HCSMachineConfigPoolStatus is what we know of the places.
type HCSMachineConfigPoolStatus struct {
	// totalCount is the number of places.
	// +optional
	TotalCount int `json:"totalCount,omitempty"`

	// availableCount is the number of places that no machine has claimed.
	// +optional
	AvailableCount int `json:"availableCount,omitempty"`

	// usedConfigs are the claims: one for each place that a machine holds, held, or that only a person can free.
	// +optional
	UsedConfigs []UsedConfig `json:"usedConfigs,omitempty"`

	// persistentDiskStatus is the record of every persistent disk.
	// +optional
	PersistentDiskStatus []PersistentDiskStatus `json:"persistentDiskStatus,omitempty"`

	// consumerRef is the KubeadmControlPlane or MachineDeployment whose machine claimed a place last. It binds nobody.
	// +optional
	ConsumerRef *corev1.ObjectReference `json:"consumerRef,omitempty"`

	// conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UsedConfig is the claim of one place.
type UsedConfig struct {
	// hostname of the place.
	// +required
	Hostname string `json:"hostname"`

	// machineRef is the name of the HCSMachine that has the place.
	// +required
	MachineRef string `json:"machineRef"`

	// machineUID is that HCSMachine's UID.
	// +optional
	MachineUID string `json:"machineUID,omitempty"`

	// mark of that HCSMachine: its UID at first sight, which a move does not change.
	// +optional
	Mark string `json:"mark,omitempty"`

	// capiMachineName is the Machine that owns that HCSMachine. The place is not free before it is gone.
	// +optional
	CAPIMachineName string `json:"capiMachineName,omitempty"`

	// capiMachineUID is that Machine's UID.
	// +optional
	CAPIMachineUID string `json:"capiMachineUID,omitempty"`

	// vacatedTime is when the server was proven gone and the volumes detached: the place only waits for the Machine and its Node
	// to go.
	// +optional
	VacatedTime *metav1.Time `json:"vacatedTime,omitempty"`

	// quarantine is set when reality contradicts this record, and says how. Nobody gets the place until a person has decided
	// (see the annotation berth.infrastructure.cluster.x-k8s.io/release-quarantined).
	// +optional
	Quarantine string `json:"quarantine,omitempty"`
}

// PersistentDiskStatus is the record of one persistent disk. It is written before every act on Huawei Cloud Stack.
type PersistentDiskStatus struct {
	// hostname of the place.
	// +required
	Hostname string `json:"hostname"`

	// slot of the disk.
	// +required
	Slot int32 `json:"slot"`

	// name of the volume, the same for ever.
	// +optional
	Name string `json:"name,omitempty"`

	// volumeID of the volume.
	// +optional
	VolumeID string `json:"volumeID,omitempty"`

	// availabilityZone of the volume; a server that gets it must be in the same.
	// +optional
	AvailabilityZone string `json:"availabilityZone,omitempty"`

	// phase of the disk.
	// +optional
	Phase DiskPhase `json:"phase,omitempty"`

	// interruptedPhase is, in phase Error, the phase that the error interrupted.
	// +optional
	InterruptedPhase DiskPhase `json:"interruptedPhase,omitempty"`

	// device is the path that was asked for, such as /dev/vdc. What the guest calls it may differ; it goes by the volume's ID.
	// +optional
	Device string `json:"device,omitempty"`

	// attachedServerID is the server that has the volume.
	// +optional
	AttachedServerID string `json:"attachedServerID,omitempty"`

	// ownerMachineName is the HCSMachine that has the disk.
	// +optional
	OwnerMachineName string `json:"ownerMachineName,omitempty"`

	// ownerMachineUID is that HCSMachine's UID.
	// +optional
	OwnerMachineUID string `json:"ownerMachineUID,omitempty"`

	// ownerMark is that HCSMachine's mark, which a move does not change.
	// +optional
	OwnerMark string `json:"ownerMark,omitempty"`

	// jobId of the job in flight; empty when there is none.
	// +optional
	JobID string `json:"jobId,omitempty"`

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

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hcsmachineconfigpools,scope=Namespaced,categories=cluster-api,shortName=hcsmcp
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.totalCount`,description="Places"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableCount`,description="Places that no machine has claimed"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Places and disks are in order"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// HCSMachineConfigPool is a list of places for machines.
type HCSMachineConfigPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec HCSMachineConfigPoolSpec `json:"spec"`
	// +optional
	Status HCSMachineConfigPoolStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns status.conditions.
func (p *HCSMachineConfigPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions sets status.conditions.
func (p *HCSMachineConfigPool) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// HCSMachineConfigPoolList is a list of HCSMachineConfigPools.
type HCSMachineConfigPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCSMachineConfigPool `json:"items"`
}
