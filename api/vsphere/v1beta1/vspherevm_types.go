package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VSphereVMSpec is a virtual machine as it was decided once, when its machine got its place.
type VSphereVMSpec struct {
	VirtualMachineCloneSpec `json:",inline"`

	// bootstrapRef names the Secret with the bootstrap data.
	// +optional
	BootstrapRef *corev1.ObjectReference `json:"bootstrapRef,omitempty"`

	// biosUUID is what the guest and the cloud provider see. Written once, when the virtual machine exists.
	// +optional
	BiosUUID string `json:"biosUUID,omitempty"`

	// slot is a copy of the slot as it was when the machine claimed it. It counts for the whole life of this virtual machine,
	// whatever becomes of the pool.
	// +optional
	Slot *VSphereMachineConfig `json:"slot,omitempty"`

	// powerOffMode says how the virtual machine is stopped before it is deleted.
	// +optional
	// +kubebuilder:default=hard
	PowerOffMode VirtualMachinePowerOpMode `json:"powerOffMode,omitempty"`

	// guestSoftPowerOffTimeout bounds how long trySoft waits for the guest; absent means 5 minutes.
	// +optional
	GuestSoftPowerOffTimeout *metav1.Duration `json:"guestSoftPowerOffTimeout,omitempty"`
}

// VSphereVMStatus is what we know of the virtual machine.
type VSphereVMStatus struct {
	// ready: it runs and has reported its addresses.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// addresses of all interfaces. Empty while we wait for one.
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// network as it is observed, in the order of the devices.
	// +optional
	Network []NetworkStatus `json:"network,omitempty"`

	// host is the ESXi host that runs it.
	// +optional
	Host string `json:"host,omitempty"`

	// vmRef is vCenter's handle, "VirtualMachine:vm-12". Written once.
	// +optional
	VMRef string `json:"vmRef,omitempty"`

	// cloneMode that was used.
	// +optional
	CloneMode CloneMode `json:"cloneMode,omitempty"`

	// snapshot that a linked clone builds on.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// taskRef is the vCenter task in flight; empty when there is none.
	// +optional
	TaskRef string `json:"taskRef,omitempty"`

	// taskKind says what that task does, because vCenter forgets tasks: Create, Fit, PowerOn, PowerOff, Detach or Destroy.
	// +optional
	TaskKind string `json:"taskKind,omitempty"`

	// cloneEnded: the last clone that was asked for ended without a virtual machine, as vCenter told us. While it is false and
	// no virtual machine was ever seen, a clone may still be under way.
	// +optional
	CloneEnded bool `json:"cloneEnded,omitempty"`

	// powerOnRequestedTime is when the first power-on was decided, written before vCenter was asked.
	// +optional
	PowerOnRequestedTime *metav1.Time `json:"powerOnRequestedTime,omitempty"`

	// absentSince is when a deletion first found nothing of a virtual machine whose clone may still be under way.
	// +optional
	AbsentSince *metav1.Time `json:"absentSince,omitempty"`

	// retryAfter is the time before which a failed task is not tried again.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`

	// powerOffRequestedTime is when the guest was first asked to stop.
	// +optional
	PowerOffRequestedTime *metav1.Time `json:"powerOffRequestedTime,omitempty"`

	// moduleUUID is the cluster module that it has joined.
	// +optional
	ModuleUUID *string `json:"moduleUUID,omitempty"`

	// failureReason is a word about what a person must look at.
	// +optional
	FailureReason *string `json:"failureReason,omitempty"`

	// failureMessage is a sentence about it.
	// +optional
	FailureMessage *string `json:"failureMessage,omitempty"`

	// conditions of the virtual machine.
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
// +kubebuilder:resource:path=vspherevms,scope=Namespaced,categories=cluster-api,shortName=vsvm
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`,description="It runs and has its addresses"
// +kubebuilder:printcolumn:name="Slot",type=string,JSONPath=`.metadata.annotations.infrastructure\.cluster\.x-k8s\.io/machine-config-slot-hostname`,description="Host name of its slot"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[0]`,description="First address"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`,description="ESXi host",priority=1
// +kubebuilder:printcolumn:name="Task",type=string,JSONPath=`.status.taskRef`,description="vCenter task in flight"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VSphereVM is the virtual machine of a VSphereMachine. Its name is the virtual machine's name in vCenter.
type VSphereVM struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereVMSpec `json:"spec,omitempty"`
	// +optional
	Status VSphereVMStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (v *VSphereVM) GetConditions() []metav1.Condition { return v.Status.Conditions }

// SetConditions sets status.conditions.
func (v *VSphereVM) SetConditions(conditions []metav1.Condition) { v.Status.Conditions = conditions }

// +kubebuilder:object:root=true

// VSphereVMList is a list of VSphereVMs.
type VSphereVMList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereVM `json:"items"`
}
