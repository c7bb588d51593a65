package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// HCSMachineSpec is a server. Names are those of the API, which the tenant's portal may not show.
type HCSMachineSpec struct {
	// imageName of the image, exact.
	// +optional
	ImageName string `json:"imageName,omitempty"`

	// flavorName of the flavor.
	// +optional
	FlavorName string `json:"flavorName,omitempty"`

	// availabilityZone of the server; absent means that of the place's volumes, or the first that is available.
	// +optional
	AvailabilityZone string `json:"availabilityZone,omitempty"`

	// rootVolume is the system disk.
	// +optional
	RootVolume *Volume `json:"rootVolume,omitempty"`

	// dataVolumes are disks that are created blank with each server and deleted with it.
	// +optional
	DataVolumes []Volume `json:"dataVolumes,omitempty"`

	// configPoolRef names the HCSMachineConfigPool that gives this machine its place: host name, addresses and persistent disks.
	// The pool lives in the machine's namespace.
	// +optional
	ConfigPoolRef *corev1.ObjectReference `json:"configPoolRef,omitempty"`

	// keyPairName of the key pair for logging in.
	// +optional
	KeyPairName string `json:"keyPairName,omitempty"`

	// adminPassword of the server, in clear text; prefer keyPairName.
	// +optional
	AdminPassword string `json:"adminPassword,omitempty"`

	// providerID is "hcs://<cluster>/<machine>". The controller writes it; a template must not have it.
	// +optional
	ProviderID *string `json:"providerID,omitempty"`

	// serverId is the server's ID. The controller writes it; a template must not have it.
	// +optional
	ServerID string `json:"serverId,omitempty"`

	// serverName is the server's name. The controller writes it; a template must not have it.
	// +optional
	ServerName string `json:"serverName,omitempty"`

	// jobId is the last job that created the server. The controller writes it; a template must not have it.
	// +optional
	JobID string `json:"jobId,omitempty"`
}

// Volume is a disk that lives as long as its server.
type Volume struct {
	// size in GB.
	// +required
	// +kubebuilder:validation:Minimum=1
	Size int `json:"size"`

	// type is the name of a volume type.
	// +required
	// +kubebuilder:validation:MinLength=1
	Type string `json:"type"`

	// mountPath of a data volume; absent means that it is only attached. It has no effect on the root volume.
	// +optional
	MountPath string `json:"mountPath,omitempty"`

	// format of a data volume with a mount path, xfs or ext4; absent means xfs. It has no effect on the root volume.
	// +optional
	Format string `json:"format,omitempty"`
}

// HCSMachineStatus is what we know of the machine.
type HCSMachineStatus struct {
	// initialization is what Cluster API waits for.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`

	// ready says the same to older versions of Cluster API and to people.
	// +optional
	// +kubebuilder:default=false
	Ready bool `json:"ready"`

	// instanceState is the server's status in the words of Huawei Cloud Stack: BUILD, ACTIVE, SHUTOFF, ERROR and others.
	// +optional
	InstanceState string `json:"instanceState,omitempty"`

	// addresses of the machine.
	// +optional
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// failureDomain is the zone that the server is in.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`

	// operation is the job in flight, written before and after the call that starts it.
	// +optional
	Operation *Operation `json:"operation,omitempty"`

	// volumeIDs are the volumes that came with the server, recorded before its first start. Any other volume that is attached
	// to it and belongs to no pool is somebody else's.
	// +optional
	VolumeIDs []string `json:"volumeIDs,omitempty"`

	// startedTime is when the server was started; it is started once in its life.
	// +optional
	StartedTime *metav1.Time `json:"startedTime,omitempty"`

	// failureReason is a word about what a person must look at.
	// +optional
	FailureReason *string `json:"failureReason,omitempty"`

	// failureMessage is a sentence about it.
	// +optional
	FailureMessage *string `json:"failureMessage,omitempty"`

	// conditions of the machine.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Operation is a call with an effect: recorded before it is made, and with its job after.
type Operation struct {
	// kind of the operation: Create, PowerOn, PowerOff, Attach, Detach or Destroy.
	// +required
	Kind string `json:"kind"`

	// jobId of Huawei Cloud Stack; empty while the outcome of the call is not known.
	// +optional
	JobID string `json:"jobId,omitempty"`

	// startedTime is when the operation was recorded.
	// +optional
	StartedTime *metav1.Time `json:"startedTime,omitempty"`

	// retryAfter is the time before which it is not tried again.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hcsmachines,scope=Namespaced,categories=cluster-api,shortName=hcsm
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="Cluster of the machine"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.instanceState`,description="Status of the server"
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=`.status.ready`,description="The machine is ready"
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.addresses[?(@.type=="Hostname")].address`,description="Host name of the configuration that the machine holds"
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`,description="Identity of the machine",priority=1
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`,description="Machine that owns it",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// HCSMachine is the Huawei Cloud Stack side of a Machine.
type HCSMachine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec HCSMachineSpec `json:"spec"`
	// +optional
	Status HCSMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns status.conditions.
func (m *HCSMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets status.conditions.
func (m *HCSMachine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// +kubebuilder:object:root=true

// HCSMachineList is a list of HCSMachines.
type HCSMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCSMachine `json:"items"`
}
