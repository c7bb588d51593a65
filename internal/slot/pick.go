package slot

import (
	"fmt"
	"sort"
	"strings"
)

// Request is a machine asking for a place.
type Request struct {
	// Holder identifies the machine.
	Holder Holder
	// Consumer is the owner of the machine's kind of machines, nil when it could not be resolved.
	Consumer *Consumer
	// Cluster is the machine's; it must be the pool's.
	Cluster string
	// HostName is the place that the machine's own record says it has, "" if none: after the pool's status was lost the
	// machine gets exactly that one back.
	HostName string
	// Location wanted; "" and "*" mean any.
	Location string
	// Zone is the failure domain's name for messages; ZoneLocations, if not empty, are the locations it allows.
	Zone          string
	ZoneLocations []string
}

// Choice is the place that Pick gives.
type Choice struct {
	Slot Slot
	// Record is the slot's next record, Held by the machine.
	Record Record
	// Consumer the pool is bound to afterwards.
	Consumer Consumer
	// Changed is false when the machine had the place already and nothing needs to be written.
	Changed bool
}

// Skip says why one slot was not given.
type Skip struct {
	HostName string
	Reason   SkipReason
	// Detail in words, "" when the reason says it all.
	Detail string
}

// SkipReason is why a slot cannot be given to a request.
type SkipReason string

// The reasons, in the order in which a message lists them.
const (
	SkipInUse       SkipReason = "in use"
	SkipVacating    SkipReason = "waiting for the previous machine and node to go"
	SkipReclaiming  SkipReason = "having its disks deleted"
	SkipQuarantined SkipReason = "quarantined"
	SkipBusy        SkipReason = "held back by its disks"
	SkipLocation    SkipReason = "in another location"
	SkipZone        SkipReason = "outside the failure domain"
)

var skipOrder = []SkipReason{SkipInUse, SkipVacating, SkipReclaiming, SkipQuarantined, SkipBusy, SkipLocation, SkipZone}

// PoolBoundToOtherConsumer: the pool serves somebody else's machines (VS-A4).
type PoolBoundToOtherConsumer struct {
	Pool       string
	Bound, Ask Consumer
}

func (e *PoolBoundToOtherConsumer) Error() string {
	return fmt.Sprintf("pool %s is bound to %s, and this machine belongs to %s: a pool serves one owner; give this one a pool of its own, or empty the pool to unbind it",
		e.Pool, e.Bound, e.Ask)
}

// NoAvailableSlots: every slot of the pool was skipped (VS-A9 and following).
type NoAvailableSlots struct {
	Pool           string
	Location, Zone string
	Slots          int
	Skipped        []Skip
}

func (e *NoAvailableSlots) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no free slot in pool %s", e.Pool)
	if e.Location != "" && e.Location != anyLocation {
		fmt.Fprintf(&b, ", datacenter or zone %q", e.Location)
	}
	if e.Zone != "" {
		fmt.Fprintf(&b, ", failure domain %q", e.Zone)
	}
	by := map[SkipReason][]Skip{}
	for _, s := range e.Skipped {
		by[s.Reason] = append(by[s.Reason], s)
	}
	var parts []string
	for _, r := range skipOrder {
		if n := len(by[r]); n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s%s", n, e.Slots, r, names(by[r])))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "the pool has no slots")
	}
	fmt.Fprintf(&b, ": %s. Add a slot to the pool or wait until one is released", strings.Join(parts, "; "))
	return b.String()
}

// names lists up to three slots with their details; a pool of hundreds must not make a message of hundreds.
func names(skips []Skip) string {
	const most = 3
	sort.SliceStable(skips, func(i, j int) bool { return skips[i].Detail != "" && skips[j].Detail == "" })
	var out []string
	for i, s := range skips {
		if i == most {
			out = append(out, "...")
			break
		}
		if s.Detail == "" {
			out = append(out, s.HostName)
		} else {
			out = append(out, s.HostName+": "+s.Detail)
		}
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// ConsumerUnknown: the owner of the machine could not be resolved (VS-A1).
type ConsumerUnknown struct{ Pool, Machine string }

func (e *ConsumerUnknown) Error() string {
	return fmt.Sprintf("machine %s may not take a slot of pool %s: it belongs to no KubeadmControlPlane and no MachineDeployment", e.Machine, e.Pool)
}

// OtherCluster: the pool belongs to another cluster than the machine (VS-A8).
type OtherCluster struct{ Pool, PoolCluster, Cluster string }

func (e *OtherCluster) Error() string {
	return fmt.Sprintf("pool %s belongs to cluster %q, the machine to cluster %q: set the pool's clusterRef or name another pool", e.Pool, e.PoolCluster, e.Cluster)
}

// SlotHeldByOther: the machine's own record names a slot that another machine holds now.
type SlotHeldByOther struct{ Pool, HostName, Holder string }

func (e *SlotHeldByOther) Error() string {
	return fmt.Sprintf("slot %s of pool %s is recorded as this machine's but held by %s: two machines claim one place, a human must decide", e.HostName, e.Pool, e.Holder)
}

const anyLocation = "*"

// String names a consumer for people.
func (c Consumer) String() string { return fmt.Sprintf("%s %s/%s", c.Kind, c.Namespace, c.Name) }
