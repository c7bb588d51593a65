package vsphere

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// settle is how long the events of a pool are collected before it is looked at: a pool with hundreds of machines being made
// changes many times a second.
const settle = 50 * time.Millisecond

// only keeps a reconciler away from objects that the watch filter excludes, whatever woke it.
func (o Options) only(mgr ctrl.Manager, kind client.Object, inner reconcile.Reconciler) reconcile.Reconciler {
	if o.WatchFilter == "" {
		return inner
	}
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		obj := kind.DeepCopyObject().(client.Object)
		if err := mgr.GetClient().Get(ctx, req.NamespacedName, obj); err == nil && obj.GetLabels()[clusterv1.WatchLabel] != o.WatchFilter {
			return reconcile.Result{}, nil
		}
		return inner.Reconcile(ctx, req)
	})
}

func (o Options) filter(mgr ctrl.Manager) predicate.Predicate {
	return predicates.ResourceHasFilterLabel(mgr.GetScheme(), ctrl.Log, o.WatchFilter)
}

func (r *machineReconciler) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vspheremachine").
		For(&infrav1.VSphereMachine{}, builder.WithPredicates(o.filter(mgr), notOwnStatus())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(
			util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("VSphereMachine"))), builder.WithPredicates(machineMatters())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(clusterMatters())).
		Watches(&infrav1.VSphereCluster{}, handler.EnqueueRequestsFromMapFunc(r.ofVSphereCluster), builder.WithPredicates(vcenterMatters())).
		Watches(&infrav1.VSphereMachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), builder.WithPredicates(claimMatters())).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofSecret), builder.WithPredicates(written())).
		WatchesRawSource(source.Channel(r.alarm.events, &handler.EnqueueRequestForObject{})).
		WithOptions(backOff(o.Machine, o)).
		Complete(o.only(mgr, &infrav1.VSphereMachine{}, r))
}

func (r *orphanReconciler) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vspherevm").
		// Status is written by the machine's reconciler; an orphan is found by its creation (at start), its deletion, and the
		// disappearance of its machine.
		For(&infrav1.VSphereVM{}, builder.WithPredicates(o.filter(mgr), predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
			},
		})).
		Watches(&infrav1.VSphereMachine{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			name, err := vmName(obj.(*infrav1.VSphereMachine))
			if err != nil {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
		}), builder.WithPredicates(deleted())).
		WatchesRawSource(source.Channel(r.alarm.events, &handler.EnqueueRequestForObject{})).
		WithOptions(backOff(o.VM, o)).
		Complete(o.only(mgr, &infrav1.VSphereVM{}, r))
}

func (r *poolReconciler) setup(mgr ctrl.Manager, o Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("vspheremachineconfigpool").
		For(&infrav1.VSphereMachineConfigPool{}, builder.WithPredicates(o.filter(mgr), predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, recordsLost()))).
		Watches(&clusterv1.Cluster{}, settled(r.ofCluster), builder.WithPredicates(clusterMatters())).
		Watches(&infrav1.VSphereCluster{}, settled(r.ofOwned), builder.WithPredicates(vcenterMatters())).
		Watches(&clusterv1.Machine{}, settled(r.ofMachine), builder.WithPredicates(deleted())).
		Watches(&infrav1.VSphereMachine{}, settled(r.ofConsumer), builder.WithPredicates(deleted())).
		WatchesRawSource(source.Channel(r.changed, settled(func(_ context.Context, obj client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
		}))).
		WithOptions(backOff(o.Pool, o))
	if o.Workload != nil && o.Workload.Cache != nil {
		b = b.WatchesRawSource(o.Workload.Cache.GetClusterSource("vspheremachineconfigpool", r.ofCluster))
	}
	return b.Complete(o.only(mgr, &infrav1.VSphereMachineConfigPool{}, r))
}

func (r *clusterReconciler) setup(mgr ctrl.Manager, o Options) error {
	gvk := infrav1.GroupVersion.WithKind("VSphereCluster")
	b := ctrl.NewControllerManagedBy(mgr)
	if r.nodeAntiAffinity {
		b = b.Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(r.ofDeployment), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return b.
		Named("vspherecluster").
		For(&infrav1.VSphereCluster{}, builder.WithPredicates(o.filter(mgr), notOwnStatus())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(context.Background(), gvk, mgr.GetClient(), &infrav1.VSphereCluster{})), builder.WithPredicates(clusterMatters())).
		Watches(&infrav1.VSphereMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofPart), builder.WithPredicates(deleted())).
		Watches(&infrav1.VSphereVM{}, handler.EnqueueRequestsFromMapFunc(r.ofPart), builder.WithPredicates(deleted())).
		Watches(&infrav1.VSphereMachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPart), builder.WithPredicates(deleted())).
		Watches(&infrav1.VSphereMachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool), builder.WithPredicates(slotsMoved())).
		Watches(&infrav1.VSphereDeploymentZone{}, handler.EnqueueRequestsFromMapFunc(r.ofZone)).
		Watches(&infrav1.VSphereClusterIdentity{}, handler.EnqueueRequestsFromMapFunc(r.ofIdentity)).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		WithOptions(backOff(o.Cluster, o)).
		Complete(o.only(mgr, &infrav1.VSphereCluster{}, r))
}

