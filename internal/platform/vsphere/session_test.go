package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// refusal fails the test unless err is of this kind and its text has all these parts.
func refusal(t *testing.T, err error, kind machine.Kind, reason string, parts ...string) {
	t.Helper()
	if !machine.Is(err, kind) {
		t.Fatalf("got %s (%v), want %s", machine.KindOf(err), err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	var e *machine.Error
	if !errors.As(err, &e) || e.Reason != reason {
		t.Errorf("the reason is %+v, want %s", e, reason)
	}
}

func TestThumbprint(t *testing.T) { // VS-V44
	c := newCloud(t, vcenter.Options{})
	for name, thumbprint := range map[string]string{
		"SHA-1": c.Thumbprint(), "SHA-256": c.ThumbprintSHA256(), "none": "",
		"lower case without colons": strings.ToLower(strings.ReplaceAll(c.Thumbprint(), ":", "")),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.config()
			cfg.Thumbprint = thumbprint
			s, err := vsphere.Dial(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Close(t.Context())
		})
	}
	cfg := c.config()
	cfg.Thumbprint = "AA:BB:CC"
	_, err := vsphere.Dial(t.Context(), cfg)
	refusal(t, err, machine.Refused, vsphere.ReasonUnreachable, "AA:BB:CC", c.Thumbprint(), c.ThumbprintSHA256())
}

func TestUnreachable(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	cfg := c.config()
	c.Close()
	_, err := vsphere.Dial(t.Context(), cfg)
	refusal(t, err, machine.Broken, vsphere.ReasonUnreachable, cfg.Server)
}

// TestWrongPassword: one attempt, then a pause without a call, so that the account is not locked (pain 67, pain 69).
func TestWrongPassword(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	all := vsphere.NewSessions()
	t.Cleanup(func() { _ = all.Close(context.Background()) })
	cfg := c.config()
	cfg.Password = "rotated away"
	cfg.AuthPause = 100 * time.Millisecond
	failures := func() int64 {
		t.Helper()
		counters, err := c.Admin().Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counters.Logins.Failed
	}
	for range 5 {
		_, err := all.Acquire(t.Context(), "ns/a", cfg)
		refusal(t, err, machine.Refused, vsphere.ReasonCredentials, cfg.Server, cfg.Username)
		var e *machine.Error
		if !errors.As(err, &e) || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
			t.Fatalf("retry after %+v", e)
		}
	}
	if got := failures(); got != 1 {
		t.Fatalf("the vCenter saw %d failed logins, want 1", got)
	}
	good := c.config()
	if _, err := all.Acquire(t.Context(), "ns/a", good); err != nil {
		t.Fatalf("the right password must not wait for the wrong one: %v", err)
	}
	eventually(t, "one probe after the pause", func() bool {
		_, err := all.Acquire(t.Context(), "ns/b", cfg)
		refusal(t, err, machine.Refused, vsphere.ReasonCredentials)
		got := failures()
		if got > 2 {
			t.Fatalf("the vCenter saw %d failed logins after one pause, want 2", got)
		}
		return got == 2
	})
}

func sessions(t *testing.T, c *cloud) int {
	t.Helper()
	n := 0
	for _, s := range c.World().Sessions {
		if s.UserAgent == "adapter" {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-late:
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond): // nothing announces a simulator's state
		}
	}
}

// TestSessions: one session for all owners of a credential, none left behind (VS-P1, VS-P2, VS-V43).
func TestSessions(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	all := vsphere.NewSessions()
	var wg sync.WaitGroup
	got := make([]*vsphere.Session, 20)
	for i := range got {
		wg.Go(func() {
			s, err := all.Acquire(t.Context(), fmt.Sprintf("ns/cluster-%d", i), c.config())
			if err != nil {
				t.Error(err)
			}
			got[i] = s
		})
	}
	wg.Wait()
	for _, s := range got {
		if s != got[0] {
			t.Fatal("owners of one credential got different sessions")
		}
	}
	if n := sessions(t, c); n != 1 {
		t.Fatalf("%d sessions, want 1", n)
	}
	if v := got[0].Version(); v != vcenter.DefaultVersion {
		t.Fatalf("version %q", v)
	}
	if err := got[0].Healthy(); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		all.Release(t.Context(), fmt.Sprintf("ns/cluster-%d", i))
	}
	eventually(t, "logged out after the last owner", func() bool { return sessions(t, c) == 0 })

	// A changed thumbprint is another session, as a changed password is; the old one goes when its last owner does.
	if _, err := all.Acquire(t.Context(), "ns/a", c.config()); err != nil {
		t.Fatal(err)
	}
	changed := c.config()
	changed.Thumbprint = c.ThumbprintSHA256()
	if _, err := all.Acquire(t.Context(), "ns/a", changed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old session is logged out", func() bool { return sessions(t, c) == 1 })
	if err := all.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := sessions(t, c); n != 0 {
		t.Fatalf("%d sessions after Close, want 0", n)
	}
}

