package vsphere

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

// stateOf is a pool as its writer sees it. retain comes from the pool or its Cluster.
func stateOf(p *infrav1.VSphereMachineConfigPool, retain bool) pool.State {
	s := pool.State{
		Namespace: p.Namespace, Name: p.Name, Cluster: p.Spec.ClusterRef.Name,
		ReleaseDelay: time.Duration(ptr.Deref(p.Spec.ReleaseDelayHours, infrav1.DefaultReleaseDelayHours)) * time.Hour,
		Deleting:     !p.DeletionTimestamp.IsZero(),
		Retain:       retain,
		Consumer:     consumerOf(p.Status.ConsumerRef),
		Inherited:    inheritedOf(p),
	}
	for _, config := range p.Spec.Configs {
		s.Slots = append(s.Slots, slotOf(config, p.Spec.Datacenter))
	}
	for _, d := range p.Status.PersistentDiskStatuses {
		s.Disks = append(s.Disks, diskOf(d))
	}
	for _, c := range p.Status.ConfigStatuses {
		r := recordOf(c)
		if r.State == slot.Released && underReclaim(s.Inherited, c) {
			r.State = slot.Reclaiming
		}
		s.Records = append(s.Records, r)
	}
	for _, e := range p.Status.EphemeralDiskStatuses {
		s.Ephemeral = append(s.Ephemeral, pool.Ephemeral{HostName: e.Hostname, Name: e.Name, Unit: e.UnitNumber, Identity: e.DiskUUID})
	}
	return s
}

// setState writes the status part of a state into a pool.
func setState(p *infrav1.VSphereMachineConfigPool, s pool.State) {
	old := map[string]infrav1.VSphereMachineConfigStatus{}
	for _, c := range p.Status.ConfigStatuses {
		old[c.Hostname] = c
	}
	p.Status.Total, p.Status.Available, p.Status.Allocated = s.Counters()
	p.Status.ConsumerRef = consumerRef(s.Consumer)
	p.Status.ConfigStatuses, p.Status.PersistentDiskStatuses, p.Status.EphemeralDiskStatuses = nil, nil, nil
	for _, r := range s.Records {
		c := configStatus(r, p.Namespace)
		if waits(s.Inherited, r, s.Disks) {
			c.ReclaimStatus = old[r.HostName].ReclaimStatus
		}
		p.Status.ConfigStatuses = append(p.Status.ConfigStatuses, c)
	}
	for _, d := range s.Disks {
		p.Status.PersistentDiskStatuses = append(p.Status.PersistentDiskStatuses, diskStatus(d, s.Records))
	}
	for _, e := range s.Ephemeral {
		p.Status.EphemeralDiskStatuses = append(p.Status.EphemeralDiskStatuses, infrav1.EphemeralDiskStatus{
			Hostname: e.HostName, Name: e.Name, UnitNumber: e.Unit, DiskUUID: e.Identity,
		})
	}
}

// recordOf reads a slot's record. The published words are three (D22); what tells the other states apart is beside them.
func recordOf(c infrav1.VSphereMachineConfigStatus) slot.Record {
	r := slot.Record{
		HostName: c.Hostname, State: slot.Available, Contradiction: c.Quarantine,
		VacatedAt: timeOf(c.VacatedTime), ReleasedAt: timeOf(c.LastReleasedTime),
		Holder: slot.Holder{Mark: c.Mark, OwnerName: c.CAPIMachineName, OwnerUID: c.CAPIMachineUID},
	}
	if c.MachineRef != nil {
		r.Holder.Name, r.Holder.UID = c.MachineRef.Name, string(c.MachineRef.UID)
	}
	switch {
	case c.Quarantine != "":
		r.State = slot.Quarantined
	case c.State == infrav1.ConfigStateInUse && c.VacatedTime != nil:
		r.State = slot.Vacating
	case c.State == infrav1.ConfigStateInUse:
		r.State = slot.Held
	case c.State == infrav1.ConfigStateReleased && c.Reclaiming:
		r.State = slot.Reclaiming
	case c.State == infrav1.ConfigStateReleased:
		r.State = slot.Released
	}
	return r
}

