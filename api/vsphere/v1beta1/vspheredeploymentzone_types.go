package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VSphereDeploymentZoneSpec is a failure domain made available for machines.
type VSphereDeploymentZoneSpec struct {
	// server is the vCenter of the zone; clusters of the same server may select it.
	// +optional
	Server string `json:"server,omitempty"`

	// failureDomain is the name of a VSphereFailureDomain.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`

	// controlPlane: control plane machines may be placed here; absent means yes.
	// +optional
	ControlPlane *bool `json:"controlPlane,omitempty"`

	// placementConstraint says where in the domain machines go.
	// +required
	PlacementConstraint PlacementConstraint `json:"placementConstraint"`
}

// PlacementConstraint replaces what a machine says about its place.
type PlacementConstraint struct {
	// resourcePool by path.
	// +optional
	ResourcePool string `json:"resourcePool,omitempty"`

	// folder by path.
	// +optional
	Folder string `json:"folder,omitempty"`
}

// VSphereDeploymentZoneStatus is what we know of the zone.
type VSphereDeploymentZoneStatus struct {
	// ready: placement and failure domain exist; absent until they have been looked at.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// conditions of the zone.
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
// +kubebuilder:resource:path=vspheredeploymentzones,scope=Cluster,categories=cluster-api,shortName=vsdz
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status

// VSphereDeploymentZone is a place for machines in a failure domain.
type VSphereDeploymentZone struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereDeploymentZoneSpec `json:"spec,omitempty"`
	// +optional
	Status VSphereDeploymentZoneStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (z *VSphereDeploymentZone) GetConditions() []metav1.Condition { return z.Status.Conditions }

// SetConditions sets status.conditions.
func (z *VSphereDeploymentZone) SetConditions(conditions []metav1.Condition) {
	z.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// VSphereDeploymentZoneList is a list of VSphereDeploymentZones.
type VSphereDeploymentZoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereDeploymentZone `json:"items"`
}
