package v1beta1

// Condition types used on more than one kind. All conditions have positive polarity; Ready summarises the others and carries
// the most urgent message.
const (
	// ReadyCondition is the summary that Cluster API copies to the object's owner.
	ReadyCondition = "Ready"
	// PausedCondition says whether the object or its Cluster is paused.
	PausedCondition = "Paused"
)

// Reasons used on more than one kind.
const (
	// SatisfiedReason: the condition holds and there is nothing more to say.
	SatisfiedReason = "Satisfied"
	// NotReadyReason: the summary is false; its message says why.
	NotReadyReason = "NotReady"
	// DeletingReason: the object is being deleted.
	DeletingReason = "Deleting"
	// PausedReason goes with PausedCondition.
	PausedReason = "Paused"
	// NotPausedReason goes with PausedCondition.
	NotPausedReason = "NotPaused"
)

// Conditions and reasons of an HCSCluster.
const (
	// CredentialsReadyCondition says whether Huawei Cloud Stack accepts the Secret's credentials.
	CredentialsReadyCondition = "CredentialsReady"
	// CredentialsSecretNotFoundReason: the Secret does not exist.
	CredentialsSecretNotFoundReason = "CredentialsSecretNotFound"
	// CredentialsInvalidReason: a key of the Secret is missing or makes no sense.
	CredentialsInvalidReason = "CredentialsInvalid"
	// AuthenticationFailedReason: the signature was refused: access key, secret key, project or clock.
	AuthenticationFailedReason = "AuthenticationFailed"
	// PermissionDeniedReason: the credentials are right, but may not do this.
	PermissionDeniedReason = "PermissionDenied"

	// VpcReadyCondition says whether the VPC is known.
	VpcReadyCondition = "VpcReady"
	// VpcNotFoundReason: there is no such VPC.
	VpcNotFoundReason = "VpcNotFound"
	// VpcAmbiguousReason: several VPCs have the name.
	VpcAmbiguousReason = "VpcAmbiguous"

	// SubnetsReadyCondition says whether every subnet of the inventory is known.
	SubnetsReadyCondition = "SubnetsReady"
	// SubnetNotFoundReason: there is no such subnet in the VPC.
	SubnetNotFoundReason = "SubnetNotFound"
	// SubnetAmbiguousReason: several subnets of the VPC have the name.
	SubnetAmbiguousReason = "SubnetAmbiguous"
	// SubnetNotResolvedReason: what is missing of a subnet could not be looked up.
	SubnetNotResolvedReason = "SubnetNotResolved"
	// SubnetNotInVPCReason: the subnet is of another VPC.
	SubnetNotInVPCReason = "SubnetNotInVPC"

	// SecurityGroupReadyCondition says whether the security group is known.
	SecurityGroupReadyCondition = "SecurityGroupReady"
	// SecurityGroupNotFoundReason: there is no such security group.
	SecurityGroupNotFoundReason = "SecurityGroupNotFound"
	// SecurityGroupAmbiguousReason: several security groups have the name.
	SecurityGroupAmbiguousReason = "SecurityGroupAmbiguous"

	// LoadBalancerReadyCondition says whether the control plane's load balancer works.
	LoadBalancerReadyCondition = "LoadBalancerReady"
	// LoadBalancerCreatingReason: it is being made.
	LoadBalancerCreatingReason = "LoadBalancerCreating"
	// LoadBalancerFailedReason: Huawei Cloud Stack refused it.
	LoadBalancerFailedReason = "LoadBalancerFailed"
	// VIPInUseReason: somebody else has the virtual address.
	VIPInUseReason = "VIPInUse"
	// InvalidLoadBalancerAddressReason: an address does not fit its subnet, or occurs twice.
	InvalidLoadBalancerAddressReason = "InvalidLoadBalancerAddress"
	// HybridLoadBalancingDisabledReason: members cannot reach their own virtual address any more.
	HybridLoadBalancingDisabledReason = "HybridLoadBalancingDisabled"
	// ListenerFailedReason: a listener, its members or its health monitor could not be made.
	ListenerFailedReason = "ListenerFailed"
	// DeletionFailedReason: something could not be deleted.
	DeletionFailedReason = "DeletionFailed"

	// ControlPlaneHAReadyCondition says whether the server group exists and has the control plane's servers.
	ControlPlaneHAReadyCondition = "ControlPlaneHAReady"
	// ControlPlaneHAReadyReason: it has.
	ControlPlaneHAReadyReason = "ControlPlaneHAReady"
	// ControlPlaneHAPendingReason: some servers are not in the group yet.
	ControlPlaneHAPendingReason = "ControlPlaneHAPending"
	// ControlPlaneHAFailedReason: the group could not be made, changed or removed, or its policy kept a server from being made.
	ControlPlaneHAFailedReason = "ControlPlaneHAFailed"

	// MachineConfigPoolsValidCondition says whether the places of the cluster's pools fit together and fit its subnets.
	MachineConfigPoolsValidCondition = "MachineConfigPoolsValid"
	// InvalidHostnameReason: a host name cannot be one.
	InvalidHostnameReason = "InvalidHostname"
	// DuplicateHostnameReason: two places have the same short name.
	DuplicateHostnameReason = "DuplicateHostname"
	// DuplicateIPAddressReason: two interfaces have the same address.
	DuplicateIPAddressReason = "DuplicateIPAddress"
	// SubnetNotInClusterReason: a pool names a subnet that the HCSCluster does not list.
	SubnetNotInClusterReason = "SubnetNotInCluster"

	// WaitingForMachinesDeletedReason: the cluster is being deleted and machines are left.
	WaitingForMachinesDeletedReason = "WaitingForMachinesDeleted"
	// WaitingForPoolsDeletedReason: the cluster is being deleted and pools are left.
	WaitingForPoolsDeletedReason = "WaitingForPoolsDeleted"
)

