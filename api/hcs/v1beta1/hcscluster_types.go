package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NetworkTypeKubeOVN is the only supported network type.
const NetworkTypeKubeOVN = "kube-ovn"

// HCSClusterSpec is what a cluster needs of Huawei Cloud Stack.
type HCSClusterSpec struct {
	// identityRef names the Secret with the credentials, in the HCSCluster's namespace.
	// +required
	IdentityRef HCSIdentityReference `json:"identityRef"`

	// network is the inventory of networks that machines may use. All of it exists already and is never deleted.
	// +required
	Network HCSNetwork `json:"network"`

	// networkType of the workload cluster; only kube-ovn is supported.
	// +required
	NetworkType string `json:"networkType"`

	// controlPlaneEndpoint is the address of the workload cluster's API. The controller writes it, from the load balancer.
	// +optional
	ControlPlaneEndpoint *APIEndpoint `json:"controlPlaneEndpoint,omitempty"`

	// controlPlaneHA spreads the control plane's servers over physical hosts.
	// +optional
	ControlPlaneHA *ControlPlaneHA `json:"controlPlaneHA,omitempty"`

	// controlPlaneLoadBalancer describes the load balancer of the control plane.
	// +optional
	ControlPlaneLoadBalancer *LoadBalancer `json:"controlPlaneLoadBalancer,omitempty"`

	// encryptionProviderConfigRef names a Secret with the key encryption-provider.conf, in the HCSCluster's namespace: how the
	// workload cluster encrypts its Secrets at rest. Absent means a key of the cluster's own.
	// +optional
	EncryptionProviderConfigRef *EncryptionProviderReference `json:"encryptionProviderConfigRef,omitempty"`
}

// HCSIdentityReference names the Secret with the credentials.
type HCSIdentityReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// EncryptionProviderReference names a Secret with an encryption configuration.
// +structType=atomic
type EncryptionProviderReference struct {
	// name of the Secret.
	// +optional
	// +kubebuilder:default=""
	Name string `json:"name,omitempty"`
}

// APIEndpoint is the address of an API server.
type APIEndpoint struct {
	// host name or IP address.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host"`

	// port of the endpoint.
	// +required
	Port int32 `json:"port"`
}

