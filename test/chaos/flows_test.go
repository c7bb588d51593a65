package chaos

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// flow is one story that changes something. before and act return when what they do is asked for and, in the case of before,
// done; lacks says what the end of the story still lacks.
type flow struct {
	name   string
	before func(w *world) error
	act    func(w *world) error
	lacks  func(w *world) func() string
	// data is what must be true of what guests wrote: kept, or gone, or either where the act came too early to tell.
	data string
	// hidesFiles: disks may be out of sight for a while. Where they are deleted, or where nothing but a look tells that they exist,
	// what vCenter says is not there is gone (VS-D47), and hiding a file proves nothing.
	hidesFiles bool
	// hidesNothing: virtual machines neither. What cannot be seen while lost status is rebuilt is not on record afterwards
	// (docs/chaos.md says what becomes of it).
	hidesNothing bool
	// servers that exist at the end.
	servers int
	// abortable: the machine a may also be deleted at any moment; then aborted says what the end lacks.
	abortable bool
}

const (
	kept   = "kept"
	gone   = "gone"
	either = "either"
)

var flows = []flow{
	{
		name:       "create",
		before:     prepared(1, nil),
		act:        func(w *world) error { return w.withMachine("a") },
		lacks:      func(w *world) func() string { return w.ready("a") },
		data:       kept,
		hidesFiles: true,
		servers:    1,
		abortable:  true,
	},
	{
		// The successor already waits for the only slot.
		name: "replace",
		before: func(w *world) error {
			if err := running(1, nil)(w); err != nil {
				return err
			}
			return w.withMachine("b")
		},
		act:        func(w *world) error { w.others.remove("a"); return nil },
		lacks:      func(w *world) func() string { return all(w.gone("a", &clusterv1.Machine{}), w.ready("b")) },
		data:       kept,
		hidesFiles: true,
		servers:    1,
	},
	{
		name:       "delete",
		before:     running(1, nil),
		act:        func(w *world) error { w.others.remove("a"); return nil },
		lacks:      func(w *world) func() string { return w.left("a") },
		data:       kept,
		hidesFiles: true,
	},
	{
		name: "reclaim",
		before: func(w *world) error {
			if err := running(1, nil)(w); err != nil {
				return err
			}
			w.others.remove("a")
			return w.until(w.left("a"))
		},
		act:   func(w *world) error { w.pass(time.Hour + time.Minute); return nil },
		lacks: reclaimed,
		data:  gone,
	},
	{
		name:   "delete-pool",
		before: running(2, nil),
		act: func(w *world) error {
			w.others.remove("a")
			return w.deletePool()
		},
		lacks: func(w *world) func() string {
			return all(w.gone("a", &clusterv1.Machine{}), w.gone("workers", &infrav1.VSphereMachineConfigPool{}))
		},
		data: gone,
	},
	{
		name:   "delete-cluster",
		before: running(2, nil),
		act: func(w *world) error {
			cluster := &clusterv1.Cluster{}
			if err := w.get("demo", cluster); err != nil {
				return err
			}
			w.others.remove("a")
			w.others.endCluster()
			return k8s.Delete(ctx, cluster)
		},
		lacks: func(w *world) func() string {
			return all(w.gone("a", &clusterv1.Machine{}), w.gone("workers", &infrav1.VSphereMachineConfigPool{}),
				w.gone("demo", &infrav1.VSphereCluster{}), w.gone("demo", &clusterv1.Cluster{}))
		},
		data: gone,
	},
	{
		name:   "retain",
		before: running(1, retaining),
		act: func(w *world) error {
			w.others.remove("a")
			return w.deletePool()
		},
		lacks: func(w *world) func() string {
			return all(w.gone("a", &clusterv1.Machine{}), w.gone("workers", &infrav1.VSphereMachineConfigPool{}))
		},
		data:       kept,
		hidesFiles: true,
	},
	{
		// A new pool of the same key gets what the last one kept.
		name: "adopt",
		before: func(w *world) error {
			if err := running(1, retaining)(w); err != nil {
				return err
			}
			w.others.remove("a")
			if err := w.deletePool(); err != nil {
				return err
			}
			return w.until(all(w.gone("a", &clusterv1.Machine{}), w.gone("workers", &infrav1.VSphereMachineConfigPool{})))
		},
		act: func(w *world) error {
			if err := w.withPool(1); err != nil {
				return err
			}
			return w.withMachine("b")
		},
		lacks:      func(w *world) func() string { return w.ready("b") },
		data:       kept,
		hidesFiles: true,
		servers:    1,
	},
	{
		// Status is what clusterctl move and many a backup do not keep: a runs, b has left its slot and its disks, and c comes
		// while nobody knows who has what.
		name: "rebuild",
		before: func(w *world) error {
			if err := running(2, nil)(w); err != nil {
				return err
			}
			if err := w.withMachine("b"); err != nil {
				return err
			}
			if err := w.until(w.ready("b")); err != nil {
				return err
			}
			w.others.remove("b")
			return w.until(w.left("b"))
		},
		act: func(w *world) error {
			w.kill()
			if err := w.loseStatus(); err != nil {
				return err
			}
			if err := w.withMachine("c"); err != nil {
				return err
			}
			return w.start()
		},
		lacks:        func(w *world) func() string { return all(w.ready("a"), w.ready("c")) },
		data:         kept,
		hidesNothing: true,
		servers:      2,
	},
}

