package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Errors that callers tell apart.
var (
	// ErrNoEnvironment means that the state directory holds none.
	ErrNoEnvironment = errors.New("no environment here")
	// ErrWorldLost means that the simulated vCenter has stopped after its world existed. Virtual machines, disks and
	// templates were in its memory; the management cluster remembers machines that are nowhere any more, and there is no way
	// back that would not be a lie.
	ErrWorldLost = errors.New("this world is lost: the simulated vCenter kept it in memory and has stopped")
	// ErrBusy means that another `berth up` or `berth down` works on the same environment.
	ErrBusy = errors.New("another berth command works on this environment; wait for it to end")
)

// Record is what an environment keeps about itself in <dir>/environment.json.
type Record struct {
	// Range of loopback addresses, 16 to 239.
	Range Range `json:"range"`
	// Provider whose platform is simulated: "vsphere".
	Provider string `json:"provider"`
	// Example is how far the example cluster has come; empty if nobody asked for it.
	Example string `json:"example,omitempty"`
	// Variant is the name of the example in the environment's manifests; empty means DefaultExample.
	Variant string `json:"variant,omitempty"`
	// Bin is the directory of berth-manager and berth-sim.
	Bin string `json:"bin"`
	// Without names the processes that were left out.
	Without []string `json:"without,omitempty"`
	// Arguments are added to a process's own, by its name.
	Arguments map[string][]string `json:"arguments,omitempty"`
	// Created is when the range was allocated.
	Created time.Time `json:"created"`
}

// Environment is one local world. Get one from Up or Open.
type Environment struct {
	// Dir is the absolute path of its state directory.
	Dir string
	Record
}

// Open reads the environment in dir; an empty dir means DefaultDir. It starts nothing. The error wraps ErrNoEnvironment if
// there is none.
func Open(dir string) (*Environment, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	record, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w; `%s` makes one", dir, ErrNoEnvironment, (&Environment{Dir: dir}).Command("up"))
	}
	if err != nil {
		return nil, err
	}
	return &Environment{Dir: dir, Record: record}, nil
}

// Kubeconfig is the path of the management cluster's kubeconfig, with administrator rights.
func (e *Environment) Kubeconfig() string { return filepath.Join(e.Dir, "kubeconfig") }

// Logs is the directory with one log per process.
func (e *Environment) Logs() string { return filepath.Join(e.Dir, "logs") }

// Manifests is the directory with the example's manifests in the addresses of this environment.
func (e *Environment) Manifests() string { return filepath.Join(e.Dir, "manifests") }

func (e *Environment) path(elements ...string) string {
	return filepath.Join(append([]string{e.Dir}, elements...)...)
}

func (e *Environment) write() error { return writeJSON(e.path("environment.json"), e.Record) }

// resolve makes a state directory absolute, so that nothing depends on where a command is typed.
func resolve(dir string) (string, error) {
	if dir == "" {
		return DefaultDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	// Two names of one directory must not become two environments.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil
}

func readRecord(dir string) (Record, error) {
	var record Record
	text, err := os.ReadFile(filepath.Join(dir, "environment.json"))
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return record, fmt.Errorf("reading %s: %w", filepath.Join(dir, "environment.json"), err)
	}
	if record.Range < firstRange || record.Range > lastRange {
		return record, fmt.Errorf("%s: range %d is not within %d to %d", filepath.Join(dir, "environment.json"), record.Range, firstRange, lastRange)
	}
	return record, nil
}

// writeJSON replaces a file as a whole: a reader sees the old content or the new.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(text, '\n'))
}

func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
