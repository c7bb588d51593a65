package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/sim/node"
	"github.com/berth-dev/berth/internal/sim/node/process"
)

// Options of Run.
type Options struct {
	// VCenter is the URL of the simulated vCenter's SDK ("https://127.64.0.2:8443/sdk"); its certificate is not checked.
	VCenter            string
	Username, Password string
	// Admin is the URL of the simulator's side channel, where guests report as VMware Tools would.
	Admin string
	// StateDir holds the contents of disks (disks/<uuid>) and one directory per guest (guests/<vm>).
	StateDir string
	// Binaries of the control plane guests' processes.
	Binaries node.Binaries
	// DieWithParent ties the guests' processes to this process, so that they cannot outlive it even if it is killed.
	DieWithParent bool
	// Patience is how long a guest waits for a disk that is not there. Default 5 seconds; the real script waits 2 minutes.
	Patience time.Duration
	// Light guests only boot and report host name and addresses, after LightDelay; they have no disks' contents, no user
	// data and no node.
	Light      bool
	LightDelay time.Duration
	// Log takes what the daemon does; what guests say is on their consoles.
	Log logr.Logger
}

// daemon runs all guests of one simulated vCenter.
type daemon struct {
	options   Options
	log       logr.Logger
	network   *network
	endpoints *endpoints
	clouds    *clouds

	mu     sync.Mutex
	client *vim25.Client
	power  map[types.ManagedObjectReference]power
	// guests that run or are being stopped.
	guests map[types.ManagedObjectReference]*machine
	// dirs are the directories in use, so that two virtual machines of one name have two.
	dirs    map[string]types.ManagedObjectReference
	running sync.WaitGroup
}

// Run watches the simulated vCenter and runs the guests until the context ends; then all their processes end. Guests that
// were running when an earlier Run ended or was killed go on from what their disks hold, and take over processes that
// still run.
func Run(ctx context.Context, o Options) error {
	if o.StateDir == "" || o.VCenter == "" || o.Admin == "" {
		return errors.New("simulated guests need a vCenter, its side channel and a state directory")
	}
	dir, err := filepath.Abs(o.StateDir)
	if err != nil {
		return err
	}
	o.StateDir = dir
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	for _, sub := range []string{disksDir, guestsDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("simulated guests: %w", err)
		}
	}
	d := &daemon{
		options: o,
		log:     o.Log,
		network: newNetwork(),
		power:   map[types.ManagedObjectReference]power{},
		guests:  map[types.ManagedObjectReference]*machine{},
		dirs:    map[string]types.ManagedObjectReference{},
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	d.endpoints = newEndpoints(inner, o.Log)
	d.clouds = newClouds(inner, o.Log, d.instance)
	d.watch(ctx)

	d.mu.Lock()
	for _, g := range d.guests {
		g.pause()
	}
	d.mu.Unlock()
	d.running.Wait()
	d.clouds.close()
	d.endpoints.close()
	return ctx.Err()
}

// start lets the guest of a powered-on virtual machine run; d.mu is held.
func (d *daemon) start(ctx context.Context, ref types.ManagedObjectReference, p power) {
	old := d.guests[ref]
	if old != nil && old.boot.Equal(p.boot) && !old.stopping() {
		return
	}
	g := newMachine(d, ref, p, d.directory(ref, p.name))
	// It keeps running when the watch breaks off, and ends with its own power.
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.guests[ref] = g
	if old != nil {
		old.powerOff(true)
	}
	d.running.Go(func() {
		if old != nil {
			<-old.done
		}
		g.run(g.ctx)
		d.mu.Lock()
		if d.guests[ref] == g {
			delete(d.guests, ref)
		}
		d.mu.Unlock()
	})
}

// stop cuts the power of a guest, if it runs; d.mu is held. A guest whose virtual machine is gone is forgotten.
func (d *daemon) stop(ref types.ManagedObjectReference, exists bool) {
	g := d.guests[ref]
	if g != nil {
		g.powerOff(exists)
		return
	}
	if exists {
		return
	}
	for name, owner := range d.dirs {
		if owner == ref {
			delete(d.dirs, name)
			d.remove(name)
		}
	}
}

// directory returns the name of a guest's directory; d.mu is held.
func (d *daemon) directory(ref types.ManagedObjectReference, name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, name)
	if name == "" || name == "." || name == ".." {
		name = ref.Value
	}
	if owner, taken := d.dirs[name]; taken && owner != ref {
		name += "-" + ref.Value
	}
	d.dirs[name] = ref
	return name
}

// forgetStrangers clears up after a time when nobody watched: processes of guests that are not powered on any more are
// ended, and directories of virtual machines that are gone are removed. d.mu is held.
func (d *daemon) forgetStrangers() {
	entries, err := os.ReadDir(filepath.Join(d.options.StateDir, guestsDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		status, err := readStatus(filepath.Join(d.options.StateDir, guestsDir, e.Name()))
		if err != nil {
			continue
		}
		ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: status.Ref}
		p, exists := d.power[ref]
		// References are dealt out anew when a vCenter starts over: the name must match as well.
		exists = exists && p.name == status.VM
		switch {
		case d.guests[ref] != nil && exists:
		case exists:
			if owner, taken := d.dirs[e.Name()]; !taken || owner == ref {
				d.dirs[e.Name()] = ref
			}
			d.endProcesses(e.Name())
			d.switchedOff(e.Name(), status)
		case d.dirs[e.Name()] == types.ManagedObjectReference{}:
			d.endProcesses(e.Name())
			d.remove(e.Name())
		}
	}
}

// switchedOff writes down that a guest lost its power while nobody watched.
func (d *daemon) switchedOff(name string, s Status) {
	if s.Phase == PhaseOff {
		return
	}
	s.Phase, s.Message, s.Addresses = PhaseOff, "", nil
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = writeAtomically(filepath.Join(d.options.StateDir, guestsDir, name, statusName), append(data, '\n'), 0o644)
	}
	if err != nil {
		d.log.Error(err, "writing a guest's status", "guest", name)
	}
}

func (d *daemon) endProcesses(name string) {
	if err := process.KillRecorded(filepath.Join(d.options.StateDir, guestsDir, name)); err != nil {
		d.log.Error(err, "ending what an earlier life of a guest left running", "guest", name)
	}
}

func (d *daemon) remove(name string) {
	if err := os.RemoveAll(filepath.Join(d.options.StateDir, guestsDir, name)); err != nil {
		d.log.Error(err, "removing a guest's directory", "guest", name)
	}
}

// instance answers the simulated cloud provider: which virtual machine is behind a node? By the BIOS UUID that the kubelet
// reports, else by the host name; only one that runs.
func (d *daemon) instance(nodeName, systemUUID string) (node.Instance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		id, host := g.identity()
		if id == "" {
			continue
		}
		if strings.EqualFold(id, systemUUID) || (systemUUID == "" && host == nodeName) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return node.Instance{ID: id, Addresses: slices.Clone(g.status.Addresses)}, true
		}
	}
	return node.Instance{}, false
}
