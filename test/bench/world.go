package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// world is one environment, and what is needed to act in it and to look at it.
type world struct {
	env      *local.Environment
	config   *rest.Config
	kube     client.Client
	cache    cache.Cache
	vcenter  *vcenter.Admin
	own      *ownRequests
	cloud    cloud
	verbose  int
	begun    time.Time
	progress io.Writer
	name     string
}

// settings are what all processes of an environment are started with beside their own arguments.
func settings(c cloud, verbose int) map[string][]string {
	return map[string][]string{
		local.ManagerProcess: {fmt.Sprintf("--v=%d", verbose)},
		local.VCenterProcess: {
			"--round-trip=" + c.RoundTrip.String(), "--clone-time=" + c.Clone.String(),
			"--username=" + vcenter.DefaultUsername, "--password=" + vcenter.DefaultPassword,
		},
		local.GuestsProcess: {
			"--light", "--light-delay=" + c.Boot.String(),
			"--username=" + vcenter.DefaultUsername, "--password=" + vcenter.DefaultPassword,
		},
	}
}

// newWorld brings an environment up without Cluster API's managers, whose part this program plays. A world that is returned
// with an error must be ended too.
func newWorld(ctx context.Context, o options, c cloud, n int, progress io.Writer) (*world, error) {
	w := &world{cloud: c, verbose: o.verbose, begun: time.Now(), progress: progress, name: fmt.Sprintf("%s/%d", c.Name, n), own: newOwnRequests()}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, err
	}
	w.say("bringing up an environment in %s", dir)
	w.env, err = local.Up(ctx, local.Options{
		Dir: dir, Bare: true, Bin: o.bin, Arguments: settings(c, o.verbose),
		Without: []string{local.CoreProcess, local.BootstrapProcess, local.ControlPlaneProcess},
	})
	if err != nil {
		if w.env == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return w, fmt.Errorf("bringing up the environment: %w", err)
	}
	w.vcenter = &vcenter.Admin{URL: w.env.VCenterAdmin()}
	if w.config, err = w.env.Config(); err != nil {
		return w, err
	}
	w.config.QPS, w.config.Burst = 500, 1000
	counted := rest.CopyConfig(w.config)
	counted.Wrap(w.own.wrap)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			return w, err
		}
	}
	if w.kube, err = client.New(counted, client.Options{Scheme: scheme}); err != nil {
		return w, err
	}
	w.cache, err = cache.New(w.config, cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	return w, err
}

// end removes everything, whatever has happened to ctx. With keep it only stops the processes.
func (w *world) end(ctx context.Context, keep bool) error {
	if w == nil || w.env == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if keep {
		w.say("kept: logs are in %s; `%s` removes everything", w.env.Logs(), w.env.Command("down --purge"))
		return w.env.Stop(ctx, nil)
	}
	if err := w.env.Purge(ctx, nil); err != nil {
		return fmt.Errorf("removing the environment (`%s` tries again): %w", w.env.Command("down --purge"), err)
	}
	return nil
}

// restartManager replaces the manager's process by one with other arguments and waits until it is ready.
func (w *world) restartManager(ctx context.Context, arguments ...string) error {
	own := settings(w.cloud, w.verbose)[local.ManagerProcess]
	w.env.Arguments[local.ManagerProcess] = append(own, arguments...)
	if err := w.env.Restart(ctx, local.ManagerProcess); err != nil {
		return fmt.Errorf("restarting the manager: %w", err)
	}
	return nil
}

// pids are the numbers of the environment's processes by name.
func (w *world) pids(ctx context.Context) (map[string]int, error) {
	status, err := w.env.Status(ctx)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, p := range status.Processes {
		if p.PID == 0 {
			return nil, fmt.Errorf("process %s does not run; see %s", p.Name, w.env.Logs())
		}
		pids[p.Name] = p.PID
	}
	return pids, nil
}

// cpuSeconds is what a process has used in its life.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field, the program's name in parentheses, may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, system, ticksPerSecond = 11, 12, 100
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	total := 0.0
	for _, field := range []int{user, system} {
		ticks, err := strconv.ParseFloat(fields[field], 64)
		if err != nil {
			return 0, fmt.Errorf("reading /proc/%d/stat: %w", pid, err)
		}
		total += ticks
	}
	return total / ticksPerSecond, nil
}

// peakMemory is the most memory that the manager ever had in RAM, in bytes.
func (w *world) peakMemory(ctx context.Context) (int64, error) {
	pids, err := w.pids(ctx)
	if err != nil {
		return 0, err
	}
	pid := pids[local.ManagerProcess]
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("reading VmHWM from %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}

// say tells a person how far it is.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.progress, "%-14s %6.1fs  %s\n", w.name, time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
}

// until asks again and again until the answer is yes. Errors of asking are told when the time is up.
func until(ctx context.Context, every time.Duration, what string, ask func(context.Context) (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		done, err := ask(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}

// pause waits for a time, for windows of measurement.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
