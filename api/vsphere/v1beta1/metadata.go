package v1beta1

// Finalizers. Each is put on in a write of its own before the first effect outside the API server.
const (
	// ClusterFinalizer keeps a VSphereCluster until its machines, pools and sessions are gone.
	ClusterFinalizer = "vspherecluster.infrastructure.cluster.x-k8s.io"
	// MachineFinalizer keeps a VSphereMachine until its virtual machine is proven gone.
	MachineFinalizer = "vspheremachine.infrastructure.cluster.x-k8s.io"
	// VMFinalizer keeps a VSphereVM until its virtual machine is proven gone and its slot is vacated.
	VMFinalizer = "vspherevm.infrastructure.cluster.x-k8s.io"
	// IPAddressClaimFinalizer keeps an IPAddressClaim while a virtual machine may still use the address.
	IPAddressClaimFinalizer = "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection"
	// DeploymentZoneFinalizer keeps a VSphereDeploymentZone while machines use it.
	DeploymentZoneFinalizer = "vspheredeploymentzone.infrastructure.cluster.x-k8s.io"
	// SecretFinalizer keeps the Secret with a cluster's credentials until nothing needs them any more.
	SecretFinalizer = "vspherecluster/infrastructure.cluster.x-k8s.io"
	// ClusterIdentityFinalizer keeps the Secret of a VSphereClusterIdentity.
	ClusterIdentityFinalizer = "vsphereclusteridentity/infrastructure.cluster.x-k8s.io"
	// MachineConfigPoolFinalizer keeps a pool until none of its disks has anything behind it on vSphere.
	MachineConfigPoolFinalizer = "vspheremachineconfigpool.infrastructure.cluster.x-k8s.io"
)

// Labels and annotations.
const (
	// SlotHostnameAnnotation on a VSphereVM is the host name of the slot it was built for: the guest's host name and the name
	// of the Node. We put it on the VSphereMachine too, where it brings a claim back after a move has dropped all status.
	SlotHostnameAnnotation = "infrastructure.cluster.x-k8s.io/machine-config-slot-hostname"

	// MarkAnnotation on a VSphereMachine and its VSphereVM is the UID that the VSphereMachine had when we first saw it. It is
	// the instance UUID of the virtual machine, is written once, and stays when a move or a restore gives the objects new UIDs.
	MarkAnnotation = "berth.infrastructure.cluster.x-k8s.io/mark"

	// RetainDisksAnnotation with the value "true" on a pool or its Cluster lets the pool be deleted without its persistent
	// disks. They stay on the datastore, marked, and a later pool with the same key adopts them. "cluster" on a pool repeats the
	// wish of its Cluster, in case that is gone first.
	RetainDisksAnnotation = "berth.infrastructure.cluster.x-k8s.io/retain-disks"

	// DeleteForMoveAnnotation is clusterctl's: it has copied the object to another management cluster and takes the original away,
	// without meaning what the object stands for.
	DeleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

	// ReleaseQuarantinedAnnotation on a pool is a person's decision about quarantined slots: a comma-separated list of host
	// names that may go back to normal life. It is removed once the decision has been carried out.
	ReleaseQuarantinedAnnotation = "berth.infrastructure.cluster.x-k8s.io/release-quarantined"

	// RequestedAnnotation on a VSphereMachine without a pool says that a virtual machine may have been asked for: it outlives a
	// VSphereVM that is removed by force. With a pool the slot's record says so.
	RequestedAnnotation = "berth.infrastructure.cluster.x-k8s.io/virtual-machine-requested"

	// ESXiHostLabel on a Machine is the name of the ESXi host that runs it, made fit for a label value.
	ESXiHostLabel = "node.cluster.x-k8s.io/esxi-host"

	// InventoryAnnotationPrefix starts the annotations on Cluster and VSphereCluster that are copied to the custom fields of
	// virtual machines. The Cluster's wins when both have one.
	InventoryAnnotationPrefix = "vsphere.cluster.x-k8s.io/"
)

// AnyDatacenter as the datacenter of a machine fits slots of every datacenter, and means vCenter's default datacenter for a
// machine without a slot.
const AnyDatacenter = "*"

// DefaultReleaseDelayHours is the grace period of a released slot's disks when the pool names none.
const DefaultReleaseDelayHours = 24
