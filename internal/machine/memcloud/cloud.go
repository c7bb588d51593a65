// Package memcloud is a private cloud in memory, for tests of the engine and of the pool that must run thousands of lives:
// deterministic, with a clock that the test turns, and with the habits that make real clouds dangerous. Destroying a server
// deletes every disk attached to it; names are taken from the moment a server is asked for; a disk can be attached once; and
// what should never have been asked for is done as a real cloud would do it and written down as a violation.
package memcloud

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/machine"
)

// Cloud implements machine.Platform.
type Cloud struct {
	// Async makes every operation wait for Tick, Slowness more of them.
	Async    bool
	Slowness int
	// Lagging makes Lookup answer from what was true at the last Tick, as a watch may.
	Lagging bool
	// Stubborn makes PowerOff a success without any effect, as a guest does that ignores the request.
	Stubborn bool
	// Deaf makes Detach a success without any effect.
	Deaf bool
	// Hidden makes a server that is being created invisible until its creation ends.
	Hidden bool
	// Full leaves no space for further volumes.
	Full bool
	// Missing names locations that do not exist.
	Missing []string
	// Unforgettable is what Forget answers; otherwise it adds to Forgotten the address it was asked with.
	Unforgettable error
	Forgotten     []string

	mu         sync.Mutex
	serial     int
	servers    []*server
	volumes    map[string]*volume
	operations map[string]*operation
	violations []string
	overlaps   int
	watched    []*machine.Server
	changes    chan machine.Mark
}

type server struct {
	id, hardware, name, location string
	mark                         machine.Mark
	spec                         machine.ServerSpec
	power                        machine.PowerState
	disks                        []string
	fitted                       bool
	visible                      bool
	starts                       int
	unreadable                   string
	addresses                    [][]string
}

type volume struct {
	machine.Volume
	key     machine.VolumeKey
	server  string // id of the server it is attached to
	own     bool   // made with the server
	name    string // of the ephemeral disk
	unit    int32
	content string
	chained bool
}

type operation struct {
	machine.Operation
	server string
	left   int
	finish func() error
	done   bool
	err    error
}

// New returns an empty cloud whose operations end at once.
func New() *Cloud {
	return &Cloud{volumes: map[string]*volume{}, operations: map[string]*operation{}, changes: make(chan machine.Mark, 1024)}
}

var _ machine.Platform = (*Cloud)(nil)

// Tick ends every operation under way.
func (c *Cloud) Tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	refs := make([]string, 0, len(c.operations))
	for ref, op := range c.operations {
		if !op.done {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	for _, ref := range refs {
		op := c.operations[ref]
		if op.left--; op.left >= 0 {
			continue
		}
		op.err, op.done = op.finish(), true
		c.changed(op.Mark)
	}
	c.watched = nil
	for _, s := range c.servers {
		if s.visible {
			c.watched = append(c.watched, c.describe(s))
		}
	}
}

// Overlaps counts how often something was asked of a server while an earlier operation on it was still running. That is
// unavoidable after a crash or a lost reply, and a mistake otherwise.
func (c *Cloud) Overlaps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlaps
}

// Violations lists what happened that must never happen.
func (c *Cloud) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

func (c *Cloud) violation(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

func (c *Cloud) changed(mark machine.Mark) {
	select {
	case c.changes <- mark:
	default:
	}
}

func (c *Cloud) next(prefix string) string {
	c.serial++
	return fmt.Sprintf("%s-%04d", prefix, c.serial)
}

// start runs what an operation does now or at the next Tick.
func (c *Cloud) start(kind string, mark machine.Mark, server string, finish func() error) (machine.Operation, error) {
	for _, other := range c.operations {
		if server != "" && other.server == server && !other.done {
			c.overlaps++
			return machine.Operation{}, &machine.Error{Kind: machine.Busy, Message: "another operation on this server is running"}
		}
	}
	if !c.Async {
		return machine.Operation{Kind: kind, Mark: mark}, finish()
	}
	op := &operation{Operation: machine.Operation{Ref: c.next("op"), Kind: kind, Mark: mark}, server: server, left: c.Slowness, finish: finish}
	c.operations[op.Ref] = op
	return op.Operation, nil
}

// Operation implements machine.Platform.
func (c *Cloud) Operation(_ context.Context, op machine.Operation) (machine.OperationState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.operations[op.Ref]
	if have == nil {
		return machine.OperationState{Unknown: true}, nil
	}
	return machine.OperationState{Done: have.done, Err: have.err}, nil
}

// ForgetOperations makes the cloud forget all operations that ended, as real ones do after a while.
func (c *Cloud) ForgetOperations() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, op := range c.operations {
		if op.done {
			delete(c.operations, ref)
		}
	}
}

