package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// failureDomains lists the zones that the cluster selects, sorted by name; waiting names those that have not reported yet.
func (r *clusterReconciler) failureDomains(ctx context.Context, infra *infrav1.VSphereCluster) (domains []clusterv1.FailureDomain, waiting string, err error) {
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
	return r.withSlots(ctx, infra, domains)
}

// withSlots leaves out zones whose datacenter has no slot left in any pool of the cluster (VS 4.5); with none left at all, all
// are reported and the condition says so.
func (r *clusterReconciler) withSlots(ctx context.Context, infra *infrav1.VSphereCluster, all []clusterv1.FailureDomain) ([]clusterv1.FailureDomain, string, error) {
	pools := &infrav1.VSphereMachineConfigPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(infra.Namespace)); err != nil {
		return nil, "", fmt.Errorf("listing pools: %w", err)
	}
	free, pooled := map[string]bool{}, false
	for i := range pools.Items {
		p := &pools.Items[i]
		if p.Spec.ClusterRef.Name != ownerClusterName(infra) {
			continue
		}
		pooled = true
		taken := map[string]bool{}
		for _, c := range p.Status.ConfigStatuses {
			taken[c.Hostname] = c.State == infrav1.ConfigStateInUse || c.Quarantine != ""
		}
		for _, config := range p.Spec.Configs {
			if s := slotOf(config, p.Spec.Datacenter); !taken[s.HostName] {
				free[s.Location] = true
			}
		}
	}
	if !pooled || len(all) == 0 {
		return all, "", nil
	}
	var out []clusterv1.FailureDomain
	for _, domain := range all {
		datacenter, err := r.datacenter(ctx, domain.Name)
		if err != nil {
			return nil, "", err
		}
		if free[datacenter] || free[""] {
			out = append(out, domain)
		}
	}
	if len(out) == 0 {
		setCondition(infra, infrav1.FailureDomainsAvailableCondition, metav1.ConditionFalse, infrav1.FailureDomainsExhaustedReason,
			"no pool of the cluster has a free slot in any selected zone: add slots before scaling out")
		return all, "", nil
	}
	return out, "", nil
}

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
