package vsphere

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// placed completes the report of a pass that ended before the machine asked for its place again, while a task of an earlier pass
// runs: the VSphereVM has the place on record.
func placed(report machine.Report, vm *infrav1.VSphereVM) machine.Report {
	if report.Place == nil && report.Phase != machine.PhaseClaim && vm != nil && vm.Spec.Slot != nil {
		place := slotOf(*vm.Spec.Slot, "")
		report.Place = &place
	}
	return report
}

// setMachineStatus says on the VSphereMachine where its life is. guarded: the pass ended before the pool was asked.
func setMachineStatus(s *scope, report machine.Report, guarded bool) {
	m := s.machine
	deleting := !m.DeletionTimestamp.IsZero()
	reason, message := publishedReason(report.Reason), report.Message

	if _, pooled := s.poolKey(); pooled && !deleting {
		switch {
		case report.Place != nil:
			setCondition(m, infrav1.MachineConfigPoolReadyCondition, metav1.ConditionTrue, infrav1.SlotAllocatedReason, "slot "+report.Place.HostName)
		case !guarded && !report.Ready:
			setCondition(m, infrav1.MachineConfigPoolReadyCondition, metav1.ConditionFalse, reason, message)
		}
	}
	provisioned := report.Ready || notesOf(s.vm, s.mark()).Ready && !report.Lost && !deleting
	switch {
	case provisioned:
		setCondition(m, infrav1.VMProvisionedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	case conditions.IsFalse(m, infrav1.MachineConfigPoolReadyCondition) && !guarded && !deleting:
		setCondition(m, infrav1.VMProvisionedCondition, metav1.ConditionFalse, infrav1.WaitingForSlotReason,
			"see the condition "+infrav1.MachineConfigPoolReadyCondition)
	default:
		setCondition(m, infrav1.VMProvisionedCondition, metav1.ConditionFalse, reason, message)
	}
	if report.Ready {
		setCondition(m, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	} else {
		// Cluster API shows this message on the Machine: it is the one that tells what is really waited for.
		setCondition(m, infrav1.ReadyCondition, metav1.ConditionFalse, reason, message)
	}

	m.Status.Ready = report.Ready
	if report.Ready {
		m.Status.Initialization.Provisioned = ptr.To(true)
	}
	m.Status.FailureReason, m.Status.FailureMessage = failure(report)
	setObserved(&m.Status.Network, report.Server)
	switch {
	case report.Ready:
		m.Status.Addresses = machineAddresses(s.vm, report)
	case report.Place != nil && len(m.Status.Addresses) == 0 && !deleting:
		// The name is known from the claim on, the addresses when the guest has reported them. Cluster API reads both when the
		// machine is provisioned; people look for the slot before.
		m.Status.Addresses = placeNames(report.Place.HostName)
	}
	if s.place != nil {
		m.Status.FailureDomain = s.place.zone.Name
	}
}

// worthAWarning are waits that somebody should hear of: they end by a person's act, or by somebody else's machine going.
var worthAWarning = []string{
	infrav1.VCenterUnreachableReason, infrav1.IdentityCredentialsUnavailableReason,
	infrav1.NoAvailableSlotsReason, infrav1.PoolBoundToOtherConsumerReason,
}

// warn publishes what a machine waits for when the text differs from what the stored status says, so not at every try. What the
// engine has told in this pass is not told twice.
func (r *machineReconciler) warn(s *scope, report machine.Report) {
	reason, message := publishedReason(report.Reason), report.Message
	if report.Outcome == machine.Done || !slices.Contains(worthAWarning, reason) ||
		conditions.GetReason(s.stored, infrav1.ReadyCondition) == reason && conditions.GetMessage(s.stored, infrav1.ReadyCondition) == message {
		return
	}
	event := machine.Event{Warning: true, Reason: reason, Message: message}
	if !slices.Contains(report.Events, event) {
		r.publish(s.machine, []machine.Event{event})
	}
}

// machineAddresses are all addresses of the machine, and the names it goes by: the slot's host name, which is the Node's, and
// the virtual machine's (VS-V27).
func machineAddresses(vm *infrav1.VSphereVM, report machine.Report) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	add := func(kind clusterv1.MachineAddressType, address string) {
		out = append(out, clusterv1.MachineAddress{Type: kind, Address: address})
	}
	for _, address := range report.Addresses {
		add(clusterv1.MachineExternalIP, bare(address))
	}
	if report.Place != nil {
		out = append(out, placeNames(report.Place.HostName)...)
	}
	if vm != nil && (report.Place == nil || vm.Name != report.Place.HostName) {
		add(clusterv1.MachineInternalDNS, vm.Name)
	}
	return out
}

// placeNames are the names that a machine has from its place.
func placeNames(hostName string) []clusterv1.MachineAddress {
	return []clusterv1.MachineAddress{
		{Type: clusterv1.MachineHostName, Address: hostName},
		{Type: clusterv1.MachineInternalDNS, Address: hostName},
	}
}

// bare drops a prefix length.
func bare(address string) string {
	if prefix, err := netip.ParsePrefix(address); err == nil {
		return prefix.Addr().String()
	}
	return address
}

// patchStatus writes the status if this pass has changed it.
func (r *machineReconciler) patchStatus(ctx context.Context, s *scope) error {
	if equality.Semantic.DeepEqual(s.stored.Status, s.machine.Status) {
		return nil
	}
	status := s.machine.Status.DeepCopy()
	next := s.stored.DeepCopy()
	next.Status = *status
	if err := r.client.Status().Patch(ctx, next, client.MergeFrom(s.stored)); err != nil {
		return fmt.Errorf("writing the status of VSphereMachine %s: %w", client.ObjectKeyFromObject(next), err)
	}
	r.latest.wrote(next)
	s.stored, s.machine = next, next.DeepCopy()
	return nil
}

// setPaused sets the condition Paused and says whether the object is.
func setPaused(obj conditionedObject, cluster *clusterv1.Cluster) bool {
	var message string
	switch {
	case cluster != nil && ptr.Deref(cluster.Spec.Paused, false):
		message = "Cluster spec.paused is set to true"
	case annotations.HasPaused(obj):
		message = "the object has the annotation " + clusterv1.PausedAnnotation
	case hasAnnotation(obj, infrav1.DeleteForMoveAnnotation):
		// Whatever becomes of the Cluster meanwhile: this is no deletion of what the object stands for.
		message = "the object was moved to another management cluster"
	default:
		setCondition(obj, infrav1.PausedCondition, metav1.ConditionFalse, infrav1.NotPausedReason, "")
		return false
	}
	setCondition(obj, infrav1.PausedCondition, metav1.ConditionTrue, infrav1.PausedReason, message)
	return true
}

func hasAnnotation(obj client.Object, key string) bool {
	_, ok := obj.GetAnnotations()[key]
	return ok
}

// conditionedObject is an API object with conditions.
type conditionedObject interface {
	client.Object
	conditions.Setter
}

func setAnnotation(obj client.Object, key, value string) {
	a := obj.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[key] = value
	obj.SetAnnotations(a)
}

func publish(recorder events.EventRecorder, obj client.Object, list []machine.Event) {
	for _, e := range list {
		kind := "Normal"
		if e.Warning {
			kind = "Warning"
		}
		recorder.Eventf(obj, nil, kind, publishedEvent(e.Reason), action(e.Message), "%s", cut(e.Message, maxNote))
	}
}

// maxNote is what the events API takes.
const maxNote = 1024

// action is an event's action. The events API takes events of one object with the same reason and action for repetitions of
// the first and never shows what the others say; so sentences that differ have actions that differ.
func action(message string) string {
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(message))
	return fmt.Sprintf("Reconcile-%x", digest.Sum64())
}