// Changes implements machine.Platform.
func (c *Cloud) Changes() <-chan machine.Mark { return c.changes }

func (c *Cloud) find(id machine.Identity) *server {
	for _, s := range c.servers {
		if !s.visible {
			continue
		}
		if s.mark == id.Mark || s.id == id.ServerID || id.HardwareID != "" && s.hardware == id.HardwareID {
			return s
		}
	}
	return nil
}

// Lookup implements machine.Platform.
func (c *Cloud) Lookup(ctx context.Context, id machine.Identity) (*machine.Server, error) {
	if !c.Lagging {
		return c.LookupLive(ctx, id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.watched {
		if s.Mark == id.Mark || s.ServerID == id.ServerID || id.HardwareID != "" && s.HardwareID == id.HardwareID {
			seen := *s
			return &seen, nil
		}
	}
	return nil, &machine.Error{Kind: machine.NotFound, Message: "no server " + id.Name}
}

// LookupLive implements machine.Platform.
func (c *Cloud) LookupLive(_ context.Context, id machine.Identity) (*machine.Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.find(id)
	if s == nil {
		return nil, &machine.Error{Kind: machine.NotFound, Message: "no server " + id.Name}
	}
	return c.describe(s), nil
}

func (c *Cloud) describe(s *server) *machine.Server {
	out := &machine.Server{
		Identity: machine.Identity{Mark: s.mark, ServerID: s.id, HardwareID: s.hardware, Location: s.location, Name: s.name},
		Power:    s.power, Readable: s.unreadable == "", Unreadable: s.unreadable, Host: "host-1",
		GuestRunning: s.power == machine.PowerOn, Fitted: s.fitted,
	}
	for _, address := range s.disks {
		v := c.volumes[address]
		if v == nil {
			continue
		}
		unit := v.unit
		out.Volumes = append(out.Volumes, machine.AttachedVolume{
			Volume: v.Volume.Volume, Identity: v.Identity, SizeGiB: v.SizeGiB, Unit: &unit, Own: v.own, Name: v.name, Chained: v.chained,
		})
	}
	for i, addresses := range s.addresses {
		nic := machine.ObservedNIC{MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Connected: true}
		if s.power == machine.PowerOn {
			nic.Addresses = addresses
		}
		out.NICs = append(out.NICs, nic)
	}
	return out
}

// Create implements machine.Platform.
func (c *Cloud) Create(_ context.Context, spec machine.ServerSpec) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == spec.Name {
			return machine.Operation{}, &machine.Error{Kind: machine.Conflict, Message: fmt.Sprintf("the name %s is taken", spec.Name)}
		}
		if s.mark == spec.Mark {
			c.violation("a second server with mark %s was asked for", spec.Mark)
		}
	}
	s := &server{
		id: c.next("vm"), hardware: c.next("hw"), name: spec.Name, location: spec.Location, mark: spec.Mark, spec: spec,
		power: machine.PowerOff, visible: !c.Async || !c.Hidden,
	}
	if spec.Place != nil {
		for _, nic := range spec.Place.NICs {
			s.addresses = append(s.addresses, nic.Addresses)
		}
	}
	c.servers = append(c.servers, s)
	return c.start(machine.OpCreate, spec.Mark, s.id, func() error {
		s.visible = true
		c.attach(s, &volume{own: true, Volume: machine.Volume{Volume: s.name + "/system", Identity: c.next("disk"), SizeGiB: 20}})
		if spec.Place != nil {
			for _, d := range spec.Place.Disks {
				if d.Ephemeral {
					c.attach(s, &volume{own: true, name: d.Name, Volume: machine.Volume{Volume: s.name + "/" + d.Name, Identity: c.next("disk"), SizeGiB: d.SizeGiB}})
				}
			}
		}
		c.changed(s.mark)
		return nil
	})
}

func (c *Cloud) attach(s *server, v *volume) {
	v.server = s.id
	v.unit = int32(len(s.disks))
	c.volumes[v.Volume.Volume] = v
	s.disks = append(s.disks, v.Volume.Volume)
}

// known finds the server a caller means.
func (c *Cloud) known(id string) (*server, error) {
	for _, s := range c.servers {
		if s.id == id && s.visible {
			return s, nil
		}
	}
	return nil, &machine.Error{Kind: machine.NotFound, Message: "no server " + id}
}

