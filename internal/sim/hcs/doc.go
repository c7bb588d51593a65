// Package hcs simulates a Huawei Cloud Stack: servers, volumes, networks, images and load balancers, spoken to over the real REST
// API by any client that signs its requests.
//
// It is as strict as the real platform where that matters to data. Writes are jobs, and a job may end before its effect can be
// seen. An address belongs to one server. A volume is attached only in its own zone, to one server, one at a time. Deleting a
// server deletes every volume that is still attached to it. Names are not unique, and filters by name are not exact. What a
// client did that a careful one would not do is recorded as a violation.
//
// The content of a volume is the directory <disks>/<volume ID without dashes>; whoever plays the guest owns what is inside, the
// simulator removes it with the volume. Load balancers really forward TCP connections on loopback addresses.
//
// A second listener, the side channel, is for tests and for guests: the whole world, violations, counters, faults.
package hcs
