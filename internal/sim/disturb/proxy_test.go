package disturb_test

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/disturb"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

var ctx = context.Background()

// site is a simulated vCenter, seen by a client through a proxy.
type site struct {
	*WithT
	server *vcenter.Server
	proxy  *disturb.Proxy
	client *govmomi.Client
	finder *find.Finder
}

func newSite(t *testing.T, witness disturb.Witness) *site {
	t.Helper()
	s := &site{WithT: NewWithT(t)}
	var err error
	s.server, err = vcenter.Start(vcenter.Options{Dir: t.TempDir()})
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.server.Close)
	s.proxy = disturb.Start(disturb.Options{Target: s.server.Address(), Tasks: s.server.Admin(), Witness: witness})
	t.Cleanup(s.proxy.Close)
	u := &url.URL{Scheme: "https", Host: s.proxy.Address(), Path: "/sdk", User: s.server.Userinfo()}
	s.client, err = govmomi.NewClient(ctx, u, true)
	s.Expect(err).NotTo(HaveOccurred())
	s.finder = find.NewFinder(s.client.Client)
	dc, err := s.finder.Datacenter(ctx, "dc-a")
	s.Expect(err).NotTo(HaveOccurred())
	s.finder.SetDatacenter(dc)
	return s
}

// clone makes a virtual machine of a template; with wait false it returns when the call does.
func (s *site) clone(name string, wait bool) error {
	template, err := s.finder.VirtualMachine(ctx, "os-v136-3")
	s.Expect(err).NotTo(HaveOccurred())
	folder, err := s.finder.Folder(ctx, "k8s")
	s.Expect(err).NotTo(HaveOccurred())
	pool, err := s.finder.ResourcePool(ctx, "k8s")
	s.Expect(err).NotTo(HaveOccurred())
	ref := pool.Reference()
	task, err := template.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &ref},
		Config:   &types.VirtualMachineConfigSpec{InstanceUuid: "5000aaaa-0000-4000-8000-000000000001"},
	})
	if err != nil || !wait {
		return err
	}
	return task.Wait(ctx)
}

func (s *site) exists(name string) func() bool {
	return func() bool { return s.vm(name) != nil }
}

func (s *site) vm(name string) *vcenter.VM {
	for _, vm := range s.server.World().VMs {
		if vm.Name == name {
			return &vm
		}
	}
	return nil
}

func TestCallsThatFail(t *testing.T) {
	tests := []struct {
		kind vcenter.FaultKind
		// happens: the call takes effect all the same.
		happens bool
		// answered: the client gets vCenter's fault, not a broken connection or a status.
		answered bool
	}{
		{vcenter.FaultBefore, false, true},
		{vcenter.FaultAfter, true, true},
		{vcenter.FaultCut, false, false},
		{vcenter.FaultDrop, true, false},
		{disturb.Unavailable, false, false},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			s := newSite(t, nil)
			s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: tt.kind, Type: "HostCommunication"})).To(Succeed())
			err := s.clone("a", false)
			s.Expect(err).To(HaveOccurred())
			var told *types.HostCommunication
			_, answered := fault.As(err, &told)
			s.Expect(answered).To(Equal(tt.answered), "%v", err)
			if tt.happens {
				s.Eventually(s.exists("a")).WithTimeout(time.Minute).Should(BeTrue())
			}
			s.Expect(s.proxy.Struck()).To(Equal(1))
			// The rule is used up.
			s.Expect(s.clone("b", true)).To(Succeed())
			s.Expect(s.exists("a")()).To(Equal(tt.happens))
		})
	}
}

// A rule strikes the object and the call that it names, no other.
func TestRulesAreExact(t *testing.T) {
	s := newSite(t, nil)
	s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Object: "^b$", Skip: 1, Kind: vcenter.FaultBefore})).To(Succeed())
	s.Expect(s.clone("a", true)).To(Succeed())
	s.Expect(s.clone("b", true)).To(Succeed())
	s.Expect(s.clone("a2", true)).To(Succeed())
	s.Expect(s.clone("b", false)).NotTo(Succeed())
	s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Kind: "none such"})).NotTo(Succeed())
	s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Object: "("})).NotTo(Succeed())
	var numbers []int
	for _, c := range s.proxy.Calls() {
		if c.Method == "CloneVM_Task" {
			numbers = append(numbers, c.N)
		}
	}
	s.Expect(numbers).To(Equal([]int{1, 2, 3, 4}))
}