// prepared is a cluster with an empty pool.
func prepared(slots int, change func(*infrav1.VSphereMachineConfigPool)) func(w *world) error {
	return func(w *world) error {
		if err := w.withCluster(); err != nil {
			return err
		}
		if err := w.start(); err != nil {
			return err
		}
		if err := w.provisioned(); err != nil {
			return err
		}
		if change == nil {
			change = func(*infrav1.VSphereMachineConfigPool) {}
		}
		return w.withPool(slots, change)
	}
}

// running is a cluster whose machine a is ready.
func running(slots int, change func(*infrav1.VSphereMachineConfigPool)) func(w *world) error {
	return func(w *world) error {
		if err := prepared(slots, change)(w); err != nil {
			return err
		}
		if err := w.withMachine("a"); err != nil {
			return err
		}
		return w.until(w.ready("a"))
	}
}

func (w *world) deletePool() error {
	pool := &infrav1.VSphereMachineConfigPool{}
	if err := w.get("workers", pool); err != nil {
		return err
	}
	return k8s.Delete(ctx, pool)
}

// loseStatus empties the status of all our objects.
func (w *world) loseStatus() error {
	strip := func(name string, obj client.Object) error {
		if err := w.get(name, obj); err != nil {
			return err
		}
		switch o := obj.(type) {
		case *infrav1.VSphereCluster:
			o.Status = infrav1.VSphereClusterStatus{}
		case *infrav1.VSphereMachineConfigPool:
			o.Status = infrav1.VSphereMachineConfigPoolStatus{}
		case *infrav1.VSphereMachine:
			o.Status = infrav1.VSphereMachineStatus{}
		case *infrav1.VSphereVM:
			o.Status = infrav1.VSphereVMStatus{}
		}
		return k8s.Status().Update(ctx, obj)
	}
	for name, obj := range map[string]client.Object{"demo": &infrav1.VSphereCluster{}, "workers": &infrav1.VSphereMachineConfigPool{}} {
		if err := strip(name, obj); err != nil {
			return err
		}
	}
	if err := strip("a", &infrav1.VSphereMachine{}); err != nil {
		return err
	}
	return strip("a", &infrav1.VSphereVM{})
}

// reclaimed: the slot is free and has no disks any more.
func reclaimed(w *world) func() string {
	return func() string {
		pool := &infrav1.VSphereMachineConfigPool{}
		if err := w.get("workers", pool); err != nil {
			return err.Error()
		}
		for _, s := range pool.Status.ConfigStatuses {
			if s.State != infrav1.ConfigStateAvailable {
				return fmt.Sprintf("slot %s is %s", s.Hostname, s.State)
			}
		}
		for _, d := range pool.Status.PersistentDiskStatuses {
			if d.Phase != infrav1.DiskPhaseReclaimed {
				return fmt.Sprintf("disk %s is %s: %s", d.VolumePath, d.Phase, d.LastError)
			}
		}
		return ""
	}
}

// aborted: nothing is left of machine a, and its slot is nobody's.
func aborted(w *world) func() string {
	return all(w.left("a"), func() string {
		for _, vm := range w.vcenter.World().VMs {
			if !vm.Template {
				return fmt.Sprintf("virtual machine %s is left", vm.Name)
			}
		}
		return ""
	})
}

// examine checks what must be true when a flow has reached its end, whatever was broken on the way.
func (w *world) examine(f flow, p point) error {
	var wrongs []string
	wrong := func(format string, args ...any) { wrongs = append(wrongs, fmt.Sprintf(format, args...)) }
	breaches, err := w.watch.Stop(ctx)
	if err != nil {
		wrong("the promises could not be checked: %v", err)
	}
	for _, b := range breaches {
		wrong("%s", b)
	}
	w.others.mu.Lock()
	for _, text := range w.others.wrongs {
		wrong("%s", text)
	}
	written := map[string]content{}
	for path, c := range w.others.written {
		written[path] = c
	}
	w.others.mu.Unlock()

	data, servers := f.data, f.servers
	if p.kind == removed {
		data, servers = either, 0
	}
	world := w.vcenter.World()
	disks := map[string]string{}
	for _, d := range world.Disks {
		disks[d.Path] = normal(d.UUID)
	}
	for path := range disks {
		if _, known := written[path]; strings.Contains(path, w.ns) && !known && data != either {
			wrong("%s exists and no guest ever had it", path)
		}
	}
	for path, c := range written {
		identity, exists := disks[path]
		token, err := w.others.read(c.identity)
		switch {
		case data == gone && exists:
			wrong("%s still exists", path)
		case data == kept && (!exists || identity != c.identity):
			wrong("%s was %s and is %q: the data is lost", path, c.identity, identity)
		case data == kept && (err != nil || token != c.token):
			wrong("%s holds %q, written was %q", path, token, c.token)
		}
	}
	if len(written) == 0 && data != either {
		wrong("no guest wrote anything: the flow proves nothing about data")
	}
	have := 0
	for _, vm := range world.VMs {
		if !vm.Template {
			have++
		}
	}
	if have != servers {
		wrong("%d virtual machines exist, wanted %d", have, servers)
	}
	if data == gone {
		for _, file := range world.Files {
			if strings.Contains(file.Path, w.ns) && f.name != "reclaim" {
				wrong("%s is left", file.Path)
			}
		}
	}
	if len(wrongs) > 0 {
		return fmt.Errorf("%s", strings.Join(wrongs, "; "))
	}
	return nil
}