// Conditions and reasons of an HCSMachine. Some reasons of an HCSCluster are used here as well.
const (
	// MachineReadyCondition follows the machine from its place to its first answer, and says what is missing.
	MachineReadyCondition = "MachineReady"

	WaitingForOwnerMachineReason          = "WaitingForOwnerMachine"
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"
	WaitingForBootstrapDataReason         = "WaitingForBootstrapData"
	BootstrapDataInvalidReason            = "BootstrapDataInvalid"
	UnsupportedBootstrapFormatReason      = "UnsupportedBootstrapFormat"
	NoAvailableConfigReason               = "NoAvailableConfig"
	InvalidIPAddressReason                = "InvalidIPAddress"
	IPAddressInUseReason                  = "IPAddressInUse"
	MountPathConflictReason               = "MountPathConflict"
	PersistentDiskNotReadyReason          = "PersistentDiskNotReady"
	AvailabilityZoneConflictReason        = "AvailabilityZoneConflict"
	AvailabilityZoneNotFoundReason        = "AvailabilityZoneNotFound"
	FlavorNotFoundReason                  = "FlavorNotFound"
	ImageNotFoundReason                   = "ImageNotFound"
	ImageAmbiguousReason                  = "ImageAmbiguous"
	VolumeTypeNotFoundReason              = "VolumeTypeNotFound"
	InstanceCreatingReason                = "InstanceCreating"
	InstanceCreateFailedReason            = "InstanceCreateFailed"
	QuotaExceededReason                   = "QuotaExceeded"
	RateLimitedReason                     = "RateLimited"
	InsufficientCapacityReason            = "InsufficientCapacity"
	DisksAttachingReason                  = "DisksAttaching"
	InstanceStartingReason                = "InstanceStarting"
	WaitingForAddressReason               = "WaitingForAddress"
	LoadBalancerMemberPendingReason       = "LoadBalancerMemberPending"
	InstanceNotRunningReason              = "InstanceNotRunning"
	InstanceErrorReason                   = "InstanceError"
	InstanceNotFoundReason                = "InstanceNotFound"
	InstanceStoppingReason                = "InstanceStopping"
	DisksDetachingReason                  = "DisksDetaching"
	InstanceDeletingReason                = "InstanceDeleting"
	DeletionBlockedByDiskReason           = "DeletionBlockedByDisk"
	WaitingForNodeReason                  = "WaitingForNode"
	KubernetesVersionMismatchCondition    = "KubernetesVersionMatches"
	KubernetesVersionMismatchReason       = "KubernetesVersionMismatch"
)

// Conditions and reasons of an HCSMachineConfigPool. Some reasons of the other kinds are used here as well.
const (
	// MembersValidCondition says whether every place can be used.
	MembersValidCondition = "MembersValid"
	// InvalidMemberConfigReason: a place cannot be used.
	InvalidMemberConfigReason = "InvalidMemberConfig"
	// MembersUniqueCondition says whether host names and addresses are unique in the cluster.
	MembersUniqueCondition = "MembersUnique"
	// SlotAvailableCondition says whether a place is free. It is not part of Ready: a full pool is healthy.
	SlotAvailableCondition = "SlotAvailable"
	// PersistentDisksReadyCondition says whether every declared disk has its volume and every machine its disks.
	PersistentDisksReadyCondition = "PersistentDisksReady"
	// DisksProvisioningReason: volumes are being made.
	DisksProvisioningReason = "DisksProvisioning"
	// DiskErrorReason: a disk has no safe next step.
	DiskErrorReason = "DiskError"
	// DiskStillAttachedReason: a volume that is to be deleted is attached to a server.
	DiskStillAttachedReason = "DiskStillAttached"
	// RolloutRequiredReason: a disk was added to a place in use; its machine gets it when it is replaced.
	RolloutRequiredReason = "RolloutRequired"
	// ZoneUndecidedReason: the templates that use the pool name different zones; the machine that claims the place decides.
	ZoneUndecidedReason = "ZoneUndecided"
	// SlotQuarantinedCondition names places whose reality contradicts the record; it is present only while there are any.
	SlotQuarantinedCondition = "SlotQuarantined"
	// PoolInUseReason: the pool is being deleted, and machines still hold places.
	PoolInUseReason = "PoolInUse"
)
