package vsphere

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// softPowerOffTimeout is how long trySoft waits when nothing else is said.
const softPowerOffTimeout = 5 * time.Minute

// life is the pass in the engine's words. guarded says that a guard does not hold, after when to look again without an event.
func (r *machineReconciler) life(ctx context.Context, s *scope) (life *machine.Life, guarded bool, after time.Duration, err error) {
	life = &machine.Life{
		Mark:     s.mark(),
		Name:     client.ObjectKeyFromObject(s.machine).String(),
		Notes:    notesOf(s.vm, s.mark()),
		Request:  slot.Request{Holder: s.holder(), Cluster: s.clusterName()},
		PowerOff: powerOff(s),
		UserData: func(ctx context.Context) ([]byte, string, error) { return r.bootstrapData(ctx, s) },
	}
	if s.vm != nil && s.machine.Spec.ProviderID != nil {
		// It was complete once. That outlives a loss of status, as in a clusterctl move.
		life.Notes.PoweredOn, life.Notes.Ready = true, true
	}
	if s.machine.DeletionTimestamp != nil {
		life.DeletedAt = s.machine.DeletionTimestamp.Time
	}
	guards := []machine.Guard{{
		Holds:  s.cluster != nil && s.infra != nil && ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false),
		Reason: infrav1.WaitingForClusterInfrastructureReason, Message: infrastructureMessage(s),
	}, {
		Holds:   s.owner != nil && s.owner.Spec.Bootstrap.DataSecretName != nil,
		Reason:  infrav1.WaitingForBootstrapDataReason,
		Message: "the Machine has no spec.bootstrap.dataSecretName yet; the bootstrap provider sets it",
	}}
	if ref := s.machine.Spec.MachineConfigPoolRef; ref != nil && ref.Namespace != "" && ref.Namespace != s.machine.Namespace {
		guards = append(guards, machine.Guard{
			Reason: infrav1.PoolNotFoundReason,
			Message: fmt.Sprintf("spec.machineConfigPoolRef names namespace %q: a pool must be in the machine's namespace %q",
				ref.Namespace, s.machine.Namespace),
		})
	}
	if guard := refused(s); guard != nil {
		guards = append(guards, *guard)
	}
	if holds(guards) {
		guard, pause, err := r.surroundings(ctx, s, life)
		if err != nil {
			return nil, false, 0, err
		}
		if guard != nil {
			guards, after = append(guards, *guard), pause
		}
	}
	life.Guards = guards
	life.Journal = &journal{client: r.client, latest: r.latest, machine: s.machine, owner: s.owner, in: s.place, vm: s.vm, enrol: s.enrol, module: s.module}
	return life, !holds(guards), after, nil
}

// zoneAgain is when a machine whose zone or failure domain is missing looks again: no event of those leads to machines.
const zoneAgain = 10 * time.Second

// surroundings fills in the failure domain, the place's pool and the platform; a guard says what is missing.
func (r *machineReconciler) surroundings(ctx context.Context, s *scope, life *machine.Life) (*machine.Guard, time.Duration, error) {
	if guard, err := r.placement(ctx, s); guard != nil || err != nil {
		return guard, zoneAgain, err
	}
	if err := r.findModule(ctx, s); err != nil {
		return nil, 0, err
	}
	if key, pooled := s.poolKey(); pooled {
		consumer, err := r.consumer(ctx, s)
		if err != nil {
			return nil, 0, err
		}
		life.Places = r.pools.writer(key)
		life.Request.Consumer = consumer
		life.Request.Location = s.machine.Spec.Datacenter
		if s.vm != nil && s.vm.Spec.Slot != nil {
			life.Request.HostName = s.vm.Spec.Slot.Hostname
		}
		if s.place != nil {
			life.Request.Zone, life.Request.ZoneLocations = s.place.zone.Name, []string{s.place.datacenter}
		}
	}
	life.BeforePowerOn = func(ctx context.Context, server *machine.Server) machine.Result {
		name := server.Name
		if s := life.Journal.(*journal).vm; s != nil && s.Spec.Slot != nil {
			name = s.Spec.Slot.Hostname
		}
		return r.nodes.beforePowerOn(ctx, s.cluster, name, server, util.IsControlPlaneMachine(s.owner))
	}
	return r.platform(ctx, s, life)
}

