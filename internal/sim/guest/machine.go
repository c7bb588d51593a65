package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/sim/node"
)

// machine is one life of one guest, from power on to power off.
type machine struct {
	d    *daemon
	ref  types.ManagedObjectReference
	name string
	// boot is when the virtual machine was powered on.
	boot time.Time
	// dir is the guest's directory, relative to the state directory.
	dir    string
	cancel context.CancelFunc
	done   chan struct{}

	console *console
	fs      *mountTable
	// units that were started and how that went.
	units map[string]unitState
	// ctx ends with the power.
	ctx      context.Context //nolint:containedctx // the life of the machine
	shutOnce sync.Once

	// mu guards what others read.
	mu     sync.Mutex
	off    bool
	forget bool
	// paused: not the machine lost power, the simulator ends; the next one goes on.
	paused   bool
	hardware hardware
	status   Status
	nics     []nicData
	addrs    []netip.Addr
	node     *node.Node
}

type unitState string

const (
	unitActive unitState = "active"
	unitFailed unitState = "failed"
)

func newMachine(d *daemon, ref types.ManagedObjectReference, p power, dir string) *machine {
	return &machine{
		d: d, ref: ref, name: p.name, boot: p.boot, dir: filepath.Join(guestsDir, dir), done: make(chan struct{}),
		fs: newMountTable(d.options.StateDir), units: map[string]unitState{},
		status: Status{VM: p.name, Ref: ref.Value, Phase: PhaseBooting, BootTime: p.boot},
	}
}

func (g *machine) host(name string) string { return filepath.Join(g.d.options.StateDir, g.dir, name) }

// powerOff cuts the power. A guest whose virtual machine does not exist any more leaves nothing behind.
func (g *machine) powerOff(exists bool) {
	g.mu.Lock()
	g.off = true
	g.forget = g.forget || !exists
	g.mu.Unlock()
	g.cancel()
}

// shutDown stops the guest's services in order, as a guest does when its tools are asked; the power goes off afterwards.
func (g *machine) shutDown() {
	g.shutOnce.Do(func() {
		g.d.running.Go(func() {
			g.mu.Lock()
			n := g.node
			g.mu.Unlock()
			if n == nil {
				return
			}
			g.console.say("systemd", "shutting down")
			g.d.endpoints.remove(g)
			_ = n.Stop(g.ctx)
		})
	})
}

// pause ends the guest because the simulator ends.
func (g *machine) pause() {
	g.mu.Lock()
	g.paused = !g.off
	g.off = true
	g.mu.Unlock()
	g.cancel()
}

func (g *machine) stopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.off
}

// identity is what the cloud provider asks for: BIOS UUID and host name.
func (g *machine) identity() (uuid, hostName string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.off {
		return "", ""
	}
	return g.hardware.UUID, g.status.HostName
}

// label names the guest in messages of others.
func (g *machine) label() string {
	_, host := g.identity()
	if host == "" {
		return g.name
	}
	return fmt.Sprintf("%s (%s)", g.name, host)
}

// run is the guest's life. It returns once nothing of it runs any more.
func (g *machine) run(ctx context.Context) {
	defer close(g.done)
	defer g.cancel()
	hw, err := g.d.inspect(ctx, g.ref)
	if err != nil {
		return
	}
	g.mu.Lock()
	g.hardware = hw
	g.status.UUID = hw.UUID
	g.mu.Unlock()
	if g.d.options.Light {
		g.runLight(ctx)
		g.d.network.release(g)
		return
	}
	before, _ := readStatus(g.host("."))
	if err := os.MkdirAll(g.host(runtimeDir), 0o755); err != nil {
		g.d.log.Error(err, "a guest has no directory", "guest", g.name)
		return
	}
	if g.console, err = openConsole(g.host(consoleName)); err != nil {
		g.d.log.Error(err, "a guest has no console", "guest", g.name)
		return
	}
	g.d.log.Info("guest powered on", "vm", g.name)
	continued := before.Ref == g.ref.Value && before.BootTime.Equal(g.boot) && before.Phase != PhaseOff && before.Phase != ""
	if continued && before.Phase == PhaseFailed && g.finishedBefore() {
		g.mu.Lock()
		g.status.Phase, g.status.Message, g.status.NotRun = before.Phase, before.Message, before.NotRun
		g.mu.Unlock()
	}
	g.save()
	switch err := g.bootUp(ctx, continued); {
	case ctx.Err() != nil:
	case err != nil:
		g.fail("%v", err)
	default:
		g.mu.Lock()
		if g.status.Phase == PhaseBooting {
			g.status.Phase = PhaseRunning
		}
		g.mu.Unlock()
		g.save()
	}
	<-ctx.Done()
	g.powerLost()
}

