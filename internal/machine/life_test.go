package machine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// single is a world with one slot, one process and one machine.
func single(t *testing.T) (*world, *process, *object) {
	t.Helper()
	w := newWorld(t, place("w-1", "10.0.0.11/24"))
	p := w.start()
	return w, p, w.add("a")
}

// passes runs a machine's passes, a minute apart, and returns the last report that said something.
func (p *process) passes(n int, objects ...*object) machine.Report {
	var last machine.Report
	for range n {
		for _, o := range objects {
			if o.gone {
				continue
			}
			if r := p.pass(o); !r.Unchanged {
				last = r
			}
		}
		_, _ = p.pool.Reconcile(context.Background())
		p.world.cloud.Tick()
		p.world.clock = p.world.clock.Add(time.Minute)
	}
	return last
}

func (p *process) remove(o *object) { o.deleted = ptr(p.world.clock) }

func (w *world) calls(name string) int {
	n := 0
	for _, step := range w.gate.trace {
		if step == name {
			n++
		}
	}
	return n
}

func expect(t *testing.T, r machine.Report, outcome machine.Outcome, reason string, words ...string) {
	t.Helper()
	if r.Outcome != outcome || r.Reason != reason {
		t.Errorf("%s answers %s %s (%s), wanted %s %s", r.Phase, r.Outcome, r.Reason, r.Message, outcome, reason)
	}
	for _, word := range words {
		if !strings.Contains(r.Message, word) {
			t.Errorf("message %q does not name %q", r.Message, word)
		}
	}
}

func TestGuardsComeFirst(t *testing.T) {
	w, p, a := single(t)
	life, _ := p.life(a)
	life.Guards = []machine.Guard{
		{Holds: true},
		{Reason: "WaitingForBootstrapData", Message: "no bootstrap data yet"},
		{Reason: "Later", Message: "not reached"},
	}
	r := p.engine.Create(context.Background(), life)
	expect(t, r, machine.Wait, "WaitingForBootstrapData", "no bootstrap data yet")
	if w.version != 0 || len(w.cloud.Servers()) != 0 {
		t.Error("something was claimed or created although a guard did not hold")
	}
}

// Hazard H11, VS-V5, VS-V6: a server with our name and another's mark is reported and left alone, at creation and at deletion.
func TestNameIsNoProof(t *testing.T) {
	w, p, a := single(t)
	w.cloud.AddServer("vm-a", "somebody")
	r := p.passes(3, a)
	expect(t, r, machine.Fail, machine.ReasonServerNotOurs, "vm-a")
	p.remove(a)
	p.passes(5, a)
	if !a.gone {
		t.Errorf("the machine does not go: %s %s", a.report.Reason, a.report.Message)
	}
	if s := w.cloud.Servers(); len(s) != 1 || w.calls("Destroy")+w.calls("Detach")+w.calls("Fit") != 0 {
		t.Errorf("the stranger was touched: servers %v, calls %v", s, w.gate.trace)
	}
}

// VS-V22: a server is started once; what a person switches off stays off and is reported.
func TestPoweredOffByHandStaysOff(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.SetPower("vm-a", machine.PowerOff)
	r := p.passes(3, a)
	expect(t, r, machine.Wait, machine.ReasonPoweredOff, "vm-a")
	if !r.Off || r.Ready || w.calls("PowerOn") != 1 || w.cloud.Power("vm-a") != machine.PowerOff {
		t.Errorf("report off %v ready %v, %d power-ons, server %s", r.Off, r.Ready, w.calls("PowerOn"), w.cloud.Power("vm-a"))
	}
	w.cloud.SetPower("vm-a", machine.PowerOn)
	if r := p.passes(1, a); !r.Ready {
		t.Errorf("switched on again it is not ready: %+v", r.Result)
	}
	// VS-V29: suspended is said, not fought.
	w.cloud.SetPower("vm-a", machine.PowerSuspended)
	expect(t, p.passes(1, a), machine.Wait, machine.ReasonSuspended, "Suspended")
}

