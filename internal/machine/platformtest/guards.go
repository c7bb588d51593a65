package platformtest

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

func isEphemeral(d slot.Disk) bool { return d.Ephemeral }

func (b *bench) count(name string) int {
	n := 0
	for _, s := range b.Cloud.Servers(b.T) {
		if s == name {
			n++
		}
	}
	return n
}

func foreignName(b *bench) {
	b.Cloud.Foreign(b.T, "demo-worker-1")
	spec := b.spec("demo-worker-1", firstMark, b.place("worker-1", "127.64.1.31"))
	_, err := b.Platform.LookupLive(b.ctx, identity(spec))
	b.kind(err, machine.NotFound, "a server that only has our name")
	op, err := b.Platform.Create(b.ctx, spec)
	if err == nil {
		err = b.endOn(b.Platform, op, "creating")
	}
	b.kind(err, machine.Conflict, "creating a server whose name is taken")
	_, err = b.Platform.LookupLive(b.ctx, identity(spec))
	b.kind(err, machine.NotFound, "a server that only has our name")
	if b.count("demo-worker-1") != 1 {
		b.Fatalf("servers are %v", b.Cloud.Servers(b.T))
	}
}

// appears waits until the server is there, whoever made it.
func (b *bench) appears(spec machine.ServerSpec) *machine.Server {
	b.Helper()
	late := time.Now().Add(patience)
	for {
		s, err := b.Platform.LookupLive(b.ctx, identity(spec))
		if err == nil {
			return s
		}
		b.kind(err, machine.NotFound, "looking for %s", spec.Name)
		if time.Now().After(late) {
			b.Fatalf("%s never appeared", spec.Name)
		}
	}
}

// lostCreate: the answer is lost, or says that it failed, and the server is there all the same.
func lostCreate(b *bench) {
	for i, fault := range []Fault{Lost, FailsAfter} {
		spec := b.spec("demo-worker-1"+string(rune('a'+i)), []machine.Mark{firstMark, secondMark}[i], b.place("worker-1", "127.64.1.31"))
		b.Cloud.Fail(b.T, machine.OpCreate, fault)
		op, err := b.Platform.Create(b.ctx, spec)
		if err == nil {
			err = b.endOn(b.Platform, op, "creating")
		}
		if err == nil {
			b.Fatalf("a create that went wrong (%s) succeeded", fault)
		}
		server := b.appears(spec)
		op, err = b.Platform.Create(b.ctx, spec)
		if err == nil {
			err = b.endOn(b.Platform, op, "creating again")
		}
		if err != nil && !machine.Is(err, machine.Busy) {
			b.Fatalf("creating again: %v; our own server of this name is neither a conflict nor a failure", err)
		}
		if again := b.look(spec); again.ServerID != server.ServerID || b.count(spec.Name) != 1 {
			b.Fatalf("two creates made %v (%s, %s)", b.Cloud.Servers(b.T), server.ServerID, again.ServerID)
		}
	}
}

// lostAnswers: after every other act whose answer is lost, a look says what happened, and the act can be repeated.
func lostAnswers(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec := b.spec("demo-worker-1", firstMark, place)
	server := b.fit(spec, b.server(spec), volumes)
	try := func(kind string, holds func(*machine.Server, error) bool, act func() (machine.Operation, error)) {
		b.Helper()
		b.Cloud.Fail(b.T, kind, Lost)
		if _, err := act(); err == nil {
			b.Fatalf("%s without an answer succeeded", kind)
		}
		late := time.Now().Add(patience)
		for {
			seen, err := b.Platform.LookupLive(b.ctx, server.Identity)
			if holds(seen, err) {
				break
			}
			if time.Now().After(late) {
				b.Fatalf("%s had no effect: %+v, %v", kind, seen, err)
			}
		}
		op, err := act()
		if err == nil {
			err = b.endOn(b.Platform, op, kind+" again")
		}
		if err != nil && !machine.Is(err, machine.NotFound) {
			b.Fatalf("%s again: %v", kind, err)
		}
	}
	try(machine.OpPowerOn, func(s *machine.Server, err error) bool { return err == nil && s.Power == machine.PowerOn },
		func() (machine.Operation, error) { return b.Platform.PowerOn(b.ctx, server) })
	try(machine.OpPowerOff, func(s *machine.Server, err error) bool { return err == nil && s.Power == machine.PowerOff },
		func() (machine.Operation, error) {
			return b.Platform.PowerOff(b.ctx, server, machine.PowerOffMode{}, time.Now())
		})
	attached := foreignDisks(server)
	try(machine.OpDetach, func(s *machine.Server, err error) bool { return err == nil && len(foreignDisks(s)) == 0 },
		func() (machine.Operation, error) { return b.Platform.Detach(b.ctx, server, attached) })
	try(machine.OpDestroy, func(_ *machine.Server, err error) bool { return machine.Is(err, machine.NotFound) },
		func() (machine.Operation, error) { return b.Platform.Destroy(b.ctx, server) })
}

