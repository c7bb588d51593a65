package vsphere

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// healthCheck is how often a cluster asks its session whether vCenter still answers. That costs no call.
const healthCheck = 30 * time.Second

// clusterReconciler looks after VSphereClusters: credentials, the way to vCenter, failure domains, and the order in which
// everything goes at the end.
type clusterReconciler struct {
	client   client.Client
	reader   client.Reader // live
	latest   *latest
	access   *access
	recorder events.EventRecorder
	// nodeAntiAffinity is the feature gate of cluster modules.
	nodeAntiAffinity bool
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusters,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusters/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusters/finalizers,verbs=update

// Reconcile implements reconcile.Reconciler.
func (r *clusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.VSphereCluster{}
	if err := r.latest.get(ctx, req.NamespacedName, infra); apierrors.IsNotFound(err) {
		// Gone without our doing, as after a move: nobody here needs its sessions any more.
		infra.Namespace, infra.Name = req.Namespace, req.Name
		r.access.release(ctx, infra)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	stored := infra.DeepCopy()
	cluster, err := util.GetOwnerCluster(ctx, r.client, infra.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the owner Cluster: %w", err)
	} else if err != nil {
		cluster = nil
	}
	if setPaused(infra, cluster) {
		return ctrl.Result{}, r.patchStatus(ctx, infra, stored)
	}
	if !infra.DeletionTimestamp.IsZero() {
		return r.delete(ctx, infra, stored, cluster)
	}
	if cluster == nil {
		// Cluster API sets the owner; until then nothing is known about whose this is.
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(infra, infrav1.ClusterFinalizer) {
		before := stored.DeepCopy()
		next := stored.DeepCopy()
		next.Finalizers = infra.Finalizers
		if err := r.client.Patch(ctx, next, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
		r.latest.wrote(next)
		infra.ObjectMeta, stored.ObjectMeta = *next.ObjectMeta.DeepCopy(), *next.ObjectMeta.DeepCopy()
	}
	after, err := r.provision(ctx, infra, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if conditions.IsTrue(infra, infrav1.VCenterAvailableCondition) {
		if err := r.syncModules(ctx, infra, stored, cluster); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: after}, r.patchStatus(ctx, infra, stored)
}

// provision checks what a cluster needs before machines can be made.
func (r *clusterReconciler) provision(ctx context.Context, infra *infrav1.VSphereCluster, cluster *clusterv1.Cluster) (time.Duration, error) {
	guard, after, err := r.connect(ctx, infra)
	if err != nil {
		return 0, err
	}
	if guard != nil {
		if c := conditions.Get(infra, infrav1.VCenterAvailableCondition); c == nil || c.Status == metav1.ConditionTrue || c.Message != guard.Message {
			publish(r.recorder, infra, []machine.Event{{Warning: true, Reason: guard.Reason, Message: guard.Message}})
		}
		setCondition(infra, infrav1.VCenterAvailableCondition, metav1.ConditionFalse, guard.Reason, guard.Message)
		setCondition(infra, infrav1.ReadyCondition, metav1.ConditionFalse, guard.Reason, guard.Message)
		// status.ready and initialization.provisioned stay as they are: a vCenter that is away for a while takes no
		// infrastructure away.
		return after, nil
	}
	setCondition(infra, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")

	domains, waiting, err := r.failureDomains(ctx, infra, cluster)
	if err != nil {
		return 0, err
	}
	if waiting != "" {
		setCondition(infra, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForFailureDomainStatusReason, waiting)
		return 10 * time.Second, nil
	}
	infra.Status.FailureDomains = domains

	if infra.Spec.ControlPlaneEndpoint.Host == "" || infra.Spec.ControlPlaneEndpoint.Port == 0 {
		setCondition(infra, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForControlPlaneEndpointReason,
			"spec.controlPlaneEndpoint needs host and port: set the address of the load balancer or virtual IP in front of the control plane")
		return 0, nil
	}
	infra.Status.Ready = true
	infra.Status.Initialization.Provisioned = ptr.To(true)
	setCondition(infra, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	return healthCheck, nil
}

// connect takes the Secret and opens the session; the guard says what is in the way.
func (r *clusterReconciler) connect(ctx context.Context, infra *infrav1.VSphereCluster) (*machine.Guard, time.Duration, error) {
	guard, err := r.takeSecret(ctx, infra)
	if err != nil || guard != nil {
		return guard, 0, err
	}
	session, err := r.access.session(ctx, infra, "", "", "")
	if err == nil {
		infra.Status.VCenterVersion = session.Version()
		err = session.Healthy()
		if err != nil {
			err = fmt.Errorf("vCenter %s (spec.server) does not answer: %w", infra.Spec.Server, err)
		}
	}
	if err != nil {
		guard, after := guardOf(err)
		return guard, after, nil
	}
	return nil, 0, nil
}

// takeSecret makes the Secret with a cluster's credentials stay as long as the cluster (VS-V40): one owner, one finalizer.
func (r *clusterReconciler) takeSecret(ctx context.Context, infra *infrav1.VSphereCluster) (*machine.Guard, error) {
	ref := infra.Spec.IdentityRef
	if ref == nil || ref.Kind != infrav1.SecretKind {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: infra.Namespace, Name: ref.Name}
	secret := secretMetadata()
	if err := r.reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return &machine.Guard{
			Reason: infrav1.IdentityCredentialsUnavailableReason,
			Message: fmt.Sprintf("Secret %s, named by spec.identityRef, does not exist: create it with the keys %s and %s",
				key, infrav1.SecretUsernameKey, infrav1.SecretPasswordKey),
		}, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	for _, owner := range secret.OwnerReferences {
		if owner.Kind == "VSphereCluster" && owner.UID != infra.UID && owner.Name != infra.Name {
			return &machine.Guard{
				Reason: infrav1.IdentityCredentialsUnavailableReason,
				Message: fmt.Sprintf("Secret %s belongs to VSphereCluster %s: a Secret serves one cluster and is deleted with it; make a copy for this one, or use a %s for both",
					key, owner.Name, infrav1.VSphereClusterIdentityKind),
			}, nil
		}
	}
	if !secret.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	before := secret.DeepCopy()
	secret.OwnerReferences = util.EnsureOwnerRef(secret.OwnerReferences, metav1.OwnerReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereCluster", Name: infra.Name, UID: infra.UID,
	})
	controllerutil.AddFinalizer(secret, infrav1.SecretFinalizer)
	if equality.Semantic.DeepEqual(before.ObjectMeta, secret.ObjectMeta) {
		return nil, nil
	}
	if err := r.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("taking Secret %s: %w", key, err)
	}
	return nil, nil
}

func (r *clusterReconciler) patchStatus(ctx context.Context, infra, stored *infrav1.VSphereCluster) error {
	if equality.Semantic.DeepEqual(infra.Status, stored.Status) {
		return nil
	}
	next := stored.DeepCopy()
	next.Status = *infra.Status.DeepCopy()
	if err := r.client.Status().Patch(ctx, next, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("writing the status of VSphereCluster %s: %w", client.ObjectKeyFromObject(infra), err)
	}
	r.latest.wrote(next)
	return nil
}

// delete takes the parts down in order (VS-D55, VS-D56): machines, then pools with their disks, then the credentials, which
// were needed until now.
func (r *clusterReconciler) delete(ctx context.Context, infra, stored *infrav1.VSphereCluster, cluster *clusterv1.Cluster) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(infra, infrav1.ClusterFinalizer) {
		return ctrl.Result{}, nil
	}
	name := infra.Labels[clusterv1.ClusterNameLabel]
	if cluster != nil {
		name = cluster.Name
	}
	waiting := func(reason, message string) (ctrl.Result, error) {
		setCondition(infra, infrav1.ReadyCondition, metav1.ConditionFalse, reason, message)
		return ctrl.Result{RequeueAfter: 10 * time.Second}, r.patchStatus(ctx, infra, stored)
	}
	if name == "" {
		name = ownerClusterName(infra)
	}
	if name != "" {
		machines, vms, err := r.machinesLeft(ctx, infra.Namespace, name)
		if err != nil {
			return ctrl.Result{}, err
		}
		if machines+vms > 0 {
			return waiting(infrav1.WaitingForMachinesDeletedReason, fmt.Sprintf("waiting for %d VSphereMachines and %d VSphereVMs to be deleted", machines, vms))
		}
		left, err := r.deletePools(ctx, infra.Namespace, name)
		if err != nil {
			return ctrl.Result{}, err
		}
		if left != "" {
			return waiting(infrav1.WaitingForPoolsDeletedReason, "waiting for the pools of the cluster and their disks to be deleted: "+left)
		}
	}
	if err := r.releaseModules(ctx, infra, stored); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.dropSecret(ctx, infra); err != nil {
		return ctrl.Result{}, err
	}
	r.access.release(ctx, infra)
	return ctrl.Result{}, removeFinalizer(ctx, r.client, stored, infrav1.ClusterFinalizer)
}

func ownerClusterName(obj client.Object) string {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind == "Cluster" {
			return ref.Name
		}
	}
	return ""
}

// machinesLeft counts by live reads: a cache that is behind would let the credentials go too early.
func (r *clusterReconciler) machinesLeft(ctx context.Context, namespace, cluster string) (machines, vms int, err error) {
	of := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}}
	machineList, vmList := &infrav1.VSphereMachineList{}, &infrav1.VSphereVMList{}
	if err := r.reader.List(ctx, machineList, of...); err != nil {
		return 0, 0, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	if err := r.reader.List(ctx, vmList, of...); err != nil {
		return 0, 0, fmt.Errorf("listing VSphereVMs: %w", err)
	}
	return len(machineList.Items), len(vmList.Items), nil
}

// deletePools asks for the deletion of the cluster's pools and names those that are still there.
func (r *clusterReconciler) deletePools(ctx context.Context, namespace, cluster string) (left string, err error) {
	list := &infrav1.VSphereMachineConfigPoolList{}
	if err := r.reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing pools: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.ClusterRef.Name != cluster {
			continue
		}
		if p.DeletionTimestamp.IsZero() {
			if err := r.client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("deleting pool %s: %w", p.Name, err)
			}
		}
		if left != "" {
			left += ", "
		}
		left += p.Name
		if c := conditions.Get(p, infrav1.ReadyCondition); c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
			left += " (" + c.Message + ")"
		}
	}
	return left, nil
}

// dropSecret takes our finalizer off the Secret and deletes it, as published.
func (r *clusterReconciler) dropSecret(ctx context.Context, infra *infrav1.VSphereCluster) error {
	ref := infra.Spec.IdentityRef
	if ref == nil || ref.Kind != infrav1.SecretKind {
		return nil
	}
	key := client.ObjectKey{Namespace: infra.Namespace, Name: ref.Name}
	secret := secretMetadata()
	if err := r.reader.Get(ctx, key, secret); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !controllerutil.ContainsFinalizer(secret, infrav1.SecretFinalizer) {
		return nil
	}
	if err := removeFinalizer(ctx, r.client, secret, infrav1.SecretFinalizer); err != nil {
		return err
	}
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := r.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(secret.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", key, err)
	}
	return nil
}