// A lost server is never made again; its successor does not get blank disks in place of the lost ones (hazard H9, VS-D25, promise 2).
func TestLostServerIsNotMadeAgain(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.Kill("vm-a")
	w.cloud.Tick()
	before := len(w.cloud.Violations())
	r := p.passes(3, a)
	expect(t, r, machine.Wait, machine.ReasonServerLost, "vm-a")
	if !r.Lost || len(w.cloud.Servers()) != 0 || w.calls("Create") != 1 {
		t.Fatalf("lost %v, servers %v, %d creates", r.Lost, w.cloud.Servers(), w.calls("Create"))
	}
	p.remove(a)
	p.passes(3, a)
	delete(w.machines, "owner-uid-a")
	b := w.add("b")
	r = p.passes(10, b)
	expect(t, r, machine.Fail, machine.ReasonDiskError, "gone", "w-1")
	if len(w.cloud.Contents()) != 0 || len(w.cloud.Servers()) != 0 || w.calls("CreateVolume") != 2 || len(w.cloud.Violations()) != before {
		t.Errorf("volumes %v, servers %v, %d volumes created", w.cloud.Contents(), w.cloud.Servers(), w.calls("CreateVolume"))
	}
	for _, d := range w.state.Disks {
		if d.Phase != disk.Error {
			t.Errorf("disk record %+v, wanted Error", d)
		}
	}
}

// Hazard H7, VS-A23, VS-V37: what the platform cannot vouch for is no proof of anything.
func TestUnreadableIsNoProof(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.SetUnreadable("vm-a", "its host does not answer")
	p.remove(a)
	r := p.passes(5, a)
	expect(t, r, machine.Wait, machine.ReasonServerUnreadable, "its host does not answer")
	if w.calls("PowerOff")+w.calls("Destroy") != 0 {
		t.Error("an unreadable server was acted upon")
	}
	w.cloud.SetUnreadable("vm-a", "")
	w.cloud.AddServer("other", "else")
	w.cloud.SetUnreadable("other", "orphaned")
	p.passes(10, a)
	if a.gone || w.state.Records[0].State != slot.Held {
		t.Errorf("the place was given back although server other may hold its disks: %+v", w.state.Records[0])
	}
	w.cloud.SetUnreadable("other", "")
	p.passes(5, a)
	if !a.gone {
		t.Errorf("it does not go: %s %s", a.report.Reason, a.report.Message)
	}
}

// D21: a stranger's volume is taken off, reported and kept.
func TestForeignVolumeSurvives(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.AddVolume("backup/disk", "a stranger's data", "vm-a")
	p.remove(a)
	r := p.passes(1, a)
	if !a.gone || w.cloud.Contents()["backup/disk"] != "a stranger's data" || len(w.cloud.Violations()) > 0 {
		t.Fatalf("gone %v, volumes %v, violations %v", a.gone, w.cloud.Contents(), w.cloud.Violations())
	}
	if !slices.ContainsFunc(r.Events, func(e machine.Event) bool {
		return e.Warning && e.Reason == machine.EventForeignDetached && strings.Contains(e.Message, "backup/disk")
	}) {
		t.Errorf("events %+v do not report the foreign volume", r.Events)
	}
}

// Hazard H1, VS-D21, VS-P9: the live read right before the destroy decides, not what the platform said about the detach.
func TestNoDestroyOnAPromise(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.Deaf = true
	p.remove(a)
	r := p.passes(5, a)
	expect(t, r, machine.Wait, machine.ReasonDetaching, "data")
	if w.calls("Destroy") != 0 {
		t.Error("the server was destroyed with its disks attached")
	}
}

// Hazard H15, VS-D22, VS-D24: a disk with snapshots cannot be detached whole, so nothing is.
func TestSnapshotsBlockDeletion(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	for address := range w.cloud.Contents() {
		w.cloud.SetChained(address)
	}
	p.remove(a)
	expect(t, p.passes(3, a), machine.Fail, machine.ReasonSnapshotInTheWay, "snapshots")
	if w.calls("Detach")+w.calls("Destroy") != 0 {
		t.Error("it was detached or destroyed")
	}
}

// Hazard H1, VS-D23: without the pool's record nothing that is not the server's own is at risk.
func TestUnknownPlaceBlocksDeletion(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.state.Records, w.state.Disks = nil, nil
	w.version++
	p.remove(a)
	r := p.passes(1, a)
	expect(t, r, machine.Fail, machine.ReasonPlaceUnknown, "data", "nothing is deleted")
	if w.calls("Detach")+w.calls("Destroy") != 0 {
		t.Error("it was detached or destroyed")
	}
}

// VS-D19: a disk that is not of this place keeps the server from starting.
func TestUnexpectedDiskKeepsItOff(t *testing.T) {
	w, p, a := single(t)
	life, _ := p.life(a)
	life.BeforePowerOn = func(context.Context, *machine.Server) machine.Result {
		return machine.Result{Outcome: machine.Wait, Reason: "StaleNode", Message: "Node w-1 of another server exists"}
	}
	expect(t, p.engine.Create(context.Background(), life), machine.Wait, "StaleNode", "w-1")
	w.cloud.AddVolume("backup/disk", "a stranger's data", "vm-a")
	expect(t, p.passes(2, a), machine.Fail, machine.ReasonUnexpectedDisk, "backup/disk")
	if w.calls("PowerOn") != 0 {
		t.Error("it was started")
	}
}

