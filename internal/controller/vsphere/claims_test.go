package vsphere_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// ipam is a provider of addresses: it answers the claims of the test's namespace until the test ends, each with the next address.
func (w *world) ipam(change ...func(*ipamv1.IPAddress)) {
	w.t.Helper()
	run, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for next := 0; ; {
			select {
			case <-run.Done():
				return
			case <-tick.C:
			}
			list := &ipamv1.IPAddressClaimList{}
			if err := k8s.List(run, list, client.InNamespace(w.ns)); err != nil {
				continue
			}
			for i := range list.Items {
				if claim := &list.Items[i]; claim.Status.AddressRef.Name == "" && claim.DeletionTimestamp.IsZero() {
					next++
					w.answer(run, claim, next, change...)
				}
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

func (w *world) answer(ctx context.Context, claim *ipamv1.IPAddressClaim, next int, change ...func(*ipamv1.IPAddress)) {
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: claim.Name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
			Address: fmt.Sprintf("127.64.1.%d", 100+next), Prefix: ptr.To[int32](24), Gateway: "127.64.1.1",
		},
	}
	for _, c := range change {
		c(address)
	}
	if client.IgnoreAlreadyExists(k8s.Create(ctx, address)) != nil {
		return
	}
	claim.Status.AddressRef.Name = address.Name
	_ = k8s.Status().Update(ctx, claim)
}

// claimed are the addresses that a provider has given to a device of a VSphereVM.
func claimed(vm *infrav1.VSphereVM, device int) (out []string) {
	for n := range vm.Spec.Network.Devices[device].AddressesFromPools {
		address := &ipamv1.IPAddress{}
		if k8s.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: fmt.Sprintf("%s-%d-%d", vm.Name, device, n)}, address) == nil {
			out = append(out, address.Spec.Address)
		}
	}
	return out
}

func fromPool(m *infrav1.VSphereMachine) {
	m.Spec.Network.Devices[0].DHCP4 = false
	m.Spec.Network.Devices[0].AddressesFromPools = []corev1.TypedLocalObjectReference{
		{APIGroup: ptr.To("ipam.example.com"), Kind: "ExamplePool", Name: "nodes"},
	}
}

func (w *world) object(name string) *infrav1.VSphereVM {
	w.t.Helper()
	vm := &infrav1.VSphereVM{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, vm)).To(Succeed())
	return vm
}

// VS-V24, pain 39, 3.1, 3.2: a device that names a pool of addresses gets one by Cluster API's contract, the machine waits for it
// before it is cloned and keeps it until its virtual machine is gone.
func TestAddressesFromPools(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", fromPool)
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.WaitingForIPAllocationReason)
	w.g.Expect(w.vm("m1")).To(BeNil(), "there is no clone before the address is known")
	claim := &ipamv1.IPAddressClaim{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1-0-0"}, claim)).To(Succeed())
	w.g.Expect(claim.Finalizers).To(ContainElement(infrav1.IPAddressClaimFinalizer))
	w.g.Expect(claim.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "demo"))
	w.g.Expect(claim.Spec.PoolRef).To(Equal(ipamv1.IPPoolReference{APIGroup: "ipam.example.com", Kind: "ExamplePool", Name: "nodes"}))
	w.g.Expect(claim.OwnerReferences).To(ContainElement(And(HaveField("Kind", "VSphereVM"), HaveField("Name", "m1"))))

	// What the provider says about a claim that it cannot fulfil is what people read.
	conditions.Set(claim, metav1.Condition{
		Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason, Message: "no address is left",
	})
	w.g.Expect(k8s.Status().Update(ctx, claim)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		c := conditions.Get(w.object("m1"), infrav1.IPAddressClaimedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(infrav1.WaitingForIPAddressReason))
		g.Expect(c.Message).To(And(ContainSubstring("m1-0-0"), ContainSubstring("ExamplePool nodes"), ContainSubstring("no address is left")))
	}).Should(Succeed())

	w.ipam()
	w.ready(m)
	w.g.Expect(conditions.IsTrue(w.object("m1"), infrav1.IPAddressClaimedCondition)).To(BeTrue())
	w.g.Expect(m.Status.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: "127.64.1.101"}))
	w.g.Expect(w.metadata("m1")).To(And(ContainSubstring("127.64.1.101/24"), ContainSubstring("127.64.1.1")))

	// The finalizer holds the address as long as the virtual machine may use it.
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Method: "Destroy_Task", Kind: vcenter.FaultBefore, Count: -1})).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.waits(m, infrav1.ReadyCondition, infrav1.TaskFailureReason)
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	w.g.Expect(claim.DeletionTimestamp).To(BeNil())
	w.g.Expect(w.vcenter.Admin().ClearFaults(ctx)).To(Succeed())
	w.gone(m)
	w.gone(claim)
	w.g.Expect(w.vm("m1")).To(BeNil())
}

// Pain 39, VS-V24: an address that a machine got because its failure domain names a pool is given back with the machine, too.
func TestAddressesFromPoolsOfAFailureDomain(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", func(d *infrav1.VSphereFailureDomain, _ *infrav1.VSphereDeploymentZone) {
		d.Spec.Topology.Networks = nil
		d.Spec.Topology.NetworkConfigurations = []infrav1.NetworkConfiguration{{
			NetworkName: "pg-node", DHCP4: ptr.To(false),
			AddressesFromPools: []corev1.TypedLocalObjectReference{{APIGroup: ptr.To("ipam.example.com"), Kind: "ExamplePool", Name: "nodes"}},
		}}
	})
	w.withCluster(w.selecting)
	w.ipam()
	w.start()
	w.provisioned()
	w.zoneReady(zone)
	w.failureDomain = zone.Name
	m := w.withMachine("m1", "")
	w.ready(m)
	claim := &ipamv1.IPAddressClaim{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "m1-0-0"}, claim)).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.gone(claim)
}

