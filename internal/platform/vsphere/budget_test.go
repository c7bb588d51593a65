package vsphere_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/slot"
)

// What one machine may cost, long polls apart (VS-P10, VS-P13): creation cannot do with less than 14 calls (docs/benchmark.md),
// the rest is for news that come late. A look at a machine at rest costs nothing (VS-P7), an inventory path is resolved once for all (VS-P8).
const (
	creationBudget = 20
	deletionBudget = 12
	// fixedBudget is what a session costs once, however many machines it has: watching, the inventory, the template.
	fixedBudget = 12
)

// TestCallBudget counts what lives cost at the vCenter, and prints it.
func TestCallBudget(t *testing.T) {
	for _, n := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d machines", n), func(t *testing.T) {
			c := newCloud(t, vcenter.Options{})
			s := c.dial(t)
			f := newFleet(t, c, s)

			before, start := c.meter.Snapshot(), time.Now()
			f.each(n, f.create)
			created := c.meter.Snapshot().Since(before)
			t.Logf("creation: %.1f calls per machine, %d new connections, %s for %d machines: %s", per(created, n),
				created.Connections, time.Since(start).Round(time.Millisecond), n, table(created))
			if got := created.Total() - fixedBudget; got > n*creationBudget {
				t.Errorf("%d creations cost %d calls, want at most %d each", n, got, creationBudget)
			}

			// The watch may be a moment behind the last act; once it has caught up a look is free.
			late := time.Now().Add(time.Minute)
			for {
				before = c.meter.Snapshot()
				f.each(n, f.rest)
				resting := c.meter.Snapshot().Since(before)
				if resting.Total() == 0 {
					break
				}
				if time.Now().After(late) {
					t.Fatalf("looking at %d machines at rest costs %s, want no call", n, table(resting))
				}
			}

			before, start = c.meter.Snapshot(), time.Now()
			f.each(n, f.remove)
			deleted := c.meter.Snapshot().Since(before)
			t.Logf("deletion: %.1f calls per machine, %d new connections, %s: %s", per(deleted, n), deleted.Connections,
				time.Since(start).Round(time.Millisecond), table(deleted))
			if got := deleted.Total(); got > n*deletionBudget {
				t.Errorf("%d deletions cost %d calls, want at most %d each", n, got, deletionBudget)
			}
			for _, v := range c.Server.Violations() {
				t.Errorf("violation: %s: %s", v.Kind, v.Detail)
			}
		})
	}
}

func per(s vsphere.Snapshot, n int) float64 { return float64(s.Total()) / float64(n) }

func table(s vsphere.Snapshot) string {
	var lines []string
	for method, calls := range s.Calls {
		lines = append(lines, fmt.Sprintf("%s %d", method, calls))
	}
	sort.Strings(lines)
	return strings.Join(lines, ", ")
}

// fleet drives many machines through one session the way the engine does.
type fleet struct {
	t *testing.T
	c *cloud
	s *vsphere.Session

	mu    sync.Mutex
	wakes map[machine.Mark]chan struct{}
	state map[machine.Mark]*member
}

type member struct {
	spec    machine.ServerSpec
	server  *machine.Server
	volumes []machine.Volume
	vspecs  []machine.VolumeSpec
}

func newFleet(t *testing.T, c *cloud, s *vsphere.Session) *fleet {
	f := &fleet{t: t, c: c, s: s, wakes: map[machine.Mark]chan struct{}{}, state: map[machine.Mark]*member{}}
	go func() {
		for mark := range s.Changes() {
			select {
			case f.wake(mark) <- struct{}{}:
			default:
			}
		}
	}()
	return f
}

func (f *fleet) wake(mark machine.Mark) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wakes[mark] == nil {
		f.wakes[mark] = make(chan struct{}, 1)
	}
	return f.wakes[mark]
}

