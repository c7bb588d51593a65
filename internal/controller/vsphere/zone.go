package vsphere

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// zoneReconciler looks after VSphereDeploymentZones: it checks in vCenter that what a zone and its failure domain name exists.
// Tags of region and zone are not looked at, and host groups are refused: machines are not put into VM groups.
type zoneReconciler struct {
	client client.Client
	reader client.Reader // live
	access *access
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheredeploymentzones/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspherefailuredomains,verbs=get;list;watch;delete

func (r *zoneReconciler) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vspheredeploymentzone").
		For(&infrav1.VSphereDeploymentZone{}, builder.WithPredicates(o.filter(mgr), predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&infrav1.VSphereFailureDomain{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return r.where(ctx, func(z *infrav1.VSphereDeploymentZone) bool { return z.Spec.FailureDomain == obj.GetName() })
		})).
		Watches(&infrav1.VSphereCluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			server := obj.(*infrav1.VSphereCluster).Spec.Server
			return r.where(ctx, func(z *infrav1.VSphereDeploymentZone) bool { return z.Spec.Server == server })
		}), builder.WithPredicates(vcenterMatters())).
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
		return r.delete(ctx, zone)
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

// check sets the conditions and status.ready, which is true only after everything was found.
func (r *zoneReconciler) check(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (time.Duration, error) {
	refuse := func(condition, reason, message string) {
		zone.Status.Ready = ptr.To(false)
		setCondition(zone, condition, metav1.ConditionFalse, reason, message)
		setCondition(zone, infrav1.ReadyCondition, metav1.ConditionFalse, reason, message)
	}
	session, after, err := r.session(ctx, zone)
	if err != nil {
		if !machine.Is(err, machine.Refused) && !machine.Is(err, machine.Broken) && !machine.Is(err, machine.Busy) {
			return 0, err
		}
		refuse(infrav1.VCenterAvailableCondition, infrav1.VCenterUnreachableReason, err.Error())
		return after, nil
	}
	setCondition(zone, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")

	domain := &infrav1.VSphereFailureDomain{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, domain); apierrors.IsNotFound(err) {
		refuse(infrav1.FailureDomainValidatedCondition, infrav1.FailureDomainZoneMisconfiguredReason,
			fmt.Sprintf("VSphereFailureDomain %q, named by spec.failureDomain, does not exist", zone.Spec.FailureDomain))
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading VSphereFailureDomain %s: %w", zone.Spec.FailureDomain, err)
	}
	if domain.Spec.Topology.Hosts != nil {
		refuse(infrav1.FailureDomainValidatedCondition, infrav1.HostsMisconfiguredReason,
			fmt.Sprintf("VSphereFailureDomain %s has spec.topology.hosts: host groups are not supported, use a compute cluster or a datacenter as zone", domain.Name))
		return 0, nil
	}
	in := newPlacement(*zone, *domain)
	topology := domain.Spec.Topology
	err = session.CheckPlacement(ctx, vsphere.Placement{
		Datacenter: topology.Datacenter, ComputeCluster: ptr.Deref(topology.ComputeCluster, ""), Datastore: topology.Datastore, Networks: in.networks,
	})
	if after, done, err := r.judge(err, func(e *machine.Error) { refuse(infrav1.FailureDomainValidatedCondition, e.Reason, e.Error()) }); done {
		return after, err
	}
	setCondition(zone, infrav1.FailureDomainValidatedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason,
		"datacenter, compute cluster, datastore and networks exist; tags are not checked")

	err = session.CheckPlacement(ctx, vsphere.Placement{
		Datacenter: topology.Datacenter, Folder: zone.Spec.PlacementConstraint.Folder, ResourcePool: zone.Spec.PlacementConstraint.ResourcePool,
	})
	if after, done, err := r.judge(err, func(e *machine.Error) { refuse(infrav1.PlacementConstraintMetCondition, e.Reason, e.Error()) }); done {
		return after, err
	}
	setCondition(zone, infrav1.PlacementConstraintMetCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	setCondition(zone, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	zone.Status.Ready = ptr.To(true)
	return 0, nil
}

// judge tells what is missing from what could not be asked.
func (r *zoneReconciler) judge(err error, refuse func(*machine.Error)) (time.Duration, bool, error) {
	if err == nil {
		return 0, false, nil
	}
	var e *machine.Error
	if errors.As(err, &e) && e.Kind == machine.Refused {
		refuse(e)
		// Somebody may create what is missing; vCenter does not tell us of that.
		return time.Minute, true, nil
	}
	return 0, true, err
}

// session borrows the credentials of a cluster at the zone's server, one that selects the zone first (VS-V45).
func (r *zoneReconciler) session(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (*vsphere.Session, time.Duration, error) {
	clusters := &infrav1.VSphereClusterList{}
	if err := r.client.List(ctx, clusters); err != nil {
		return nil, 0, err
	}
	var selecting, others []*infrav1.VSphereCluster
	for i := range clusters.Items {
		switch c := &clusters.Items[i]; {
		case c.Spec.Server != zone.Spec.Server || !c.DeletionTimestamp.IsZero():
		case c.Spec.FailureDomainSelector != nil:
			selecting = append(selecting, c)
		default:
			others = append(others, c)
		}
	}
	last := error(&machine.Error{Kind: machine.Refused, Message: fmt.Sprintf("no VSphereCluster uses vCenter %q (spec.server), so there are no credentials for it", zone.Spec.Server)})
	for _, c := range append(selecting, others...) {
		session, err := r.access.session(ctx, c, "", "", "")
		if err == nil {
			ctrl.LoggerFrom(ctx).V(2).Info("Using the credentials of a cluster", "VSphereCluster", client.ObjectKeyFromObject(c))
			return session, 0, nil
		}
		last = err
	}
	_, after := guardOf(last)
	return nil, after, last
}

// delete waits until no Machine is in the zone, and takes a failure domain along that no other zone names (VS-V46).
func (r *zoneReconciler) delete(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (ctrl.Result, error) {
	machines := &clusterv1.MachineList{}
	if err := r.reader.List(ctx, machines); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing Machines: %w", err)
	}
	for i := range machines.Items {
		if machines.Items[i].Spec.FailureDomain == zone.Name {
			ctrl.LoggerFrom(ctx).Info("Zone is still used", "Machine", client.ObjectKeyFromObject(&machines.Items[i]))
			return ctrl.Result{RequeueAfter: 10 * time.Second}, nil
		}
	}
	zones := &infrav1.VSphereDeploymentZoneList{}
	if err := r.reader.List(ctx, zones); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing VSphereDeploymentZones: %w", err)
	}
	for i := range zones.Items {
		if z := &zones.Items[i]; z.Name != zone.Name && z.Spec.FailureDomain == zone.Spec.FailureDomain {
			return ctrl.Result{}, removeFinalizer(ctx, r.client, zone, infrav1.DeploymentZoneFinalizer)
		}
	}
	domain := &infrav1.VSphereFailureDomain{ObjectMeta: metav1.ObjectMeta{Name: zone.Spec.FailureDomain}}
	if zone.Spec.FailureDomain != "" {
		if err := r.client.Delete(ctx, domain); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("deleting VSphereFailureDomain %s: %w", domain.Name, err)
		}
	}
	return ctrl.Result{}, removeFinalizer(ctx, r.client, zone, infrav1.DeploymentZoneFinalizer)
}

func (r *zoneReconciler) patchStatus(ctx context.Context, zone, stored *infrav1.VSphereDeploymentZone) error {
	if equality.Semantic.DeepEqual(zone.Status, stored.Status) {
		return nil
	}
	next := stored.DeepCopy()
	next.Status = *zone.Status.DeepCopy()
	return r.client.Status().Patch(ctx, next, client.MergeFrom(stored))
}
