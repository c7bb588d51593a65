package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FailureDomainType is the kind of inventory object that carries a region's or a zone's tag.
// +kubebuilder:validation:Enum=Datacenter;ComputeCluster;HostGroup
type FailureDomainType string

const (
	// HostGroupFailureDomain is for zones only.
	HostGroupFailureDomain FailureDomainType = "HostGroup"
	// ComputeClusterFailureDomain needs topology.computeCluster.
	ComputeClusterFailureDomain FailureDomainType = "ComputeCluster"
	// DatacenterFailureDomain is the whole datacenter.
	DatacenterFailureDomain FailureDomainType = "Datacenter"
)

// VSphereFailureDomainSpec describes a failure domain. It never changes.
type VSphereFailureDomainSpec struct {
	// region that the domain is in.
	// +required
	Region FailureDomain `json:"region"`

	// zone that the domain is.
	// +required
	Zone FailureDomain `json:"zone"`

	// topology says where in the inventory it is.
	// +required
	Topology Topology `json:"topology"`
}

// FailureDomain is a tag on an inventory object.
type FailureDomain struct {
	// name of the tag.
	// +required
	Name string `json:"name"`

	// type of the inventory object that carries the tag.
	// +required
	Type FailureDomainType `json:"type"`

	// tagCategory is the name of the tag's category.
	// +required
	TagCategory string `json:"tagCategory"`

	// autoConfigure makes category and tag and attaches the tag, instead of only checking.
	// +optional
	AutoConfigure *bool `json:"autoConfigure,omitempty"`
}

// Topology is a place in the inventory.
type Topology struct {
	// datacenter by name or path.
	// +required
	Datacenter string `json:"datacenter"`

	// computeCluster by name or path; needed for regions and zones of that type and for hosts.
	// +optional
	ComputeCluster *string `json:"computeCluster,omitempty"`

	// hosts restricts placement to a group of hosts.
	// +optional
	Hosts *FailureDomainHosts `json:"hosts,omitempty"`

	// networks replace the networks of a machine's devices one by one.
	// +optional
	Networks []string `json:"networks,omitempty"`

	// networkConfigurations say more than networks, and exclude them.
	// +optional
	// +listType=map
	// +listMapKey=networkName
	NetworkConfigurations []NetworkConfiguration `json:"networkConfigurations,omitempty"`

	// datastore for machines in this domain.
	// +optional
	Datastore string `json:"datastore,omitempty"`
}

// FailureDomainHosts binds virtual machines to a group of hosts.
type FailureDomainHosts struct {
	// vmGroupName is the group that the virtual machines join.
	// +required
	VMGroupName string `json:"vmGroupName"`

	// hostGroupName is the group of hosts.
	// +required
	HostGroupName string `json:"hostGroupName"`
}

// NetworkConfiguration is a network of a failure domain.
type NetworkConfiguration struct {
	// networkName is the network or port group.
	// +required
	NetworkName string `json:"networkName"`

	// dhcp4 asks for an IPv4 address by DHCP.
	// +optional
	DHCP4 *bool `json:"dhcp4,omitempty"`

	// dhcp6 asks for an IPv6 address by DHCP.
	// +optional
	DHCP6 *bool `json:"dhcp6,omitempty"`

	// nameservers of this network.
	// +optional
	Nameservers []string `json:"nameservers,omitempty"`

	// searchDomains of this network.
	// +optional
	SearchDomains []string `json:"searchDomains,omitempty"`

	// dhcp4Overrides change what is taken from an answer to DHCPv4.
	// +optional
	DHCP4Overrides *DHCPOverrides `json:"dhcp4Overrides,omitempty"`

	// dhcp6Overrides change what is taken from an answer to DHCPv6.
	// +optional
	DHCP6Overrides *DHCPOverrides `json:"dhcp6Overrides,omitempty"`

	// addressesFromPools are the IPAM pools that addresses are claimed from.
	// +optional
	AddressesFromPools []corev1.TypedLocalObjectReference `json:"addressesFromPools,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vspherefailuredomains,scope=Cluster,categories=cluster-api,shortName=vsfd
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:storageversion

// VSphereFailureDomain describes a part of the inventory that fails together.
type VSphereFailureDomain struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec VSphereFailureDomainSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true

// VSphereFailureDomainList is a list of VSphereFailureDomains.
type VSphereFailureDomainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VSphereFailureDomain `json:"items"`
}