func (r *identityReconciler) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("vsphereclusteridentity").
		For(&infrav1.VSphereClusterIdentity{}, builder.WithPredicates(o.filter(mgr))).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		WithOptions(backOff(o.Zone, o)).
		Complete(o.only(mgr, &infrav1.VSphereClusterIdentity{}, r))
}

// Who is woken by what.

func (r *machineReconciler) ofCluster(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.list(ctx, obj.GetNamespace(), obj.GetName())
}

func (r *machineReconciler) ofVSphereCluster(ctx context.Context, obj client.Object) []reconcile.Request {
	if name := ownerClusterName(obj); name != "" {
		return r.list(ctx, obj.GetNamespace(), name)
	}
	return nil
}

func (r *machineReconciler) list(ctx context.Context, namespace, cluster string) []reconcile.Request {
	list := &infrav1.VSphereMachineList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// ofPool wakes the machines that wait for a pool whose declaration has changed. Changes of its status are told by its writer.
func (r *machineReconciler) ofPool(_ context.Context, obj client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, key := range r.queue.changed(client.ObjectKeyFromObject(obj)) {
		out = append(out, reconcile.Request{NamespacedName: key})
	}
	return out
}

// ofSecret wakes the machine whose bootstrap Secret has come or was changed.
func (r *machineReconciler) ofSecret(ctx context.Context, obj client.Object) []reconcile.Request {
	cluster := obj.GetLabels()[clusterv1.ClusterNameLabel]
	if cluster == "" {
		return nil
	}
	list := &clusterv1.MachineList{}
	if err := r.client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil
	}
	for i := range list.Items {
		m := &list.Items[i]
		if ptr.Deref(m.Spec.Bootstrap.DataSecretName, "") == obj.GetName() {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}}}
		}
	}
	return nil
}

// ofClaim wakes the machine for whose VSphereVM an address was claimed.
func (r *machineReconciler) ofClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind != "VSphereVM" {
			continue
		}
		vm := &infrav1.VSphereVM{}
		if err := r.latest.get(ctx, client.ObjectKey{Namespace: obj.GetNamespace(), Name: ref.Name}, vm); err != nil {
			return nil
		}
		if owner := metav1.GetControllerOf(vm); owner != nil {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: owner.Name}}}
		}
	}
	return nil
}

func (r *poolReconciler) ofCluster(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.list(ctx, obj.GetNamespace(), obj.GetName())
}

func (r *poolReconciler) ofOwned(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.list(ctx, obj.GetNamespace(), ownerClusterName(obj))
}

func (r *poolReconciler) ofMachine(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.list(ctx, obj.GetNamespace(), obj.(*clusterv1.Machine).Spec.ClusterName)
}

func (r *poolReconciler) ofConsumer(_ context.Context, obj client.Object) []reconcile.Request {
	if ref := obj.(*infrav1.VSphereMachine).Spec.MachineConfigPoolRef; ref != nil {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: ref.Name}}}
	}
	return nil
}

