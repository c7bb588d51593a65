package vsphere

import (
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
	"github.com/berth-dev/berth/internal/slot"
)

func aConfig() infrav1.VSphereMachineConfig {
	return infrav1.VSphereMachineConfig{
		Hostname: "w-1", Datacenter: "dc-a",
		Network: &infrav1.MachineConfigNetwork{
			Primary: infrav1.MachineConfigNetworkDevice{
				NetworkName: "pg-node", DeviceName: "ens1", IP: "192.0.2.31/24", Gateway: "192.0.2.1",
				IPv6: "2001:db8::31/64", IPv6Gateway: "2001:db8::1", DNS: []string{"192.0.2.53"},
			},
			Additional: []infrav1.MachineConfigNetworkDevice{{NetworkName: "pg-stor"}},
		},
		PersistentDisks: []infrav1.PersistentDisk{
			{Name: "data", SizeGiB: 10, UnitNumber: ptr.To[int32](3), MountPath: "/data", FSFormat: infrav1.XFS, MountOptions: []string{"noatime"}, WipeFilesystem: ptr.To(true)},
			{Name: "raw", SizeGiB: 1, Datastore: "ds", StoragePolicy: "gold"},
		},
		EphemeralDisks: []infrav1.EphemeralDisk{{Name: "scratch", SizeGiB: 5, MountPath: "/scratch", FSFormat: infrav1.Ext4}},
	}
}

// VS-A13: the copy that a VSphereVM keeps says everything that the slot said.
func TestSlotSurvivesTheRoundTrip(t *testing.T) {
	g := NewWithT(t)
	want := aConfig()
	g.Expect(*configOf(slotOf(want, "dc-of-the-pool"))).To(Equal(want))
	want.Datacenter = ""
	g.Expect(configOf(slotOf(want, "dc-of-the-pool")).Datacenter).To(Equal("dc-of-the-pool"))
	want.Datacenter = infrav1.AnyDatacenter
	g.Expect(slotOf(want, "dc-of-the-pool").Location).To(BeEmpty(), "fits any failure domain, as admission says")
	p := &infrav1.VSphereMachineConfigPool{}
	p.Spec.Configs = []infrav1.VSphereMachineConfig{want}
	g.Expect(freeLocations(p)).To(HaveKey(""))
}

// D22: every state of a slot and a disk comes back from the published words as it went in.
func TestPoolStateSurvivesTheRoundTrip(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	holder := slot.Holder{Name: "m1", UID: "u1", Mark: "k1", OwnerName: "o1", OwnerUID: "ou1"}
	state := pool.State{
		Consumer: &slot.Consumer{Group: "cluster.x-k8s.io", APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment", Namespace: "ns", Name: "md"},
		Records: []slot.Record{
			{HostName: "a", State: slot.Available},
			{HostName: "b", State: slot.Held, Holder: holder},
			{HostName: "c", State: slot.Vacating, Holder: holder, VacatedAt: &now},
			{HostName: "d", State: slot.Released, Holder: holder, ReleasedAt: &now},
			{HostName: "e", State: slot.Reclaiming, Holder: holder, ReleasedAt: &now},
			{HostName: "f", State: slot.Quarantined, Holder: holder, Contradiction: "two machines"},
		},
		Disks: []disk.Record{
			{HostName: "b", Name: "data", Volume: "[ds] x/y.vmdk", Identity: "id", Unit: ptr.To[int32](1), SizeGiB: 10, Phase: disk.Attached, OwnerName: "m1", OwnerMark: "k1", Changed: now},
			{
				HostName: "e", Name: "data", Volume: "[ds] x/z.vmdk", Identity: "id2", SizeGiB: 10, Phase: disk.Error, Interrupted: disk.Reclaiming,
				RetryAfter: &now, LastError: "no", Operation: "task-1", Changed: now,
			},
		},
		Ephemeral: []pool.Ephemeral{{HostName: "b", Name: "scratch", Unit: ptr.To[int32](2), Identity: "e1"}},
	}
	p := &infrav1.VSphereMachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	setState(p, state)
	got := stateOf(p, false)
	g.Expect(got.Consumer).To(Equal(state.Consumer))
	g.Expect(got.Records).To(Equal(state.Records))
	g.Expect(got.Disks).To(Equal(state.Disks))
	g.Expect(got.Ephemeral).To(Equal(state.Ephemeral))
	words := map[string]infrav1.ConfigState{}
	for _, c := range p.Status.ConfigStatuses {
		words[c.Hostname] = c.State
	}
	g.Expect(words).To(Equal(map[string]infrav1.ConfigState{
		"a": infrav1.ConfigStateAvailable, "b": infrav1.ConfigStateInUse, "c": infrav1.ConfigStateInUse,
		"d": infrav1.ConfigStateReleased, "e": infrav1.ConfigStateReleased, "f": infrav1.ConfigStateInUse,
	}))
}

// Every field of the clone specification that has a meaning for vCenter reaches the adapter.
func TestShapeLosesNothing(t *testing.T) {
	spec := infrav1.VirtualMachineCloneSpec{}
	// Fields that are not the adapter's: the session's, and a leftover.
	elsewhere := map[string]bool{"Server": true, "Thumbprint": true}
	fields := reflect.TypeOf(spec)
	names := map[string]string{"Network": "Devices", "PciDevices": "PCIDevices"}
	shape := reflect.TypeOf(shapeOf(&spec))
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if elsewhere[name] {
			continue
		}
		if other := names[name]; other != "" {
			name = other
		}
		if _, ok := shape.FieldByName(name); !ok {
			t.Errorf("%s does not reach the adapter", fields.Field(i).Name)
		}
	}
}

