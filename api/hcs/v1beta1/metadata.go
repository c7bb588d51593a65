package v1beta1

// Finalizers. Each is put on in a write of its own before the first effect outside the API server.
const (
	// ClusterFinalizer keeps an HCSCluster until its machines, pools, load balancer and server group are gone.
	ClusterFinalizer = "hcscluster.infrastructure.cluster.x-k8s.io"
	// MachineFinalizer keeps an HCSMachine until its server is proven gone.
	MachineFinalizer = "hcsmachine.infrastructure.cluster.x-k8s.io"
	// MachineConfigPoolFinalizer keeps a pool until none of its volumes is left, or until they are kept on purpose.
	MachineConfigPoolFinalizer = "hcsmachineconfigpool.infrastructure.cluster.x-k8s.io"
)

// Annotations and labels.
const (
	// ConfigHostnameAnnotation on an HCSMachine is the host name of the configuration that it has claimed. It brings the claim
	// back after a move has dropped all status.
	ConfigHostnameAnnotation = "hcs.infrastructure.cluster.x-k8s.io/config-hostname"

	// MarkAnnotation on an HCSMachine is the UID that it had when we first saw it. It is written into the server's metadata, is
	// written once, and stays when a move or a restore gives the object a new UID.
	MarkAnnotation = "berth.infrastructure.cluster.x-k8s.io/mark"

	// RetainDisksAnnotation with the value "true" on a pool or its Cluster lets the pool be deleted without its persistent
	// volumes. They stay, marked, and a later pool with the same key adopts them.
	RetainDisksAnnotation = "berth.infrastructure.cluster.x-k8s.io/retain-disks"

	// ReleaseQuarantinedAnnotation on a pool is a person's decision about quarantined configurations: a comma-separated list of
	// host names that may go back to normal life. It is removed once the decision has been carried out.
	ReleaseQuarantinedAnnotation = "berth.infrastructure.cluster.x-k8s.io/release-quarantined"

	// RetainServerAnnotation with the value "true" on an HCSMachine or its Machine lets the HCSMachine go without stopping or
	// deleting its server. The configuration it held is quarantined.
	RetainServerAnnotation = "hcs.infrastructure.cluster.x-k8s.io/retain-server"

	// RetainVMAnnotation is an older name of RetainServerAnnotation, understood as well.
	RetainVMAnnotation = "cpaas.io/retain-vm"

	// ImportVolumeAnnotation on a pool says which existing volume a declared disk is: "<host name>/<slot>=<volume ID>", several
	// separated by commas.
	ImportVolumeAnnotation = "hcs.infrastructure.cluster.x-k8s.io/import-volume"

	// AllowDiskDeletionAnnotation with the value "true" on a pool allows an unused configuration with volumes to be removed,
	// which deletes them.
	AllowDiskDeletionAnnotation = "hcs.infrastructure.cluster.x-k8s.io/allow-disk-deletion"

	// DiskReclaimPolicyAnnotation on a pool is "Delete" (the default) or "Retain": what happens to the volumes when the pool is
	// deleted.
	DiskReclaimPolicyAnnotation = "hcs.infrastructure.cluster.x-k8s.io/disk-reclaim-policy"

	// GlobalClusterLabel with the value "true" on a Cluster says that it is the management cluster of the platform, whose load
	// balancer has more listeners.
	GlobalClusterLabel = "is-global"
)

// Keys of the Secret with credentials that an HCSCluster names. A value may be surrounded by white space.
const (
	// SecretAccessKey is the access key ID.
	SecretAccessKey = "accessKey"
	// SecretSecretKey is the secret access key.
	SecretSecretKey = "secretKey"
	// SecretProjectID is the ID of the resource space.
	SecretProjectID = "projectID"
	// SecretRegion is the region's name in the API.
	SecretRegion = "region"
	// SecretExternalGlobalDomain is the platform's access domain.
	SecretExternalGlobalDomain = "externalGlobalDomain"
	// SecretSchema is the scheme of the IAM endpoint, https when absent.
	SecretSchema = "schema"
	// SecretCABundle is the PEM of the certificate authorities of a private installation, optional.
	SecretCABundle = "caBundle"
	// SecretInsecureSkipTLSVerify with the value "true" does not check certificates, optional.
	SecretInsecureSkipTLSVerify = "insecureSkipTLSVerify"
	// SecretEndpoints is a YAML map from service (iam, ecs, evs, vpc, elb, ims) to base URL, optional.
	SecretEndpoints = "endpoints"
	// SecretELBDialect is lbaas-v2.0 (the default) or elb-v3, optional.
	SecretELBDialect = "elbDialect"
	// SecretEVSDialect is volumes (the default) or cloudvolumes, optional.
	SecretEVSDialect = "evsDialect"
	// SecretIAMHostPrefix is the first label of the IAM host, iam-apigateway-proxy when absent.
	SecretIAMHostPrefix = "iamHostPrefix"
)

// EncryptionProviderKey is the key of the Secret that spec.encryptionProviderConfigRef names.
const EncryptionProviderKey = "encryption-provider.conf"

// APIPort is the port of a workload cluster's API.
const APIPort = 6443

// Defaults of a disk with a mount path.
const (
	DefaultFormat       = "xfs"
	DefaultMountOptions = "defaults,noatime"
)