// VS-V25: every planned address on its interface, and the missing one is named. VS-V23: others are filtered.
func TestAddressesMustBeThePlannedOnes(t *testing.T) {
	w := newWorld(t, slot.Slot{HostName: "w-1", NICs: []slot.NIC{
		{Network: "nodes", Addresses: []string{"10.0.0.11/24", "fd00::11/64"}}, {Network: "storage", Addresses: []string{"127.64.2.11/24"}}, {Network: "dhcp"},
	}})
	p := w.start()
	a := w.add("a")
	for _, step := range []struct {
		reported [][]string
		missing  string
		found    string
	}{
		{[][]string{{"fe80::1"}, nil, nil}, "10.0.0.11", "[]"},
		{[][]string{{"10.0.0.11", "fd00::11"}, {"169.254.1.1"}, {"10.9.9.9"}}, "127.64.2.11 on interface 1 (storage)", "[10.0.0.11 fd00::11 10.9.9.9]"},
		{[][]string{{"10.0.0.11", "fd00::11"}, {"127.64.2.11"}, {"127.0.0.1"}}, "an address on interface 2 (dhcp)", "[10.0.0.11 fd00::11 127.64.2.11]"},
		{[][]string{{"10.0.0.11", "fd00::11", "fe80::2"}, {"127.64.2.11"}, {"10.9.9.9"}}, "", "[10.0.0.11 fd00::11 127.64.2.11 10.9.9.9]"},
		{[][]string{nil, nil, nil}, "", "[]"},
	} {
		if len(w.cloud.Servers()) == 0 {
			life, _ := p.life(a)
			life.BeforePowerOn = func(context.Context, *machine.Server) machine.Result {
				w.cloud.SetAddresses("vm-a", step.reported...)
				return machine.Result{Outcome: machine.Done}
			}
			p.engine.Create(context.Background(), life)
		}
		w.cloud.SetAddresses("vm-a", step.reported...)
		r := p.passes(1, a)
		if got := fmt.Sprint(r.Addresses); got != step.found {
			t.Errorf("reported %v: found %s, wanted %s", step.reported, got, step.found)
		}
		if step.missing == "" {
			if !r.Ready {
				t.Errorf("reported %v: not ready: %+v", step.reported, r.Result)
			}
			continue
		}
		expect(t, r, machine.Wait, machine.ReasonWaitingForAddresses, step.missing)
	}
}

// VS-V35: what fails is retried ever more rarely, whatever wakes the machine in between, and told once.
func TestFailuresBackOff(t *testing.T) {
	w, p, a := single(t)
	w.cloud.AddServer("vm-a", "somebody")
	var at []time.Duration
	told := 0
	begin := w.clock
	for w.clock.Sub(begin) < 10*time.Minute {
		before := w.calls("Create")
		r := p.pass(a)
		if w.calls("Create") > before {
			at = append(at, w.clock.Sub(begin))
		}
		for _, e := range r.Events {
			if e.Warning {
				told++
			}
		}
		w.clock = w.clock.Add(time.Second)
	}
	for i := 2; i < len(at); i++ {
		if gap, last := at[i]-at[i-1], at[i-1]-at[i-2]; gap < last {
			t.Errorf("attempts at %v: the pauses do not grow", at)
		}
	}
	if len(at) < 5 || len(at) > 12 || told != 1 {
		t.Errorf("%d attempts in ten minutes (%v), told %d times", len(at), at, told)
	}
	// A restarted process keeps to the pause that was on record.
	before := w.calls("Create")
	p = w.start()
	if r := p.pass(a); !r.Unchanged || w.calls("Create") != before {
		t.Errorf("after a restart it tried at once: %+v", r.Result)
	}
	// Deletion does not wait for the creation's pause.
	p.remove(a)
	if r := p.pass(a); r.Unchanged {
		t.Error("the deletion rests because the creation failed")
	}
}

