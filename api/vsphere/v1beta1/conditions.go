package v1beta1

// Condition types used on more than one kind. All conditions have positive polarity; Ready summarises the others and carries
// the most urgent message.
const (
	// ReadyCondition is the summary that Cluster API copies to the object's owner.
	ReadyCondition = "Ready"
	// PausedCondition says whether the object or its Cluster is paused.
	PausedCondition = "Paused"
	// VCenterAvailableCondition says whether vCenter answers with the credentials at hand.
	VCenterAvailableCondition = "VCenterAvailable"
)

// Reasons used on more than one kind.
const (
	// SatisfiedReason: the condition holds and there is nothing more to say.
	SatisfiedReason = "Satisfied"
	// NotReadyReason: the summary is false; its message says why.
	NotReadyReason = "NotReady"
	// DeletingReason: the object is being deleted.
	DeletingReason = "Deleting"
	// PausedReason and NotPausedReason go with PausedCondition.
	PausedReason = "Paused"
	// NotPausedReason goes with PausedCondition.
	NotPausedReason = "NotPaused"
	// VCenterUnreachableReason: no answer, or not from the vCenter that was expected.
	VCenterUnreachableReason = "VCenterUnreachable"
	// IdentityCredentialsUnavailableReason: the Secret with user name and password is missing or incomplete.
	IdentityCredentialsUnavailableReason = "IdentityCredentialsUnavailable"
)

// Conditions and reasons of a VSphereCluster.
const (
	// FailureDomainsAvailableCondition says whether the selected deployment zones are in the status.
	FailureDomainsAvailableCondition = "FailureDomainsAvailable"
	// WaitingForFailureDomainStatusReason: a selected zone has not reported yet.
	WaitingForFailureDomainStatusReason = "WaitingForFailureDomainStatus"
	// FailureDomainsSkippedReason: some selected zones are not ready and were left out.
	FailureDomainsSkippedReason = "FailureDomainsSkipped"
	// FailureDomainsExhaustedReason: no zone has a slot left; all zones are reported instead of none.
	FailureDomainsExhaustedReason = "FailureDomainsExhaustedByMachineConfigPool"

	// ClusterModulesAvailableCondition says whether the anti-affinity modules are set up.
	ClusterModulesAvailableCondition = "ClusterModulesAvailable"
	// MissingVCenterVersionReason: vCenter did not tell its version.
	MissingVCenterVersionReason = "MissingVCenterVersion"
	// VCenterVersionIncompatibleReason: this vCenter has no cluster modules.
	VCenterVersionIncompatibleReason = "VCenterVersionIncompatible"
	// ClusterModuleSetupFailedReason: a module could not be created.
	ClusterModuleSetupFailedReason = "ClusterModuleSetupFailed"

	// WaitingForMachinesDeletedReason: the cluster is being deleted and machines are left.
	WaitingForMachinesDeletedReason = "WaitingForMachinesDeleted"
	// WaitingForPoolsDeletedReason: the cluster is being deleted and pools are left.
	WaitingForPoolsDeletedReason = "WaitingForPoolsDeleted"
	// WaitingForControlPlaneEndpointReason: nobody has set spec.controlPlaneEndpoint.
	WaitingForControlPlaneEndpointReason = "WaitingForControlPlaneEndpoint"
)

