package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// claimResult is one case of many machines that want slots at the same time.
type claimResult struct {
	Machines int `json:"machines"`
	Pools    int `json:"pools"`
	Slots    int `json:"slots"`
	CPUs     int `json:"cpus"`
	// P50, P99 and Last are from the answer to a VSphereMachine's creation until a watch shows its claim, in seconds; All is from
	// the first creation until the last claim.
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Last float64 `json:"last"`
	All  float64 `json:"all"`
	// Writes are those of the pools' status until the last claim, Conflicts those of the manager that were refused.
	Writes    int64 `json:"writes"`
	Conflicts int64 `json:"conflicts"`
	// BytesNew and BytesClaimed are the size of a pool as the API server has it, before the machines and when all have a slot.
	BytesNew     int `json:"bytesNew"`
	BytesClaimed int `json:"bytesClaimed"`
	// Doubles are claims that must not be: two machines in one slot, two slots for one machine.
	Doubles []string `json:"doubles,omitempty"`
}

// claims measures the two cases that docs/benchmark.md shows.
func claims(ctx context.Context, o options, out, progress io.Writer) error {
	var results []*claimResult
	var errs []error
	for _, c := range []claimResult{{Machines: 200, Pools: 1, Slots: 300}, {Machines: 200, Pools: 10, Slots: 100}} {
		r := &c
		r.CPUs = runtime.NumCPU()
		if err := r.measure(ctx, o, progress); err != nil {
			errs = append(errs, fmt.Errorf("%d machines in %d pools of %d slots: %w", r.Machines, r.Pools, r.Slots, err))
			continue
		}
		results = append(results, r)
		if len(r.Doubles) > 0 {
			errs = append(errs, fmt.Errorf("double claims: %s", strings.Join(r.Doubles, "; ")))
		}
	}
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return errors.Join(append(errs, encoder.Encode(results))...)
	}
	for _, r := range results {
		fmt.Fprintf(out, "%d machines at once, %d pool(s) of %d slots, on %d CPUs: no double claim: %v\n"+
			"  created to claimed [s]                  p50 %.2f   p99 %.2f   last %.2f\n"+
			"  first creation to last claim [s]        %.1f\n"+
			"  writes of pool status until last claim  %d (%.2f per machine), conflicts of the manager %d\n"+
			"  bytes of a pool                         new %d, when all have a slot %d (%d per slot)\n",
			r.Machines, r.Pools, r.Slots, r.CPUs, len(r.Doubles) == 0, r.P50, r.P99, r.Last, r.All,
			r.Writes, float64(r.Writes)/float64(r.Machines), r.Conflicts, r.BytesNew, r.BytesClaimed, r.BytesClaimed/r.Slots)
	}
	return errors.Join(errs...)
}

func (r *claimResult) measure(ctx context.Context, o options, progress io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within %s", o.timeout))
	defer cancel()
	w, err := newWorld(ctx, o, clouds[0], r.Machines, progress)
	defer func() { err = errors.Join(err, w.end(ctx, o.keep)) }()
	if err != nil {
		return err
	}
	p, err := newProbe(ctx, w)
	if err != nil {
		return err
	}
	actor := newClusterAPI(w, r.Machines)
	actor.slots, actor.pools, actor.atOnce = r.Slots, r.Pools, r.Machines
	if err := actor.watch(ctx); err != nil {
		return err
	}
	seen := &claimWatch{actor: actor, times: map[string]time.Time{}, holders: map[string]string{}, slots: map[string]string{}}
	if err := seen.watch(ctx); err != nil {
		return err
	}
	actor.say("making the cluster, %d pool(s) of %d slots and %d Machines", r.Pools, r.Slots, r.Machines)
	if err := actor.surroundings(ctx); err != nil {
		return err
	}
	before, err := p.settled(ctx)
	if err != nil {
		return err
	}
	if r.BytesNew, err = actor.poolBytes(ctx); err != nil {
		return err
	}
	actor.say("creating %d VSphereMachines at once", r.Machines)
	begun := time.Now()
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return actor.machines(inner) })
	group.Go(func() error { return actor.all(inner, seen.times, "claimed") })
	if err := group.Wait(); err != nil {
		return err
	}
	r.All = time.Since(begun).Seconds()
	claimed, err := p.sample(ctx)
	if err != nil {
		return err
	}
	part := between(before, claimed)
	r.Writes, r.Conflicts = poolWrites(part.Objects), part.Conflicts
	actor.say("all have a slot after %.1f s", r.All)
	if r.BytesClaimed, err = actor.poolBytes(ctx); err != nil {
		return err
	}
	r.P50, r.P99, r.Last = quantiles(actor.created, seen.times)
	r.Doubles = seen.doubles
	if violations, err := w.vcenter.Violations(ctx); err != nil {
		return err
	} else if len(violations) > 0 {
		return fmt.Errorf("the simulated vCenter saw %v", violations)
	}
	return nil
}

// poolWrites counts the writes of pools' status, whoever made them.
func poolWrites(objects counts) int64 {
	return objects.where(func(kind string) bool { return strings.Contains(kind, "vspheremachineconfigpools/status") })
}

// quantiles of the times between two events, in seconds.
func quantiles(from, to map[string]time.Time) (p50, p99, last float64) {
	var all []float64
	for name, begun := range from {
		// A claim may be seen before the answer to the creation is.
		all = append(all, max(0, to[name].Sub(begun).Seconds()))
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(math.Ceil(q*float64(len(all))))-1] }
	return at(0.5), at(0.99), at(1)
}

// claimWatch notes when each machine's claim shows in a pool, and what must not be.
type claimWatch struct {
	actor *clusterAPI
	times map[string]time.Time

	mu             sync.Mutex
	holders, slots map[string]string
	doubles        []string
}

func (c *claimWatch) watch(ctx context.Context) error {
	informer, err := c.actor.cache.GetInformer(ctx, &infrav1.VSphereMachineConfigPool{})
	if err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	look := func(obj any) {
		if p, ok := obj.(*infrav1.VSphereMachineConfigPool); ok {
			c.look(p)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }})
	return err
}

func (c *claimWatch) look(p *infrav1.VSphereMachineConfigPool) {
	for _, s := range p.Status.ConfigStatuses {
		if s.State != infrav1.ConfigStateInUse || s.MachineRef == nil {
			continue
		}
		c.mu.Lock()
		if other := c.holders[s.Hostname]; other != "" && other != s.MachineRef.Name {
			c.doubles = append(c.doubles, fmt.Sprintf("slot %s: %s and %s", s.Hostname, other, s.MachineRef.Name))
		}
		if other := c.slots[s.MachineRef.Name]; other != "" && other != s.Hostname {
			c.doubles = append(c.doubles, fmt.Sprintf("machine %s: %s and %s", s.MachineRef.Name, other, s.Hostname))
		}
		c.holders[s.Hostname], c.slots[s.MachineRef.Name] = s.MachineRef.Name, s.Hostname
		c.mu.Unlock()
		c.actor.note(c.times, s.MachineRef.Name)
	}
}

// poolBytes is the size of the first pool as the API server keeps it: its JSON, with everything that it adds.
func (c *clusterAPI) poolBytes(ctx context.Context) (int, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.APIPath = &infrav1.GroupVersion, "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		return 0, err
	}
	body, err := raw.Get().Namespace(namespace).Resource("vspheremachineconfigpools").Name(poolName).Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("reading pool %s: %w", poolName, err)
	}
	return len(body), nil
}