// IPAddressInvalid: an address that cannot be used stops the machine before the clone, with the reason.
func TestUnusableAddressFromPool(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*ipamv1.IPAddress)
		says   string
	}{
		"gateway elsewhere":      {func(a *ipamv1.IPAddress) { a.Spec.Gateway = "10.0.0.1" }, "spec.gateway"},
		"prefix too long":        {func(a *ipamv1.IPAddress) { a.Spec.Prefix = ptr.To[int32](64) }, "spec.prefix"},
		"no address":             {func(a *ipamv1.IPAddress) { a.Spec.Address = "127.64.1" }, "spec.address"},
		"somebody else's answer": {func(a *ipamv1.IPAddress) { a.Spec.ClaimRef.Name = "m2-0-0" }, "m2-0-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.withCluster()
			w.ipam(tc.change)
			w.start()
			w.provisioned()
			m := w.withMachine("m1", "", fromPool)
			w.waits(m, infrav1.VMProvisionedCondition, infrav1.WaitingForIPAllocationReason)
			w.g.Eventually(func(g Gomega) {
				c := conditions.Get(w.object("m1"), infrav1.IPAddressClaimedCondition)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Reason).To(Equal(infrav1.IPAddressInvalidReason), c.Message)
				g.Expect(c.Message).To(And(ContainSubstring("m1-0-0"), ContainSubstring(tc.says)))
			}).Should(Succeed())
			w.g.Expect(w.vm("m1")).To(BeNil())
		})
	}
}

// 2.6: a slot's own address replaces the claim. A claim of the same name that is somebody else's is left alone.
func TestSlotAddressNeedsNoClaim(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker", fromPool)
	w.ready(m)
	list := &ipamv1.IPAddressClaimList{}
	w.g.Expect(k8s.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
	w.g.Expect(list.Items).To(BeEmpty())

	theirs := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "m2-0-0"},
		Spec:       ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{APIGroup: "ipam.example.com", Kind: "ExamplePool", Name: "other"}},
	}
	w.g.Expect(k8s.Create(ctx, theirs)).To(Succeed())
	second := w.withMachine("m2", "", fromPool)
	w.waits(second, infrav1.ReadyCondition, infrav1.NameConflictReason)
	w.g.Expect(k8s.Delete(ctx, second)).To(Succeed())
	w.gone(second)
	w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
	w.g.Expect(theirs.DeletionTimestamp).To(BeNil())
}

// VS-V25, VS-V27, VS-V28: a machine without a pool is ready when each of its static addresses is reported, and says which is not.
// An interface that is to be left alone is not waited for (VS-V24).
func TestStaticAddressesWithoutPool(t *testing.T) {
	w := newWorld(t)
	w.mute = map[string]bool{"m1": true}
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) {
		m.Spec.Network.Devices = []infrav1.NetworkDeviceSpec{
			{NetworkName: "pg-node", IPAddrs: []string{"127.64.1.50/24", "2001:db8::50/64"}, Gateway4: "127.64.1.1"},
			{NetworkName: "pg-stor", SkipIPAllocation: true},
		}
	})
	report := func(addresses ...string) {
		t.Helper()
		vm := w.vm("m1")
		w.g.Expect(w.vcenter.ReportGuest(vm.Ref, vcenter.Guest{ToolsRunning: true, NICs: []vcenter.GuestNIC{{MAC: vm.NICs[0].MAC, Addresses: addresses}}})).To(Succeed())
	}
	w.waits(m, infrav1.VMProvisionedCondition, infrav1.WaitingForNetworkAddressesReason)
	report("127.64.1.50")
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		c := conditions.Get(m, infrav1.ReadyCondition)
		g.Expect(c.Message).To(And(ContainSubstring("2001:db8::50"), ContainSubstring("interface 0 (pg-node)"), Not(ContainSubstring("127.64.1.50"))))
		g.Expect(m.Status.Ready).To(BeFalse())
		g.Expect(m.Spec.ProviderID).To(BeNil())
	}).Should(Succeed())
	report("127.64.1.50", "2001:db8::50")
	w.ready(m)
}

// metadata is what the guest of a virtual machine was told about itself.
func (w *world) metadata(name string) string { return w.guestinfo(name, "guestinfo.metadata") }

// guestinfo is a value that was handed to a guest, decoded once.
func (w *world) guestinfo(name, key string) string {
	w.t.Helper()
	var value string
	w.inside(name, func(_ *simulator.Context, vm *simulator.VirtualMachine) {
		for _, option := range vm.Config.ExtraConfig {
			if o := option.GetOptionValue(); o.Key == key {
				value, _ = o.Value.(string)
			}
		}
	})
	text, err := base64.StdEncoding.DecodeString(value)
	w.g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// inside runs act on the simulator's own object of a virtual machine, under its lock.
func (w *world) inside(name string, act func(*simulator.Context, *simulator.VirtualMachine)) {
	w.t.Helper()
	v := w.vm(name)
	w.g.Expect(v).NotTo(BeNil())
	own := *w.vcenter.Service().Context
	vm := own.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: v.Ref}).(*simulator.VirtualMachine)
	own.WithLock(vm, func() { act(&own, vm) })
}