// Conditions and reasons of a VSphereMachine and its VSphereVM.
const (
	// VMProvisionedCondition follows the virtual machine from the first guard to its addresses.
	VMProvisionedCondition = "VMProvisioned"
	// WaitingForOwnerMachineReason: no Machine owns the object yet.
	WaitingForOwnerMachineReason = "WaitingForOwnerMachine"
	// WaitingForClusterInfrastructureReason: the VSphereCluster is not provisioned.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"
	// WaitingForBootstrapDataReason: the Machine has no bootstrap Secret yet.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// WaitingForSlotReason: MachineConfigPoolReady says which slot is missing.
	WaitingForSlotReason = "WaitingForSlot"
	// WaitingForDisksReason: persistent disks of the slot are being created or are still attached elsewhere.
	WaitingForDisksReason = "WaitingForDisks"
	// WaitingForStaticIPAllocationReason: a device has neither DHCP nor an address nor a pool of addresses.
	WaitingForStaticIPAllocationReason = "WaitingForStaticIPAllocation"
	// WaitingForIPAllocationReason: an address claim is open.
	WaitingForIPAllocationReason = "WaitingForIPAllocation"
	// NetworkTopologyMismatchReason: slot and template disagree about the number of network interfaces.
	NetworkTopologyMismatchReason = "NetworkTopologyMismatch"
	// CloningReason: the clone task runs.
	CloningReason = "Cloning"
	// CloningFailedReason: the clone cannot be made as described.
	CloningFailedReason = "CloningFailed"
	// ReconfiguringReason: disks and guest data are being handed to the powered-off virtual machine.
	ReconfiguringReason = "Reconfiguring"
	// ReconfigurationFailedReason: that was refused.
	ReconfigurationFailedReason = "ReconfigurationFailed"
	// WaitingForStaleNodeReason: a Node of the slot's name with another provider ID is in the way.
	WaitingForStaleNodeReason = "WaitingForStaleNode"
	// PoweringOnReason: the power-on task runs.
	PoweringOnReason = "PoweringOn"
	// PoweringOnFailedReason: it failed.
	PoweringOnFailedReason = "PoweringOnFailed"
	// WaitingForNetworkAddressesReason: the guest has not reported all of its addresses.
	WaitingForNetworkAddressesReason = "WaitingForNetworkAddresses"
	// TaskFailureReason: a vCenter task failed; the message has vCenter's own words.
	TaskFailureReason = "TaskFailure"
	// NotFoundByBIOSUUIDReason: the virtual machine has been removed behind our back.
	NotFoundByBIOSUUIDReason = "NotFoundByBIOSUUID"
	// VMNotReadableReason: vCenter does not vouch for the virtual machine's state (inaccessible, orphaned, disconnected).
	VMNotReadableReason = "VMNotReadable"
	// NameConflictReason: vCenter has a virtual machine of this name that is not ours.
	NameConflictReason = "NameConflict"
	// TagsAttachmentFailedReason: a tag could not be attached.
	TagsAttachmentFailedReason = "TagsAttachmentFailed"
	// DeletionFailedReason: the virtual machine cannot be removed yet; the message says what forbids it.
	DeletionFailedReason = "DeletionFailed"

	// MachineConfigPoolReadyCondition says whether a machine that names a pool holds a slot of it.
	MachineConfigPoolReadyCondition = "MachineConfigPoolReady"
	// SlotAllocatedReason: it does.
	SlotAllocatedReason = "SlotAllocated"
	// PoolNotFoundReason: the pool does not exist.
	PoolNotFoundReason = "PoolNotFound"
	// PoolOfOtherClusterReason: the pool's clusterRef names another Cluster.
	PoolOfOtherClusterReason = "PoolOfOtherCluster"
	// PoolBoundToOtherConsumerReason: the pool serves another KubeadmControlPlane or MachineDeployment.
	PoolBoundToOtherConsumerReason = "PoolBoundToOtherConsumer"
	// ConsumerNotFoundReason: neither a KubeadmControlPlane nor a MachineDeployment owns the Machine.
	ConsumerNotFoundReason = "ConsumerNotFound"
	// NoAvailableSlotsReason: no slot fits, or none is free; the message counts why each was passed over.
	NoAvailableSlotsReason = "NoAvailableSlots"

	// IPAddressClaimedCondition says whether all address claims are fulfilled.
	IPAddressClaimedCondition = "IPAddressClaimed"
	// IPAddressClaimsBeingCreatedReason: claims are being made.
	IPAddressClaimsBeingCreatedReason = "IPAddressClaimsBeingCreated"
	// WaitingForIPAddressReason: a claim has no address yet.
	WaitingForIPAddressReason = "WaitingForIPAddress"
	// IPAddressInvalidReason: the address given cannot be used.
	IPAddressInvalidReason = "IPAddressInvalid"
	// IPAddressClaimNotFoundReason: a claim has vanished.
	IPAddressClaimNotFoundReason = "IPAddressClaimNotFound"

	// PCIDevicesDetachedCondition follows PCI devices at deletion.
	PCIDevicesDetachedCondition = "PCIDevicesDetached"
	// PCIDeviceNotFoundReason goes with it.
	PCIDeviceNotFoundReason = "NotFound"

	// GuestSoftPowerOffSucceededCondition follows a shutdown that the guest was asked for.
	GuestSoftPowerOffSucceededCondition = "GuestSoftPowerOffSucceeded"
	// GuestSoftPowerOffInProgressReason: the guest has been asked.
	GuestSoftPowerOffInProgressReason = "GuestSoftPowerOffInProgress"
	// GuestSoftPowerOffFailedReason: it cannot be asked, or does not comply.
	GuestSoftPowerOffFailedReason = "GuestSoftPowerOffFailed"

	// InitialPowerOnCompletedCondition is a latch: once true, we never power this virtual machine on again.
	InitialPowerOnCompletedCondition = "InitialPowerOnCompleted"

	// PoweredOnCondition reports the power state after the first power-on; we do not fight a person's power-off.
	PoweredOnCondition = "PoweredOn"
	// PoweredOffReason: somebody powered it off.
	PoweredOffReason = "PoweredOff"
	// SuspendedReason: somebody suspended it.
	SuspendedReason = "Suspended"

	// BootstrapReadyCondition says whether the bootstrap data can be used.
	BootstrapReadyCondition = "BootstrapReady"
	// BootstrapSecretGetFailedReason: the Secret cannot be read.
	BootstrapSecretGetFailedReason = "BootstrapSecretGetFailed"
	// BootstrapSecretContentInvalidReason: what is in it does not fit, for example Ignition together with slot disks.
	BootstrapSecretContentInvalidReason = "BootstrapSecretContentInvalid"
)

