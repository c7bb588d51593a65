package memcloud

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/berth-dev/berth/internal/machine"
)

// PlanVolume implements machine.Platform.
func (c *Cloud) PlanVolume(_ context.Context, spec machine.VolumeSpec) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, v := range c.volumes {
		if !v.own && v.key == spec.Key {
			return address, nil
		}
	}
	if slices.Contains(c.Missing, spec.Location) {
		return "", &machine.Error{Kind: machine.Refused, Nowhere: true, Message: fmt.Sprintf("no such location %q", spec.Location)}
	}
	if spec.Existing {
		return "", &machine.Error{Kind: machine.NotFound, Message: fmt.Sprintf("no volume of %s/%s", spec.Key.HostName, spec.Key.Disk)}
	}
	if c.Full {
		return "", &machine.Error{Kind: machine.Refused, Message: "no space is left"}
	}
	return fmt.Sprintf("%s/%s-%s-%s/%s", spec.Key.Namespace, spec.Key.Cluster, spec.Key.Pool, spec.Key.HostName, spec.Key.Disk), nil
}

// LookupVolume implements machine.Platform.
func (c *Cloud) LookupVolume(_ context.Context, spec machine.VolumeSpec) (*machine.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.volumes[spec.Address]
	if v == nil {
		return nil, &machine.Error{Kind: machine.NotFound, Message: "no volume " + spec.Address}
	}
	out := v.Volume
	out.Marked = v.key == spec.Key
	return &out, nil
}

// CreateVolume implements machine.Platform.
func (c *Cloud) CreateVolume(_ context.Context, spec machine.VolumeSpec) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volumes[spec.Address] != nil {
		return machine.Operation{}, &machine.Error{Kind: machine.Conflict, Message: spec.Address + " exists"}
	}
	return c.start(machine.OpCreateVolume, "", "", func() error {
		if c.volumes[spec.Address] != nil {
			return &machine.Error{Kind: machine.Conflict, Message: spec.Address + " exists"}
		}
		c.volumes[spec.Address] = &volume{
			key:    spec.Key,
			Volume: machine.Volume{Disk: spec.Key.Disk, Volume: spec.Address, Identity: c.next("disk"), SizeGiB: spec.Want.SizeGiB},
		}
		return nil
	})
}

// DeleteVolume implements machine.Platform.
func (c *Cloud) DeleteVolume(_ context.Context, spec machine.VolumeSpec, _ machine.Volume) (machine.Operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volumes[spec.Address] == nil {
		return machine.Operation{}, &machine.Error{Kind: machine.NotFound, Message: "no volume " + spec.Address}
	}
	return c.start(machine.OpDeleteVolume, "", "", func() error {
		if v := c.volumes[spec.Address]; v != nil && v.server != "" {
			c.violation("%s was deleted while attached to %s", spec.Address, v.server)
		}
		delete(c.volumes, spec.Address)
		return nil
	})
}

// Forget implements machine.Platform.
func (c *Cloud) Forget(_ context.Context, spec machine.VolumeSpec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Unforgettable == nil {
		c.Forgotten = append(c.Forgotten, spec.Address)
	}
	return c.Unforgettable
}

// Holders implements machine.Platform.
func (c *Cloud) Holders(_ context.Context, _ string, volumes []machine.Volume) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.unreadable != "" {
			return nil, &machine.Error{Kind: machine.Broken, Message: fmt.Sprintf("the disks of server %s cannot be read: %s", s.name, s.unreadable)}
		}
	}
	out := map[string]string{}
	for _, want := range volumes {
		if v := c.volumes[want.Volume]; v != nil && v.server != "" {
			for _, s := range c.servers {
				if s.id == v.server {
					out[want.Volume] = s.name
				}
			}
		}
	}
	return out, nil
}

// What follows is the test's hand in the cloud: what people and accidents do.

// Servers lists the servers by name, visible or not.
func (c *Cloud) Servers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, 0, len(c.servers))
	for _, s := range c.servers {
		out = append(out, s.name)
	}
	sort.Strings(out)
	return out
}

// Contents lists what is on the volumes that were not made with a server, by address.
func (c *Cloud) Contents() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for address, v := range c.volumes {
		if !v.own {
			out[address] = v.content
		}
	}
	return out
}

// Kill deletes a server with everything attached, behind everybody's back.
func (c *Cloud) Kill(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			for _, d := range s.disks {
				delete(c.volumes, d)
			}
			s.disks = nil
			c.drop(s)
			return
		}
	}
}

// SetPower sets a server's power state as a person at the console would.
func (c *Cloud) SetPower(name string, power machine.PowerState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			s.power = power
			c.changed(s.mark)
		}
	}
}

// SetUnreadable makes a server one that the cloud cannot vouch for; "" heals it.
func (c *Cloud) SetUnreadable(name, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			s.unreadable = why
		}
	}
}

// AddServer puts a stranger's server into the cloud.
func (c *Cloud) AddServer(name string, mark machine.Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, &server{id: c.next("vm"), hardware: c.next("hw"), name: name, mark: mark, power: machine.PowerOff, visible: true})
}

// AddVolume puts a volume into the cloud that nobody's mark is on, attached to the named server if there is one.
func (c *Cloud) AddVolume(address, content, server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &volume{Volume: machine.Volume{Volume: address, Identity: c.next("disk"), SizeGiB: 1}, content: content}
	c.volumes[address] = v
	for _, s := range c.servers {
		if s.name == server {
			c.attach(s, v)
		}
	}
}

// RemoveVolume loses a volume.
func (c *Cloud) RemoveVolume(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.volumes, address)
}

// SetAddresses makes the guest of a server report other addresses than its place declares, interface by interface.
func (c *Cloud) SetAddresses(name string, addresses ...[]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			s.addresses = addresses
		}
	}
}

// SetChained gives a volume snapshots.
func (c *Cloud) SetChained(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.volumes[address].chained = true
}

// Power returns the power state of a server, "" if there is none of that name.
func (c *Cloud) Power(name string) machine.PowerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			return s.power
		}
	}
	return ""
}

// Move takes a volume off whatever server has it and attaches it to the named one, which is made if need be; "" leaves it
// unattached.
func (c *Cloud) Move(address, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.volumes[address]
	for _, s := range c.servers {
		s.disks = slices.DeleteFunc(s.disks, func(d string) bool { return d == address })
	}
	v.server = ""
	if to == "" {
		return
	}
	i := slices.IndexFunc(c.servers, func(s *server) bool { return s.name == to })
	if i < 0 {
		c.servers = append(c.servers, &server{id: c.next("vm"), hardware: c.next("hw"), name: to, mark: machine.Mark("mark of " + to), power: machine.PowerOff, visible: true})
		i = len(c.servers) - 1
	}
	c.attach(c.servers[i], v)
}

// Remark puts another mark on a server.
func (c *Cloud) Remark(name string, mark machine.Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			s.mark = mark
		}
	}
}

// Identity is a volume's, "" if there is none at the address.
func (c *Cloud) Identity(address string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.volumes[address]; v != nil {
		return v.Identity
	}
	return ""
}