// D16, D17, promise 5: the pool's status is lost. The machine that runs gets its place back, a newcomer does not get it, and
// the disks are found by their marks.
func TestLostStatusIsRebuilt(t *testing.T) {
	w := newWorld(t, place("w-1", "10.0.0.11/24"), place("w-2", "10.0.0.12/24"))
	p := w.start()
	a := w.add("a")
	p.passes(2, a)
	p.remove(a)
	p.passes(2, a)
	delete(w.machines, "owner-uid-a")
	p.passes(1)
	b := w.add("b")
	p.passes(2, b) // in w-1, with a's disks
	written := w.cloud.Contents()
	w.state.Records, w.state.Disks, w.state.Ephemeral, w.state.Consumer = nil, nil, nil, nil
	w.version++
	p = w.start()
	c := w.add("c")
	p.passes(3, c, b)
	if c.spec == nil || c.spec.Place.HostName != "w-2" || w.state.Records[0].Holder.Name != "b" || len(w.cloud.Violations()) > 0 {
		t.Fatalf("c has %+v, records %+v, violations %v", c.spec, w.state.Records, w.cloud.Violations())
	}
	for address, content := range written {
		if w.cloud.Contents()[address] != content {
			t.Errorf("volume %s holds %q, wanted %q", address, w.cloud.Contents()[address], content)
		}
	}
}

// A server that was replaced behind our back under the same mark is not ours.
func TestHardwareIdentityIsWriteOnce(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	a.notes.Identity.HardwareID = "another"
	expect(t, p.passes(1, a), machine.Fail, machine.ReasonServerNotOurs, "another")
	if a.notes.Identity.HardwareID != "another" {
		t.Error("the identity on record was overwritten")
	}
	p.remove(a)
	p.passes(3, a)
	if len(w.cloud.Servers()) != 1 || a.gone {
		t.Error("it was destroyed")
	}
}

// Bad user data and a pool's refusal are sentences.
func TestBootstrapDataMustBeReadable(t *testing.T) {
	w, p, a := single(t)
	life, _ := p.life(a)
	life.UserData = func(context.Context) ([]byte, string, error) {
		return nil, "", &machine.Error{Kind: machine.Refused, Reason: "BootstrapSecretContentInvalid", Message: "Secret ns/x has no key value"}
	}
	expect(t, p.engine.Create(context.Background(), life), machine.Fail, "BootstrapSecretContentInvalid", "ns/x")
	if w.calls("Fit") != 0 {
		t.Error("it was fitted without user data")
	}
}

// Hazard H8, VS-A22: a place is not given back while any server has one of its disks, even if the machine's own server is gone.
func TestDiskHeldElsewhereKeepsThePlace(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	written := w.cloud.Contents()
	for address := range written {
		w.cloud.Move(address, "thief") // by a person, while the machine runs
	}
	p.remove(a)
	r := p.passes(5, a)
	expect(t, r, machine.Fail, machine.ReasonDiskStillAttached, "thief", "detach it there")
	if a.gone || w.state.Records[0].State != slot.Held {
		t.Errorf("gone %v, slot %+v", a.gone, w.state.Records[0])
	}
	for address := range written {
		w.cloud.Move(address, "")
	}
	p.passes(5, a)
	if !a.gone {
		t.Errorf("it does not go: %s %s", a.report.Reason, a.report.Message)
	}
}

// VS-D18: every disk of the place is there before the first start, the ephemeral ones too.
func TestMissingEphemeralDiskKeepsItOff(t *testing.T) {
	w, p, a := single(t)
	life, _ := p.life(a)
	life.BeforePowerOn = func(context.Context, *machine.Server) machine.Result {
		return machine.Result{Outcome: machine.Wait, Reason: "StaleNode"}
	}
	p.engine.Create(context.Background(), life)
	w.cloud.RemoveVolume("vm-a/scratch")
	expect(t, p.passes(2, a), machine.Wait, machine.ReasonFitting, "ephemeral disk scratch")
	if w.calls("PowerOn") != 0 {
		t.Error("it was started")
	}
}

// A server to which one of our identities leads, but whose mark is another's, is not ours.
func TestMarkDecides(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.Remark("vm-a", "somebody")
	expect(t, p.passes(1, a), machine.Fail, machine.ReasonServerNotOurs, "somebody")
	p.remove(a)
	p.passes(5, a)
	if len(w.cloud.Servers()) != 1 || w.calls("PowerOff") != 0 {
		t.Error("a server with another mark was touched")
	}
}

// An operation that the platform has forgotten has ended: nothing more is to be waited for.
func TestForgottenCreationHasEnded(t *testing.T) {
	w, p, a := single(t)
	w.cloud.AddServer("other", "x")
	a.spec = &machine.ServerSpec{Name: "vm-a", Mark: "mark-a", Place: ptr(place("w-1", "10.0.0.11/24"))}
	a.notes.Operation = machine.Operation{Ref: "long ago", Kind: machine.OpCreate}
	p.remove(a)
	if p.pass(a); !a.gone {
		t.Errorf("it does not go: %s %s", a.report.Reason, a.report.Message)
	}
}