// Conditions and reasons of a VSphereClusterIdentity and of deployment zones.
const (
	// CredentialsAvailableCondition says whether the identity's Secret is there and ours.
	CredentialsAvailableCondition = "CredentialsAvailable"
	// SecretNotAvailableReason: the Secret is missing.
	SecretNotAvailableReason = "SecretNotAvailable"
	// SecretOwnerReferenceFailedReason: it could not be taken over.
	SecretOwnerReferenceFailedReason = "SecretOwnerReferenceFailed"
	// SecretInUseReason: another identity or cluster has it.
	SecretInUseReason = "SecretInUse"

	// PlacementConstraintMetCondition says whether folder and resource pool of a zone exist.
	PlacementConstraintMetCondition = "PlacementConstraintMet"
	// ResourcePoolNotFoundReason: no such resource pool.
	ResourcePoolNotFoundReason = "ResourcePoolNotFound"
	// FolderNotFoundReason: no such folder.
	FolderNotFoundReason = "FolderNotFound"

	// FailureDomainValidatedCondition says whether what the zone's failure domain describes exists.
	FailureDomainValidatedCondition = "VSphereFailureDomainValidated"
	// FailureDomainRegionMisconfiguredReason: the region tag is missing or on the wrong object.
	FailureDomainRegionMisconfiguredReason = "FailureDomainRegionMisconfigured"
	// FailureDomainZoneMisconfiguredReason: the zone tag is missing or on the wrong object.
	FailureDomainZoneMisconfiguredReason = "FailureDomainZoneMisconfigured"
	// ComputeClusterNotFoundReason: no such compute cluster.
	ComputeClusterNotFoundReason = "ComputeClusterNotFound"
	// HostsMisconfiguredReason: host group or VM group is missing, or no rule keeps the one on the other.
	HostsMisconfiguredReason = "HostsMisconfigured"
	// HostsAffinityMisconfiguredReason: the rule that binds VM group and host group is disabled.
	HostsAffinityMisconfiguredReason = "HostsAffinityMisconfigured"
	// NetworkNotFoundReason: no such network.
	NetworkNotFoundReason = "NetworkNotFound"
	// DatastoreNotFoundReason: no such datastore.
	DatastoreNotFoundReason = "DatastoreNotFound"
)