// platform opens the machine's session.
func (r *machineReconciler) platform(ctx context.Context, s *scope, life *machine.Life) (*machine.Guard, time.Duration, error) {
	if s.infra == nil {
		return &machine.Guard{
			Reason:  infrav1.VCenterUnreachableReason,
			Message: fmt.Sprintf("the VSphereCluster of cluster %q is gone, and with it the way to vCenter: restore it, or remove the virtual machine by hand and then the finalizer", s.clusterName()),
		}, time.Minute, nil
	}
	server, thumbprint := s.machine.Spec.Server, s.machine.Spec.Thumbprint
	of := fmt.Sprintf("VSphereMachine %s", client.ObjectKeyFromObject(s.machine))
	switch {
	case s.vm != nil:
		if s.vm.Spec.Server != server {
			of = fmt.Sprintf("VSphereVM %s", client.ObjectKeyFromObject(s.vm))
		}
		server, thumbprint = s.vm.Spec.Server, s.vm.Spec.Thumbprint
	case s.place != nil && s.place.zone.Spec.Server != "":
		server, of = s.place.zone.Spec.Server, "VSphereDeploymentZone "+s.place.zone.Name
	}
	session, err := r.access.session(ctx, s.infra, server, thumbprint, of)
	if err != nil {
		guard, after := guardOf(err)
		return guard, after, nil
	}
	life.Platform = session
	return nil, 0, nil
}

// guardOf turns a session's error into what people read and when to try again. The session itself spaces the tries at one
// vCenter; a machine only asks whether it has come back.
func guardOf(err error) (*machine.Guard, time.Duration) {
	guard, after := &machine.Guard{Reason: infrav1.VCenterUnreachableReason, Message: err.Error()}, 30*time.Second
	var e *machine.Error
	if errors.As(err, &e) {
		if e.Reason != "" {
			guard.Reason = e.Reason
		}
		if e.RetryAfter > 0 {
			after = e.RetryAfter
		}
	}
	return guard, after
}

// placement resolves the Machine's failure domain.
func (r *machineReconciler) placement(ctx context.Context, s *scope) (*machine.Guard, error) {
	if s.owner == nil || s.owner.Spec.FailureDomain == "" {
		return elsewhere(s), nil
	}
	missing := func(kind, name, by string) *machine.Guard {
		return &machine.Guard{
			Reason:  infrav1.WaitingForClusterInfrastructureReason,
			Message: fmt.Sprintf("%s %q, named by %s, does not exist: create it, or give the machine another failure domain", kind, name, by),
		}
	}
	zone := infrav1.VSphereDeploymentZone{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: s.owner.Spec.FailureDomain}, &zone); apierrors.IsNotFound(err) {
		return missing("VSphereDeploymentZone", s.owner.Spec.FailureDomain, "Machine.spec.failureDomain"), nil
	} else if err != nil {
		return nil, fmt.Errorf("reading VSphereDeploymentZone %s: %w", s.owner.Spec.FailureDomain, err)
	}
	domain := infrav1.VSphereFailureDomain{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, &domain); apierrors.IsNotFound(err) {
		return missing("VSphereFailureDomain", zone.Spec.FailureDomain, "VSphereDeploymentZone "+zone.Name), nil
	} else if err != nil {
		return nil, fmt.Errorf("reading VSphereFailureDomain %s: %w", zone.Spec.FailureDomain, err)
	}
	s.place = newPlacement(zone, domain)
	return elsewhere(s), nil
}

