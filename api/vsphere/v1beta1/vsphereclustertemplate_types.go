package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VSphereClusterTemplateSpec holds the template.
type VSphereClusterTemplateSpec struct {
	// template of a VSphereCluster.
	// +required
	Template VSphereClusterTemplateResource `json:"template"`
}

// VSphereClusterTemplateResource is what VSphereClusters are made from. It never changes.
type VSphereClusterTemplateResource struct {
	// spec of the VSphereCluster.
	// +required
	Spec VSphereClusterSpec `json:"spec"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vsphereclustertemplates,scope=Namespaced,categories=cluster-api,shortName=vsct
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion

// VSphereClusterTemplate is used by a ClusterClass.
type VSphereClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereClusterTemplateSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true

// VSphereClusterTemplateList is a list of VSphereClusterTemplates.
type VSphereClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereClusterTemplate `json:"items"`
}
