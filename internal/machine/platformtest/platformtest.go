// Package platformtest is one suite for all platforms: the same flows, faults and invariants, run against an adapter and its
// simulated cloud. A platform is done when it passes.
package platformtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Fault is a way for the next call of a kind to go wrong.
type Fault string

const (
	// Before: the call is answered with an error and nothing happens.
	Before Fault = "before"
	// Lost: the call takes effect and its answer never arrives.
	Lost Fault = "lost"
	// Fails: the call is accepted and its operation fails without effect.
	Fails Fault = "fails"
	// FailsAfter: the call is accepted, its operation takes effect and is reported as failed.
	FailsAfter Fault = "fails after"
)

// Cloud is the simulated cloud behind the adapter, seen from outside of the adapter.
type Cloud interface {
	// Report plays the tools in the server's guest: every interface reports these addresses, in order of interfaces.
	Report(t *testing.T, server *machine.Server, addresses ...string)
	// Foreign makes a server of this name that is not ours.
	Foreign(t *testing.T, name string)
	// Steal attaches a volume to a server that is not ours.
	Steal(t *testing.T, volume string)
	// Blind makes one server of somebody else unreadable until the function it returns is called.
	Blind(t *testing.T) (undo func())
	// Fail makes the next call that starts an operation of this kind (machine.OpCreate ...) go wrong.
	Fail(t *testing.T, kind string, fault Fault)
	// Write puts content on the disk with this identity, Content reads it, "" when blank.
	Write(t *testing.T, identity, content string)
	Content(t *testing.T, identity string) string
	// Servers lists the names of all servers that are no templates.
	Servers(t *testing.T) []string
	// Violations lists what no client of a cloud may ever do, as far as it was done.
	Violations(t *testing.T) []string
}

// Harness is one adapter on one fresh cloud.
type Harness struct {
	Platform machine.Platform
	// Restart gives a second adapter on the same cloud, which knows nothing of what the first one did.
	Restart func(t *testing.T) machine.Platform
	Cloud   Cloud
	// Shape of servers and volumes, Location and Network to put them in.
	Shape             any
	Location, Network string
}

// Run runs the suite. New gives a fresh cloud to each part.
func Run(t *testing.T, fresh func(t *testing.T) *Harness) {
	t.Helper()
	parts := []struct {
		name string
		run  func(*bench)
	}{
		{"a life from volumes to absence", life},
		{"a successor gets the data and new ephemeral disks", successor},
		{"a volume made again is blank", blankAgain},
		{"a foreign server of the same name is left alone", foreignName},
		{"a create whose answer is lost makes one server", lostCreate},
		{"after any other lost answer a look tells what happened", lostAnswers},
		{"a create that fails can be repeated", failedCreate},
		{"a fit that fails can be repeated", failedFit},
		{"a running server keeps its disks and its life", runningServer},
		{"a server is not destroyed with a volume attached", guardedDestroy},
		{"a volume that somebody has is not deleted", heldVolume},
		{"holders fail closed", blindHolders},
		{"a volume is never overwritten", existingVolume},
		{"a restart loses nothing", restart},
		{"what is done is not done twice", idempotent},
		{"the end of every operation wakes its owner", wakes},
		{"a place is forgotten only when it is empty", forget},
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			h := fresh(t)
			b := &bench{T: t, Harness: h, ctx: t.Context()}
			part.run(b)
			for _, v := range h.Cloud.Violations(t) {
				t.Errorf("the cloud saw what it never should: %s", v)
			}
		})
	}
}

// patience bounds every wait; nothing here takes long.
const patience = 20 * time.Second

// bench is a test with its harness.
type bench struct {
	*testing.T
	*Harness
	ctx context.Context
}

