package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// VSphereMachineTemplateSpec holds the template.
type VSphereMachineTemplateSpec struct {
	// template of a VSphereMachine.
	// +required
	Template VSphereMachineTemplateResource `json:"template"`
}

// VSphereMachineTemplateResource is what VSphereMachines are made from. Its spec never changes: make a new template and point
// the owner of the machines at it.
type VSphereMachineTemplateResource struct {
	// metadata is copied to the machines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the VSphereMachine, without providerID and without addresses.
	// +required
	Spec VSphereMachineSpec `json:"spec"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vspheremachinetemplates,scope=Namespaced,categories=cluster-api,shortName=vsmt
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.spec.template`,description="VM template to clone"
// +kubebuilder:printcolumn:name="CPUs",type=integer,JSONPath=`.spec.template.spec.numCPUs`,description="Virtual processors"
// +kubebuilder:printcolumn:name="MemoryMiB",type=integer,JSONPath=`.spec.template.spec.memoryMiB`,description="Memory in MiB"
// +kubebuilder:printcolumn:name="DiskGiB",type=integer,JSONPath=`.spec.template.spec.diskGiB`,description="System disk in GiB"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.template.spec.machineConfigPoolRef.name`,description="Pool that gives the machines their places"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VSphereMachineTemplate describes the machines of a KubeadmControlPlane or a MachineDeployment.
type VSphereMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereMachineTemplateSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true

// VSphereMachineTemplateList is a list of VSphereMachineTemplates.
type VSphereMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereMachineTemplate `json:"items"`
}