func (r *poolReconciler) list(ctx context.Context, namespace, cluster string) []reconcile.Request {
	list := &infrav1.VSphereMachineConfigPoolList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.ClusterRef.Name == cluster {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// ofPart wakes the VSphereCluster that is being deleted when one of its parts is gone.
func (r *clusterReconciler) ofPart(ctx context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[clusterv1.ClusterNameLabel]
	return r.where(ctx, obj.GetNamespace(), func(c *infrav1.VSphereCluster) bool {
		return !c.DeletionTimestamp.IsZero() && (name == "" || c.Labels[clusterv1.ClusterNameLabel] == name || ownerClusterName(c) == name)
	})
}

func (r *clusterReconciler) ofZone(ctx context.Context, obj client.Object) []reconcile.Request {
	server := obj.(*infrav1.VSphereDeploymentZone).Spec.Server
	return r.where(ctx, "", func(c *infrav1.VSphereCluster) bool {
		return c.Spec.FailureDomainSelector != nil && c.Spec.Server == server
	})
}

func (r *clusterReconciler) ofIdentity(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.where(ctx, "", func(c *infrav1.VSphereCluster) bool {
		return names(c, infrav1.VSphereClusterIdentityKind, obj.GetName())
	})
}

func (r *clusterReconciler) ofSecret(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.where(ctx, obj.GetNamespace(), func(c *infrav1.VSphereCluster) bool { return names(c, infrav1.SecretKind, obj.GetName()) })
}

func names(c *infrav1.VSphereCluster, kind infrav1.IdentityKind, name string) bool {
	return c.Spec.IdentityRef != nil && c.Spec.IdentityRef.Kind == kind && c.Spec.IdentityRef.Name == name
}

func (r *clusterReconciler) where(ctx context.Context, namespace string, matches func(*infrav1.VSphereCluster) bool) []reconcile.Request {
	list := &infrav1.VSphereClusterList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
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

func (r *identityReconciler) ofSecret(ctx context.Context, obj client.Object) []reconcile.Request {
	if obj.GetNamespace() != r.namespace {
		return nil
	}
	list := &infrav1.VSphereClusterIdentityList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.SecretName == obj.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}

// Which changes matter.

// notOwnStatus drops updates that changed nothing but status, which is our own writing. The resync passes.
func notOwnStatus() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld, e.ObjectNew
		return a.GetResourceVersion() == b.GetResourceVersion() ||
			a.GetGeneration() != b.GetGeneration() ||
			a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero() ||
			!sameMetadata(a, b)
	}}
}

func sameMetadata(a, b client.Object) bool {
	// Finalizers are put on by ourselves; that one was taken off may be somebody else's doing.
	if len(a.GetOwnerReferences()) != len(b.GetOwnerReferences()) || len(a.GetFinalizers()) > len(b.GetFinalizers()) {
		return false
	}
	_, pausedA := a.GetAnnotations()[clusterv1.PausedAnnotation]
	_, pausedB := b.GetAnnotations()[clusterv1.PausedAnnotation]
	la, lb := a.GetLabels(), b.GetLabels()
	return pausedA == pausedB && la[clusterv1.ClusterNameLabel] == lb[clusterv1.ClusterNameLabel] && la[clusterv1.WatchLabel] == lb[clusterv1.WatchLabel]
}

func machineMatters() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			return ptr.Deref(a.Spec.Bootstrap.DataSecretName, "") != ptr.Deref(b.Spec.Bootstrap.DataSecretName, "") ||
				a.Spec.FailureDomain != b.Spec.FailureDomain || kubelet(a) != kubelet(b)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// claimMatters passes what the provider of addresses says, and the end of a claim.
func claimMatters() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := e.ObjectOld.(*ipamv1.IPAddressClaim), e.ObjectNew.(*ipamv1.IPAddressClaim)
			return a.Status.AddressRef != b.Status.AddressRef || whyNot(a) != whyNot(b)
		},
	}
}

func clusterMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
		return ptr.Deref(a.Spec.Paused, false) != ptr.Deref(b.Spec.Paused, false) ||
			ptr.Deref(a.Status.Initialization.InfrastructureProvisioned, false) != ptr.Deref(b.Status.Initialization.InfrastructureProvisioned, false) ||
			ptr.Deref(a.Status.Initialization.ControlPlaneInitialized, false) != ptr.Deref(b.Status.Initialization.ControlPlaneInitialized, false) ||
			a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
			a.Annotations[infrav1.RetainDisksAnnotation] != b.Annotations[infrav1.RetainDisksAnnotation]
	}}
}

// recordsLost passes an update after which a pool's status knows less than before: not our doing, and to be rebuilt.
func recordsLost() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*infrav1.VSphereMachineConfigPool), e.ObjectNew.(*infrav1.VSphereMachineConfigPool)
		return len(b.Status.ConfigStatuses) < len(a.Status.ConfigStatuses) ||
			len(b.Status.PersistentDiskStatuses) < len(a.Status.PersistentDiskStatuses)
	}}
}

// vcenterMatters passes only the moment at which vCenter becomes usable or the cluster provisioned.
func vcenterMatters() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := e.ObjectOld.(*infrav1.VSphereCluster), e.ObjectNew.(*infrav1.VSphereCluster)
			return !conditions.IsTrue(a, infrav1.VCenterAvailableCondition) && conditions.IsTrue(b, infrav1.VCenterAvailableCondition) ||
				!a.Status.Ready && b.Status.Ready
		},
	}
}

func deleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
	}
}

// written passes what was created or changed, not what is gone and not a resync.
func written() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// settled maps events like handler.EnqueueRequestsFromMapFunc, and lets them gather for a moment.
func settled(mapper handler.MapFunc) handler.EventHandler {
	type line = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, obj client.Object, q line) {
		for _, req := range mapper(ctx, obj) {
			q.AddAfter(req, settle)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q line) { add(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q line) { add(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q line) { add(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q line) { add(ctx, e.Object, q) },
	}
}