func (f *fleet) each(n int, do func(i int, m *member) error) {
	f.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		mark := machine.Mark(fmt.Sprintf("0c6a5f7e-52d1-4f0e-8a41-%012d", i))
		f.mu.Lock()
		m := f.state[mark]
		if m == nil {
			host := fmt.Sprintf("worker-%d", i)
			place := &slot.Slot{
				HostName: host, Location: "dc-a", NICs: []slot.NIC{{Network: "pg-node", Addresses: []string{fmt.Sprintf("127.64.%d.%d/24", 1+i/200, 31+i%200)}}},
				Disks: []slot.Disk{
					{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", Filesystem: "ext4"},
					{Name: "var-lib-kubelet", SizeGiB: 5, MountPath: "/var/lib/kubelet", Filesystem: "xfs", Ephemeral: true},
					{Name: "raw", SizeGiB: 3},
				},
			}
			m = &member{spec: machine.ServerSpec{Name: "demo-" + host, Mark: mark, Place: place, Location: "dc-a", Shape: shape()}}
			f.state[mark] = m
		}
		f.mu.Unlock()
		wg.Go(func() {
			if err := do(i, m); err != nil {
				f.t.Errorf("machine %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func (f *fleet) end(mark machine.Mark, op machine.Operation, err error) error {
	if err != nil {
		return err
	}
	op.Mark = mark
	wake, late := f.wake(mark), time.After(time.Minute)
	for {
		state, err := f.s.Operation(f.t.Context(), op)
		if err != nil || state.Done {
			if err == nil {
				err = state.Err
			}
			return err
		}
		select {
		case <-wake:
		case <-late:
			return fmt.Errorf("%s: nobody woke us", op.Kind)
		}
	}
}

func (f *fleet) create(_ int, m *member) error {
	ctx, mark := f.t.Context(), m.spec.Mark
	id := machine.Identity{Mark: mark, Name: m.spec.Name, Location: "dc-a"}
	if _, err := f.s.LookupLive(ctx, id); !machine.Is(err, machine.NotFound) {
		return fmt.Errorf("before creation: %w", err)
	}
	for _, d := range m.spec.Place.Disks {
		if d.Ephemeral {
			continue
		}
		v := machine.VolumeSpec{
			Key:  machine.VolumeKey{Namespace: "n", Cluster: "c", Pool: "p", HostName: m.spec.Place.HostName, Disk: d.Name},
			Want: d, Location: "dc-a", Shape: shape(),
		}
		var err error
		if v.Address, err = f.s.PlanVolume(ctx, v); err != nil {
			return err
		}
		op, err := f.s.CreateVolume(ctx, v)
		if err := f.end(mark, op, err); err != nil {
			return err
		}
		got, err := f.s.LookupVolume(ctx, v)
		if err != nil {
			return err
		}
		got.SizeGiB = d.SizeGiB
		m.volumes, m.vspecs = append(m.volumes, *got), append(m.vspecs, v)
	}
	op, err := f.s.Create(ctx, m.spec)
	for machine.Is(err, machine.Busy) {
		select {
		case <-f.wake(mark):
		case <-time.After(2 * time.Second):
		}
		op, err = f.s.Create(ctx, m.spec)
	}
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	if m.server, err = f.s.LookupLive(ctx, id); err != nil {
		return err
	}
	op, err = f.s.Fit(ctx, m.server, machine.Fit{Spec: m.spec, Volumes: m.volumes, UserData: []byte("#cloud-config\n")})
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	if m.server, err = f.s.LookupLive(ctx, m.server.Identity); err != nil {
		return err
	}
	op, err = f.s.PowerOn(ctx, m.server)
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	f.c.Report(f.t, m.server, strings.TrimSuffix(m.spec.Place.NICs[0].Addresses[0], "/24"))
	late := time.After(time.Minute)
	for !slices.ContainsFunc(m.server.NICs, func(n machine.ObservedNIC) bool { return len(n.Addresses) > 0 }) {
		select {
		case <-f.wake(mark):
		case <-late:
			return fmt.Errorf("nobody told of the address")
		}
		if m.server, err = f.s.Lookup(ctx, m.server.Identity); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) rest(_ int, m *member) error {
	_, err := f.s.Lookup(f.t.Context(), m.server.Identity)
	return err
}

func (f *fleet) remove(_ int, m *member) error {
	ctx, mark := f.t.Context(), m.spec.Mark
	op, err := f.s.PowerOff(ctx, m.server, machine.PowerOffMode{}, time.Now())
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	if m.server, err = f.s.Lookup(ctx, m.server.Identity); err != nil {
		return err
	}
	take := slices.DeleteFunc(slices.Clone(m.server.Volumes), func(v machine.AttachedVolume) bool { return v.Own })
	op, err = f.s.Detach(ctx, m.server, take)
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	if m.server, err = f.s.LookupLive(ctx, m.server.Identity); err != nil {
		return err
	}
	op, err = f.s.Destroy(ctx, m.server)
	if err := f.end(mark, op, err); err != nil {
		return err
	}
	if _, err := f.s.LookupLive(ctx, m.server.Identity); !machine.Is(err, machine.NotFound) {
		return fmt.Errorf("after destruction: %w", err)
	}
	holders, err := f.s.Holders(ctx, "dc-a", m.volumes)
	if err == nil && len(holders) > 0 {
		err = fmt.Errorf("%v hold disks", holders)
	}
	return err
}
