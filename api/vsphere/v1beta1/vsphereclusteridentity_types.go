package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VSphereClusterIdentitySpec says who may use which credentials.
type VSphereClusterIdentitySpec struct {
	// secretName is the Secret in the controller's namespace with the keys username and password.
	// +optional
	// +kubebuilder:validation:MinLength=1
	SecretName string `json:"secretName,omitempty"`

	// allowedNamespaces may use the identity; absent means that nobody may.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
}

// AllowedNamespaces chooses namespaces.
type AllowedNamespaces struct {
	// selector on the labels of namespaces; empty chooses all.
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitempty"`
}

// VSphereClusterIdentityStatus is what we know of the identity.
type VSphereClusterIdentityStatus struct {
	// ready: the Secret is there and ours.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// conditions of the identity.
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
// +kubebuilder:resource:path=vsphereclusteridentities,scope=Cluster,categories=cluster-api,shortName=vsci
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1","clusterctl.cluster.x-k8s.io/move-hierarchy="}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status

// VSphereClusterIdentity shares credentials among namespaces.
type VSphereClusterIdentity struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereClusterIdentitySpec `json:"spec,omitempty"`
	// +optional
	Status VSphereClusterIdentityStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (i *VSphereClusterIdentity) GetConditions() []metav1.Condition { return i.Status.Conditions }

// SetConditions sets status.conditions.
func (i *VSphereClusterIdentity) SetConditions(conditions []metav1.Condition) {
	i.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// VSphereClusterIdentityList is a list of VSphereClusterIdentities.
type VSphereClusterIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereClusterIdentity `json:"items"`
}
