package platformtest

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/internal/machine"
)

const (
	firstMark  machine.Mark = "0c6a5f7e-52d1-4f0e-8a41-000000000001"
	secondMark machine.Mark = "0c6a5f7e-52d1-4f0e-8a41-000000000002"
)

func life(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec := b.spec("demo-worker-1", firstMark, place)

	server := b.server(spec)
	if server.Power != machine.PowerOff || !server.Readable || server.Fitted {
		b.Fatalf("a new server is %s, readable %t (%s), fitted %t", server.Power, server.Readable, server.Unreadable, server.Fitted)
	}
	if len(server.NICs) != 1 || server.NICs[0].MAC == "" {
		b.Fatalf("a new server has NICs %+v, want one with a MAC", server.NICs)
	}
	ephemeral := named(server, "var-lib-kubelet")
	if ephemeral == nil || !ephemeral.Own || ephemeral.Identity == "" || ephemeral.SizeGiB != 5 {
		b.Fatalf("the ephemeral disk is told as %+v", ephemeral)
	}
	if left := foreignDisks(server); len(left) > 0 {
		b.Fatalf("a new server has %v, which is not its own", left)
	}

	server = b.fit(spec, server, volumes)
	if !server.Fitted {
		b.Fatal("a fitted server does not say so")
	}
	units := map[int32]bool{}
	for _, v := range volumes {
		a := attached(server, v.Identity)
		if a == nil || a.Own || a.Volume != v.Volume || a.SizeGiB != v.SizeGiB || a.Unit == nil || units[*a.Unit] {
			b.Fatalf("volume %s is told as %+v", v.Disk, a)
		}
		units[*a.Unit] = true
	}
	holders, err := b.Platform.Holders(b.ctx, b.Location, volumes)
	b.must(err, "asking for holders")
	for _, v := range volumes {
		if holders[v.Volume] != spec.Name {
			b.Fatalf("%s is held by %q, want %q", v.Volume, holders[v.Volume], spec.Name)
		}
	}

	server = b.powerOn(spec, server)
	b.Cloud.Report(b.T, server, "127.64.1.31")
	late := time.After(patience)
	for server.NICs[0].Addresses == nil {
		select {
		case <-b.Platform.Changes():
			server = b.look(spec)
		case <-late:
			b.Fatal("nothing said that the guest reported its address")
		}
	}
	if !slices.Contains(server.NICs[0].Addresses, "127.64.1.31") {
		b.Fatalf("the server has addresses %v", server.NICs[0].Addresses)
	}

	b.remove(spec, b.powerOff(spec, server))
	holders, err = b.Platform.Holders(b.ctx, b.Location, volumes)
	b.must(err, "asking for holders")
	if len(holders) > 0 {
		b.Fatalf("after the server's end %v hold volumes", holders)
	}
	for i, v := range volumes {
		spec := b.volumeSpec(place, slices.DeleteFunc(slices.Clone(place.Disks), isEphemeral)[i])
		spec.Address = v.Volume
		again, err := b.Platform.LookupVolume(b.ctx, spec)
		b.must(err, "looking up volume %s", v.Disk)
		if again.Identity != v.Identity {
			b.Fatalf("volume %s was %s and is %s", v.Disk, v.Identity, again.Identity)
		}
	}
}

func successor(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	b.Cloud.Write(b.T, volumes[0].Identity, "precious")
	b.Cloud.Write(b.T, volumes[1].Identity, "raw bytes")
	spec, server := b.running("demo-worker-1", firstMark, place, volumes)
	b.Cloud.Write(b.T, named(server, "var-lib-kubelet").Identity, "fleeting")
	for i := range volumes {
		volumes[i].Unit = attached(server, volumes[i].Identity).Unit
	}
	b.remove(spec, b.powerOff(spec, server))

	_, server = b.running("demo-worker-1-next", secondMark, place, volumes)
	for i, want := range []string{"precious", "raw bytes"} {
		a := attached(server, volumes[i].Identity)
		if a == nil || *a.Unit != *volumes[i].Unit {
			b.Fatalf("the successor has %s as %+v, want unit %d", volumes[i].Disk, a, *volumes[i].Unit)
		}
		if got := b.Cloud.Content(b.T, a.Identity); got != want {
			b.Fatalf("%s holds %q, want %q", volumes[i].Disk, got, want)
		}
	}
	if got := b.Cloud.Content(b.T, named(server, "var-lib-kubelet").Identity); got != "" {
		b.Fatalf("the successor's ephemeral disk holds %q", got)
	}
}