// Faults of tasks are the vCenter's own.
func TestTasksThatFail(t *testing.T) {
	s := newSite(t, nil)
	s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskAfter})).To(Succeed())
	s.Expect(s.clone("a", true)).NotTo(Succeed())
	s.Expect(s.exists("a")()).To(BeTrue())
}

func TestSessionExpires(t *testing.T) {
	s := newSite(t, nil)
	s.Expect(s.proxy.Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: disturb.Expired})).To(Succeed())
	err := s.clone("a", false)
	var told *types.NotAuthenticated
	_, ok := fault.As(err, &told)
	s.Expect(ok).To(BeTrue(), "%v", err)
	s.Expect(s.client.Login(ctx, s.server.Userinfo())).To(Succeed())
	s.Expect(s.clone("a", true)).To(Succeed())
}

// A hidden virtual machine is in no answer, and shows again after a while; what changes something still meets it.
func TestHiddenVirtualMachine(t *testing.T) {
	s := newSite(t, nil)
	s.Expect(s.clone("a", true)).To(Succeed())
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: s.vm("a").Ref}
	index := object.NewSearchIndex(s.client.Client)
	found := func() (object.Reference, error) {
		instance := true
		return index.FindByUuid(ctx, nil, "5000aaaa-0000-4000-8000-000000000001", true, &instance)
	}
	here, err := found()
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(here.Reference()).To(Equal(ref))

	s.proxy.Hide(time.Hour, ref.Value)
	s.Expect(found()).To(BeNil())
	_, err = object.NewVirtualMachine(s.client.Client, ref).PowerState(ctx)
	s.Expect(fault.Is(err, &types.ManagedObjectNotFound{})).To(BeTrue(), "%v", err)
	_, err = s.finder.VirtualMachine(ctx, "k8s/a")
	s.Expect(err).To(HaveOccurred())
	_, err = s.finder.VirtualMachine(ctx, "os-v136-3")
	s.Expect(err).NotTo(HaveOccurred(), "others stay visible")
	s.Expect(s.clone("a", true)).NotTo(Succeed(), "the name is taken")

	s.proxy.Hide(0, ref.Value)
	here, err = found()
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(here.Reference()).To(Equal(ref))
}

func TestHiddenFile(t *testing.T) {
	s := newSite(t, nil)
	s.Expect(s.clone("a", true)).To(Succeed())
	dc, err := s.finder.Datacenter(ctx, "dc-a")
	s.Expect(err).NotTo(HaveOccurred())
	disks := object.NewVirtualDiskManager(s.client.Client)
	path := s.vm("a").Disks[0].Path
	_, err = disks.QueryVirtualDiskUuid(ctx, path, dc)
	s.Expect(err).NotTo(HaveOccurred())
	s.proxy.Hide(time.Hour, "a/a.vmdk")
	_, err = disks.QueryVirtualDiskUuid(ctx, path, dc)
	s.Expect(fault.Is(err, &types.FileNotFound{})).To(BeTrue(), "%s: %v", path, err)
}

// mortal lets its client live until it asks for a clone.
type mortal struct {
	dead atomic.Bool
	// late: it dies after the call, before the answer.
	late bool
}

func (m *mortal) Before(c disturb.Call) bool {
	if c.Method == "CloneVM_Task" && !m.late {
		m.dead.Store(true)
	}
	return !m.dead.Load()
}

func (m *mortal) After(c disturb.Call) bool {
	if c.Method == "CloneVM_Task" && m.late {
		m.dead.Store(true)
	}
	return !m.dead.Load()
}

// A client that its witness declares dead reaches nothing any more.
func TestDeadClient(t *testing.T) {
	for name, late := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, &mortal{late: late})
			s.Expect(s.clone("a", false)).NotTo(Succeed())
			_, err := s.finder.VirtualMachine(ctx, "os-v136-3")
			s.Expect(err).To(HaveOccurred())
			if late {
				s.Eventually(s.exists("a")).WithTimeout(time.Minute).Should(BeTrue())
			} else {
				s.Expect(s.exists("a")()).To(BeFalse())
			}
		})
	}
}
