package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// failureDomains lists the zones that the cluster selects, sorted by name; waiting names those that have not reported yet.
func (r *clusterReconciler) failureDomains(ctx context.Context, infra *infrav1.VSphereCluster, cluster *clusterv1.Cluster) (domains []clusterv1.FailureDomain, waiting string, err error) {
	if infra.Spec.FailureDomainSelector == nil {
		return nil, "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(infra.Spec.FailureDomainSelector)
	if err != nil {
		return nil, "", fmt.Errorf("spec.failureDomainSelector: %w", err)
	}
	zones := &infrav1.VSphereDeploymentZoneList{}
	if err := r.client.List(ctx, zones, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, "", fmt.Errorf("listing VSphereDeploymentZones: %w", err)
	}
	slices.SortFunc(zones.Items, func(a, b infrav1.VSphereDeploymentZone) int { return cmp.Compare(a.Name, b.Name) })
	var unknown, skipped []string
	for _, zone := range zones.Items {
		switch {
		case zone.Spec.Server != infra.Spec.Server:
		case !zone.DeletionTimestamp.IsZero():
			skipped = append(skipped, zone.Name)
		case zone.Status.Ready == nil:
			unknown = append(unknown, zone.Name)
		case !*zone.Status.Ready:
			skipped = append(skipped, zone.Name)
		default:
			domains = append(domains, clusterv1.FailureDomain{Name: zone.Name, ControlPlane: ptr.To(ptr.Deref(zone.Spec.ControlPlane, true))})
		}
	}
	switch {
	case len(unknown) > 0:
		waiting = "waiting for the status of VSphereDeploymentZones " + strings.Join(unknown, ", ")
		setCondition(infra, infrav1.FailureDomainsAvailableCondition, metav1.ConditionFalse, infrav1.WaitingForFailureDomainStatusReason, waiting)
		return nil, waiting, nil
	case len(skipped) > 0:
		setCondition(infra, infrav1.FailureDomainsAvailableCondition, metav1.ConditionFalse, infrav1.FailureDomainsSkippedReason,
			"left out because they are not ready: VSphereDeploymentZones "+strings.Join(skipped, ", "))
	default:
		setCondition(infra, infrav1.FailureDomainsAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
	domains, err = r.withSlots(ctx, infra, cluster, domains)
	return domains, "", err
}

// withSlots leaves out zones for control planes in whose datacenter the control plane's own pool has no slot left: the control
// plane would choose such a zone, and its machine could never leave it. Zones for workers only stay: a MachineDeployment names
// its zone itself. With none left at all, all are reported and the condition says so.
func (r *clusterReconciler) withSlots(ctx context.Context, infra *infrav1.VSphereCluster, cluster *clusterv1.Cluster, all []clusterv1.FailureDomain) ([]clusterv1.FailureDomain, error) {
	pool, err := r.controlPlanePool(ctx, infra.Namespace, cluster)
	if err != nil || pool == nil {
		return all, err
	}
	free := freeLocations(pool)
	var out []clusterv1.FailureDomain
	usable := false
	for _, domain := range all {
		if !ptr.Deref(domain.ControlPlane, false) {
			out = append(out, domain)
			continue
		}
		datacenter, err := r.datacenter(ctx, domain.Name)
		if err != nil {
			return nil, err
		}
		if free[datacenter] || free[""] {
			out, usable = append(out, domain), true
		}
	}
	if usable || len(out) == len(all) {
		return out, nil
	}
	setCondition(infra, infrav1.FailureDomainsAvailableCondition, metav1.ConditionFalse, infrav1.FailureDomainsExhaustedReason, fmt.Sprintf(
		"pool %s of the control plane has no free slot in any selected zone; all zones are listed: add slots before scaling out", pool.Name))
	return all, nil
}

// freeLocations are the datacenters in which a pool has a slot for the next machine; "" is a slot that goes anywhere. A slot that
// is being vacated counts: it is free when the Machine that leaves it is gone, and not before is a successor made.
func freeLocations(p *infrav1.VSphereMachineConfigPool) map[string]bool {
	taken := map[string]bool{}
	for _, c := range p.Status.ConfigStatuses {
		taken[c.Hostname] = c.State == infrav1.ConfigStateInUse && c.VacatedTime == nil || c.Quarantine != ""
	}
	free := map[string]bool{}
	for _, config := range p.Spec.Configs {
		if s := slotOf(config, p.Spec.Datacenter); !taken[s.HostName] {
			free[s.Location] = true
		}
	}
	return free
}

// controlPlanes are read as they are stored: of a KubeadmControlPlane only the reference to its template matters.
var controlPlanes = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: rules.KindKubeadmControlPlane}

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get;list;watch

// controlPlanePool is the pool that the control plane's machines take their places from, nil if it has none.
func (r *clusterReconciler) controlPlanePool(ctx context.Context, namespace string, cluster *clusterv1.Cluster) (*infrav1.VSphereMachineConfigPool, error) {
	name, err := r.controlPlanePoolName(ctx, namespace, cluster)
	if err != nil || name == "" {
		return nil, err
	}
	pool := &infrav1.VSphereMachineConfigPool{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pool, nil
}

func (r *clusterReconciler) controlPlanePoolName(ctx context.Context, namespace string, cluster *clusterv1.Cluster) (string, error) {
	// Bound pools say whom they serve; that costs no call.
	pools := &infrav1.VSphereMachineConfigPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing pools: %w", err)
	}
	ours := false
	for i := range pools.Items {
		p := &pools.Items[i]
		if p.Spec.ClusterRef.Name != cluster.Name {
			continue
		}
		ours = true
		if c := p.Status.ConsumerRef; c != nil && c.Kind == rules.KindKubeadmControlPlane {
			return p.Name, nil
		}
	}
	if !ours {
		return "", nil
	}
	controlPlane, err := r.controlPlane(ctx, namespace, cluster)
	if err != nil || controlPlane == nil {
		return "", err // when it comes, its first machine binds the pool
	}
	consumer, err := rules.ConsumerOf(controlPlane)
	if err != nil || consumer.TemplateName == "" {
		return "", nil //nolint:nilerr // not ours to judge
	}
	template := &infrav1.VSphereMachineTemplate{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: consumer.TemplateName}, template); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if ref := template.Spec.Template.Spec.MachineConfigPoolRef; ref != nil {
		return ref.Name, nil
	}
	return "", nil
}

// unknownKind: the object, or its kind, is not there.
func unknownKind(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

func (r *clusterReconciler) datacenter(ctx context.Context, zoneName string) (string, error) {
	zone, domain := &infrav1.VSphereDeploymentZone{}, &infrav1.VSphereFailureDomain{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: zoneName}, zone); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, domain); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return domain.Spec.Topology.Datacenter, nil
}

// ofPool wakes the VSphereCluster with failure domains whose pool has slots in other datacenters than before.
func (r *clusterReconciler) ofPool(ctx context.Context, obj client.Object) []reconcile.Request {
	name := obj.(*infrav1.VSphereMachineConfigPool).Spec.ClusterRef.Name
	return r.where(ctx, obj.GetNamespace(), func(c *infrav1.VSphereCluster) bool {
		return c.Spec.FailureDomainSelector != nil && (ownerClusterName(c) == name || c.Labels[clusterv1.ClusterNameLabel] == name)
	})
}

// slotsMoved passes a pool whose free slots are in other datacenters than before.
func slotsMoved() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := e.ObjectOld.(*infrav1.VSphereMachineConfigPool), e.ObjectNew.(*infrav1.VSphereMachineConfigPool)
			before, after := freeLocations(a), freeLocations(b)
			if len(before) != len(after) || (a.Status.ConsumerRef == nil) != (b.Status.ConsumerRef == nil) {
				return true
			}
			for location := range before {
				if !after[location] {
					return true
				}
			}
			return false
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