func failedCreate(b *bench) {
	spec := b.spec("demo-worker-1", firstMark, b.place("worker-1", "127.64.1.31"))
	for _, fault := range []Fault{Before, Fails} {
		b.Cloud.Fail(b.T, machine.OpCreate, fault)
		op, err := b.Platform.Create(b.ctx, spec)
		if err == nil {
			err = b.endOn(b.Platform, op, "creating")
		}
		if err == nil {
			b.Fatalf("a create that went wrong (%s) succeeded", fault)
		}
		_, err = b.Platform.LookupLive(b.ctx, identity(spec))
		b.kind(err, machine.NotFound, "after a create that went wrong (%s)", fault)
	}
	b.server(spec)
}

func failedFit(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec := b.spec("demo-worker-1", firstMark, place)
	server := b.server(spec)
	for _, fault := range []Fault{Before, Fails, Lost, FailsAfter} {
		b.Cloud.Fail(b.T, machine.OpFit, fault)
		op, err := b.Platform.Fit(b.ctx, server, machine.Fit{Spec: spec, Volumes: volumes, UserData: []byte(userData)})
		if err == nil {
			err = b.endOn(b.Platform, op, "fitting")
		}
		if err == nil {
			b.Fatalf("a fit that went wrong (%s) succeeded", fault)
		}
		server, err = b.Platform.LookupLive(b.ctx, server.Identity)
		b.must(err, "looking up after a fit that went wrong (%s)", fault)
		if server.Fitted && len(foreignDisks(server)) != len(volumes) {
			b.Fatalf("after a fit that went wrong (%s) the server is fitted with %v", fault, foreignDisks(server))
		}
	}
	server = b.fit(spec, server, volumes)
	if got := foreignDisks(server); len(got) != len(volumes) {
		b.Fatalf("the server has %v", got)
	}
}

func runningServer(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec, server := b.running("demo-worker-1", firstMark, place, volumes)
	_, err := b.Platform.Detach(b.ctx, server, foreignDisks(server))
	b.kind(err, machine.Refused, "detaching from a running server")
	_, err = b.Platform.Destroy(b.ctx, server)
	b.kind(err, machine.Refused, "destroying a running server")
	_, err = b.Platform.Fit(b.ctx, server, machine.Fit{Spec: spec, Volumes: volumes, UserData: []byte(userData)})
	b.kind(err, machine.Refused, "fitting a running server")
}

func guardedDestroy(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec := b.spec("demo-worker-1", firstMark, place)
	server := b.fit(spec, b.server(spec), volumes)
	// The caller claims that nothing is attached: the adapter looks for itself.
	blind := *server
	blind.Volumes = nil
	_, err := b.Platform.Destroy(b.ctx, &blind)
	b.kind(err, machine.Refused, "destroying a server with volumes attached")
	impostor := *server
	impostor.Mark = secondMark
	for _, act := range []func() error{
		func() error { _, err := b.Platform.Destroy(b.ctx, &impostor); return err },
		func() error { _, err := b.Platform.PowerOn(b.ctx, &impostor); return err },
	} {
		b.kind(act(), machine.Conflict, "acting on a server with another mark")
	}
	if b.count(spec.Name) != 1 {
		b.Fatalf("servers are %v", b.Cloud.Servers(b.T))
	}
}

