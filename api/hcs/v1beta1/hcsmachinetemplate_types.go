package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// HCSMachineTemplateSpec holds the template.
type HCSMachineTemplateSpec struct {
	// template of an HCSMachine.
	// +required
	Template HCSMachineTemplateResource `json:"template"`
}

// HCSMachineTemplateResource is what HCSMachines are made from. Its spec never changes: make a new template and point the owner
// of the machines at it.
type HCSMachineTemplateResource struct {
	// metadata is copied to the machines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the HCSMachine, without what the controller writes.
	// +required
	Spec HCSMachineSpec `json:"spec"`
}

// HCSMachineTemplateStatus is empty.
type HCSMachineTemplateStatus struct{}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hcsmachinetemplates,scope=Namespaced,categories=cluster-api,shortName=hcsmt
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Flavor",type=string,JSONPath=`.spec.template.spec.flavorName`,description="Flavor of the servers"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.spec.imageName`,description="Image of the servers"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.template.spec.configPoolRef.name`,description="Pool that gives the machines their places"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// HCSMachineTemplate describes the machines of a KubeadmControlPlane or a MachineDeployment.
type HCSMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec HCSMachineTemplateSpec `json:"spec"`
	// +optional
	Status HCSMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// HCSMachineTemplateList is a list of HCSMachineTemplates.
type HCSMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCSMachineTemplate `json:"items"`
}
