package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options say what Up brings up. The zero value is the default environment with the example cluster.
type Options struct {
	// Dir is the state directory; empty means DefaultDir.
	Dir string
	// Provider is the platform to simulate; empty means "vsphere", the only one yet.
	Provider string
	// Example names the example whose manifests are written and, unless Bare, applied; empty means DefaultExample, or what an
	// existing environment has.
	Example string
	// Bare leaves the example cluster out.
	Bare bool
	// Bin is where berth-manager and berth-sim are; empty means beside the running program.
	Bin string
	// Without names processes to leave out, because somebody else plays their part. What of them runs is stopped, except for the
	// simulated vCenter.
	Without []string
	// Arguments are added to those of a process, by its name, for measurements and tests: of a flag given twice the last counts.
	Arguments map[string][]string
	// Progress hears what happens; nil means nobody does.
	Progress Progress
}

// Providers lists the platforms an environment can have.
var Providers = []string{"vsphere"}

// Validate says what is wrong with options that no environment could be made with.
func (o Options) Validate() error {
	if o.Provider != "" && !slices.Contains(Providers, o.Provider) {
		return fmt.Errorf("provider %q is unknown; known: %s", o.Provider, strings.Join(Providers, ", "))
	}
	if known := Examples(cmp.Or(o.Provider, Providers[0])); o.Example != "" && !slices.Contains(known, o.Example) {
		return fmt.Errorf("example %q is unknown; known: %s", o.Example, strings.Join(known, ", "))
	}
	for _, name := range o.Without {
		if !slices.Contains(allProcesses, name) {
			return fmt.Errorf("no process is called %q; there are %s", name, strings.Join(allProcesses, ", "))
		}
	}
	return nil
}

func (o *Options) complete() error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Provider == "" {
		o.Provider = Providers[0]
	}
	if o.Progress == nil {
		o.Progress = Silent{}
	}
	var err error
	if o.Dir, err = resolve(o.Dir); err != nil {
		return err
	}
	if o.Bin == "" {
		o.Bin, err = besideThis()
	} else {
		o.Bin, err = filepath.Abs(o.Bin)
	}
	return err
}

// Up makes an environment run and returns when all of it is ready. Called again, it brings back what is missing and leaves the
// rest alone. Processes outlive the caller. The error wraps ErrWorldLost if the simulated vCenter stopped after its world
// existed, and ErrBusy if another process works on the environment. After an error, or when ctx ends, what was started stays:
// calling Up again continues, Stop ends it.
func Up(ctx context.Context, o Options) (*Environment, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := prepare(o.Dir); err != nil {
		return nil, err
	}
	unlock, err := tryLockFile(lockPath(o.Dir))
	if err != nil {
		return nil, err
	}
	defer unlock()
	e, guard, err := create(o)
	if err != nil {
		return nil, err
	}
	if guard != nil {
		defer guard.Close()
	}
	if lost, err := e.WorldLost(); err != nil || lost {
		return e, errors.Join(err, e.lost())
	}
	if err := e.certificates(); err != nil {
		return e, err
	}
	// A bare environment gets the manifests too, for whoever wants to apply them by hand.
	if _, _, err := e.render(); err != nil {
		return e, fmt.Errorf("writing the example's manifests: %w", err)
	}
	steps, err := e.steps()
	if err != nil {
		return e, err
	}
	if err := e.leaveOut(ctx); err != nil {
		return e, err
	}
	if err := runSteps(ctx, steps, o.Progress); err != nil || o.Bare || e.Example == ExampleReady {
		return e, err
	}
	// The example is last and alone: its machines are shown as steps too, and everything they need is ready.
	return e, runSteps(ctx, []step{{name: stepExample, run: func(ctx context.Context, say func(string)) error {
		return e.ensureExample(ctx, o.Progress, say)
	}}}, o.Progress)
}

// leaveOut stops processes that were wanted before and are not any more, except for the one that holds the world.
func (e *Environment) leaveOut(ctx context.Context) error {
	for _, name := range e.Without {
		record, runs := e.running(name)
		if !runs || name == VCenterProcess {
			continue
		}
		if err := record.stop(ctx, stopPatience); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
	}
	return nil
}

func lockPath(dir string) string { return dir + string(os.PathSeparator) + "lock" }

// prepare makes the directories. A directory that holds something else already is refused: purging it later would take that.
func prepare(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	foreign := slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return !slices.Contains(contents, entry.Name()) })
	if foreign && !exists(dir+"/environment.json") {
		return fmt.Errorf("state directory %s holds files of something else; choose an empty or new one", dir)
	}
	for _, sub := range []string{"", "run", "logs", "pki", "manifests"} {
		if err := os.MkdirAll(dir+"/"+sub, 0o700); err != nil {
			return fmt.Errorf("making the state directory: %w", err)
		}
	}
	return nil
}

// contents are the names of everything an environment keeps directly in its state directory; Purge removes these.
var contents = []string{
	"environment.json", "world.json", "lock", "run", "logs", "pki", "manifests", "kubeconfig", "kubeconfigs", "etcd", "vcenter", "guests", "disks",
}