// Conditions and reasons of a VSphereMachineConfigPool. Ready summarises all of them but SlotAvailable: a full pool is healthy.
const (
	// ClusterRefReadyCondition says whether the pool's Cluster and its VSphereCluster exist.
	ClusterRefReadyCondition = "ClusterRefReady"
	// ClusterNotFoundReason: no such Cluster.
	ClusterNotFoundReason = "ClusterNotFound"
	// VSphereClusterNotFoundReason: the Cluster has no VSphereCluster.
	VSphereClusterNotFoundReason = "VSphereClusterNotFound"

	// MembersValidCondition says whether every slot can be used as declared.
	MembersValidCondition = "MembersValid"
	// InvalidMemberConfigReason: a slot cannot.
	InvalidMemberConfigReason = "InvalidMemberConfig"

	// MembersUniqueCondition says whether host names and addresses are unique in the cluster.
	MembersUniqueCondition = "MembersUnique"
	// DuplicateHostnameReason: a host name is used twice.
	DuplicateHostnameReason = "DuplicateHostname"
	// DuplicateIPAddressReason: an address is used twice.
	DuplicateIPAddressReason = "DuplicateIPAddress"

	// PersistentDisksReadyCondition says whether all persistent disks are where they should be.
	PersistentDisksReadyCondition = "PersistentDisksReady"
	// DisksProvisioningReason: disks are being created.
	DisksProvisioningReason = "DisksProvisioning"
	// DiskFailedReason: a disk needs attention; the message has disk and cause.
	DiskFailedReason = "DiskFailed"
	// ReclaimFailedReason: a disk cannot be deleted.
	ReclaimFailedReason = "ReclaimFailed"
	// DiskStillAttachedReason: a virtual machine still holds a disk of a slot that is to be released or reclaimed.
	DiskStillAttachedReason = "DiskStillAttached"

	// SlotAvailableCondition says whether a machine could get a slot now.
	SlotAvailableCondition = "SlotAvailable"
	// AllSlotsInUseReason: none is free.
	AllSlotsInUseReason = "AllSlotsInUse"
	// WaitingForReclaimReason: slots will be free once their disks are deleted.
	WaitingForReclaimReason = "WaitingForReclaim"
	// WaitingForPredecessorReason: a slot's last Machine or its Node is not gone yet.
	WaitingForPredecessorReason = "WaitingForPredecessor"

	// SlotQuarantinedCondition is true while reality contradicts the record of at least one slot: its message names slot,
	// contradiction and ReleaseQuarantinedAnnotation. It is the one condition here that is bad when true.
	SlotQuarantinedCondition = "SlotQuarantined"
	// ContradictionReason goes with it.
	ContradictionReason = "Contradiction"
	// NoneQuarantinedReason: no slot is quarantined.
	NoneQuarantinedReason = "NoneQuarantined"
)

// Event reasons. Conditions say how things are, events say what happened.
const (
	EventSlotAllocated                = "SlotAllocated"
	EventSlotVacated                  = "SlotVacated"
	EventSlotReleased                 = "SlotReleased"
	EventSlotQuarantined              = "SlotQuarantined"
	EventConsumerUnbound              = "ConsumerUnbound"
	EventCloneStarted                 = "CloneStarted"
	EventCloneFailed                  = "CloneFailed"
	EventPowerOnFailed                = "PowerOnFailed"
	EventTopologyMismatch             = "TopologyMismatch"
	EventPersistentDiskCreated        = "PersistentDiskCreated"
	EventPersistentDiskAdopted        = "PersistentDiskAdopted"
	EventPersistentDiskDetached       = "PersistentDiskDetached"
	EventForeignDiskDetached          = "ForeignDiskDetached"
	EventPersistentDiskStillAttached  = "PersistentDiskStillAttached"
	EventPersistentDiskReclaimStarted = "PersistentDiskReclaimStarted"
	EventPersistentDiskReclaimed      = "PersistentDiskReclaimed"
	EventPersistentDiskReclaimFailed  = "PersistentDiskReclaimFailed"
	EventPersistentDisksToBeDeleted   = "PersistentDisksToBeDeleted"
	EventPersistentDisksRetained      = "PersistentDisksRetained"
	EventVMDeleted                    = "VMDeleted"
	EventStaleNodeDeleted             = "StaleNodeDeleted"
	EventKubeletVersionMismatch       = "KubeletVersionMismatch"
)