func heldVolume(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	v := b.volume(place, place.Disks[0])
	b.Cloud.Steal(b.T, v.Volume)
	holders, err := b.Platform.Holders(b.ctx, b.Location, []machine.Volume{v})
	b.must(err, "asking for holders")
	if holders[v.Volume] == "" {
		b.Fatal("nobody seems to hold a stolen volume")
	}
	spec := b.volumeSpec(place, place.Disks[0])
	_, err = b.Platform.DeleteVolume(b.ctx, spec, v)
	b.kind(err, machine.Busy, "deleting a volume that somebody has")
	other := v
	other.Identity = "6000c290-0000-0000-0000-000000000000"
	_, err = b.Platform.DeleteVolume(b.ctx, spec, other)
	b.kind(err, machine.Conflict, "deleting a volume that is another than the one on record")
	spec.Address = v.Volume
	_, err = b.Platform.LookupVolume(b.ctx, spec)
	b.must(err, "looking up a volume that was not to be deleted")
}

func blindHolders(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	v := b.volume(place, place.Disks[0])
	undo := b.Cloud.Blind(b.T)
	_, err := b.Platform.Holders(b.ctx, b.Location, []machine.Volume{v})
	b.kind(err, machine.Busy, "asking for holders while a server cannot be read")
	_, err = b.Platform.DeleteVolume(b.ctx, b.volumeSpec(place, place.Disks[0]), v)
	b.kind(err, machine.Busy, "deleting while a server cannot be read")
	undo()
	holders, err := b.Platform.Holders(b.ctx, b.Location, []machine.Volume{v})
	b.must(err, "asking for holders")
	if len(holders) != 0 {
		b.Fatalf("%v hold a free volume", holders)
	}
}

func existingVolume(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	v := b.volume(place, place.Disks[0])
	b.Cloud.Write(b.T, v.Identity, "precious")
	spec := b.volumeSpec(place, place.Disks[0])
	spec.Address = v.Volume
	op, err := b.Platform.CreateVolume(b.ctx, spec)
	if err == nil {
		op.Mark = firstMark
		err = b.endOn(b.Platform, op, "creating")
	}
	b.kind(err, machine.Conflict, "creating a volume that exists")
	again, err := b.Platform.LookupVolume(b.ctx, spec)
	b.must(err, "looking up")
	if again.Identity != v.Identity || b.Cloud.Content(b.T, v.Identity) != "precious" {
		b.Fatal("the volume was overwritten")
	}
	stranger := spec
	stranger.Key.Namespace = "somebody-else"
	seen, err := b.Platform.LookupVolume(b.ctx, stranger)
	b.must(err, "looking up by another key")
	if seen.Marked {
		b.Fatal("a volume carries the mark of two places")
	}
	address, err := b.Platform.PlanVolume(b.ctx, machine.VolumeSpec{Key: stranger.Key, Want: spec.Want, Location: spec.Location, Shape: spec.Shape})
	b.must(err, "planning for an equally named cluster in another namespace")
	if address == v.Volume {
		b.Fatalf("two clusters of the same name share %s", address)
	}
}

func forget(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	disks := slices.DeleteFunc(slices.Clone(place.Disks), isEphemeral)
	volumes := b.volumes(place)
	spec := b.volumeSpec(place, disks[0])
	spec.Address = volumes[0].Volume
	b.kind(b.Platform.Forget(b.ctx, spec), machine.Refused, "forgetting a place that has volumes")
	for i, v := range volumes {
		op, err := b.Platform.DeleteVolume(b.ctx, b.volumeSpec(place, disks[i]), v)
		b.must(b.end(op, err, "deleting"), "deleting")
	}
	b.must(b.Platform.Forget(b.ctx, spec), "forgetting an empty place")
	b.must(b.Platform.Forget(b.ctx, spec), "forgetting it again")
}