// HCSNetwork is the inventory of networks of a cluster.
type HCSNetwork struct {
	// vpc that everything is in.
	// +optional
	VPC VPC `json:"vpc,omitempty,omitzero"`

	// subnets that machines and the load balancer may use, all of the same VPC.
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`

	// securityGroup of the machines.
	// +optional
	SecurityGroup SecurityGroup `json:"securityGroup,omitempty,omitzero"`
}

// VPC is a virtual private cloud.
type VPC struct {
	// name of the VPC, exact.
	// +optional
	Name string `json:"name,omitempty"`

	// id of the VPC; it wins over the name.
	// +optional
	ID string `json:"id,omitempty"`

	// cidr of the VPC.
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// managed says that the provider owns it.
	// +optional
	Managed bool `json:"managed,omitempty"`

	// externalGatewayInfo has no effect.
	// +optional
	ExternalGatewayInfo *ExternalGatewayInfo `json:"externalGatewayInfo,omitempty"`
}

// ExternalGatewayInfo names the external network of a VPC.
type ExternalGatewayInfo struct {
	// networkId of the external network.
	// +optional
	NetworkID string `json:"networkId,omitempty"`

	// networkName of the external network.
	// +optional
	NetworkName string `json:"networkName,omitempty"`
}

// Subnet is one network of the inventory. With a name alone the rest is looked up.
type Subnet struct {
	// name by which pools and the load balancer name it.
	// +optional
	Name string `json:"name,omitempty"`

	// id of the subnet (the network's ID, which a network interface is attached to).
	// +optional
	ID string `json:"id,omitempty"`

	// neutronSubnetId is the ID of its IPv4 subnet, which a load balancer's address is taken from.
	// +optional
	NeutronSubnetID string `json:"neutronSubnetId,omitempty"`

	// cidr of the subnet.
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// gatewayIp of the subnet.
	// +optional
	GatewayIP string `json:"gatewayIp,omitempty"`

	// primaryDNS server.
	// +optional
	PrimaryDNS string `json:"primaryDNS,omitempty"`

	// secondaryDNS server.
	// +optional
	SecondaryDNS string `json:"secondaryDNS,omitempty"`

	// dhcp is on in the subnet.
	// +optional
	DHCP bool `json:"dhcp,omitempty"`

	// managed says that the provider owns it.
	// +optional
	Managed bool `json:"managed,omitempty"`
}

// SecurityGroup of the machines.
type SecurityGroup struct {
	// name of the security group, exact.
	// +optional
	Name string `json:"name,omitempty"`

	// id of the security group; it wins over the name.
	// +optional
	ID string `json:"id,omitempty"`
}

// HAPolicy is how strictly servers of a group are kept apart.
// +kubebuilder:validation:Enum=anti-affinity;soft-anti-affinity
type HAPolicy string

const (
	// AntiAffinity: two servers of the group never share a physical host; without a free one the server is not created.
	AntiAffinity HAPolicy = "anti-affinity"
	// SoftAntiAffinity: they share one only when there is no other.
	SoftAntiAffinity HAPolicy = "soft-anti-affinity"
)

// ControlPlaneHA spreads the control plane over physical hosts.
type ControlPlaneHA struct {
	// enabled makes new control plane servers members of a server group. Running ones join when they are replaced.
	// +required
	Enabled bool `json:"enabled"`

	// policy of the group.
	// +required
	Policy HAPolicy `json:"policy"`
}

// LoadBalancer is the load balancer of the control plane.
type LoadBalancer struct {
	// name of the load balancer; absent means one derived from the cluster's.
	// +optional
	Name string `json:"name,omitempty"`

	// id of the load balancer. The controller writes it.
	// +optional
	ID string `json:"id,omitempty"`

	// vpcId of the load balancer; absent means the cluster's.
	// +optional
	VPCID string `json:"vpcId,omitempty"`

	// vpcName of the load balancer; absent means the cluster's.
	// +optional
	VPCName string `json:"vpcName,omitempty"`

	// vipAddress is the fixed virtual address, in the subnet vipSubnetName.
	// +optional
	VIPAddress string `json:"vipAddress,omitempty"`

	// vipSubnetName is the subnet of the virtual address.
	// +optional
	VIPSubnetName string `json:"vipSubnetName,omitempty"`

	// vipSubnetId is the subnet of the virtual address.
	// +optional
	VIPSubnetID string `json:"vipSubnetId,omitempty"`

	// vipDomainName resolves to the virtual address already; it becomes the host of the endpoint.
	// +optional
	VIPDomainName string `json:"vipDomainName,omitempty"`

	// elbVirsubnetL4Ips are the addresses that the load balancer itself uses towards its members, for layer 4: two per subnet.
	// +optional
	ELBVirsubnetL4IPs []SubnetIPs `json:"elbVirsubnetL4Ips,omitempty"`

	// elbVirsubnetL7Ips are the same for layer 7.
	// +optional
	ELBVirsubnetL7IPs []SubnetIPs `json:"elbVirsubnetL7Ips,omitempty"`

	// liseners are the listeners as created (the spelling is part of the API).
	// +optional
	Listeners []Listener `json:"liseners,omitempty"`

	// pools are the groups of members as created.
	// +optional
	Pools []LoadBalancerPool `json:"pools,omitempty"`

	// publicIpOption describes a public address.
	// +optional
	PublicIPOption *PublicIPOption `json:"publicIpOption,omitempty"`

	// selector has no effect.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// SubnetIPs are addresses of one subnet.
type SubnetIPs struct {
	// subnetName of the addresses.
	// +optional
	SubnetName string `json:"subnetName,omitempty"`

	// ips of the subnet.
	// +optional
	IPs []string `json:"ips,omitempty"`
}

// Listener of a load balancer.
type Listener struct {
	// id of the listener.
	// +optional
	ID string `json:"id,omitempty"`

	// protocolPort that it listens on.
	// +optional
	ProtocolPort int32 `json:"protocolPort,omitempty"`
}

// LoadBalancerPool is a group of members of a load balancer.
type LoadBalancerPool struct {
	// id of the group.
	// +optional
	ID string `json:"id,omitempty"`

	// healthMonitorID is the ID of the group's health monitor.
	// +optional
	HealthMonitorID string `json:"healthMonitorID,omitempty"`

	// protocolPort of the listener that the group serves.
	// +optional
	ProtocolPort int32 `json:"protocolPort,omitempty"`
}

// PublicIPOption describes a public address of the load balancer.
type PublicIPOption struct {
	// ipVersion of the public address.
	// +required
	// +kubebuilder:default="4"
	IPVersion string `json:"ipVersion"`

	// networkType of the public address.
	// +required
	NetworkType string `json:"networkType"`
}

// Initialization is what the v1beta2 contract of Cluster API waits for.
type Initialization struct {
	// provisioned is true once the infrastructure is there; it never goes back.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// IsZero reports whether nothing is set.
func (i Initialization) IsZero() bool { return i.Provisioned == nil }

// HCSClusterStatus is what we know of the cluster.
type HCSClusterStatus struct {
	// initialization is what Cluster API waits for.
	// +optional
	Initialization Initialization `json:"initialization,omitempty,omitzero"`

	// ready says the same to older versions of Cluster API and to people.
	// +optional
	// +kubebuilder:default=false
	Ready bool `json:"ready"`

	// failureDomains is part of the contract of Cluster API; zones of Huawei Cloud Stack are chosen by the machine template.
	// +optional
	// +listType=map
	// +listMapKey=name
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// controlPlaneHA is the server group as observed.
	// +optional
	ControlPlaneHA *ControlPlaneHAStatus `json:"controlPlaneHA,omitempty"`

	// conditions of the cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ControlPlaneHAStatus is the server group of a control plane.
type ControlPlaneHAStatus struct {
	// id of the server group.
	// +optional
	ID string `json:"id,omitempty"`

	// name of the server group.
	// +optional
	Name string `json:"name,omitempty"`

	// policy of the server group.
	// +optional
	Policy string `json:"policy,omitempty"`

	// members are the machines whose servers are in the group.
	// +optional
	Members []ControlPlaneHAMember `json:"members,omitempty"`
}

// ControlPlaneHAMember is a server in the group.
type ControlPlaneHAMember struct {
	// machineName is the HCSMachine.
	// +optional
	MachineName string `json:"machineName,omitempty"`

	// serverID is its server.
	// +optional
	ServerID string `json:"serverID,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hcsclusters,scope=Namespaced,categories=cluster-api,shortName=hcscl
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta1=v1beta1","cluster.x-k8s.io/v1beta2=v1beta1"}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster that owns it"
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=`.status.ready`,description="The infrastructure of the cluster is ready"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`,description="Address of the cluster's API"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// HCSCluster is the Huawei Cloud Stack side of a Cluster.
type HCSCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec HCSClusterSpec `json:"spec"`
	// +optional
	Status HCSClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns status.conditions.
func (c *HCSCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions sets status.conditions.
func (c *HCSCluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// +kubebuilder:object:root=true

// HCSClusterList is a list of HCSClusters.
type HCSClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCSCluster `json:"items"`
}
