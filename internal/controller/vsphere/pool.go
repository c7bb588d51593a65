package vsphere

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/pool"
)

// poolReconciler looks after VSphereMachineConfigPools: it lets the pool's writer free slots and reclaim disks, checks the
// declaration, and says how things are in conditions.
type poolReconciler struct {
	*pools
	latest *latest
	pinned pinned
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachineconfigpools,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachineconfigpools/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachineconfigpools/finalizers,verbs=update

// Reconcile implements reconcile.Reconciler.
func (r *poolReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := r.latest.get(ctx, req.NamespacedName, p); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.drop(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.same(req.NamespacedName, p.UID)
	if len(p.Status.ConfigStatuses) == 0 {
		// Never written, or lost: what its writer remembers must not stand in for it.
		r.writer(req.NamespacedName).Forget()
	}
	cluster := &clusterv1.Cluster{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterRef.Name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Cluster %s: %w", p.Spec.ClusterRef.Name, err)
	} else if err != nil {
		cluster = nil
	}
	infra, err := findVSphereCluster(ctx, r.client, p.Namespace, p.Spec.ClusterRef.Name, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	stored := p.DeepCopy()
	if setPaused(p, cluster) {
		return ctrl.Result{}, r.patchConditions(ctx, p, stored)
	}
	if p.DeletionTimestamp.IsZero() {
		if err := r.adopt(ctx, p, stored, cluster); err != nil {
			return ctrl.Result{}, err
		}
	} else if !controllerutil.ContainsFinalizer(p, infrav1.MachineConfigPoolFinalizer) {
		return ctrl.Result{}, nil
	}

	if _, decided := p.Annotations[infrav1.ReleaseQuarantinedAnnotation]; decided {
		// The pass starts anew from what this writes.
		return ctrl.Result{RequeueAfter: time.Millisecond}, r.releaseQuarantined(ctx, req.NamespacedName)
	}
	r.setClusterRefReady(p, cluster, infra)
	retry := r.setVCenterAvailable(ctx, p, infra)
	if err := r.setMembers(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	summary, err := r.writer(req.NamespacedName).Reconcile(ctx)
	switch {
	case errors.Is(err, pool.ErrGone):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reconciling pool %s: %w", req, err)
	}
	for _, trouble := range summary.Troubles {
		ctrl.LoggerFrom(ctx).Info("Pool cannot go on with everything", "trouble", trouble)
	}
	if !p.DeletionTimestamp.IsZero() {
		left, err := r.consumers(ctx, p)
		if err != nil {
			return ctrl.Result{}, err
		}
		if left == 0 && (summary.Empty || cluster == nil && infra == nil && blank(summary)) {
			return ctrl.Result{}, r.letGo(ctx, req.NamespacedName)
		}
	}
	setPoolConditions(p, summary)
	r.warnOfPinned(ctx, p, infra, summary)
	r.warnAboutDeletion(p, stored, summary)
	if err := r.patchConditions(ctx, p, stored); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: sooner(summary.Next, retry)}, nil
}

// adopt writes finalizer, label, what the Cluster wants kept, and the owner reference that clusterctl move follows.
func (r *poolReconciler) adopt(ctx context.Context, p, stored *infrav1.VSphereMachineConfigPool, cluster *clusterv1.Cluster) error {
	before := stored.DeepCopy()
	next := stored.DeepCopy()
	if controllerutil.AddFinalizer(next, infrav1.MachineConfigPoolFinalizer) {
		r.born(next.UID)
	}
	if next.Labels[clusterv1.ClusterNameLabel] != p.Spec.ClusterRef.Name && p.Spec.ClusterRef.Name != "" {
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[clusterv1.ClusterNameLabel] = p.Spec.ClusterRef.Name
	}
	if cluster != nil {
		noteRetention(next, cluster)
		next.OwnerReferences = util.EnsureOwnerRef(next.OwnerReferences, metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
		})
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, next.ObjectMeta) {
		return nil
	}
	err := r.writer(client.ObjectKeyFromObject(p)).Between(func() error {
		return r.client.Patch(ctx, next, client.MergeFrom(before))
	})
	if err != nil {
		return fmt.Errorf("adding finalizer and owner: %w", err)
	}
	r.latest.wrote(next)
	p.ObjectMeta, stored.ObjectMeta = *next.ObjectMeta.DeepCopy(), *next.ObjectMeta.DeepCopy()
	return nil
}

// blank: no disk on record has anything behind it and nobody holds a slot. A pool whose cluster does not exist cannot look in
// vCenter for disks that its record does not know, and must not wait for ever because of that.
func blank(summary pool.Summary) bool {
	for _, d := range summary.State.Disks {
		if d.Phase != disk.Absent && d.Phase != disk.Reclaimed {
			return false
		}
	}
	return len(summary.Held) == 0 && len(summary.Vacating) == 0 && len(summary.Quarantined) == 0
}

// letGo takes the finalizer off the pool as it is now: its writer has written since this pass read it.
func (r *poolReconciler) letGo(ctx context.Context, key client.ObjectKey) error {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := r.reader.Get(ctx, key, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	return removeFinalizer(ctx, r.client, p, infrav1.MachineConfigPoolFinalizer)
}

// consumers counts the VSphereMachines that name the pool, live: with one left the pool must stay.
func (r *poolReconciler) consumers(ctx context.Context, p *infrav1.VSphereMachineConfigPool) (int, error) {
	list := &infrav1.VSphereMachineList{}
	if err := r.reader.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return 0, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	n := 0
	for i := range list.Items {
		if ref := list.Items[i].Spec.MachineConfigPoolRef; ref != nil && ref.Name == p.Name {
			n++
		}
	}
	return n, nil
}

// patchConditions writes the conditions if they differ. The rest of the status belongs to the pool's writer: the patch names
// conditions only, and carries no version, so that neither gets in the other's way.
func (r *poolReconciler) patchConditions(ctx context.Context, p, stored *infrav1.VSphereMachineConfigPool) error {
	if equality.Semantic.DeepEqual(p.Status.Conditions, stored.Status.Conditions) {
		return nil
	}
	next := stored.DeepCopy()
	next.Status.Conditions = p.Status.Conditions
	err := r.writer(client.ObjectKeyFromObject(p)).Between(func() error {
		return r.client.Status().Patch(ctx, next, client.MergeFrom(stored))
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.latest.wrote(next)
	return nil
}

func (r *poolReconciler) setClusterRefReady(p *infrav1.VSphereMachineConfigPool, cluster *clusterv1.Cluster, infra *infrav1.VSphereCluster) {
	switch {
	case cluster == nil:
		setCondition(p, infrav1.ClusterRefReadyCondition, metav1.ConditionFalse, infrav1.ClusterNotFoundReason,
			fmt.Sprintf("spec.clusterRef names Cluster %q, which does not exist in namespace %s", p.Spec.ClusterRef.Name, p.Namespace))
	case infra == nil:
		setCondition(p, infrav1.ClusterRefReadyCondition, metav1.ConditionFalse, infrav1.VSphereClusterNotFoundReason,
			fmt.Sprintf("Cluster %s has no VSphereCluster", cluster.Name))
	default:
		setCondition(p, infrav1.ClusterRefReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
}

// setVCenterAvailable says whether disks could be looked after now, and when to look again if not.
func (r *poolReconciler) setVCenterAvailable(ctx context.Context, p *infrav1.VSphereMachineConfigPool, infra *infrav1.VSphereCluster) time.Duration {
	if infra == nil {
		setCondition(p, infrav1.VCenterAvailableCondition, metav1.ConditionFalse, infrav1.IdentityCredentialsUnavailableReason,
			"without a VSphereCluster there are no credentials for vCenter")
		return 0
	}
	if _, err := r.access.session(ctx, infra, "", "", ""); err != nil {
		guard, after := guardOf(err)
		setCondition(p, infrav1.VCenterAvailableCondition, metav1.ConditionFalse, guard.Reason, guard.Message)
		return after
	}
	setCondition(p, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	return 0
}

// sooner is the earlier of two times from now; 0 means never.
func sooner(a, b time.Duration) time.Duration {
	switch {
	case a <= 0:
		return b
	case b <= 0 || a < b:
		return a
	default:
		return b
	}
}
