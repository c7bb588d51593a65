package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
)

// zoneReconciler looks after VSphereDeploymentZones: it checks in vCenter that what a zone and its failure domain name is there
// (zone_check.go), and keeps both while Machines need them.
type zoneReconciler struct {
	client client.Client
	reader client.Reader // live
	access *access
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspherefailuredomains,verbs=get;list;watch;patch;update;delete

func (r *zoneReconciler) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vspheredeploymentzone").
		For(&infrav1.VSphereDeploymentZone{}, builder.WithPredicates(o.filter(mgr), predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&infrav1.VSphereFailureDomain{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return r.where(ctx, func(z *infrav1.VSphereDeploymentZone) bool { return z.Spec.FailureDomain == obj.GetName() })
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&infrav1.VSphereCluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			server := obj.(*infrav1.VSphereCluster).Spec.Server
			return r.where(ctx, func(z *infrav1.VSphereDeploymentZone) bool { return z.Spec.Server == server })
		}), builder.WithPredicates(vcenterMatters())).
		// The last Machine of a zone that is to go.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			name := obj.(*clusterv1.Machine).Spec.FailureDomain
			return r.where(ctx, func(z *infrav1.VSphereDeploymentZone) bool { return z.Name == name && !z.DeletionTimestamp.IsZero() })
		}), builder.WithPredicates(deleted())).
		WithOptions(backOff(o.Zone, o)).
		Complete(o.only(mgr, &infrav1.VSphereDeploymentZone{}, r))
}