// create opens the environment in the directory or makes a new one, with a range of addresses.
func create(o Options) (*Environment, net.Listener, error) {
	e, err := Open(o.Dir)
	switch {
	case errors.Is(err, ErrNoEnvironment):
		e = &Environment{Dir: o.Dir, Record: Record{
			Provider: o.Provider, Variant: cmp.Or(o.Example, DefaultExample), Bin: o.Bin, Without: o.Without, Arguments: o.Arguments,
			Created: time.Now().UTC().Truncate(time.Second),
		}}
		if !o.Bare {
			e.Example = ExampleWanted
		}
		_, guard, err := reserve(o.Dir, func(r Range) error {
			e.Range = r
			return e.write()
		})
		return e, guard, err
	case err != nil:
		return nil, nil, err
	}
	if e.Provider != o.Provider {
		return nil, nil, fmt.Errorf("the environment in %s simulates provider %s, not %s; use another --state-dir", e.Dir, e.Provider, o.Provider)
	}
	// The manifests are there already, and may be in use.
	if has := cmp.Or(e.Variant, DefaultExample); o.Example != "" && o.Example != has {
		return nil, nil, fmt.Errorf("the environment in %s has the example %s, not %s; use another --state-dir", e.Dir, has, o.Example)
	}
	if !o.Bare && e.Example == "" {
		e.Example = ExampleWanted
	}
	e.Bin, e.Without, e.Arguments = o.Bin, o.Without, o.Arguments
	return e, nil, errors.Join(e.write(), retake(e.Dir, e.Range))
}

// steps lists what makes an environment, and what each part waits for.
func (e *Environment) steps() ([]step, error) {
	programs, err := e.programs()
	if err != nil {
		return nil, err
	}
	var steps []step
	add := func(name string, run func(context.Context, func(string)) error, after ...string) {
		steps = append(steps, step{name: name, after: after, run: run})
	}
	process := func(name string, after ...string) {
		p, wanted := programs[name]
		if !wanted {
			return
		}
		run := e.ensure
		if name == VCenterProcess {
			run = e.ensureWorld
		}
		add(name, func(ctx context.Context, say func(string)) error { return run(ctx, p, say) }, after...)
	}
	component := func(process string, c component, objects []*unstructured.Unstructured) {
		add(definitionsOf(process), func(ctx context.Context, say func(string)) error {
			return e.installComponent(ctx, c, objects, say)
		}, APIServerProcess)
		// Webhooks of a program that is left out would only block every write.
		if _, wanted := programs[process]; wanted {
			add(admissionOf(process), func(ctx context.Context, say func(string)) error {
				return e.installAdmission(ctx, process, objects, say)
			}, process, stepNamespaces)
		}
	}

	process(EtcdProcess)
	process(APIServerProcess, EtcdProcess)
	process(ControllerManagerProcess, APIServerProcess)
	add(stepNamespaces, func(ctx context.Context, _ func(string)) error { return e.awaitNamespaces(ctx) }, APIServerProcess)

	// A manager ends if a kind that it watches is not defined, and they watch each other's.
	var definitions []string
	for _, m := range e.capiManagers() {
		definitions = append(definitions, definitionsOf(m.process))
	}
	for _, m := range e.capiManagers() {
		objects, err := e.capiObjects(m)
		if err != nil {
			return nil, err
		}
		component(m.process, m.component, objects)
		process(m.process, definitions...)
	}
	objects, err := e.berthObjects()
	if err != nil {
		return nil, err
	}
	component(ManagerProcess, e.berthComponent(), objects)
	process(ManagerProcess, append(definitions, definitionsOf(ManagerProcess))...)
	process(VCenterProcess)
	process(GuestsProcess, VCenterProcess)
	return steps, nil
}

const stepNamespaces = "namespaces"

func definitionsOf(process string) string { return process + " definitions" }
func admissionOf(process string) string   { return process + " admission" }

// Processes lists the names of the processes that belong to this environment, in the order in which they are shown.
func (e *Environment) Processes() []string {
	return slices.DeleteFunc(slices.Clone(allProcesses), func(name string) bool { return slices.Contains(e.Without, name) })
}

var allProcesses = []string{
	EtcdProcess, APIServerProcess, ControllerManagerProcess, CoreProcess, BootstrapProcess, ControlPlaneProcess,
	ManagerProcess, VCenterProcess, GuestsProcess,
}

// programs describes the processes of this environment. With an error it returns those that can be described.
func (e *Environment) programs() (map[string]program, error) {
	makers := map[string]func() (program, error){
		EtcdProcess: e.etcd, APIServerProcess: e.apiServer, ControllerManagerProcess: e.controllerManager,
		ManagerProcess: e.manager, VCenterProcess: e.vcenter, GuestsProcess: e.guests,
	}
	for _, m := range e.capiManagers() {
		makers[m.process] = func() (program, error) { return e.capiProgram(m) }
	}
	all := map[string]program{}
	for _, name := range e.Processes() {
		p, err := makers[name]()
		if err != nil {
			return nil, err
		}
		p.args = append(p.args, e.Arguments[name]...)
		all[name] = p
	}
	return all, nil
}

// Restart ends a process at once if it runs, starts it and waits until it is ready. The simulated vCenter cannot be restarted.
func (e *Environment) Restart(ctx context.Context, name string) error {
	if name == VCenterProcess {
		return errors.New("the simulated vCenter keeps its world in memory and cannot be restarted")
	}
	programs, err := e.programs()
	if err != nil {
		return err
	}
	p, ok := programs[name]
	if !ok {
		return fmt.Errorf("no process of this environment is called %q; there are %v", name, e.Processes())
	}
	if _, runs := e.running(name); runs {
		if err := e.Kill(ctx, name); err != nil {
			return err
		}
	}
	return e.ensure(ctx, p, func(string) {})
}