// finishedBefore reports whether cloud-init had finished when the simulator was restarted.
func (g *machine) finishedBefore() bool {
	_, err := os.Stat(filepath.Join(g.host(tmpfsDir), strings.TrimPrefix(bootFinished, "/run/")))
	return err == nil
}

// powerLost ends everything at once.
func (g *machine) powerLost() {
	g.mu.Lock()
	n := g.node
	g.node = nil
	g.mu.Unlock()
	g.d.endpoints.remove(g)
	if n != nil {
		n.Kill()
	}
	g.d.endProcesses(filepath.Base(g.dir))
	g.d.network.release(g)
	g.mu.Lock()
	forget, paused := g.forget, g.paused
	if !paused {
		g.status.Phase, g.status.Message, g.status.Addresses = PhaseOff, "", nil
	}
	g.mu.Unlock()
	if paused {
		g.console.say("firmware", "the simulator of this guest ends")
	} else {
		g.console.say("firmware", "power off")
	}
	g.console.close()
	g.d.log.Info("guest powered off", "vm", g.name)
	g.save()
	if forget {
		g.d.mu.Lock()
		defer g.d.mu.Unlock()
		delete(g.d.dirs, filepath.Base(g.dir))
		g.d.remove(filepath.Base(g.dir))
	}
}

// runLight boots a guest without an inside.
func (g *machine) runLight(ctx context.Context) {
	if !wait(ctx, g.d.options.LightDelay) {
		return
	}
	text, err := g.hardware.info("metadata")
	if err != nil {
		g.d.log.Error(err, "reading metadata", "guest", g.name)
		return
	}
	meta, err := parseMetadata(text)
	if err != nil {
		g.d.log.Error(err, "reading metadata", "guest", g.name)
		return
	}
	g.mu.Lock()
	g.status.HostName = meta.HostName
	g.mu.Unlock()
	nics, _, err := g.configureNetwork(ctx, meta, func(string, ...any) {})
	if err != nil {
		return
	}
	if err := g.d.report(ctx, g.ref.Value, toolsReport{HostName: meta.HostName, ToolsRunning: true, NICs: nics}); err != nil && ctx.Err() == nil {
		g.d.log.Error(err, "reporting", "guest", g.name)
	}
	<-ctx.Done()
}

// fail records that something the guest was told to do went wrong. The first failure stays: later ones follow from it.
func (g *machine) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.mu.Lock()
	if g.status.Phase != PhaseFailed {
		g.status.Phase, g.status.Message = PhaseFailed, text
	}
	g.mu.Unlock()
	g.console.say("guest", "FAILED: %s", text)
	g.d.log.Info("guest failed", "vm", g.name, "why", text)
	g.save()
}

// save writes status.json and mounts.json.
func (g *machine) save() {
	g.mu.Lock()
	g.status.Changed = time.Now().UTC()
	status := g.status
	status.NotRun = slices.Clone(g.status.NotRun)
	g.mu.Unlock()
	mounts, devices := g.fs.list()
	g.put(statusName, status)
	g.put(mountsName, mountsFile{HostName: status.HostName, Mounts: mounts, Devices: devices})
}

func (g *machine) put(name string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = writeAtomically(g.host(name), append(data, '\n'), 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.d.log.Error(err, "writing a guest's "+name, "guest", g.name)
	}
}

// setHostName changes the host name, on the disk as well.
func (g *machine) setHostName(name string) {
	g.mu.Lock()
	changed := g.status.HostName != name
	g.status.HostName = name
	g.mu.Unlock()
	if changed {
		if err := g.fs.write("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
			g.console.say("systemd", "writing /etc/hostname: %v", err)
		}
		g.save()
	}
}

// tellTools reports host name and addresses to the hypervisor.
func (g *machine) tellTools(ctx context.Context) {
	g.mu.Lock()
	r := toolsReport{HostName: g.status.HostName, ToolsRunning: true, NICs: slices.Clone(g.nics)}
	g.mu.Unlock()
	if err := g.d.report(ctx, g.ref.Value, r); err != nil && ctx.Err() == nil {
		g.console.say("vmtoolsd", "%v", err)
	}
}

// bootDisk is the first disk, as the firmware counts.
func (g *machine) bootDisk() (virtualDisk, error) {
	if len(g.hardware.Disks) == 0 {
		return virtualDisk{}, errors.New("no bootable device: the virtual machine has no disk")
	}
	d := g.hardware.Disks[0]
	if d.UUID == "" {
		return d, errors.New("no bootable device: the first disk's backing has no UUID")
	}
	return d, nil
}

// dataDisks are all others, found by the UUID that the guest can see.
func (g *machine) dataDisks(identity string) []virtualDisk {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []virtualDisk
	for _, d := range g.hardware.Disks {
		if d.serial && d.UUID != "" && d.UUID == script.NormalIdentity(identity) {
			found = append(found, d)
		}
	}
	return found
}
