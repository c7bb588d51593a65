package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// row is one line of the table.
type row struct {
	title string
	// value of a case; ok is false if it was not measured.
	value func(*result) (v float64, ok bool)
	// format of the value, "%.1f" if empty.
	format string
	// aim is shown; missed says whether a value misses it.
	aim    string
	missed func(*result, float64) bool
	// upstream is what CAPV, whose API this provider has, needed on the same simulator.
	upstream string
}

func above(limit float64) func(*result, float64) bool {
	return func(_ *result, v float64) bool { return v > limit }
}

// per divides a count of a phase by the number of machines.
func per(phaseOf func(*result) *phase, count func(*phase) int64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) {
		p := phaseOf(r)
		if p == nil {
			return 0, false
		}
		return float64(count(p)) / float64(r.Machines), true
	}
}

func whole(phaseOf func(*result) *phase, value func(*phase) float64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) {
		p := phaseOf(r)
		if p == nil {
			return 0, false
		}
		return value(p), true
	}
}

func creating(r *result) *phase   { return r.Create }
func resting(r *result) *phase    { return r.Rest }
func restarting(r *result) *phase { return r.Restart }
func deleting(r *result) *phase   { return r.Delete }

func calls(p *phase) int64     { return p.Calls.total() }
func longPolls(p *phase) int64 { return p.Calls[longPoll] }
func writes(p *phase) int64    { return p.Writes }
func conflicts(p *phase) int64 { return p.Conflicts }
func events(p *phase) int64    { return p.Events }
func reads(p *phase) int64     { return p.Reads }
func cpu(p *phase) float64     { return p.CPUSeconds }
func otherCPU(p *phase) (sum float64) {
	for _, used := range p.OtherCPUSeconds {
		sum += used
	}
	return sum
}

func machineReconciles(p *phase) int64 {
	return p.Reconciles[machineController]
}

// perResync divides a count of the resync's phase by how often each machine was looked at.
func perResync(count func(*phase) int64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) {
		if r.Resync == nil || r.Resyncs == 0 {
			return 0, false
		}
		return float64(count(r.Resync)) / float64(r.Machines) / r.Resyncs, true
	}
}

func seconds(of func(*result) *spread, pick func(*spread) float64) func(*result) (float64, bool) {
	return func(r *result) (float64, bool) {
		if s := of(r); s != nil {
			return pick(s), true
		}
		return 0, false
	}
}

func ready(r *result) *spread   { return r.Ready }
func gone(r *result) *spread    { return r.Gone }
func p50(s *spread) float64     { return s.P50 }
func slowest(s *spread) float64 { return s.Last }

// rows of the table; a row without a value is a heading.
var rows = []row{
	{title: "Creation, per machine"},
	{title: "vCenter calls", value: per(creating, calls), aim: "20", missed: above(20), upstream: "124-214"},
	{title: "  of these, waits for news (WaitForUpdatesEx)", value: per(creating, longPolls)},
	{title: "new TLS connections, all machines together", value: func(r *result) (float64, bool) {
		return float64(r.Connections), r.Create != nil
	}, format: "%.0f", upstream: "112-201"},
	{title: "new TLS connections per vCenter call", value: func(r *result) (float64, bool) {
		if r.Create == nil || r.Create.Calls.total() == 0 {
			return 0, false
		}
		return float64(r.Connections) / float64(r.Create.Calls.total()), true
	}, format: "%.3f", aim: "0.05", missed: above(0.05)},
	{title: "Kubernetes writes", value: per(creating, writes), aim: "12", missed: above(12), upstream: "28-46"},
	{title: "  of these, conflicts", value: per(creating, conflicts), format: "%.2f", aim: "~0", missed: above(0.05), upstream: "up to 1/3"},
	{title: "Events", value: per(creating, events)},
	{title: "Kubernetes reads", value: per(creating, reads)},
	{title: "passes of the controller", value: per(creating, machineReconciles)},
	{title: "created to ready, p50 [s]", value: seconds(ready, p50), upstream: "12, 57, 64"},
	{title: "created to ready, last [s]", value: seconds(ready, slowest), aim: "6 (20, instant)", missed: func(r *result, v float64) bool {
		return r.VCenter == "instant" && r.Machines == 20 && v > 6
	}},
	{title: "At rest, per machine"},
	{title: "vCenter calls", value: per(resting, func(p *phase) int64 { return calls(p) - longPolls(p) }), format: "%.2f", aim: "0", missed: above(0)},
	{title: "waits for news, all machines together", value: whole(resting, func(p *phase) float64 { return float64(longPolls(p)) }), format: "%.0f"},
	{title: "Kubernetes writes", value: per(resting, writes), format: "%.2f", aim: "0", missed: above(0)},
	{title: "One resync, per machine"},
	{title: "vCenter calls", value: perResync(calls), format: "%.2f", aim: "1", missed: above(1.01), upstream: "9"},
	{title: "Kubernetes writes", value: perResync(writes), format: "%.2f", aim: "0", missed: above(0)},
	{title: "Start of a manager, per machine that is there"},
	{title: "vCenter calls", value: per(restarting, calls)},
	{title: "Kubernetes writes", value: per(restarting, writes), format: "%.2f"},
	{title: "Deletion, per machine"},
	{title: "vCenter calls", value: per(deleting, calls), aim: "12", missed: above(12), upstream: "47-130"},
	{title: "  of these, waits for news (WaitForUpdatesEx)", value: per(deleting, longPolls)},
	{title: "Kubernetes writes", value: per(deleting, writes)},
	{title: "  of these, conflicts", value: per(deleting, conflicts), format: "%.2f", aim: "~0", missed: above(0.05)},
	{title: "Events", value: per(deleting, events)},
	{title: "Kubernetes reads", value: per(deleting, reads)},
	{title: "passes of the controller", value: per(deleting, machineReconciles)},
	{title: "deleted to gone, p50 [s]", value: seconds(gone, p50)},
	{title: "deleted to gone, last [s]", value: seconds(gone, slowest)},
	{title: "first deletion to all slots free [s]", value: func(r *result) (float64, bool) { return r.SlotsFree, r.SlotsFree > 0 }},
	{title: "Manager, all machines together"},
	{title: "CPU while creating [s]", value: whole(creating, cpu)},
	{title: "CPU while deleting [s]", value: whole(deleting, cpu)},
	{title: "CPU of all other processes while creating [s]", value: whole(creating, otherCPU)},
	{title: "CPU of all other processes while deleting [s]", value: whole(deleting, otherCPU)},
	{title: "peak memory (VmHWM) [MiB]", value: func(r *result) (float64, bool) { return float64(r.PeakMemory) / (1 << 20), r.PeakMemory > 0 }, format: "%.0f"},
}

