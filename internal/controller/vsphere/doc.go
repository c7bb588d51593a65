// Package vsphere holds the reconcilers of the vSphere provider. They are thin: they watch, map API objects to the neutral
// model of internal/machine and internal/pool and back, and write status. What a machine does next is decided by
// machine.Engine, what a pool does next by pool.Writer, and how vCenter is spoken to by internal/platform/vsphere.
//
// Two objects tell one life: VSphereMachine belongs to Cluster API, VSphereVM is its visible child and the record of what was
// asked of vCenter. Both are written only by the VSphereMachine reconciler. A pool's status is written only by its
// pool.Writer and the pool reconciler.
package vsphere

// Machines, clusters and owners of Cluster API that a machine's life depends on.
//
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;clusters/status;machines;machines/status;machinesets;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones;vspherefailuredomains,verbs=get;list;watch
// +kubebuilder:rbac:groups=core,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=core,resources=secrets,verbs=get;list;watch;patch;update;delete
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