// The notes come back from a VSphereVM as the engine gave them.
func TestNotesSurviveTheRoundTrip(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	notes := machine.Notes{
		Identity: machine.Identity{Mark: "k", ServerID: "VirtualMachine:vm-1", HardwareID: "b", Location: "dc-a", Name: "m1"},
		Intended: true, CreateEnded: true, Operation: machine.Operation{Ref: "task-1", Kind: machine.OpFit, Mark: "k"},
		PowerOnAsked: &now, PoweredOn: true, Ready: true, AbsentSince: &now, RetryAt: &now,
	}
	vm := &infrav1.VSphereVM{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}
	vm.Spec.Datacenter, vm.Spec.BiosUUID = "dc-a", "b"
	setNotes(&vm.Status, notes)
	setVMStatus(vm, notes, machine.Report{Result: machine.Result{Outcome: machine.Done}, Ready: true})
	g.Expect(notesOf(vm, "k")).To(Equal(notes))
}

// VS-A6: nobody misses a change that comes between the look at the pool and the wait for it.
func TestQueueLosesNoChange(t *testing.T) {
	g := NewWithT(t)
	q := newQueue()
	pool, m := client.ObjectKey{Name: "p"}, client.ObjectKey{Name: "m"}
	tick := q.tick(pool)
	g.Expect(q.wait(pool, m, tick)).To(BeTrue())
	g.Expect(q.changed(pool)).To(ConsistOf(m))
	g.Expect(q.changed(pool)).To(BeEmpty())
	g.Expect(q.wait(pool, m, tick)).To(BeFalse(), "the pool has changed since")
}

// Names and addresses that two pools of a cluster share are said in the words of admission (VS-W9, VS-W11), and neither slot is
// given to a machine; whatever else is wrong with a slot, a disk named twice among it, is not lost (VS-W13).
func TestJudgedMembers(t *testing.T) {
	g := NewWithT(t)
	a := &infrav1.VSphereMachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: infrav1.VSphereMachineConfigPoolSpec{Configs: []infrav1.VSphereMachineConfig{aConfig()}}}
	a.Spec.ClusterRef = corev1.ObjectReference{Kind: "Cluster", Name: "demo"}
	b := a.DeepCopy()
	b.Name = "b"
	alone := judgeMembers(a, []infrav1.VSphereMachineConfigPool{*a}, "")
	g.Expect(alone.invalid).To(BeEmpty())
	g.Expect(alone.duplicate).To(BeEmpty())
	g.Expect(alone.slots).To(BeEmpty())
	both := judgeMembers(a, []infrav1.VSphereMachineConfigPool{*a, *b}, "")
	g.Expect(both.reason).To(Equal(infrav1.DuplicateHostnameReason))
	g.Expect(both.duplicate[0]).To(Equal(`spec.configs[0].hostname: Duplicate value: "w-1": is used by slot w-1 of pool ns/b of the same cluster already; a host name is a node's name, choose another`))
	g.Expect(both.slots).To(HaveKeyWithValue("w-1", both.duplicate[0]))
	b.Spec.Configs[0].Hostname = "w-2"
	both = judgeMembers(a, []infrav1.VSphereMachineConfigPool{*a, *b}, "")
	g.Expect(both.reason).To(Equal(infrav1.DuplicateIPAddressReason))
	g.Expect(both.duplicate).To(HaveLen(2), "one for each family")

	a.Spec.Configs[0].PersistentDisks = append(a.Spec.Configs[0].PersistentDisks, a.Spec.Configs[0].PersistentDisks[0])
	twice := judgeMembers(a, nil, "")
	g.Expect(twice.invalid).To(ContainElement(ContainSubstring("has a disk of this name")))
	g.Expect(twice.slots).To(HaveKey("w-1"))
}

// Decision D12, VS-R14: rules are stricter than they were. What cannot be edited in a slot that a machine has, or that keeps data for one,
// is reported and does not keep the next machine from it; a new slot of that kind is not given, nor is one that would do damage.
func TestUsedSlotIsNotHeldToTheRulesForNewOnes(t *testing.T) {
	g := NewWithT(t)
	pool := func(state infrav1.ConfigState, change func(*infrav1.VSphereMachineConfig)) members {
		p := &infrav1.VSphereMachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: infrav1.VSphereMachineConfigPoolSpec{Configs: []infrav1.VSphereMachineConfig{aConfig()}}}
		p.Spec.ClusterRef = corev1.ObjectReference{Kind: "Cluster", Name: "demo"}
		p.Status.ConfigStatuses = []infrav1.VSphereMachineConfigStatus{{Hostname: "w-1", State: state}}
		change(&p.Spec.Configs[0])
		return judgeMembers(p, nil, "")
	}
	unformatted := func(c *infrav1.VSphereMachineConfig) {
		c.PersistentDisks[0].MountPath, c.PersistentDisks[0].FSFormat = "/var/lib/data", ""
	}
	twice := func(c *infrav1.VSphereMachineConfig) {
		c.PersistentDisks = append(c.PersistentDisks, c.PersistentDisks[0])
	}
	nowhere := func(c *infrav1.VSphereMachineConfig) { c.Network = nil }
	for _, state := range []infrav1.ConfigState{infrav1.ConfigStateInUse, infrav1.ConfigStateReleased} {
		said := pool(state, unformatted)
		g.Expect(said.invalid).To(ContainElement(ContainSubstring("fsFormat must say ext4 or xfs")), string(state))
		g.Expect(said.slots).To(BeEmpty(), string(state))
		g.Expect(pool(state, twice).slots).To(HaveKey("w-1"), string(state))
		g.Expect(pool(state, nowhere).slots).To(HaveKey("w-1"), string(state))
	}
	g.Expect(pool(infrav1.ConfigStateAvailable, unformatted).slots).To(HaveKey("w-1"))
}
