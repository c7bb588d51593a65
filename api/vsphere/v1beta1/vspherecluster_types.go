package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// IdentityKind is the kind of object that credentials come from.
// +kubebuilder:validation:Enum=VSphereClusterIdentity;Secret
type IdentityKind string

const (
	// SecretKind is a Secret in the cluster's namespace with the keys username and password.
	SecretKind IdentityKind = "Secret"
	// VSphereClusterIdentityKind is a cluster-scoped VSphereClusterIdentity.
	VSphereClusterIdentityKind IdentityKind = "VSphereClusterIdentity"
)

// Keys of a Secret with credentials.
const (
	SecretUsernameKey = "username"
	SecretPasswordKey = "password"
)

// VSphereClusterSpec is what a cluster needs of vSphere.
type VSphereClusterSpec struct {
	// server is the name or address of vCenter, without a scheme; a port may follow.
	// +optional
	Server string `json:"server,omitempty"`

	// thumbprint of vCenter's certificate, SHA-1 or SHA-256, in hexadecimal with colons; empty means that the certificate is not
	// checked.
	// +optional
	Thumbprint string `json:"thumbprint,omitempty"`

	// controlPlaneEndpoint is the address of the workload cluster's API: an external load balancer or a virtual IP.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// identityRef says where user name and password come from; without it the manager's own are used.
	// +optional
	IdentityRef *VSphereIdentityReference `json:"identityRef,omitempty"`

	// clusterModules are kept by the controller: the anti-affinity modules of the cluster.
	// +optional
	ClusterModules []ClusterModule `json:"clusterModules,omitempty"`

	// disableClusterModule switches those modules off.
	// +optional
	DisableClusterModule bool `json:"disableClusterModule,omitempty"`

	// failureDomainSelector chooses VSphereDeploymentZones of this server as failure domains; empty chooses all, absent none.
	// +optional
	FailureDomainSelector *metav1.LabelSelector `json:"failureDomainSelector,omitempty"`
}

// APIEndpoint is the address of an API server.
type APIEndpoint struct {
	// host name or IP address.
	// +required
	Host string `json:"host"`

	// port of the endpoint.
	// +required
	Port int32 `json:"port"`
}

// IsZero reports whether the endpoint is unset.
func (e APIEndpoint) IsZero() bool { return e.Host == "" && e.Port == 0 }

// VSphereIdentityReference names the object that credentials come from.
type VSphereIdentityReference struct {
	// kind of the object.
	// +required
	Kind IdentityKind `json:"kind"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// ClusterModule is an anti-affinity module of a control plane or a MachineDeployment.
type ClusterModule struct {
	// controlPlane is true for the control plane's module.
	// +required
	ControlPlane bool `json:"controlPlane"`

	// targetObjectName is the name of the KubeadmControlPlane or MachineDeployment.
	// +required
	TargetObjectName string `json:"targetObjectName"`

	// moduleUUID is vCenter's identifier of the module.
	// +required
	ModuleUUID string `json:"moduleUUID"`
}

// VSphereClusterStatus is what we know of the cluster.
type VSphereClusterStatus struct {
	// initialization is what Cluster API waits for.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`

	// ready says the same to older versions of Cluster API and to people.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// failureDomains that machines may be placed in.
	// +optional
	// +listType=map
	// +listMapKey=name
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// conditions of the cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// vCenterVersion as vCenter tells it.
	// +optional
	VCenterVersion string `json:"vCenterVersion,omitempty"`

	// v1beta2 is kept for manifests that have it; it is not written.
	// +optional
	V1Beta2 *V1Beta2Status `json:"v1beta2,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vsphereclusters,scope=Namespaced,categories=cluster-api,shortName=vscl
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`,description="The infrastructure of the cluster is ready"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server`,description="vCenter"
// +kubebuilder:printcolumn:name="ControlPlaneEndpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`,description="Address of the cluster's API",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VSphereCluster is the vSphere side of a Cluster.
type VSphereCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereClusterSpec `json:"spec,omitempty"`
	// +optional
	Status VSphereClusterStatus `json:"status,omitempty"`
}

// GetConditions returns status.conditions.
func (c *VSphereCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets status.conditions.
func (c *VSphereCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// VSphereClusterList is a list of VSphereClusters.
type VSphereClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereCluster `json:"items"`
}
