package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// VSphereMachineSpec is a machine as declared.
type VSphereMachineSpec struct {
	VirtualMachineCloneSpec `json:",inline"`

	// providerID is "vsphere://" and the BIOS UUID. The controller writes it; a template must not have it.
	// +optional
	ProviderID *string `json:"providerID,omitempty"`

	// failureDomain is a leftover: it draws a warning, and Machine.spec.failureDomain counts.
	// +optional
	FailureDomain *string `json:"failureDomain,omitempty"`

	// machineConfigPoolRef names the pool that gives this machine its place: host name, addresses and persistent disks. The
	// pool lives in the machine's namespace.
	// +optional
	MachineConfigPoolRef *corev1.ObjectReference `json:"machineConfigPoolRef,omitempty"`

	// namingStrategy says how the virtual machine is called; absent means like the machine.
	// +optional
	NamingStrategy *VSphereVMNamingStrategy `json:"namingStrategy,omitempty"`

	// powerOffMode says how the virtual machine is stopped before it is deleted.
	// +optional
	// +kubebuilder:default=hard
	PowerOffMode VirtualMachinePowerOpMode `json:"powerOffMode,omitempty"`

	// guestSoftPowerOffTimeout bounds how long trySoft waits for the guest; absent means 5 minutes.
	// +optional
	GuestSoftPowerOffTimeout *metav1.Duration `json:"guestSoftPowerOffTimeout,omitempty"`
}

// VSphereVMNamingStrategy makes the name of a virtual machine.
type VSphereVMNamingStrategy struct {
	// template is a Go template over .machine.name with the functions trimSuffix and trunc. Names are cut at 63 characters.
	// +optional
	Template *string `json:"template,omitempty"`
}

// VSphereMachineStatus is what we know of the machine.
type VSphereMachineStatus struct {
	// initialization is what Cluster API waits for.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`

	// ready says the same to older versions of Cluster API and to people.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// addresses of the machine.
	// +optional
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// network as it is observed, in the order of the devices.
	// +optional
	Network []NetworkStatus `json:"network,omitempty"`

	// failureDomain is where the machine is.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`

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

	// v1beta2 is kept for manifests that have it; it is not written.
	// +optional
	V1Beta2 *V1Beta2Status `json:"v1beta2,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vspheremachines,scope=Namespaced,categories=cluster-api,shortName=vsm
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster of the machine"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`,description="The machine is ready"
// +kubebuilder:printcolumn:name="Slot",type=string,JSONPath=`.status.addresses[?(@.type=="Hostname")].address`,description="Host name of the slot that the machine holds"
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=`.spec.providerID`,description="Identity of the virtual machine"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.conditions[?(@.type=="MachineConfigPoolReady")].reason`,description="Whether the machine has a slot, or why not",priority=1
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Machine")].name`,description="Machine that owns it",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VSphereMachine is the vSphere side of a Machine.
type VSphereMachine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereMachineSpec `json:"spec,omitempty"`
	// +optional
	Status VSphereMachineStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (m *VSphereMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions sets status.conditions.
func (m *VSphereMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// VSphereMachineList is a list of VSphereMachines.
type VSphereMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereMachine `json:"items"`
}
