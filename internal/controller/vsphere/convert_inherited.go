package vsphere

import (
	"strings"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/slot"
)

// inheritedOf reads the records of disks that older versions kept in the declaration (volumePath, diskUUID) and in the slot's
// reclaimStatus (VS-D51). They count for disks that have no record of the present form; a tombstone is one.
func inheritedOf(p *infrav1.VSphereMachineConfigPool) []disk.Record {
	known := map[[2]string]bool{}
	for _, d := range p.Status.PersistentDiskStatuses {
		known[[2]string{d.Hostname, d.Name}] = true
	}
	reclaims := map[string]*infrav1.ReclaimStatus{}
	for _, c := range p.Status.ConfigStatuses {
		reclaims[c.Hostname] = c.ReclaimStatus
	}
	var out []disk.Record
	for _, config := range p.Spec.Configs {
		for _, d := range config.PersistentDisks {
			if d.VolumePath == "" || known[[2]string{config.Hostname, d.Name}] {
				continue
			}
			r := disk.Record{
				HostName: config.Hostname, Name: d.Name, Volume: d.VolumePath, Identity: vsphere.NormalUUID(d.DiskUUID),
				Unit: d.UnitNumber, SizeGiB: d.SizeGiB, Phase: disk.Available,
			}
			if reclaim := reclaims[config.Hostname]; reclaim != nil && concerns(reclaim, d.VolumePath) {
				reclaimed(&r, reclaim)
			}
			out = append(out, r)
		}
	}
	return out
}

// concerns: a deletion was recorded for a disk, for its directory, or for the whole slot.
func concerns(reclaim *infrav1.ReclaimStatus, volume string) bool {
	of := strings.TrimSuffix(reclaim.VolumePath, "/")
	return of == "" || of == volume || strings.HasPrefix(volume, of+"/")
}

// reclaimed takes over how far a deletion had come.
func reclaimed(r *disk.Record, reclaim *infrav1.ReclaimStatus) {
	switch reclaim.State {
	case infrav1.ReclaimStateCompleted:
		r.Phase = disk.Reclaimed
	case infrav1.ReclaimStateRunning:
		r.Phase, r.Operation = disk.Reclaiming, strings.TrimPrefix(reclaim.TaskRef, "Task:")
	case infrav1.ReclaimStateFailed:
		r.Phase, r.Interrupted, r.LastError, r.RetryAfter = disk.Error, disk.Reclaiming, reclaim.LastError, timeOf(reclaim.RetryAfter)
	}
}

// underReclaim: an older version had begun to delete disks of a slot of which nothing is on record in the present form yet.
// Until they are gone nobody may have the slot.
func underReclaim(inherited []disk.Record, c infrav1.VSphereMachineConfigStatus) bool {
	for _, r := range inherited {
		if r.HostName == c.Hostname && (r.Phase == disk.Reclaiming || r.Interrupted == disk.Reclaiming) {
			return c.State == infrav1.ConfigStateReleased
		}
	}
	return false
}

// waits: an older version's record of the slot's disks has not been taken over yet, so its reclaimStatus still means something.
func waits(s []disk.Record, r slot.Record, onRecord []disk.Record) bool {
	for _, old := range s {
		if old.HostName != r.HostName {
			continue
		}
		taken := false
		for _, d := range onRecord {
			taken = taken || d.HostName == old.HostName && d.Name == old.Name
		}
		if !taken {
			return true
		}
	}
	return false
}
