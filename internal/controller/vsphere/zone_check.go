package vsphere

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/rules"
)

// vCenter tells nobody that an administrator has made what was missing, or has taken away what was there.
const (
	missingAgain = 15 * time.Second
	presentAgain = 5 * time.Minute
)

// finding is what a look at one half of a zone came to. The zero value is: all there.
type finding struct {
	reason, message string
	// tolerable: the condition is false and the zone is usable all the same.
	tolerable bool
}

// check sets the conditions and status.ready, which is true only after everything was found. Both halves are looked at even when
// the first is wrong: whoever corrects a zone should see all of it at once.
func (r *zoneReconciler) check(ctx context.Context, zone *infrav1.VSphereDeploymentZone) (time.Duration, error) {
	session, err := r.session(ctx, zone)
	if err != nil {
		return unanswered(zone, err)
	}
	domain, err := r.domain(ctx, zone)
	if err != nil {
		return 0, err
	}
	if domain == nil {
		setCondition(zone, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		f := finding{reason: infrav1.FailureDomainZoneMisconfiguredReason, message: fmt.Sprintf(
			"VSphereFailureDomain %q, named by spec.failureDomain, does not exist: create it, or name another", zone.Spec.FailureDomain)}
		setFinding(zone, infrav1.FailureDomainValidatedCondition, f)
		setReady(zone, f)
		return 0, nil // its creation wakes us
	}
	if err := r.own(ctx, zone, domain); err != nil {
		return 0, err
	}
	constraint, err := placementFinding(ctx, session, zone, domain)
	if err != nil {
		return unanswered(zone, err)
	}
	validity, err := domainFinding(ctx, session, zone, domain)
	if err != nil {
		return unanswered(zone, err)
	}
	setCondition(zone, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	setFinding(zone, infrav1.PlacementConstraintMetCondition, constraint)
	setFinding(zone, infrav1.FailureDomainValidatedCondition, validity)
	setReady(zone, constraint, validity)
	if constraint.reason != "" || validity.reason != "" {
		return missingAgain, nil
	}
	return presentAgain, nil
}

// unanswered says that vCenter did not tell what a zone needs, and when to ask again. Clusters wait for the word of their zones.
func unanswered(zone *infrav1.VSphereDeploymentZone, err error) (time.Duration, error) {
	var e *machine.Error
	if !errors.As(err, &e) {
		return 0, err
	}
	zone.Status.Ready = ptr.To(false)
	setCondition(zone, infrav1.VCenterAvailableCondition, metav1.ConditionFalse, infrav1.VCenterUnreachableReason, e.Error())
	setCondition(zone, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.VCenterUnreachableReason, e.Error())
	_, after := guardOf(err)
	return after, nil
}

// placementFinding looks for folder and resource pool.
func placementFinding(ctx context.Context, session *vsphere.Session, zone *infrav1.VSphereDeploymentZone, domain *infrav1.VSphereFailureDomain) (finding, error) {
	return found(session.CheckConstraint(ctx, vsphere.Constraint{
		Datacenter: domain.Spec.Topology.Datacenter, Folder: zone.Spec.PlacementConstraint.Folder,
		ResourcePool: zone.Spec.PlacementConstraint.ResourcePool,
	}), "")
}

// domainFinding looks for what the failure domain describes. What no vCenter could satisfy is said without asking one.
func domainFinding(ctx context.Context, session *vsphere.Session, zone *infrav1.VSphereDeploymentZone, domain *infrav1.VSphereFailureDomain) (finding, error) {
	name := "VSphereFailureDomain " + domain.Name + ": "
	if v := rules.VSphereFailureDomain(nil, domain); v.Refused() {
		return finding{reason: infrav1.FailureDomainZoneMisconfiguredReason, message: name + v.Errors[0].Error()}, nil
	}
	warning, err := session.CheckFailureDomain(ctx, failureDomainOf(zone, domain))
	f, err := found(err, name)
	if err == nil && f.reason == "" && warning != "" {
		f = finding{reason: infrav1.HostsAffinityMisconfiguredReason, message: name + warning, tolerable: true}
	}
	return f, err
}

// failureDomainOf puts a zone's failure domain into the adapter's words.
func failureDomainOf(zone *infrav1.VSphereDeploymentZone, domain *infrav1.VSphereFailureDomain) vsphere.FailureDomain {
	topology := domain.Spec.Topology
	out := vsphere.FailureDomain{
		Region: tagOf("spec.region", domain.Spec.Region), Zone: tagOf("spec.zone", domain.Spec.Zone),
		Datacenter: topology.Datacenter, ComputeCluster: ptr.Deref(topology.ComputeCluster, ""), Datastore: topology.Datastore,
		Networks: newPlacement(*zone, *domain).networks, NetworksField: "spec.topology.networks[%d]",
		ResourcePool: zone.Spec.PlacementConstraint.ResourcePool,
	}
	if len(topology.Networks) == 0 {
		out.NetworksField = "spec.topology.networkConfigurations[%d].networkName"
	}
	if topology.Hosts != nil {
		out.HostGroup, out.VMGroup = topology.Hosts.HostGroupName, topology.Hosts.VMGroupName
	}
	return out
}

func tagOf(field string, d infrav1.FailureDomain) vsphere.Tag {
	return vsphere.Tag{
		Field: field, Name: d.Name, Category: d.TagCategory, On: vsphere.Carrier(d.Type), Configure: ptr.Deref(d.AutoConfigure, false),
	}
}

// found tells what is missing from what could not be asked.
func found(err error, prefix string) (finding, error) {
	var e *machine.Error
	switch {
	case err == nil:
		return finding{}, nil
	case errors.As(err, &e) && e.Kind == machine.Refused:
		return finding{reason: publishedReason(e.Reason), message: prefix + e.Error()}, nil
	default:
		return finding{}, err
	}
}

func setFinding(zone *infrav1.VSphereDeploymentZone, condition string, f finding) {
	if f.reason == "" {
		setCondition(zone, condition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		return
	}
	setCondition(zone, condition, metav1.ConditionFalse, f.reason, f.message)
}

// setReady summarises.
func setReady(zone *infrav1.VSphereDeploymentZone, findings ...finding) {
	status, reason, message := metav1.ConditionTrue, infrav1.SatisfiedReason, ""
	for _, f := range findings {
		switch {
		case f.reason == "":
		case !f.tolerable:
			zone.Status.Ready = ptr.To(false)
			setCondition(zone, infrav1.ReadyCondition, metav1.ConditionFalse, f.reason, f.message)
			return
		default:
			message = f.message
		}
	}
	zone.Status.Ready = ptr.To(true)
	setCondition(zone, infrav1.ReadyCondition, status, reason, message)
}
