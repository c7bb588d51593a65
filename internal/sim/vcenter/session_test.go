package vcenter_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

func TestWrongPasswordIsInvalidLogin(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	u := s.server.URL()
	u.User = url.UserPassword(vcenter.DefaultUsername, "wrong")
	_, err := govmomi.NewClient(context.Background(), u, true)
	g.Expect(faultAs[*types.InvalidLogin](err)).To(BeTrue(), "%v", err)
	counters, err := s.server.Admin().Counters(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counters.Logins).To(Equal(vcenter.LoginCounters{Succeeded: 1, Failed: 1}))
}

func TestAccountIsLockedAfterFailures(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{Lockout: vcenter.Lockout{Failures: 2, Window: time.Minute, Duration: time.Hour}})
	wrong := s.server.URL()
	wrong.User = url.UserPassword(vcenter.DefaultUsername, "wrong")
	for range 2 {
		_, err := govmomi.NewClient(context.Background(), wrong, true)
		g.Expect(err).To(HaveOccurred())
	}
	right := s.server.URL()
	right.User = s.server.Userinfo()
	_, err := govmomi.NewClient(context.Background(), right, true)
	g.Expect(faultAs[*types.InvalidLogin](err)).To(BeTrue(), "the right password does not help any more")
	counters, err := s.server.Admin().Counters(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counters.Logins.Locked).To(Equal(int64(1)))
}

func TestSessionsAreListedAndLimited(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{MaxSessions: 2})
	second := login(t, s.server)
	g.Expect(s.server.World().Sessions).To(HaveLen(2))
	u := s.server.URL()
	u.User = s.server.Userinfo()
	_, err := govmomi.NewClient(s.ctx, u, true)
	g.Expect(err).To(MatchError(ContainSubstring("sessions")))
	g.Expect(second.Logout(s.ctx)).To(Succeed())
	g.Expect(s.server.World().Sessions).To(HaveLen(1))
	login(t, s.server)
}

// VS-S32: a session that another client ends is not authenticated any more, and its open wait ends.
func TestTerminatedSession(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	vm := s.mustClone("demo-1")
	user, err := s.client.SessionManager.UserSession(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	collector, err := property.DefaultCollector(s.client.Client).Create(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(collector.CreateFilter(s.ctx, types.CreateFilter{Spec: types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"runtime.powerState"}}},
		ObjectSet: []types.ObjectSpec{{Obj: vm.Reference()}},
	}})).Error().NotTo(HaveOccurred())
	updates, err := collector.WaitForUpdates(s.ctx, "")
	g.Expect(err).NotTo(HaveOccurred())
	waiting := make(chan error, 1)
	go func() {
		_, err := collector.WaitForUpdates(s.ctx, updates.Version)
		waiting <- err
	}()

	other := login(t, s.server)
	g.Eventually(func() int64 {
		counters, _ := s.server.Admin().Counters(s.ctx)
		return counters.Calls["WaitForUpdatesEx"] + counters.Calls["WaitForUpdates"]
	}).Should(BeNumerically(">=", 2))
	g.Expect(session.NewManager(other.Client).TerminateSession(s.ctx, []string{user.Key})).To(Succeed())
	g.Eventually(waiting, 3*time.Second).Should(Receive(HaveOccurred()))
	_, err = vm.PowerOn(s.ctx)
	g.Expect(faultAs[*types.NotAuthenticated](err)).To(BeTrue(), "%v", err)
	left, err := s.client.SessionManager.UserSession(s.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeNil())
}

// VS-S27: the REST endpoint with its own session.
func TestTagsOverREST(t *testing.T) {
	g := NewWithT(t)
	s := start(t, vcenter.Options{})
	client := rest.NewClient(s.client.Client)
	g.Expect(client.Login(s.ctx, url.UserPassword(vcenter.DefaultUsername, "wrong"))).NotTo(Succeed())
	g.Expect(client.Login(s.ctx, s.server.Userinfo())).To(Succeed())
	manager := tags.NewManager(client)
	category, err := manager.CreateCategory(s.ctx, &tags.Category{Name: "k8s-zone", Cardinality: "SINGLE", AssociableTypes: []string{"VirtualMachine"}})
	g.Expect(err).NotTo(HaveOccurred())
	tag, err := manager.CreateTag(s.ctx, &tags.Tag{Name: "a", CategoryID: category})
	g.Expect(err).NotTo(HaveOccurred())
	vm := s.mustClone("demo-1")
	g.Expect(manager.AttachTag(s.ctx, tag, vm.Reference())).To(Succeed())
	attached, err := manager.GetAttachedTags(s.ctx, vm.Reference())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(attached).To(HaveLen(1))
	// What a category does not allow is refused, as vCenter does and vcsim does not.
	other, err := manager.CreateTag(s.ctx, &tags.Tag{Name: "b", CategoryID: category})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manager.AttachTag(s.ctx, tag, vm.Reference())).To(Succeed(), "twice is once")
	g.Expect(manager.AttachTag(s.ctx, other, vm.Reference())).NotTo(Succeed(), "one tag of a single category per object")
	g.Expect(manager.AttachTag(s.ctx, other, s.dc.Reference())).NotTo(Succeed(), "not a kind of object of the category")
	g.Expect(s.server.World().Sessions).To(HaveLen(2))
	g.Expect(client.Logout(s.ctx)).To(Succeed())
	g.Expect(s.server.World().Sessions).To(HaveLen(1))
}