// place is a slot with two persistent disks and an ephemeral one.
func (b *bench) place(host, address string) *slot.Slot {
	return &slot.Slot{
		HostName: host, Location: b.Location,
		NICs: []slot.NIC{{Network: b.Network, Addresses: []string{address + "/24"}, Gateway4: "127.64.1.1"}},
		Disks: []slot.Disk{
			{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", Filesystem: "ext4"},
			{Name: "var-lib-kubelet", SizeGiB: 5, MountPath: "/var/lib/kubelet", Filesystem: "xfs", Ephemeral: true},
			{Name: "raw", SizeGiB: 3},
		},
	}
}

func (b *bench) spec(name string, mark machine.Mark, place *slot.Slot) machine.ServerSpec {
	return machine.ServerSpec{
		Name: name, Mark: mark, Place: place, Location: b.Location, Shape: b.Shape, PlaceKey: "berth/demo/" + place.HostName,
	}
}

func (b *bench) volumeSpec(place *slot.Slot, disk slot.Disk) machine.VolumeSpec {
	var address string
	if len(place.NICs) > 0 && len(place.NICs[0].Addresses) > 0 {
		address = place.NICs[0].Addresses[0][:len(place.NICs[0].Addresses[0])-len("/24")]
	}
	return machine.VolumeSpec{
		Key: machine.VolumeKey{
			Namespace: "berth", Cluster: "demo", Pool: "workers", HostName: place.HostName, Disk: disk.Name, Address: address,
		},
		Want: disk, Location: place.Location, Shape: b.Shape,
	}
}

// must fails the test on an error.
func (b *bench) must(err error, doing string, args ...any) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// kind fails the test unless err is of this kind and says something.
func (b *bench) kind(err error, want machine.Kind, doing string, args ...any) {
	b.Helper()
	doing = fmt.Sprintf(doing, args...)
	if !machine.Is(err, want) {
		b.Fatalf("%s: got %s (%v), want %s", doing, machine.KindOf(err), err, want)
	}
	if err.Error() == "" {
		b.Errorf("%s: an error without a word", doing)
	}
}

// end waits until an operation ended, woken by Changes alone.
func (b *bench) end(op machine.Operation, err error, doing string, args ...any) error {
	b.Helper()
	doing = fmt.Sprintf(doing, args...)
	b.must(err, "%s", doing)
	if op.Mark == "" {
		op.Mark = firstMark // operations on volumes learn their owner when they are asked after
	}
	return b.endOn(b.Platform, op, doing)
}

func (b *bench) endOn(p machine.Platform, op machine.Operation, doing string) error {
	b.Helper()
	late := time.After(patience)
	for {
		state, err := p.Operation(b.ctx, op)
		b.must(err, "asking after %s", doing)
		if state.Done {
			return state.Err
		}
		select {
		case <-p.Changes():
		case <-late:
			b.Fatalf("%s: nothing said that it ended", doing)
		}
	}
}

// volumes makes the persistent volumes of a place.
func (b *bench) volumes(place *slot.Slot) []machine.Volume {
	b.Helper()
	var out []machine.Volume
	for _, disk := range place.Disks {
		if disk.Ephemeral {
			continue
		}
		out = append(out, b.volume(place, disk))
	}
	return out
}

func (b *bench) volume(place *slot.Slot, disk slot.Disk) machine.Volume {
	b.Helper()
	spec := b.volumeSpec(place, disk)
	address, err := b.Platform.PlanVolume(b.ctx, spec)
	b.must(err, "planning volume %s", disk.Name)
	spec.Address = address
	op, err := b.Platform.CreateVolume(b.ctx, spec)
	b.must(b.end(op, err, "creating volume %s", disk.Name), "creating volume %s", disk.Name)
	v, err := b.Platform.LookupVolume(b.ctx, spec)
	b.must(err, "looking up volume %s", disk.Name)
	if v.Identity == "" || v.Volume != address || !v.Marked {
		b.Fatalf("volume %s: identity %q, address %q (planned %q), marked %t", disk.Name, v.Identity, v.Volume, address, v.Marked)
	}
	v.SizeGiB = disk.SizeGiB
	return *v
}

// server creates a server and returns it as it shows.
func (b *bench) server(spec machine.ServerSpec) *machine.Server {
	b.Helper()
	_, err := b.Platform.LookupLive(b.ctx, identity(spec))
	b.kind(err, machine.NotFound, "looking for %s before it exists", spec.Name)
	op, err := b.Platform.Create(b.ctx, spec)
	b.must(b.end(op, err, "creating %s", spec.Name), "creating %s", spec.Name)
	return b.look(spec)
}

func identity(spec machine.ServerSpec) machine.Identity {
	return machine.Identity{Mark: spec.Mark, Name: spec.Name, Location: spec.Location}
}

func (b *bench) look(spec machine.ServerSpec) *machine.Server {
	b.Helper()
	s, err := b.Platform.Lookup(b.ctx, identity(spec))
	b.must(err, "looking up %s", spec.Name)
	if s.Mark != spec.Mark || s.Name != spec.Name || s.HardwareID == "" || s.ServerID == "" {
		b.Fatalf("server %s is told as %+v", spec.Name, s.Identity)
	}
	return s
}

const userData = "#cloud-config\nruncmd:\n- kubeadm join\n"

// fit hands over volumes and user data.
func (b *bench) fit(spec machine.ServerSpec, server *machine.Server, volumes []machine.Volume) *machine.Server {
	b.Helper()
	op, err := b.Platform.Fit(b.ctx, server, machine.Fit{
		Spec: spec, Volumes: volumes, UserData: []byte(userData), Format: "cloud-config",
	})
	b.must(b.end(op, err, "fitting %s", spec.Name), "fitting %s", spec.Name)
	return b.look(spec)
}

func (b *bench) powerOn(spec machine.ServerSpec, server *machine.Server) *machine.Server {
	b.Helper()
	op, err := b.Platform.PowerOn(b.ctx, server)
	b.must(b.end(op, err, "powering on %s", spec.Name), "powering on %s", spec.Name)
	s := b.look(spec)
	if s.Power != machine.PowerOn {
		b.Fatalf("%s is %s after power-on", spec.Name, s.Power)
	}
	return s
}

func (b *bench) powerOff(spec machine.ServerSpec, server *machine.Server) *machine.Server {
	b.Helper()
	op, err := b.Platform.PowerOff(b.ctx, server, machine.PowerOffMode{}, time.Now())
	b.must(b.end(op, err, "powering off %s", spec.Name), "powering off %s", spec.Name)
	s := b.look(spec)
	if s.Power != machine.PowerOff {
		b.Fatalf("%s is %s after power-off", spec.Name, s.Power)
	}
	return s
}

// foreignDisks are the attached volumes that do not die with the server.
func foreignDisks(server *machine.Server) []machine.AttachedVolume {
	return slices.DeleteFunc(slices.Clone(server.Volumes), func(v machine.AttachedVolume) bool { return v.Own })
}

// remove takes a server that is off away: detach, live proof, destroy, proof of absence.
func (b *bench) remove(spec machine.ServerSpec, server *machine.Server) {
	b.Helper()
	if take := foreignDisks(server); len(take) > 0 {
		op, err := b.Platform.Detach(b.ctx, server, take)
		b.must(b.end(op, err, "detaching from %s", spec.Name), "detaching from %s", spec.Name)
	}
	live, err := b.Platform.LookupLive(b.ctx, server.Identity)
	b.must(err, "reading %s before its destruction", spec.Name)
	if left := foreignDisks(live); len(left) > 0 {
		b.Fatalf("%s still has %v", spec.Name, left)
	}
	op, err := b.Platform.Destroy(b.ctx, live)
	b.must(b.end(op, err, "destroying %s", spec.Name), "destroying %s", spec.Name)
	_, err = b.Platform.LookupLive(b.ctx, server.Identity)
	b.kind(err, machine.NotFound, "looking for %s after its destruction", spec.Name)
	_, err = b.Platform.Lookup(b.ctx, server.Identity)
	b.kind(err, machine.NotFound, "looking for %s after its destruction", spec.Name)
}

// running makes a whole server that runs.
func (b *bench) running(name string, mark machine.Mark, place *slot.Slot, volumes []machine.Volume) (machine.ServerSpec, *machine.Server) {
	b.Helper()
	spec := b.spec(name, mark, place)
	return spec, b.powerOn(spec, b.fit(spec, b.server(spec), volumes))
}

func attached(server *machine.Server, identity string) *machine.AttachedVolume {
	for i := range server.Volumes {
		if server.Volumes[i].Identity == identity {
			return &server.Volumes[i]
		}
	}
	return nil
}

func named(server *machine.Server, name string) *machine.AttachedVolume {
	for i := range server.Volumes {
		if server.Volumes[i].Name == name {
			return &server.Volumes[i]
		}
	}
	return nil
}
