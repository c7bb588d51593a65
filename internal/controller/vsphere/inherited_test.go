package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/slot"
)

// VS-D51: what older versions wrote into the declaration and into reclaimStatus is read for disks without a record, and goes once
// there is one.
func TestOlderRecordsAreRead(t *testing.T) {
	g := NewWithT(t)
	later := metav1.NewTime(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	p := &infrav1.VSphereMachineConfigPool{}
	for _, host := range []string{"plain", "running", "failed", "completed", "recorded", "never"} {
		config := infrav1.VSphereMachineConfig{Hostname: host, PersistentDisks: []infrav1.PersistentDisk{{
			Name: "data", SizeGiB: 10, VolumePath: "[ds] " + host + "/data.vmdk", DiskUUID: "6000C296B57E11EE8A4F0123456789AB",
		}}}
		if host == "never" {
			config.PersistentDisks[0].VolumePath, config.PersistentDisks[0].DiskUUID = "", ""
		}
		p.Spec.Configs = append(p.Spec.Configs, config)
	}
	reclaim := func(host string, state infrav1.ReclaimState, path string) infrav1.VSphereMachineConfigStatus {
		return infrav1.VSphereMachineConfigStatus{Hostname: host, State: infrav1.ConfigStateReleased, LastReleasedTime: &later, ReclaimStatus: &infrav1.ReclaimStatus{
			State: state, VolumePath: path, TaskRef: "Task:task-7", RetryAfter: &later, LastError: "no space",
		}}
	}
	p.Status.ConfigStatuses = []infrav1.VSphereMachineConfigStatus{
		{Hostname: "plain", State: infrav1.ConfigStateReleased, LastReleasedTime: &later},
		reclaim("running", infrav1.ReclaimStateRunning, "[ds] running/data.vmdk"),
		reclaim("failed", infrav1.ReclaimStateFailed, "[ds] failed"),
		reclaim("completed", infrav1.ReclaimStateCompleted, ""),
		reclaim("recorded", infrav1.ReclaimStateRunning, ""),
		{Hostname: "never", State: infrav1.ConfigStateAvailable},
	}
	p.Status.PersistentDiskStatuses = []infrav1.PersistentDiskStatus{{Hostname: "recorded", Name: "data", Phase: infrav1.DiskPhaseReclaimed}}

	state := stateOf(p, false)
	by := map[string]disk.Record{}
	for _, r := range state.Inherited {
		g.Expect(r.Identity).To(Equal("6000c296-b57e-11ee-8a4f-0123456789ab"))
		by[r.HostName] = r
	}
	g.Expect(by).To(HaveLen(4), "neither what is on record nor what never was")
	g.Expect(by["plain"].Phase).To(Equal(disk.Available))
	g.Expect(by["running"].Phase).To(Equal(disk.Reclaiming))
	g.Expect(by["running"].Operation).To(Equal("task-7"))
	g.Expect(by["failed"].Phase).To(Equal(disk.Error))
	g.Expect(by["failed"].Interrupted).To(Equal(disk.Reclaiming))
	g.Expect(by["failed"].RetryAfter.Equal(later.Time)).To(BeTrue())
	g.Expect(by["completed"].Phase).To(Equal(disk.Reclaimed))
	states := map[string]slot.State{}
	for _, r := range state.Records {
		states[r.HostName] = r.State
	}
	g.Expect(states).To(Equal(map[string]slot.State{
		"plain": slot.Released, "running": slot.Reclaiming, "failed": slot.Reclaiming, "completed": slot.Released,
		"recorded": slot.Released, "never": slot.Available,
	}))

	// Written back before they are taken over, the old records stay; afterwards they go, and do not count twice.
	setState(p, state)
	g.Expect(p.Status.ConfigStatuses[1].ReclaimStatus).NotTo(BeNil())
	state.Disks = append(state.Disks, state.Inherited...)
	setState(p, state)
	for _, c := range p.Status.ConfigStatuses {
		g.Expect(c.ReclaimStatus).To(BeNil(), c.Hostname)
	}
	g.Expect(stateOf(p, false).Inherited).To(BeEmpty())
}

// VS-A27: while a Cluster is being deleted nobody is asked about its Nodes.
func TestNodesOfADyingClusterAreNotAskedAbout(t *testing.T) {
	g := NewWithT(t)
	now := metav1.Now()
	dying := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", DeletionTimestamp: &now}}
	initialized := true
	dying.Status.Initialization.ControlPlaneInitialized = &initialized
	nobody := &nodes{} // whom to ask is nil
	g.Expect(nobody.clear(t.Context(), dying, "w-1", "", false)).To(Equal(slot.NodeIrrelevant))
	g.Expect(nobody.clear(t.Context(), nil, "w-1", "", false)).To(Equal(slot.NodeIrrelevant))
}