// Widths of the columns.
const (
	titleWidth  = 46
	valueWidth  = 9
	aimWidth    = 17
	columnWidth = 13
)

// report prints a table per vCenter: what was measured, the aim, and what upstream needed. "!" marks a missed aim.
func report(out io.Writer, results []*result) error {
	var text strings.Builder
	for _, c := range clouds {
		var of []*result
		for _, r := range results {
			if r.VCenter == c.Name {
				of = append(of, r)
			}
		}
		if len(of) > 0 {
			summary(&text, c, of)
			breakdown(&text, "vCenter calls per machine, by method", of, func(p *phase) counts { return p.calls() })
			breakdown(&text, "Kubernetes writes per machine, by object", of, func(p *phase) counts { return p.objects() })
			breakdown(&text, "  of these, answered with a conflict", of, func(p *phase) counts { return p.conflicted() })
			breakdown(&text, "Kubernetes reads per machine, by object", of, func(p *phase) counts { return p.looks() })
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func summary(text *strings.Builder, c cloud, results []*result) {
	fmt.Fprintf(text, "\n%s; measured on %d CPUs\n\n%-*s", capital(c.Text), results[0].CPUs, titleWidth, "Machines")
	for _, r := range results {
		fmt.Fprintf(text, "%*d ", valueWidth, r.Machines)
	}
	fmt.Fprintf(text, "%*s%11s\n", aimWidth, "aim, at most", "upstream")
	for _, line := range rows {
		if line.value == nil {
			fmt.Fprintf(text, "%s\n", line.title)
			continue
		}
		fmt.Fprintf(text, "  %-*s", titleWidth-2, line.title)
		for _, r := range results {
			v, ok := line.value(r)
			if !ok {
				fmt.Fprintf(text, "%*s ", valueWidth, "-")
				continue
			}
			format := line.format
			if format == "" {
				format = "%.1f"
			}
			mark := " "
			if line.missed != nil && line.missed(r, v) {
				mark = "!"
			}
			fmt.Fprintf(text, "%*s%s", valueWidth, fmt.Sprintf(format, v), mark)
		}
		text.WriteString(strings.TrimRight(fmt.Sprintf("%*s%11s", aimWidth, line.aim, line.upstream), " ") + "\n")
	}
	for _, r := range results {
		for _, v := range r.Violations {
			fmt.Fprintf(text, "VIOLATION with %d machines: %s\n", r.Machines, v)
		}
	}
}

// breakdown prints counts per machine by kind, the frequent first, for creation and deletion and every number of machines.
// Without any it prints nothing.
func breakdown(text *strings.Builder, title string, results []*result, of func(*phase) counts) {
	type column struct {
		title    string
		machines int
		counts   counts
	}
	var (
		columns []column
		sums    = map[string]float64{}
	)
	for _, r := range results {
		columns = append(columns, column{fmt.Sprintf("creation %d", r.Machines), r.Machines, of(r.Create)})
	}
	for _, r := range results {
		columns = append(columns, column{fmt.Sprintf("deletion %d", r.Machines), r.Machines, of(r.Delete)})
	}
	for _, c := range columns {
		for kind, n := range c.counts {
			sums[kind] += float64(n) / float64(c.machines)
		}
	}
	if len(sums) == 0 {
		return
	}
	fmt.Fprintf(text, "\n%-*s", titleWidth, title)
	for _, c := range columns {
		fmt.Fprintf(text, "%*s", columnWidth, c.title)
	}
	text.WriteString("\n")
	kinds := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	})
	for _, kind := range kinds {
		fmt.Fprintf(text, "  %-*s", titleWidth-2, kind)
		for _, c := range columns {
			v := "-"
			if n := c.counts[kind]; n != 0 {
				v = fmt.Sprintf("%.2f", float64(n)/float64(c.machines))
			}
			fmt.Fprintf(text, "%*s", columnWidth, v)
		}
		text.WriteString("\n")
	}
}

func (p *phase) calls() counts {
	if p == nil {
		return nil
	}
	return p.Calls
}

func (p *phase) objects() counts {
	if p == nil {
		return nil
	}
	return p.Objects
}

func (p *phase) looks() counts {
	if p == nil {
		return nil
	}
	return p.Looks
}

// conflicted marks the kinds apart from the requests that they are a part of.
func (p *phase) conflicted() counts {
	out := counts{}
	if p != nil {
		for kind, n := range p.Conflicted {
			out["  "+kind] = n
		}
	}
	return out
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