func blankAgain(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	v := b.volume(place, place.Disks[0])
	b.Cloud.Write(b.T, v.Identity, "old")
	spec := b.volumeSpec(place, place.Disks[0])
	op, err := b.Platform.DeleteVolume(b.ctx, spec, v)
	b.must(b.end(op, err, "deleting"), "deleting")
	spec.Address = v.Volume
	_, err = b.Platform.LookupVolume(b.ctx, spec)
	b.kind(err, machine.NotFound, "looking up a deleted volume")

	again := b.volume(place, place.Disks[0])
	if again.Volume != v.Volume {
		b.Fatalf("the volume was at %s and is planned at %s: the address must depend on the key alone", v.Volume, again.Volume)
	}
	if got := b.Cloud.Content(b.T, again.Identity); again.Identity == v.Identity || got != "" {
		b.Fatalf("the new volume has identity %s (old %s) and holds %q", again.Identity, v.Identity, got)
	}
}

func restart(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec := b.spec("demo-worker-1", firstMark, place)
	op, err := b.Platform.Create(b.ctx, spec)
	b.must(err, "creating")

	b.Platform = b.Restart(b.T)
	b.must(b.endOn(b.Platform, op, "a create that a predecessor started"), "creating")
	server := b.fit(spec, b.look(spec), volumes)

	b.Platform = b.Restart(b.T)
	server, err = b.Platform.Lookup(b.ctx, server.Identity)
	b.must(err, "looking up after a restart")
	if !server.Fitted || named(server, "var-lib-kubelet") == nil || attached(server, volumes[0].Identity) == nil {
		b.Fatalf("after a restart the server is told as fitted %t with %+v", server.Fitted, server.Volumes)
	}
	address, err := b.Platform.PlanVolume(b.ctx, b.volumeSpec(place, place.Disks[0]))
	b.must(err, "planning after a restart")
	if address != volumes[0].Volume {
		b.Fatalf("a volume at %s is planned at %s after a restart", volumes[0].Volume, address)
	}
	state, err := b.Platform.Operation(b.ctx, machine.Operation{Ref: "task-no-such", Kind: machine.OpFit, Mark: firstMark})
	b.must(err, "asking after a forgotten operation")
	if !state.Unknown {
		b.Fatalf("a forgotten operation is told as %+v", state)
	}
}

func idempotent(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	volumes := b.volumes(place)
	spec, on := b.running("demo-worker-1", firstMark, place, volumes)
	op, err := b.Platform.PowerOn(b.ctx, on)
	b.must(b.end(op, err, "powering on again"), "powering on again")

	off := b.powerOff(spec, on)
	op, err = b.Platform.PowerOff(b.ctx, on, machine.PowerOffMode{}, time.Now())
	b.must(b.end(op, err, "powering off again"), "powering off again")
	op, err = b.Platform.Detach(b.ctx, off, foreignDisks(off))
	b.must(b.end(op, err, "detaching"), "detaching")
	op, err = b.Platform.Detach(b.ctx, off, foreignDisks(off))
	b.must(b.end(op, err, "detaching again"), "detaching again")
	off = b.look(spec)
	op, err = b.Platform.Destroy(b.ctx, off)
	b.must(b.end(op, err, "destroying"), "destroying")
	op, err = b.Platform.Destroy(b.ctx, off)
	if err != nil && !machine.Is(err, machine.NotFound) {
		b.Fatalf("destroying again: %v", err)
	}
	if err == nil {
		b.must(b.end(op, nil, "destroying again"), "destroying again")
	}
}

// wakes: an owner that does nothing but wait for Changes hears of every end. The other parts wait the same way; this one
// does not ask before it is woken.
func wakes(b *bench) {
	place := b.place("worker-1", "127.64.1.31")
	spec := b.spec("demo-worker-1", firstMark, place)
	spec.Place.Disks = nil
	steps := []func(*machine.Server) (machine.Operation, error){
		func(*machine.Server) (machine.Operation, error) { return b.Platform.Create(b.ctx, spec) },
		func(s *machine.Server) (machine.Operation, error) {
			return b.Platform.Fit(b.ctx, s, machine.Fit{Spec: spec, UserData: []byte(userData)})
		},
		func(s *machine.Server) (machine.Operation, error) { return b.Platform.PowerOn(b.ctx, s) },
		func(s *machine.Server) (machine.Operation, error) {
			return b.Platform.PowerOff(b.ctx, s, machine.PowerOffMode{}, time.Now())
		},
		func(s *machine.Server) (machine.Operation, error) { return b.Platform.Destroy(b.ctx, s) },
	}
	var server *machine.Server
	for i, step := range steps {
		op, err := step(server)
		b.must(err, "step %d", i)
		late := time.After(patience)
		for done := op.Ref == ""; !done; {
			select {
			case mark := <-b.Platform.Changes():
				if mark != firstMark {
					continue
				}
				state, err := b.Platform.Operation(b.ctx, op)
				b.must(err, "step %d", i)
				b.must(state.Err, "step %d", i)
				done = state.Done
			case <-late:
				b.Fatalf("step %d: nobody was woken", i)
			}
		}
		if i < len(steps)-1 {
			server = b.look(spec)
		}
	}
}
