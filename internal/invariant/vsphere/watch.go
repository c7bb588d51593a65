// Package vsphere shows the simulated vCenter and the API server to the invariant checker.
package vsphere

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/invariant"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// Watch looks at both worlds again and again until it is stopped.
type Watch struct {
	cloud   *vcenter.Admin
	records client.Reader

	mu      sync.Mutex
	checker invariant.Checker
	looks   int

	cancel context.CancelFunc
	ended  chan struct{}
}

// Start begins to watch. records must read from the API server itself, not from a cache.
func Start(ctx context.Context, cloud *vcenter.Admin, records client.Reader, every time.Duration) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{cloud: cloud, records: records, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			// A look that fails (the API server is busy) proves nothing and breaks nothing.
			_ = w.look(ctx, (*invariant.Checker).Step)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// Look looks once more, now: for a test that knows when something has changed.
func (w *Watch) Look(ctx context.Context) error { return w.look(ctx, (*invariant.Checker).Step) }

// Breaches found so far.
func (w *Watch) Breaches() []invariant.Breach {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.Breaches()
}

// Stop ends the watch with a last look at a world at rest. The error says that it could not look, or never could.
func (w *Watch) Stop(ctx context.Context) ([]invariant.Breach, error) {
	w.cancel()
	<-w.ended
	if err := w.look(ctx, (*invariant.Checker).Final); err != nil {
		return nil, err
	}
	if w.looks < 2 {
		return nil, errors.New("the invariant checker could not look even twice")
	}
	return w.Breaches(), nil
}

func (w *Watch) look(ctx context.Context, show func(*invariant.Checker, invariant.Snapshot)) error {
	before, err := Records(ctx, w.records)
	if err != nil {
		return err
	}
	world, err := w.cloud.World(ctx)
	if err != nil {
		return fmt.Errorf("reading the simulated vCenter: %w", err)
	}
	violations, err := w.cloud.Violations(ctx)
	if err != nil {
		return fmt.Errorf("reading the simulated vCenter's violations: %w", err)
	}
	after, err := Records(ctx, w.records)
	if err != nil {
		return err
	}
	s := snapshot(world, violations)
	s.Before, s.After = before, after
	w.mu.Lock()
	defer w.mu.Unlock()
	show(&w.checker, s)
	w.looks++
	return nil
}

func snapshot(world *vcenter.World, violations []vcenter.Violation) invariant.Snapshot {
	var s invariant.Snapshot
	for _, vm := range world.VMs {
		if vm.Template {
			continue
		}
		server := invariant.Server{ID: vm.Ref, Name: vm.Name, Mark: vm.InstanceUUID, On: vm.Power == "poweredOn"}
		for _, d := range vm.Disks {
			server.Volumes = append(server.Volumes, d.Path)
		}
		s.Servers = append(s.Servers, server)
	}
	for _, d := range world.Disks {
		s.Volumes = append(s.Volumes, invariant.Volume{Address: d.Path, Identity: normal(d.UUID)})
	}
	for _, v := range violations {
		s.Misdeeds = append(s.Misdeeds, fmt.Sprintf("%s: %s", v.Kind, v.Detail))
	}
	return s
}

// Records reads what the API server says about machines and pools.
func Records(ctx context.Context, c client.Reader) (invariant.Records, error) {
	r := invariant.Records{Marks: map[string]string{}}
	machines := &infrav1.VSphereMachineList{}
	if err := c.List(ctx, machines); err != nil {
		return r, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	for _, m := range machines.Items {
		if mark := m.Annotations[infrav1.MarkAnnotation]; mark != "" {
			r.Marks[mark] = m.Namespace + "/" + m.Name
		}
	}
	pools := &infrav1.VSphereMachineConfigPoolList{}
	if err := c.List(ctx, pools); err != nil {
		return r, fmt.Errorf("listing VSphereMachineConfigPools: %w", err)
	}
	for _, p := range pools.Items {
		pool := p.Namespace + "/" + p.Name
		if retained, err := keeps(ctx, c, &p); err != nil {
			return r, err
		} else if retained {
			r.Retained = append(r.Retained, pool)
		}
		for _, s := range p.Status.ConfigStatuses {
			slot := invariant.Slot{Pool: pool, HostName: s.Hostname}
			if s.State == infrav1.ConfigStateInUse {
				slot.Mark = s.Mark
			}
			r.Slots = append(r.Slots, slot)
		}
		for _, d := range p.Status.PersistentDiskStatuses {
			r.Disks = append(r.Disks, invariant.Disk{
				Pool: pool, HostName: d.Hostname, Name: d.Name, Volume: d.VolumePath, Identity: normal(d.DiskUUID),
				Expendable: expendable(d),
			})
		}
	}
	return r, nil
}

// keeps says whether a pool or its Cluster is annotated to keep the disks.
func keeps(ctx context.Context, c client.Reader, p *infrav1.VSphereMachineConfigPool) (bool, error) {
	if p.Annotations[infrav1.RetainDisksAnnotation] == "true" {
		return true, nil
	}
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterRef.Name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Cluster %s: %w", p.Spec.ClusterRef.Name, err)
	}
	return cluster.Annotations[infrav1.RetainDisksAnnotation] == "true", nil
}

// expendable: nobody's data is in it, or its end was decided on record.
func expendable(d infrav1.PersistentDiskStatus) bool {
	phase := d.Phase
	if phase == infrav1.DiskPhaseError {
		phase = d.InterruptedPhase
	}
	return phase == infrav1.DiskPhaseCreating || phase == infrav1.DiskPhaseReclaiming || phase == infrav1.DiskPhaseReclaimed || phase == ""
}

// normal is a disk's UUID as the guest spells it.
func normal(uuid string) string { return strings.ToLower(strings.ReplaceAll(uuid, "-", "")) }
