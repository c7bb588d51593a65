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
	SkipInvalid     SkipReason = "not right as declared"
	SkipLocation    SkipReason = "in another location"
	SkipZone        SkipReason = "outside the failure domain"
)

var skipOrder = []SkipReason{SkipInUse, SkipVacating, SkipReclaiming, SkipQuarantined, SkipInvalid, SkipBusy, SkipLocation, SkipZone}

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

// SlotGone: the machine's own record names a slot that the pool does not declare any more.
type SlotGone struct{ Pool, HostName string }

func (e *SlotGone) Error() string {
	return fmt.Sprintf("pool %s has no slot %s any more, and this machine is recorded in it: put the slot back", e.Pool, e.HostName)
}

// SlotQuarantined: the machine's own slot must be looked at by a human first.
type SlotQuarantined struct{ Pool, HostName, Contradiction string }

func (e *SlotQuarantined) Error() string {
	return fmt.Sprintf("slot %s of pool %s is quarantined: %s", e.HostName, e.Pool, e.Contradiction)
}

// SlotBusy: the machine's own slot cannot be used at the moment.
type SlotBusy struct{ Pool, HostName, Why string }

func (e *SlotBusy) Error() string {
	return fmt.Sprintf("slot %s of pool %s has to wait: %s", e.HostName, e.Pool, e.Why)
}

// Same reports whether two holders are the same machine: by mark where both have one, else by UID. A name is no proof: a new
// machine may have an old one's name (VS-A11).
func (h Holder) Same(o Holder) bool {
	if h.Mark != "" && o.Mark != "" {
		return h.Mark == o.Mark
	}
	return h.UID != "" && h.UID == o.UID
}

// Pick decides which place a machine gets. In this order (VS-A9 to A12): the place it has, the place its own record names, the
// first released one, the first one never used, both in the order of the declaration. It returns why every other slot was not
// given when none was found. The caller must write the choice with a version precondition before acting on it.
func Pick(v View, r Request) (Choice, []Skip, error) {
	if v.Cluster != "" && r.Cluster != "" && v.Cluster != r.Cluster {
		return Choice{}, nil, &OtherCluster{Pool: v.Pool, PoolCluster: v.Cluster, Cluster: r.Cluster}
	}
	records := make(map[string]Record, len(v.Records))
	for _, rec := range v.Records {
		records[rec.HostName] = rec
	}
	if c, err := pickOwn(v, r, records); c != nil || err != nil {
		if err != nil {
			return Choice{}, nil, err
		}
		return *c, nil, nil
	}
	if r.Consumer == nil {
		return Choice{}, nil, &ConsumerUnknown{Pool: v.Pool, Machine: r.Holder.Name}
	}
	if v.Consumer != nil && !v.Consumer.Same(*r.Consumer) {
		return Choice{}, nil, &PoolBoundToOtherConsumer{Pool: v.Pool, Bound: *v.Consumer, Ask: *r.Consumer}
	}
	if r.HostName != "" {
		c, err := pickNamed(v, r, records)
		return c, nil, err
	}
	skipped := make([]Skip, 0, len(v.Slots))
	for _, wanted := range []State{Released, Available} {
		for _, s := range v.Slots {
			rec, known := records[s.HostName]
			state := rec.State
			if !known || state == "" {
				state = Available
			}
			skip := eligible(v, r, s, rec, state)
			if skip == nil && state == wanted {
				return choose(v, r, s), nil, nil
			}
			if skip != nil && wanted == Released {
				skipped = append(skipped, *skip)
			}
		}
	}
	return Choice{}, skipped, &NoAvailableSlots{Pool: v.Pool, Location: r.Location, Zone: r.Zone, Slots: len(v.Slots), Skipped: skipped}
}

