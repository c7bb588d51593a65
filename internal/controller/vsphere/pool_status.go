package vsphere

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// setPoolConditions says what a pass over the pool has found.
func setPoolConditions(p *infrav1.VSphereMachineConfigPool, summary pool.Summary) {
	setDisksReady(p, summary)
	setSlotAvailable(p, summary)
	if len(summary.Quarantined) > 0 {
		setCondition(p, infrav1.SlotQuarantinedCondition, metav1.ConditionTrue, infrav1.ContradictionReason, fmt.Sprintf(
			"%s. Look at the virtual machines and disks of each slot, put right what is wrong, then list the host names in the annotation %s",
			lines(summary.Quarantined), infrav1.ReleaseQuarantinedAnnotation))
	} else {
		setCondition(p, infrav1.SlotQuarantinedCondition, metav1.ConditionFalse, infrav1.NoneQuarantinedReason, "")
	}
	if !p.DeletionTimestamp.IsZero() {
		setCondition(p, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, whatDeletionWaitsFor(summary))
		return
	}
	// A full pool is healthy: SlotAvailable takes no part.
	for _, kind := range []string{
		infrav1.ClusterRefReadyCondition, infrav1.VCenterAvailableCondition, infrav1.MembersValidCondition,
		infrav1.MembersUniqueCondition, infrav1.PersistentDisksReadyCondition,
	} {
		if c := conditions.Get(p, kind); c != nil && c.Status != metav1.ConditionTrue {
			setCondition(p, infrav1.ReadyCondition, metav1.ConditionFalse, c.Reason, c.Message)
			return
		}
	}
	if c := conditions.Get(p, infrav1.SlotQuarantinedCondition); c.Status == metav1.ConditionTrue {
		setCondition(p, infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.SlotQuarantinedCondition, c.Message)
		return
	}
	setCondition(p, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
}

// whatDeletionWaitsFor names everything that keeps a pool from going.
func whatDeletionWaitsFor(summary pool.Summary) string {
	var parts []string
	if len(summary.Held) > 0 {
		parts = append(parts, "waiting for the machines in slots "+strings.Join(slices.Sorted(slices.Values(summary.Held)), ", "))
	}
	for _, why := range []string{lines(summary.Vacating), lines(summary.Quarantined), lines(summary.DiskErrors)} {
		if why != "" {
			parts = append(parts, why)
		}
	}
	if parts = append(parts, summary.Troubles...); len(parts) == 0 {
		return "disks are being deleted"
	}
	if stuck(summary) {
		parts = append(parts, fmt.Sprintf("if that cannot be put right, the annotation %s: \"true\" lets the pool go and leaves its disks where they are",
			infrav1.RetainDisksAnnotation))
	}
	return strings.Join(parts, "; ")
}

// stuck: what is in the way of the disks' deletion does not end by itself.
func stuck(summary pool.Summary) bool {
	return len(summary.DiskErrors) > 0 || len(summary.Troubles) > 0
}

// warnAboutDeletion tells once, not at every retry, what keeps a pool from going. before is the pool as it was read.
func (r *poolReconciler) warnAboutDeletion(p, before *infrav1.VSphereMachineConfigPool, summary pool.Summary) {
	if p.DeletionTimestamp.IsZero() || !stuck(summary) {
		return
	}
	message := conditions.GetMessage(p, infrav1.ReadyCondition)
	if message != conditions.GetMessage(before, infrav1.ReadyCondition) {
		publish(r.recorder, p, []machine.Event{{Warning: true, Reason: machine.EventReclaimFailed, Message: message}})
	}
}

// diskReason is the most urgent of what is wrong with a pool's disks.
func diskReason(summary pool.Summary) string {
	reason := infrav1.DiskStillAttachedReason
	for name := range summary.DiskErrors {
		switch {
		case slices.Contains(summary.StillAttached, name):
		case summary.Interrupted[name] == disk.Reclaiming:
			reason = infrav1.ReclaimFailedReason
		default:
			return infrav1.DiskFailedReason
		}
	}
	return reason
}

// troubleReason: without vCenter nothing is known about the disks; with it something about them is wrong.
func troubleReason(p *infrav1.VSphereMachineConfigPool) string {
	if c := conditions.Get(p, infrav1.VCenterAvailableCondition); c != nil && c.Status != metav1.ConditionTrue {
		return c.Reason
	}
	if !p.DeletionTimestamp.IsZero() {
		return infrav1.ReclaimFailedReason
	}
	return infrav1.DiskFailedReason
}

func setDisksReady(p *infrav1.VSphereMachineConfigPool, summary pool.Summary) {
	switch {
	case len(summary.DiskErrors) > 0:
		setCondition(p, infrav1.PersistentDisksReadyCondition, metav1.ConditionFalse, diskReason(summary), lines(summary.DiskErrors))
	case len(summary.Troubles) > 0:
		setCondition(p, infrav1.PersistentDisksReadyCondition, metav1.ConditionFalse, troubleReason(p), strings.Join(summary.Troubles, "; "))
	case len(summary.Provisioning) > 0:
		setCondition(p, infrav1.PersistentDisksReadyCondition, metav1.ConditionFalse, infrav1.DisksProvisioningReason,
			fmt.Sprintf("%d disks are being created", len(summary.Provisioning)))
	default:
		setCondition(p, infrav1.PersistentDisksReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
}

func setSlotAvailable(p *infrav1.VSphereMachineConfigPool, summary pool.Summary) {
	total, free, reclaiming := len(summary.State.Slots), len(summary.State.Slots), 0
	for _, r := range summary.State.Records {
		switch r.State {
		case slot.Available, slot.Released:
		case slot.Reclaiming:
			reclaiming++
			free--
		default:
			free--
		}
	}
	says := maps.Clone(summary.Vacating)
	for _, hostName := range summary.KeptBack {
		if says == nil {
			says = map[string]string{}
		}
		says[hostName] = "no machine gets it and its disks are not deleted until its declaration is right (MembersValid)"
	}
	why := lines(says)
	switch {
	case free > 0:
		setCondition(p, infrav1.SlotAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, why)
	case len(summary.Vacating) > 0:
		setCondition(p, infrav1.SlotAvailableCondition, metav1.ConditionFalse, infrav1.WaitingForPredecessorReason, why)
	case reclaiming > 0:
		setCondition(p, infrav1.SlotAvailableCondition, metav1.ConditionFalse, infrav1.WaitingForReclaimReason,
			fmt.Sprintf("the disks of %d slots are being deleted", reclaiming))
	default:
		setCondition(p, infrav1.SlotAvailableCondition, metav1.ConditionFalse, infrav1.AllSlotsInUseReason,
			fmt.Sprintf("all %d slots are in use: add one to spec.configs before scaling out", total))
	}
}

// lines joins what is said about each name, in a fixed order: a message that changes without a cause would be written again
// and again. With a datastore down it is said about hundreds of disks at once: the first few are enough to read.
func lines(by map[string]string) string {
	const most = 10
	var out []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if len(out) == most {
			out = append(out, fmt.Sprintf("and %d more", len(by)-most))
			break
		}
		out = append(out, name+": "+by[name])
	}
	return strings.Join(out, "; ")
}

// setMembers checks the declaration itself. Admission refuses what it sees; what came before it, or around it, is said here.
func (r *poolReconciler) setMembers(ctx context.Context, p *infrav1.VSphereMachineConfigPool) error {
	said, err := r.judge(ctx, p)
	if err != nil {
		return err
	}
	if len(said.invalid) > 0 {
		setCondition(p, infrav1.MembersValidCondition, metav1.ConditionFalse, infrav1.InvalidMemberConfigReason, strings.Join(said.invalid, "; "))
	} else {
		setCondition(p, infrav1.MembersValidCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
	if len(said.duplicate) > 0 {
		setCondition(p, infrav1.MembersUniqueCondition, metav1.ConditionFalse, said.reason, strings.Join(said.duplicate, "; "))
	} else {
		setCondition(p, infrav1.MembersUniqueCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	}
	return nil
}