func configStatus(r slot.Record, namespace string) infrav1.VSphereMachineConfigStatus {
	c := infrav1.VSphereMachineConfigStatus{
		Hostname: r.HostName, State: infrav1.ConfigStateAvailable, Quarantine: r.Contradiction,
		VacatedTime: stamp(r.VacatedAt), LastReleasedTime: stamp(r.ReleasedAt),
		Mark: r.Holder.Mark, CAPIMachineName: r.Holder.OwnerName, CAPIMachineUID: r.Holder.OwnerUID,
	}
	if r.Holder.Name != "" {
		c.MachineRef = &corev1.ObjectReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereMachine",
			Namespace: namespace, Name: r.Holder.Name, UID: types.UID(r.Holder.UID),
		}
	}
	switch r.State {
	case slot.Held, slot.Vacating:
		c.State = infrav1.ConfigStateInUse
	case slot.Released, slot.Reclaiming:
		c.State, c.Reclaiming = infrav1.ConfigStateReleased, r.State == slot.Reclaiming
	case slot.Quarantined:
		// The published word stays what it was before: somebody had the slot unless it had been released.
		switch {
		case r.ReleasedAt != nil:
			c.State = infrav1.ConfigStateReleased
		case r.Holder.Name != "" || r.Holder.Mark != "":
			c.State = infrav1.ConfigStateInUse
		}
	}
	return c
}

func diskOf(d infrav1.PersistentDiskStatus) disk.Record {
	r := disk.Record{
		HostName: d.Hostname, Name: d.Name, Volume: d.VolumePath, Identity: vsphere.NormalUUID(d.DiskUUID), Unit: d.UnitNumber, SizeGiB: d.CapacityGiB,
		Phase: disk.Phase(d.Phase), Interrupted: disk.Phase(d.InterruptedPhase),
		OwnerName: d.OwnerMachineName, OwnerMark: d.OwnerMark, Operation: d.TaskRef,
		RetryAfter: timeOf(d.RetryAfter), LastError: d.LastError,
	}
	if r.OwnerMark == "" {
		// Records of older versions have only the UID, which is the mark unless the machine was moved.
		r.OwnerMark = d.OwnerMachineUID
	}
	if d.LastTransitionTime != nil {
		r.Changed = d.LastTransitionTime.Time
	}
	return r
}

func diskStatus(r disk.Record, records []slot.Record) infrav1.PersistentDiskStatus {
	d := infrav1.PersistentDiskStatus{
		Hostname: r.HostName, Name: r.Name, VolumePath: r.Volume, DiskUUID: r.Identity, UnitNumber: r.Unit, CapacityGiB: r.SizeGiB,
		Phase: infrav1.DiskPhase(r.Phase), InterruptedPhase: infrav1.DiskPhase(r.Interrupted),
		OwnerMachineName: r.OwnerName, OwnerMark: r.OwnerMark, TaskRef: r.Operation,
		RetryAfter: stamp(r.RetryAfter), LastError: cut(r.LastError, maxLastError),
	}
	for i := range records {
		if h := records[i].Holder; r.OwnerMark != "" && h.Mark == r.OwnerMark {
			d.OwnerMachineUID = h.UID
		}
	}
	if !r.Changed.IsZero() {
		d.LastTransitionTime = stamp(&r.Changed)
	}
	return d
}

// maxLastError bounds what a disk's record says, so that a pool of the largest size that admission lets through can say it of all.
const maxLastError = 600

func consumerOf(ref *corev1.ObjectReference) *slot.Consumer {
	if ref == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		gv = schema.GroupVersion{Group: ref.APIVersion}
	}
	return &slot.Consumer{Group: gv.Group, APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

func consumerRef(c *slot.Consumer) *corev1.ObjectReference {
	if c == nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

func timeOf(t *metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return ptr.To(t.Time)
}

// stamp is a time as it will come back from the API server: in whole seconds. Equal times must compare equal after a round
// trip, or every pass would find a difference and write.
func stamp(t *time.Time) *metav1.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return ptr.To(metav1.NewTime(t.Truncate(time.Second)))
}