// pickOwn finds the slot that the machine holds already. A slot that only remembers it (Released) is taken again unless its
// disks are going.
func pickOwn(v View, r Request, records map[string]Record) (*Choice, error) {
	var found *Slot
	for i := range v.Slots {
		rec, known := records[v.Slots[i].HostName]
		if !known || !owns(rec, r) {
			continue
		}
		if found == nil || rec.State == Held {
			found = &v.Slots[i]
		}
		if rec.State == Held {
			break
		}
	}
	if found == nil {
		return nil, removed(v, r, records)
	}
	rec := records[found.HostName]
	switch rec.State {
	case Quarantined:
		return nil, &SlotQuarantined{Pool: v.Pool, HostName: found.HostName, Contradiction: rec.Contradiction}
	case Held:
		c := choose(v, r, *found)
		c.Changed = rec.Holder != r.Holder || v.Consumer == nil && r.Consumer != nil
		return &c, nil
	case Vacating:
		c := choose(v, r, *found)
		return &c, nil
	case Released:
		if _, busy := v.Busy[found.HostName]; busy || v.Consumer != nil && r.Consumer != nil && !v.Consumer.Same(*r.Consumer) {
			return nil, nil
		}
		c := choose(v, r, *found)
		return &c, nil
	case Available, Reclaiming:
	}
	return nil, nil
}

// removed: a machine whose slot was taken out of the declaration gets no other one. It would hold two, and its disks would stay
// with the first.
func removed(v View, r Request, records map[string]Record) error {
	for _, rec := range records {
		switch rec.State {
		case Held, Vacating, Quarantined:
			if owns(rec, r) {
				return &SlotGone{Pool: v.Pool, HostName: rec.HostName}
			}
		case Available, Released, Reclaiming:
		}
	}
	return nil
}

// owns: a record of another machine, or of a machine known by its name alone, is not ours, unless our own record names the
// slot and nothing else speaks against it.
func owns(rec Record, r Request) bool {
	if rec.Holder.Same(r.Holder) {
		return true
	}
	nameless := rec.Holder.UID == "" && rec.Holder.Mark == "" && rec.Holder.Name != ""
	return nameless && rec.HostName == r.HostName && rec.Holder.Name == r.Holder.Name
}

// pickNamed gives a machine the place that its own record names: the pool's status was lost or is older than the claim.
func pickNamed(v View, r Request, records map[string]Record) (Choice, error) {
	for _, s := range v.Slots {
		if s.HostName != r.HostName {
			continue
		}
		rec := records[s.HostName]
		switch rec.State {
		case Held, Vacating:
			return Choice{}, &SlotHeldByOther{Pool: v.Pool, HostName: s.HostName, Holder: rec.Holder.Name}
		case Quarantined:
			return Choice{}, &SlotQuarantined{Pool: v.Pool, HostName: s.HostName, Contradiction: rec.Contradiction}
		case Reclaiming:
			return Choice{}, &SlotBusy{Pool: v.Pool, HostName: s.HostName, Why: "its disks are being deleted"}
		case Available, Released:
		}
		if why, busy := v.Busy[s.HostName]; busy {
			return Choice{}, &SlotBusy{Pool: v.Pool, HostName: s.HostName, Why: why}
		}
		return choose(v, r, s), nil
	}
	return Choice{}, &SlotGone{Pool: v.Pool, HostName: r.HostName}
}

func eligible(v View, r Request, s Slot, rec Record, state State) *Skip {
	skip := func(reason SkipReason, detail string) *Skip {
		return &Skip{HostName: s.HostName, Reason: reason, Detail: detail}
	}
	switch state {
	case Held:
		return skip(SkipInUse, rec.Holder.Name)
	case Vacating:
		return skip(SkipVacating, rec.Holder.Name)
	case Reclaiming:
		return skip(SkipReclaiming, "")
	case Quarantined:
		return skip(SkipQuarantined, rec.Contradiction)
	case Available, Released:
	}
	if why, invalid := v.Invalid[s.HostName]; invalid {
		return skip(SkipInvalid, why)
	}
	if why, busy := v.Busy[s.HostName]; busy {
		return skip(SkipBusy, why)
	}
	if !anywhere(r.Location) && s.Location != "" && s.Location != r.Location {
		return skip(SkipLocation, s.Location)
	}
	if len(r.ZoneLocations) > 0 && s.Location != "" {
		for _, l := range r.ZoneLocations {
			if l == s.Location {
				return nil
			}
		}
		return skip(SkipZone, s.Location)
	}
	return nil
}

func anywhere(location string) bool { return location == "" || location == anyLocation }

func choose(v View, r Request, s Slot) Choice {
	c := Choice{Slot: s, Record: Record{HostName: s.HostName, State: Held, Holder: r.Holder}, Changed: true}
	switch {
	case v.Consumer != nil:
		c.Consumer = *v.Consumer
	case r.Consumer != nil:
		c.Consumer = *r.Consumer
	}
	return c
}