// TestSessionKilled: a dead session is noticed by its fault, one new login serves everybody, and the watch comes back
// (VS-P2, VS-P6).
func TestSessionKilled(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(3, f.create)

	client, _, _ := c.admin(t)
	kill := func() {
		t.Helper()
		for _, open := range c.World().Sessions {
			if open.UserAgent == "adapter" {
				if err := session.NewManager(client.Client).TerminateSession(t.Context(), []string{open.Key}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	kill()
	before := c.meter.Snapshot()
	f.each(3, func(_ int, m *member) error {
		_, err := s.LookupLive(t.Context(), m.server.Identity)
		return err
	})
	if got := c.meter.Snapshot().Since(before).Calls["Login"]; got > 1 {
		t.Fatalf("%d logins, want 1", got)
	}
	eventually(t, "the watch is open again", func() bool { return s.Healthy() == nil })
	f.each(3, f.remove)
	if n := sessions(t, c); n != 1 {
		t.Fatalf("%d sessions, want 1", n)
	}
}

// TestCollectorLost: without the collector everything still works by live reads, and a new one is built.
func TestCollectorLost(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(2, f.create)
	err := c.Admin().Inject(t.Context(), vcenter.Fault{Method: "WaitForUpdatesEx", Kind: vcenter.FaultBefore, Client: "adapter", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	f.each(2, f.remove)
	for _, v := range c.Server.Violations() {
		t.Errorf("violation: %s: %s", v.Kind, v.Detail)
	}
}

// TestForeignTask (VS-P4): what others do to our machines is waited for and told of.
func TestForeignTask(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	f.each(1, f.create)
	m := f.state[machine.Mark(fmt.Sprintf("0c6a5f7e-52d1-4f0e-8a41-%012d", 0))]
	client, _, _ := c.admin(t)
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: strings.TrimPrefix(m.server.ServerID, "VirtualMachine:")}
	if _, err := methods.PowerOffVM_Task(t.Context(), client.Client, &types.PowerOffVM_Task{This: ref}); err != nil {
		t.Fatal(err)
	}
	late := time.After(20 * time.Second)
	for {
		server, err := s.Lookup(t.Context(), m.server.Identity)
		if err != nil {
			t.Fatal(err)
		}
		if server.Power == machine.PowerOff {
			return
		}
		select {
		case <-f.wake(m.spec.Mark):
		case <-late:
			t.Fatal("nobody told that the machine was powered off")
		}
	}
}

// VS-V35: a vCenter that cannot be reached is tried once after a pause, however many ask for it.
func TestUnreachableIsLeftAlone(t *testing.T) {
	var listen net.ListenConfig
	deaf, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	var attempts atomic.Int32
	go func() {
		for {
			c, err := deaf.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			_ = c.Close()
		}
	}()
	all := vsphere.NewSessions()
	t.Cleanup(func() { _ = all.Close(context.Background()) })
	cfg := vsphere.Config{Server: deaf.Addr().String(), Username: "u", Password: "p"}
	_, first := all.Acquire(t.Context(), "ns/a", cfg)
	refusal(t, first, machine.Broken, vsphere.ReasonUnreachable, cfg.Server)
	before := attempts.Load()
	cfg.Username = "another" // it is the vCenter that is away, not the user
	for range 20 {
		_, err := all.Acquire(t.Context(), "ns/b", cfg)
		var e *machine.Error
		if !errors.As(err, &e) || e.RetryAfter <= 0 || e.RetryAfter > time.Second || err.Error() != first.Error() {
			t.Fatalf("%+v", err)
		}
	}
	if now := attempts.Load(); now != before {
		t.Fatalf("%d connections while it should be left alone", now-before)
	}
	eventually(t, "one more attempt after the pause", func() bool {
		_, err := all.Acquire(t.Context(), "ns/b", cfg)
		refusal(t, err, machine.Broken, vsphere.ReasonUnreachable)
		return attempts.Load() > before
	})
}

// TestFailedWatchLeavesNothing: what was made of a watch that could not be opened is taken off the server again.
func TestFailedWatchLeavesNothing(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	for _, method := range []string{"CreatePropertyCollector", "CreateFilter"} {
		if err := c.Admin().Inject(t.Context(), vcenter.Fault{Method: method, Kind: vcenter.FaultBefore, Client: "adapter"}); err != nil {
			t.Fatal(err)
		}
		before := c.meter.Snapshot()
		if _, err := vsphere.Dial(t.Context(), c.config()); err == nil {
			t.Fatalf("a session without a watch, although %s failed", method)
		}
		calls := c.meter.Snapshot().Since(before).Calls
		if calls["DestroyView"] != calls["CreateListView"] || method == "CreateFilter" && calls["DestroyPropertyCollector"] != 1 {
			t.Errorf("%s failed and left something behind: %v", method, calls)
		}
	}
}
