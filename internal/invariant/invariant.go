// Package invariant knows the promises of Berth and checks them against what really is: it is shown one snapshot of the
// simulated cloud and of the API server after another and says which promise was broken. It decides by values alone; where the
// snapshots come from is the business of the packages below it, one per platform.
//
// A snapshot cannot be taken at one instant from two systems. Records are therefore read before and after the cloud, and a
// breach is reported only if no order of events in between could excuse it.
package invariant

import (
	"fmt"
	"slices"
)

// Snapshot is the cloud, with the records as they were before and after it was read.
type Snapshot struct {
	Before, After Records
	Servers       []Server
	Volumes       []Volume
	// Misdeeds are what the simulated cloud itself saw a client do that it never should, all since the start.
	Misdeeds []string
}

// Records is what the API server says.
type Records struct {
	// Marks of all infrastructure machines that exist, with their names.
	Marks map[string]string
	Slots []Slot
	Disks []Disk
	// Retained are the pools whose disks are to outlive them.
	Retained []string
}

// Slot is a claim on record.
type Slot struct {
	Pool, HostName string
	// Mark of the holder; "" if nobody holds the slot.
	Mark string
}

// Disk is a persistent disk on record.
type Disk struct {
	Pool, HostName, Name string
	Volume, Identity     string
	// Expendable: its deletion is decided and recorded, or it was never complete.
	Expendable bool
}

// Server is a virtual machine that is not a template.
type Server struct {
	ID, Name, Mark string
	On             bool
	// Volumes attached, by address.
	Volumes []string
}

// Volume is a disk that exists.
type Volume struct{ Address, Identity string }

// Breach is a broken promise.
type Breach struct {
	// Promise is the number of the promise, 1 to 5.
	Promise int
	What    string
}

func (b Breach) String() string { return fmt.Sprintf("promise %d broken: %s", b.Promise, b.What) }

// Checker remembers what it has seen. The zero value is ready.
type Checker struct {
	// servers that were ever seen with a mark.
	servers map[string]string
	// holders of slots as last seen.
	holders map[string]string
	// volumes that hold somebody's data, by address, with the identity they had on record.
	volumes map[string]string
	// pools of these volumes.
	pools map[string]string
	// recorded are the pools of all volumes that were ever on record, by address.
	recorded map[string]string
	// retained are the pools that were ever to keep their disks.
	retained map[string]bool
	misdeeds int
	seen     map[string]bool
	breaches []Breach
}

// Breaches found so far, each once.
func (c *Checker) Breaches() []Breach { return slices.Clone(c.breaches) }

// Step looks at one more snapshot.
func (c *Checker) Step(s Snapshot) {
	if c.seen == nil {
		c.servers, c.holders, c.volumes, c.pools = map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
		c.recorded, c.retained, c.seen = map[string]string{}, map[string]bool{}, map[string]bool{}
	}
	for _, r := range []Records{s.Before, s.After} {
		for _, d := range r.Disks {
			c.recorded[d.Volume] = d.Pool
		}
		for _, pool := range r.Retained {
			c.retained[pool] = true
		}
	}
	c.claims(s)
	c.marks(s)
	c.data(s)
	c.attachments(s)
	for _, m := range s.Misdeeds[min(c.misdeeds, len(s.Misdeeds)):] {
		c.breach(2, "the cloud saw: %s", m)
	}
	c.misdeeds = len(s.Misdeeds)
}

// Final is Step for a world at rest: it also finds what was left behind.
func (c *Checker) Final(s Snapshot) {
	c.Step(s)
	for _, server := range s.Servers {
		if server.Mark != "" && s.After.Marks[server.Mark] == "" {
			c.breach(3, "server %s was left behind: no machine has its mark %s", server.Name, server.Mark)
		}
	}
	for _, v := range s.Volumes {
		// A pool that is there finds its volumes again, even one that lost its records.
		pool, known := c.recorded[v.Address]
		if known && !c.retained[pool] && !slices.ContainsFunc(s.After.Slots, func(slot Slot) bool { return slot.Pool == pool }) {
			c.breach(3, "volume %s was left behind: its pool %s is gone and was not told to keep it", v.Address, pool)
		}
	}
}