// consumer is the control plane or MachineDeployment that a machine belongs to, nil if it belongs to neither (VS-A1).
func (r *machineReconciler) consumer(ctx context.Context, s *scope) (*slot.Consumer, error) {
	owner := metav1.GetControllerOf(s.owner)
	if owner == nil {
		return nil, nil
	}
	if util.IsControlPlaneMachine(s.owner) {
		return consumerFrom(owner, s.owner.Namespace), nil
	}
	if owner.Kind != "MachineSet" {
		return nil, nil
	}
	set := machineSetMetadata()
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: s.owner.Namespace, Name: owner.Name}, set); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading MachineSet %s: %w", owner.Name, err)
	}
	deployment := metav1.GetControllerOf(set)
	if deployment == nil || deployment.Kind != "MachineDeployment" {
		return nil, nil
	}
	return consumerFrom(deployment, s.owner.Namespace), nil
}

func machineSetMetadata() *metav1.PartialObjectMetadata {
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineSet"))
	return set
}

func consumerFrom(ref *metav1.OwnerReference, namespace string) *slot.Consumer {
	c := &slot.Consumer{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil {
		c.Group = gv.Group
	}
	return c
}

// bootstrapData reads the user data, live: it is needed once.
func (r *machineReconciler) bootstrapData(ctx context.Context, s *scope) ([]byte, string, error) {
	if s.owner == nil || s.owner.Spec.Bootstrap.DataSecretName == nil {
		return nil, "", errors.New("the Machine names no bootstrap Secret")
	}
	key := client.ObjectKey{Namespace: s.owner.Namespace, Name: *s.owner.Spec.Bootstrap.DataSecretName}
	secret := &corev1.Secret{}
	if err := r.reader.Get(ctx, key, secret); err != nil {
		return nil, "", &machine.Error{
			Kind: machine.Broken, Reason: infrav1.BootstrapSecretGetFailedReason, Err: err,
			Message: fmt.Sprintf("the bootstrap Secret %s cannot be read", key),
		}
	}
	data, format := secret.Data["value"], string(secret.Data["format"])
	if len(data) == 0 {
		return nil, "", &machine.Error{
			Kind: machine.Refused, Reason: infrav1.BootstrapSecretContentInvalidReason,
			Message: fmt.Sprintf("the bootstrap Secret %s has no data under the key \"value\"", key),
		}
	}
	if format == "" {
		format = "cloud-config"
	}
	return data, format, nil
}

// powerOff is how the machine wants to be stopped; the VSphereVM's word was decided at its creation.
func powerOff(s *scope) machine.PowerOffMode {
	mode, timeout := s.machine.Spec.PowerOffMode, s.machine.Spec.GuestSoftPowerOffTimeout
	if s.vm != nil {
		mode, timeout = s.vm.Spec.PowerOffMode, s.vm.Spec.GuestSoftPowerOffTimeout
	}
	return powerOffMode(mode, timeout)
}

func powerOffMode(mode infrav1.VirtualMachinePowerOpMode, timeout *metav1.Duration) machine.PowerOffMode {
	switch mode {
	case infrav1.VirtualMachinePowerOpModeSoft:
		return machine.PowerOffMode{Soft: true}
	case infrav1.VirtualMachinePowerOpModeTrySoft:
		if timeout != nil && timeout.Duration > 0 {
			return machine.PowerOffMode{Soft: true, HardAfter: timeout.Duration}
		}
		return machine.PowerOffMode{Soft: true, HardAfter: softPowerOffTimeout}
	default:
		return machine.PowerOffMode{}
	}
}

func infrastructureMessage(s *scope) string {
	switch {
	case s.cluster == nil:
		return fmt.Sprintf("Cluster %q does not exist", s.clusterName())
	case s.infra == nil:
		return fmt.Sprintf("Cluster %s has no VSphereCluster", s.cluster.Name)
	default:
		return fmt.Sprintf("VSphereCluster %s is not provisioned: see its conditions", s.infra.Name)
	}
}

func holds(guards []machine.Guard) bool {
	for _, g := range guards {
		if !g.Holds {
			return false
		}
	}
	return true
}

func providerID(biosUUID string) string { return "vsphere://" + strings.ToLower(biosUUID) }