// Fit implements machine.Platform.
func (c *Cloud) Fit(_ context.Context, target *machine.Server, fit machine.Fit) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.known(target.ServerID)
	if err != nil {
		return machine.Operation{}, err
	}
	return c.start(machine.OpFit, s.mark, s.id, func() error {
		if s.power != machine.PowerOff {
			c.violation("server %s was fitted while it was %s", s.name, s.power)
		}
		for _, want := range fit.Volumes {
			v := c.volumes[want.Volume]
			switch {
			case v == nil:
				return &machine.Error{Kind: machine.Refused, Message: want.Volume + " does not exist"}
			case v.Identity != want.Identity:
				return &machine.Error{Kind: machine.Refused, Message: want.Volume + " has another identity"}
			case v.server != "" && v.server != s.id:
				c.violation("%s was to be attached to %s and %s", want.Volume, v.server, s.id)
				return &machine.Error{Kind: machine.Refused, Message: want.Volume + " is attached elsewhere"}
			case v.server == "":
				c.attach(s, v)
			}
		}
		s.fitted = true
		c.changed(s.mark)
		return nil
	})
}

// PowerOn implements machine.Platform.
func (c *Cloud) PowerOn(_ context.Context, target *machine.Server) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.known(target.ServerID)
	if err != nil {
		return machine.Operation{}, err
	}
	return c.start(machine.OpPowerOn, s.mark, s.id, func() error {
		if s.power == machine.PowerOn {
			return nil
		}
		if !s.fitted {
			c.violation("server %s was started before it was fitted", s.name)
		}
		if s.starts++; s.starts > 1 {
			c.violation("server %s was started %d times", s.name, s.starts)
		}
		for _, other := range c.servers {
			if other != s && other.power == machine.PowerOn && other.spec.Place != nil && s.spec.Place != nil && other.spec.Place.HostName == s.spec.Place.HostName {
				c.violation("servers %s and %s run in one place", other.name, s.name)
			}
		}
		s.power = machine.PowerOn
		for _, d := range s.disks {
			if v := c.volumes[d]; v.content == "" {
				v.content = "written by " + s.name
			}
		}
		c.changed(s.mark)
		return nil
	})
}

// PowerOff implements machine.Platform.
func (c *Cloud) PowerOff(_ context.Context, target *machine.Server, _ machine.PowerOffMode, _ time.Time) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.known(target.ServerID)
	if err != nil {
		return machine.Operation{}, err
	}
	return c.start(machine.OpPowerOff, s.mark, s.id, func() error {
		if c.Stubborn {
			return nil
		}
		s.power = machine.PowerOff
		c.changed(s.mark)
		return nil
	})
}

// Detach implements machine.Platform.
func (c *Cloud) Detach(_ context.Context, target *machine.Server, volumes []machine.AttachedVolume) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.known(target.ServerID)
	if err != nil {
		return machine.Operation{}, err
	}
	return c.start(machine.OpDetach, s.mark, s.id, func() error {
		if s.power == machine.PowerOn {
			c.violation("a disk was taken off %s while it ran", s.name)
		}
		if c.Deaf {
			return nil
		}
		for _, gone := range volumes {
			s.disks = slices.DeleteFunc(s.disks, func(d string) bool { return d == gone.Volume })
			if v := c.volumes[gone.Volume]; v != nil {
				v.server = ""
			}
		}
		c.changed(s.mark)
		return nil
	})
}

// Destroy implements machine.Platform. Like the real thing it deletes whatever is attached; the adapter's last proof is left
// out on purpose, so that the engine's own order is what is tested.
func (c *Cloud) Destroy(_ context.Context, target *machine.Server) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.known(target.ServerID)
	if err != nil {
		return machine.Operation{}, err
	}
	return c.start(machine.OpDestroy, s.mark, s.id, func() error {
		if s.power == machine.PowerOn {
			return &machine.Error{Kind: machine.Refused, Message: s.name + " runs"}
		}
		c.drop(s)
		return nil
	})
}

func (c *Cloud) drop(s *server) {
	for _, d := range s.disks {
		if v := c.volumes[d]; v != nil {
			if !v.own {
				c.violation("%s was destroyed together with server %s", d, s.name)
			}
			delete(c.volumes, d)
		}
	}
	c.servers = slices.DeleteFunc(c.servers, func(other *server) bool { return other == s })
	c.changed(s.mark)
}