func (c *Checker) breach(promise int, format string, args ...any) {
	b := Breach{Promise: promise, What: fmt.Sprintf(format, args...)}
	if !c.seen[b.String()] {
		c.seen[b.String()] = true
		c.breaches = append(c.breaches, b)
	}
}

// claims: a slot changes hands only when the last holder's server is gone, and nobody holds two.
func (c *Checker) claims(s Snapshot) {
	alive := map[string]string{}
	for _, server := range s.Servers {
		if server.Mark != "" {
			alive[server.Mark] = server.Name
		}
	}
	holds := map[string]string{}
	for _, slot := range s.Before.Slots {
		key := slot.Pool + "/" + slot.HostName
		if slot.Mark != "" {
			if other, twice := holds[slot.Mark]; twice {
				c.breach(1, "machine with mark %s holds two slots, %s and %s", slot.Mark, other, key)
			}
			holds[slot.Mark] = key
		}
		last := c.holders[key]
		if name := alive[last]; last != "" && last != slot.Mark && name != "" {
			c.breach(1, "slot %s went from mark %s to %q while server %s of the former still exists", key, last, slot.Mark, name)
		}
		c.holders[key] = slot.Mark
	}
}

// marks: one server for one machine, ever; and no server without a machine.
func (c *Checker) marks(s Snapshot) {
	for _, server := range s.Servers {
		if server.Mark == "" {
			continue
		}
		if first, known := c.servers[server.Mark]; known && first != server.ID {
			c.breach(3, "mark %s was on server %s and is now on another one, %s (%s)", server.Mark, first, server.ID, server.Name)
		}
		c.servers[server.Mark] = server.ID
		if s.Before.Marks[server.Mark] == "" && s.After.Marks[server.Mark] == "" {
			c.breach(3, "server %s exists without a machine: nobody has its mark %s", server.Name, server.Mark)
		}
	}
}

// data: a volume on record stays, and stays the same one, until its deletion is on record.
func (c *Checker) data(s Snapshot) {
	exists := map[string]string{}
	for _, v := range s.Volumes {
		exists[v.Address] = v.Identity
	}
	recorded := map[string]Disk{}
	for _, d := range s.After.Disks {
		recorded[d.Volume] = d
	}
	for address, identity := range c.volumes {
		record, known := recorded[address]
		switch {
		case known && record.Expendable:
			delete(c.volumes, address)
		case !known && !slices.ContainsFunc(s.After.Slots, func(slot Slot) bool { return slot.Pool == c.pools[address] }):
			// The pool is gone, and with it, by an explicit act, its disks.
			delete(c.volumes, address)
		case exists[address] == "":
			c.breach(2, "volume %s with identity %s is gone, and no record says that it was to go", address, identity)
			delete(c.volumes, address)
		case exists[address] != identity:
			c.breach(2, "volume %s had identity %s and has %s: another disk stands in its place", address, identity, exists[address])
			delete(c.volumes, address)
		}
	}
	for _, d := range s.Before.Disks {
		after, still := recorded[d.Volume]
		if d.Identity != "" && !d.Expendable && still && !after.Expendable && after.Identity == d.Identity && exists[d.Volume] != "" {
			c.volumes[d.Volume], c.pools[d.Volume] = d.Identity, d.Pool
		}
	}
}

// attachments: a persistent volume is on at most one server.
func (c *Checker) attachments(s Snapshot) {
	on := map[string]string{}
	for _, server := range s.Servers {
		for _, v := range server.Volumes {
			if other, twice := on[v]; twice {
				c.breach(1, "volume %s is attached to two servers, %s and %s", v, other, server.Name)
			}
			on[v] = server.Name
		}
	}
}