func (r *zoneReconciler) where(ctx context.Context, matches func(*infrav1.VSphereDeploymentZone) bool) []reconcile.Request {
	list := &infrav1.VSphereDeploymentZoneList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if matches(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (r *zoneReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	zone := &infrav1.VSphereDeploymentZone{}
	if err := r.client.Get(ctx, req.NamespacedName, zone); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	stored := zone.DeepCopy()
	if setPaused(zone, nil) {
		return ctrl.Result{}, r.patchStatus(ctx, zone, stored)
	}
	if !zone.DeletionTimestamp.IsZero() {
		return r.delete(ctx, zone, stored)
	}
	if controllerutil.AddFinalizer(zone, infrav1.DeploymentZoneFinalizer) {
		next := stored.DeepCopy()
		next.Finalizers = zone.Finalizers
		if err := r.client.Patch(ctx, next, client.MergeFrom(stored)); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
		zone.ObjectMeta, stored.ObjectMeta = *next.ObjectMeta.DeepCopy(), *next.ObjectMeta.DeepCopy()
	}
	after, err := r.check(ctx, zone)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, r.patchStatus(ctx, zone, stored)
}

// session borrows the credentials of a cluster at the zone's server: of one that selects the zone before any other, and of the
// next one where that fails (VS-V45).
func (r *zoneReconciler) session(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (*vsphere.Session, error) {
	list := &infrav1.VSphereClusterList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil, err
	}
	var lenders []*infrav1.VSphereCluster
	for i := range list.Items {
		if c := &list.Items[i]; c.Spec.Server == zone.Spec.Server && c.DeletionTimestamp.IsZero() {
			lenders = append(lenders, c)
		}
	}
	slices.SortFunc(lenders, func(a, b *infrav1.VSphereCluster) int {
		return cmp.Or(lends(a, zone)-lends(b, zone), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	last := error(&machine.Error{Kind: machine.Refused, Message: fmt.Sprintf("no VSphereCluster uses vCenter %q (spec.server), so there are no credentials for it", zone.Spec.Server)})
	for _, c := range lenders {
		session, err := r.access.session(ctx, c, "", "", "")
		if err == nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Using the credentials of a cluster", "VSphereCluster", client.ObjectKeyFromObject(c))
			return session, nil
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot use the credentials of a cluster", "VSphereCluster", client.ObjectKeyFromObject(c), "error", err.Error())
		last = err
	}
	return nil, last
}

// lends ranks clusters by their claim on a zone: 0 selects it, 1 does not.
func lends(c *infrav1.VSphereCluster, zone *infrav1.VSphereDeploymentZone) int {
	if c.Spec.FailureDomainSelector != nil {
		if selector, err := metav1.LabelSelectorAsSelector(c.Spec.FailureDomainSelector); err == nil && selector.Matches(labels.Set(zone.Labels)) {
			return 0
		}
	}
	return 1
}

// delete waits until no Machine is in the zone, and takes a failure domain along that no other zone names (VS-V46). It asks
// nothing of vCenter: tags stay, others may have come to rely on them.
func (r *zoneReconciler) delete(ctx context.Context, zone, stored *infrav1.VSphereDeploymentZone) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(zone, infrav1.DeploymentZoneFinalizer) {
		return ctrl.Result{}, nil
	}
	users, err := r.users(ctx, zone.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(users) > 0 {
		setCondition(zone, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, fmt.Sprintf(
			"the zone stays while Machines use it (%d): %s; delete or replace them first", len(users), first(users, 10)))
		return ctrl.Result{RequeueAfter: time.Minute}, r.patchStatus(ctx, zone, stored)
	}
	if err := r.dropDomain(ctx, zone); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, removeFinalizer(ctx, r.client, zone, infrav1.DeploymentZoneFinalizer)
}

// users lists, live, the Machines in a zone.
func (r *zoneReconciler) users(ctx context.Context, zone string) ([]string, error) {
	machines := &clusterv1.MachineList{}
	if err := r.reader.List(ctx, machines); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	var out []string
	for i := range machines.Items {
		if machines.Items[i].Spec.FailureDomain == zone {
			out = append(out, client.ObjectKeyFromObject(&machines.Items[i]).String())
		}
	}
	slices.Sort(out)
	return out, nil
}

// first names the first few of a list.
func first(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// own makes the zone one of the owners of its failure domain.
func (r *zoneReconciler) own(ctx context.Context, zone *infrav1.VSphereDeploymentZone, domain *infrav1.VSphereFailureDomain) error {
	before := domain.DeepCopy()
	domain.OwnerReferences = util.EnsureOwnerRef(domain.OwnerReferences, metav1.OwnerReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereDeploymentZone", Name: zone.Name, UID: zone.UID,
	})
	if equality.Semantic.DeepEqual(before.OwnerReferences, domain.OwnerReferences) {
		return nil
	}
	if err := r.client.Patch(ctx, domain, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("becoming an owner of VSphereFailureDomain %s: %w", domain.Name, err)
	}
	return nil
}

// dropDomain deletes the failure domain with its last zone. One that is gone holds nothing up.
func (r *zoneReconciler) dropDomain(ctx context.Context, zone *infrav1.VSphereDeploymentZone) error {
	if zone.Spec.FailureDomain == "" {
		return nil
	}
	zones := &infrav1.VSphereDeploymentZoneList{}
	if err := r.reader.List(ctx, zones); err != nil {
		return fmt.Errorf("listing VSphereDeploymentZones: %w", err)
	}
	for i := range zones.Items {
		if z := &zones.Items[i]; z.Name != zone.Name && z.Spec.FailureDomain == zone.Spec.FailureDomain {
			return nil
		}
	}
	domain := &infrav1.VSphereFailureDomain{ObjectMeta: metav1.ObjectMeta{Name: zone.Spec.FailureDomain}}
	if err := r.client.Delete(ctx, domain); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VSphereFailureDomain %s: %w", domain.Name, err)
	}
	return nil
}

func (r *zoneReconciler) patchStatus(ctx context.Context, zone, stored *infrav1.VSphereDeploymentZone) error {
	if equality.Semantic.DeepEqual(zone.Status, stored.Status) {
		return nil
	}
	next := stored.DeepCopy()
	next.Status = *zone.Status.DeepCopy()
	return r.client.Status().Patch(ctx, next, client.MergeFrom(stored))
}

// domain reads the zone's failure domain; nil if there is none.
func (r *zoneReconciler) domain(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (*infrav1.VSphereFailureDomain, error) {
	domain := &infrav1.VSphereFailureDomain{}
	err := r.client.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, domain)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VSphereFailureDomain %s: %w", zone.Spec.FailureDomain, err)
	case !domain.DeletionTimestamp.IsZero():
		return nil, nil
	}
	return domain, nil
}
