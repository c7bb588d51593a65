package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// editSlot changes the only slot of the pool.
func (w *world) editSlot(change func(*infrav1.VSphereMachineConfig)) {
	w.t.Helper()
	w.g.Eventually(func() error {
		pool := w.pool()
		change(&pool.Spec.Configs[0])
		return k8s.Update(ctx, pool)
	}).Should(Succeed())
}

func twoInterfaces(m *infrav1.VSphereMachine) {
	m.Spec.Network.Devices = append(m.Spec.Network.Devices, infrav1.NetworkDeviceSpec{NetworkName: "pg-stor"})
}

func (w *world) networks(vm string) (names []string) {
	for _, n := range w.vm(vm).NICs {
		names = append(names, n.Network)
	}
	return names
}

// VS-A13, VS-R41, VS-R49, VS-R50: what a slot says is copied when a machine takes it. Interfaces, gateway, name servers and disks
// that are added or taken away later reach the next machine, and the one that runs is left alone, whatever happens to it.
func TestSlotEditsReachTheNextMachineOnly(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	vm, effects := w.vm("m1"), w.effects()

	w.editSlot(func(s *infrav1.VSphereMachineConfig) {
		s.Network.Additional = []infrav1.MachineConfigNetworkDevice{{NetworkName: "pg-stor", IP: "127.64.2.31/24"}}
		s.Network.Primary.Gateway = "127.64.1.254"
		s.Network.Primary.DNS = []string{"127.64.1.53"}
		s.PersistentDisks = append(s.PersistentDisks, infrav1.PersistentDisk{Name: "app-data", SizeGiB: 5})
	})
	// The manager starts anew and forgets what it knew in memory; the running machine says what it was given.
	w.stop()
	w.start()
	w.ready(first)
	object := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1"}, object)).To(Succeed())
	w.g.Expect(object.Spec.Network.Devices).To(HaveLen(1))
	w.g.Expect(object.Spec.Network.Devices[0].Gateway4).To(Equal("127.64.1.1"))
	w.g.Expect(w.effects()).To(Equal(effects), "the virtual machine is not edited")
	w.g.Expect(w.vm("m1")).To(Equal(vm))

	w.remove(first)
	second := w.withMachine("m2", "demo-worker", twoInterfaces)
	w.ready(second)
	w.g.Expect(w.networks("m2")).To(Equal([]string{"pg-node", "pg-stor"}))
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m2"}, object)).To(Succeed())
	w.g.Expect(object.Status.Addresses).To(ConsistOf("127.64.1.31", "127.64.2.31"))
	w.g.Expect(object.Spec.Network.Devices[0].Gateway4).To(Equal("127.64.1.254"))
	w.g.Expect(w.vm("m2").Disks).To(HaveLen(len(vm.Disks)+1), "the added disk comes with the replacement (VS-R16)")

	// And back: an empty list and none mean the same.
	w.editSlot(func(s *infrav1.VSphereMachineConfig) { s.Network.Additional = []infrav1.MachineConfigNetworkDevice{} })
	w.g.Expect(w.networks("m2")).To(HaveLen(2))
	w.remove(second)
	third := w.withMachine("m3", "demo-worker")
	w.ready(third)
	w.g.Expect(w.networks("m3")).To(Equal([]string{"pg-node"}))
}

// VS-A20, VS-R43: as long as template and slot disagree there is no clone; the slot is kept, and the machine goes on by itself when
// they agree.
func TestInterfacesAreAwaited(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker", twoInterfaces)
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.NetworkTopologyMismatchReason)
	w.g.Expect(conditions.Get(m, infrav1.ReadyCondition).Message).To(And(ContainSubstring("1"), ContainSubstring("2")), "both numbers")
	w.g.Expect(w.vms()).To(BeZero())

	w.editSlot(func(s *infrav1.VSphereMachineConfig) {
		s.Network.Additional = []infrav1.MachineConfigNetworkDevice{{NetworkName: "pg-stor", IP: "127.64.2.31/24"}}
	})
	w.ready(m)
	w.g.Expect(w.networks("m1")).To(Equal([]string{"pg-node", "pg-stor"}))
}

// effects are the calls that change something in vCenter, with how often the manager under test has made each. Logins and reads
// are none.
func (w *world) effects() map[string]int64 {
	w.t.Helper()
	counters, err := w.vcenter.Admin().Counters(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	all := map[string]int64{}
	for _, call := range []string{
		"CloneVM_Task", "CreateVM_Task", "ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "Destroy_Task", "UnregisterVM", "CreateVirtualDisk_Task",
		"DeleteVirtualDisk_Task", "MoveVirtualDisk_Task", "CopyVirtualDisk_Task", "MakeDirectory", "DeleteDatastoreFile_Task", "MoveDatastoreFile_Task",
	} {
		all[call] = counters.Calls[call]
	}
	return all
}
