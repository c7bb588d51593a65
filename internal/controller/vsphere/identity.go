package vsphere

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// identityReconciler looks after VSphereClusterIdentities: it takes the Secret that one names and says whether it is there.
type identityReconciler struct {
	client client.Client
	reader client.Reader // live
	// namespace of the Secrets.
	namespace string
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusteridentities,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusteridentities/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusteridentities/finalizers,verbs=update

// Reconcile implements reconcile.Reconciler.
func (r *identityReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	identity := &infrav1.VSphereClusterIdentity{}
	if err := r.client.Get(ctx, req.NamespacedName, identity); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	stored := identity.DeepCopy()
	if setPaused(identity, nil) {
		return ctrl.Result{}, r.patchStatus(ctx, identity, stored)
	}
	if !identity.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.delete(ctx, identity)
	}
	if controllerutil.AddFinalizer(identity, infrav1.ClusterIdentityFinalizer) {
		next := stored.DeepCopy()
		next.Finalizers = identity.Finalizers
		if err := r.client.Patch(ctx, next, client.MergeFrom(stored)); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
		identity.ObjectMeta, stored.ObjectMeta = *next.ObjectMeta.DeepCopy(), *next.ObjectMeta.DeepCopy()
	}
	reason, message, err := r.take(ctx, identity)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := metav1.ConditionTrue
	if reason != "" {
		status = metav1.ConditionFalse
	} else {
		reason = infrav1.SatisfiedReason
	}
	identity.Status.Ready = status == metav1.ConditionTrue
	setCondition(identity, infrav1.CredentialsAvailableCondition, status, reason, message)
	setCondition(identity, infrav1.ReadyCondition, status, reason, message)
	return ctrl.Result{}, r.patchStatus(ctx, identity, stored)
}

// take makes the identity the owner of its Secret; reason and message say why it cannot.
func (r *identityReconciler) take(ctx context.Context, identity *infrav1.VSphereClusterIdentity) (reason, message string, err error) {
	key := client.ObjectKey{Namespace: r.namespace, Name: identity.Spec.SecretName}
	if key.Name == "" {
		return infrav1.SecretNotAvailableReason, "spec.secretName is empty", nil
	}
	secret := secretMetadata()
	if err := r.reader.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return infrav1.SecretNotAvailableReason, fmt.Sprintf("Secret %s, named by spec.secretName, does not exist: create it with the keys %s and %s",
			key, infrav1.SecretUsernameKey, infrav1.SecretPasswordKey), nil
	} else if err != nil {
		return "", "", fmt.Errorf("reading Secret %s: %w", key, err)
	}
	for _, owner := range secret.OwnerReferences {
		if owner.UID != identity.UID && (owner.Kind == "VSphereClusterIdentity" || owner.Kind == "VSphereCluster") && owner.Name != identity.Name {
			return infrav1.SecretInUseReason, fmt.Sprintf("Secret %s belongs to %s %s: make a copy for this identity", key, owner.Kind, owner.Name), nil
		}
	}
	before := secret.DeepCopy()
	secret.OwnerReferences = util.EnsureOwnerRef(secret.OwnerReferences, metav1.OwnerReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereClusterIdentity", Name: identity.Name, UID: identity.UID,
	})
	controllerutil.AddFinalizer(secret, infrav1.ClusterIdentityFinalizer)
	if equality.Semantic.DeepEqual(before.ObjectMeta, secret.ObjectMeta) {
		return "", "", nil
	}
	if err := r.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return infrav1.SecretOwnerReferenceFailedReason, fmt.Sprintf("Secret %s cannot be taken over: %v", key, err), err
	}
	return "", "", nil
}

// delete takes the Secret along, as published.
func (r *identityReconciler) delete(ctx context.Context, identity *infrav1.VSphereClusterIdentity) error {
	key := client.ObjectKey{Namespace: r.namespace, Name: identity.Spec.SecretName}
	secret := secretMetadata()
	err := r.reader.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if err == nil && controllerutil.ContainsFinalizer(secret, infrav1.ClusterIdentityFinalizer) {
		if err := removeFinalizer(ctx, r.client, secret, infrav1.ClusterIdentityFinalizer); err != nil {
			return err
		}
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := r.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(secret.UID)}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", key, err)
		}
	}
	return removeFinalizer(ctx, r.client, identity, infrav1.ClusterIdentityFinalizer)
}

func (r *identityReconciler) patchStatus(ctx context.Context, identity, stored *infrav1.VSphereClusterIdentity) error {
	if equality.Semantic.DeepEqual(identity.Status, stored.Status) {
		return nil
	}
	next := stored.DeepCopy()
	next.Status = identity.Status
	return r.client.Status().Patch(ctx, next, client.MergeFrom(stored))
}
