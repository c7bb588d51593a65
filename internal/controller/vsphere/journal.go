package vsphere

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/slot"
)

// journal is machine.Journal over a VSphereVM: its existence is the recorded intent to have a virtual machine, its status the
// notes. Only the owner of a machine's pass writes it, and every write carries the version it was made from.
type journal struct {
	client client.Client
	latest *latest
	// machine, owner and in are what a VSphereVM is made of. All may be nil for an orphan, whose VSphereVM exists.
	machine *infrav1.VSphereMachine
	owner   *clusterv1.Machine
	in      *placement
	// enrol adds to the shape what the virtual machine is to be a member of; nil adds nothing.
	enrol func(*vsphere.Shape)
	// module is the cluster module that it joins; left says that it was taken out of it.
	module string
	left   bool
	// vm as last read or written, nil before the intent.
	vm *infrav1.VSphereVM
	// claims are the address claims as this pass has found them, nil if there are none.
	claims *claims
}

var _ machine.Journal = (*journal)(nil)

// Intend implements machine.Journal.
func (j *journal) Intend(ctx context.Context, place *slot.Slot) (machine.ServerSpec, error) {
	if j.vm != nil {
		return j.spec(ctx)
	}
	vm, err := buildVM(j.machine, j.owner, place, j.in)
	if err != nil {
		return machine.ServerSpec{}, err
	}
	setBlockMove(vm, true)
	err = j.client.Create(ctx, vm)
	if apierrors.IsAlreadyExists(err) {
		existing := &infrav1.VSphereVM{}
		if err := j.latest.live.Get(ctx, client.ObjectKeyFromObject(vm), existing); err != nil {
			return machine.ServerSpec{}, fmt.Errorf("reading VSphereVM %s/%s: %w", vm.Namespace, vm.Name, err)
		}
		if existing.Annotations[infrav1.MarkAnnotation] != j.machine.Annotations[infrav1.MarkAnnotation] {
			return machine.ServerSpec{}, &machine.Error{
				Kind: machine.Conflict, Reason: infrav1.NameConflictReason,
				Message: fmt.Sprintf("VSphereVM %s/%s exists and belongs to another machine (mark %q): wait for it to go, or change spec.namingStrategy so that names differ",
					existing.Namespace, existing.Name, existing.Annotations[infrav1.MarkAnnotation]),
			}
		}
		vm, err = existing, nil
	}
	if err != nil {
		return machine.ServerSpec{}, fmt.Errorf("creating VSphereVM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	j.written(vm)
	return j.spec(ctx)
}

// spec is the specification on record, with the addresses that were claimed for it. As long as addresses are missing it comes with
// an error, but not after the first start: the guest has its addresses then, whatever becomes of the claims.
func (j *journal) spec(ctx context.Context) (machine.ServerSpec, error) {
	if !claimsAddresses(j.vm) {
		return j.enrolled(nil), nil
	}
	found, err := claimAddresses(ctx, j.client, j.latest.live, j.vm)
	if err != nil {
		return machine.ServerSpec{}, err
	}
	j.claims = found
	if found.reason != "" && !conditions.IsTrue(j.vm, infrav1.InitialPowerOnCompletedCondition) {
		return j.enrolled(found.addresses), &machine.Error{
			Kind: machine.Busy, Reason: infrav1.WaitingForIPAllocationReason, Message: found.message, RetryAfter: claimAgain,
		}
	}
	return j.enrolled(found.addresses), nil
}

// enrolled is the specification with the groups that the virtual machine is to be a member of.
func (j *journal) enrolled(claimed map[int]claimedAddresses) machine.ServerSpec {
	spec := serverSpec(j.vm, claimed)
	if shape, ok := spec.Shape.(vsphere.Shape); ok && j.enrol != nil {
		j.enrol(&shape)
		spec.Shape = shape
	}
	return spec
}

// Save implements machine.Journal.
func (j *journal) Save(ctx context.Context, notes machine.Notes, report machine.Report) error {
	if j.vm == nil {
		// Nothing was intended: there is nothing to remember, and what people should read goes to the VSphereMachine.
		return nil
	}
	next := j.vm.DeepCopy()
	if next.Spec.BiosUUID == "" {
		next.Spec.BiosUUID = strings.ToLower(notes.Identity.HardwareID)
	}
	setBlockMove(next, cloneUnderWay(notes))
	if !equality.Semantic.DeepEqual(next.Spec, j.vm.Spec) || !maps.Equal(next.Annotations, j.vm.Annotations) {
		if err := j.client.Update(ctx, next); err != nil {
			return fmt.Errorf("recording the BIOS UUID in VSphereVM %s/%s: %w", next.Namespace, next.Name, err)
		}
		j.written(next)
		next = next.DeepCopy()
	}
	setNotes(&next.Status, notes)
	switch {
	case j.left:
		next.Status.ModuleUUID = nil
	case j.module != "" && !notes.PoweredOn:
		next.Status.ModuleUUID = &j.module // before it joins: whoever deletes it must know
	}
	setVMStatus(next, notes, report)
	j.claims.say(next)
	if equality.Semantic.DeepEqual(next.Status, j.vm.Status) {
		return nil
	}
	if err := j.client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("recording the state of VSphereVM %s/%s: %w", next.Namespace, next.Name, err)
	}
	j.written(next)
	return nil
}

// cloneUnderWay: vCenter may be making a virtual machine that nobody has seen. Whoever starts from a copy of our objects now
// could have it made twice (D16).
func cloneUnderWay(notes machine.Notes) bool { return !notes.Seen() && !notes.CreateEnded }

// setBlockMove holds up a clusterctl move while a clone is under way. It costs no write of its own: it comes with the creation
// of the VSphereVM and goes with its BIOS UUID.
func setBlockMove(vm *infrav1.VSphereVM, block bool) {
	if block {
		setAnnotation(vm, blockMoveAnnotation, "")
	} else {
		delete(vm.Annotations, blockMoveAnnotation)
	}
}

// blockMoveAnnotation is clusterctl's.
const blockMoveAnnotation = "clusterctl.cluster.x-k8s.io/block-move"

func (j *journal) written(vm *infrav1.VSphereVM) {
	j.latest.wrote(vm)
	j.vm = vm
}

// notesOf reads the notes back; nil has none.
func notesOf(vm *infrav1.VSphereVM, mark machine.Mark) machine.Notes {
	if vm == nil {
		return machine.Notes{Identity: machine.Identity{Mark: mark}}
	}
	return machine.Notes{
		Identity: machine.Identity{
			Mark: mark, ServerID: vm.Status.VMRef, HardwareID: vm.Spec.BiosUUID, Location: vm.Spec.Datacenter, Name: vm.Name,
		},
		Intended:     true,
		CreateEnded:  vm.Status.CloneEnded,
		Operation:    machine.Operation{Ref: vm.Status.TaskRef, Kind: vm.Status.TaskKind, Mark: mark},
		PowerOnAsked: timeOf(vm.Status.PowerOnRequestedTime),
		PoweredOn:    conditions.IsTrue(vm, infrav1.InitialPowerOnCompletedCondition),
		Ready:        vm.Status.Ready || conditions.IsTrue(vm, infrav1.VMProvisionedCondition),
		AbsentSince:  timeOf(vm.Status.AbsentSince),
		RetryAt:      timeOf(vm.Status.RetryAfter),
	}
}

func setNotes(status *infrav1.VSphereVMStatus, notes machine.Notes) {
	if status.VMRef == "" {
		status.VMRef = notes.Identity.ServerID
	}
	status.CloneEnded = notes.CreateEnded
	status.TaskRef, status.TaskKind = notes.Operation.Ref, ""
	if notes.Operation.Ref != "" {
		status.TaskKind = notes.Operation.Kind
	}
	status.PowerOnRequestedTime = stamp(notes.PowerOnAsked)
	status.AbsentSince = stamp(notes.AbsentSince)
	status.RetryAfter = stamp(notes.RetryAt)
}

// setVMStatus says to people what the notes and the pass's report mean.
func setVMStatus(vm *infrav1.VSphereVM, notes machine.Notes, report machine.Report) {
	setObserved(&vm.Status.Network, report.Server)
	if report.Server != nil {
		vm.Status.Host = report.Server.Host
	}
	if report.Server != nil || report.Ready {
		vm.Status.Addresses = report.Addresses
	}
	vm.Status.FailureReason, vm.Status.FailureMessage = failure(report)

	if notes.PoweredOn {
		setCondition(vm, infrav1.InitialPowerOnCompletedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		switch {
		case report.Off:
			setCondition(vm, infrav1.PoweredOnCondition, metav1.ConditionFalse, offReason(report), report.Message)
		case report.Server != nil && report.Server.Power == machine.PowerOn:
			setCondition(vm, infrav1.PoweredOnCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		}
	}
	setSoftStop(vm, notes, report)
	setPassedThrough(vm, report)
	setSteps(vm, report)
	vm.Status.Ready = report.Ready
	if notes.Ready && !report.Lost && vm.DeletionTimestamp.IsZero() {
		setCondition(vm, infrav1.VMProvisionedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	} else {
		setCondition(vm, infrav1.VMProvisionedCondition, metav1.ConditionFalse, publishedReason(report.Reason), report.Message)
	}
	if report.Ready {
		setCondition(vm, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	} else {
		setCondition(vm, infrav1.ReadyCondition, metav1.ConditionFalse, publishedReason(report.Reason), report.Message)
	}
}

// setSoftStop follows a shutdown that the guest was asked for: asked, gone off by itself, or stopped hard because it did not.
func setSoftStop(vm *infrav1.VSphereVM, notes machine.Notes, report machine.Report) {
	mode := vm.Spec.PowerOffMode
	if mode != infrav1.VirtualMachinePowerOpModeSoft && mode != infrav1.VirtualMachinePowerOpModeTrySoft {
		return
	}
	var word string
	if c := conditions.Get(vm, infrav1.GuestSoftPowerOffSucceededCondition); c != nil {
		word = c.Reason
	}
	switch {
	case report.Reason == machine.ReasonPoweringOff && notes.Operation.Ref != "" && word == infrav1.GuestSoftPowerOffInProgressReason:
		setCondition(vm, infrav1.GuestSoftPowerOffSucceededCondition, metav1.ConditionFalse, infrav1.GuestSoftPowerOffFailedReason,
			"the guest did not shut down in the time that spec.guestSoftPowerOffTimeout gives it and is powered off")
	case report.Reason == machine.ReasonPoweringOff && notes.Operation.Ref == "":
		setCondition(vm, infrav1.GuestSoftPowerOffSucceededCondition, metav1.ConditionFalse, infrav1.GuestSoftPowerOffInProgressReason, report.Message)
	case report.Server != nil && report.Server.Power == machine.PowerOff && word == infrav1.GuestSoftPowerOffInProgressReason:
		setCondition(vm, infrav1.GuestSoftPowerOffSucceededCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
}

// setPassedThrough says that devices of the host which the specification asks for are not on the virtual machine any more:
// somebody has taken them off, and they cannot be put back while it runs.
func setPassedThrough(vm *infrav1.VSphereVM, report machine.Report) {
	want := len(vm.Spec.PciDevices)
	if want == 0 || report.Server == nil {
		return
	}
	if have := report.Server.PassedThrough; have < want {
		setCondition(vm, infrav1.PCIDevicesDetachedCondition, metav1.ConditionFalse, infrav1.PCIDeviceNotFoundReason, fmt.Sprintf(
			"spec.pciDevices asks for %d devices and the virtual machine has %d: somebody has taken them off; replace the Machine", want, have))
		return
	}
	setCondition(vm, infrav1.PCIDevicesDetachedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
}

// setSteps says how single steps of the way went: each has a condition of its own as soon as it was met.
func setSteps(vm *infrav1.VSphereVM, report machine.Report) {
	switch word := publishedReason(report.Reason); word {
	case infrav1.VCenterUnreachableReason, infrav1.IdentityCredentialsUnavailableReason:
		setCondition(vm, infrav1.VCenterAvailableCondition, metav1.ConditionFalse, word, report.Message)
	case infrav1.BootstrapSecretGetFailedReason, infrav1.BootstrapSecretContentInvalidReason:
		setCondition(vm, infrav1.BootstrapReadyCondition, metav1.ConditionFalse, word, report.Message)
	case infrav1.GuestSoftPowerOffFailedReason:
		setCondition(vm, infrav1.GuestSoftPowerOffSucceededCondition, metav1.ConditionFalse, word, report.Message)
	}
	if report.Server != nil {
		setCondition(vm, infrav1.VCenterAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		if report.Server.Fitted {
			setCondition(vm, infrav1.BootstrapReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
		}
	}
}

func offReason(report machine.Report) string {
	if report.Reason == machine.ReasonSuspended {
		return infrav1.SuspendedReason
	}
	return infrav1.PoweredOffReason
}

// failure is the deprecated pair of fields: set only for what no retry can cure.
func failure(report machine.Report) (reason, message *string) {
	if !report.Lost {
		return nil, nil
	}
	word, text := publishedReason(report.Reason), report.Message
	return &word, &text
}

// setObserved takes over what the guest reports; without a look at the server the last observation stays.
func setObserved(into *[]infrav1.NetworkStatus, server *machine.Server) {
	if server == nil {
		return
	}
	var out []infrav1.NetworkStatus
	for _, nic := range server.NICs {
		out = append(out, infrav1.NetworkStatus{Connected: nic.Connected, IPAddrs: nic.Addresses, MACAddr: nic.MAC, NetworkName: nic.Network})
	}
	*into = out
}

func setCondition(obj conditions.Setter, kind string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(obj, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: cut(message, maxMessage)})
}

// maxMessage of a condition. The API takes 32 KiB; nobody reads that, and a pool has to fit into one object with it.
const maxMessage = 4096

// cut ends a text that is longer than so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-4], "") + " ..."
}
