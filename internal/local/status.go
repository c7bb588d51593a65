package local

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/internal/sim/guest"
)

// State sums an environment up.
type State string

const (
	// StateReady means that every process runs and does its work.
	StateReady State = "ready"
	// StateDegraded means that processes are missing or not ready; Up brings them back.
	StateDegraded State = "degraded"
	// StateStopped means that no process runs and there is no world yet; Up starts it.
	StateStopped State = "stopped"
	// StateLost means that the simulated vCenter has stopped after its world existed; only Purge is left.
	StateLost State = "lost"
)

// Status is an environment as it is now.
type Status struct {
	Dir      string `json:"dir"`
	Provider string `json:"provider"`
	// Addresses is the range in which everything listens.
	Addresses string `json:"addresses"`
	State     State  `json:"state"`
	// Message says what the state means and what to do; empty if ready.
	Message   string    `json:"message,omitempty"`
	Processes []Process `json:"processes"`
	// Machines of all clusters; empty if the API server cannot be asked.
	Machines []Machine `json:"machines,omitempty"`
	// Guests are the simulated guests.
	Guests []guest.Status `json:"guests,omitempty"`
}

// Process is one process of an environment as it is now.
type Process struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// State is "ready", "not ready" or "stopped".
	State string `json:"state"`
	PID   int    `json:"pid,omitempty"`
	// Since is when it was started.
	Since *time.Time `json:"since,omitempty"`
	// Message says why it is not ready, or where to look.
	Message string `json:"message,omitempty"`
}

// States of a process.
const (
	ProcessReady    = "ready"
	ProcessNotReady = "not ready"
	ProcessStopped  = "stopped"
)

// Status looks at every process and at the machines. It changes nothing.
func (e *Environment) Status(ctx context.Context) (Status, error) {
	status := Status{Dir: e.Dir, Provider: e.Provider, Addresses: e.Range.String()}
	lost, err := e.WorldLost()
	if err != nil {
		return status, err
	}
	// A program that is missing on disk may still run, and the others too.
	programs, missing := e.programs()
	names := e.Processes()
	status.Processes = make([]Process, len(names))
	var group errgroup.Group
	for i, name := range names {
		group.Go(func() error {
			p, described := programs[name]
			if !described {
				p = program{name: name, title: "program not found"}
			}
			status.Processes[i] = e.look(ctx, p)
			return nil
		})
	}
	_ = group.Wait()
	running, ready := 0, 0
	for _, p := range status.Processes {
		if p.State != ProcessStopped {
			running++
		}
		if p.State == ProcessReady {
			ready++
		}
		if p.Name == APIServerProcess && p.State == ProcessReady {
			// The machines are an extra: what is wrong with the server is said of the server.
			status.Machines, _ = e.Machines(ctx)
		}
	}
	if files, err := e.Guests(); err == nil {
		// There are none before the first virtual machine.
		status.Guests, _ = files.Guests()
	}
	switch {
	case lost:
		status.State, status.Message = StateLost, e.lost().Error()
	case running == 0:
		status.State, status.Message = StateStopped, "nothing runs; `"+e.Command("up")+"` starts it"
	case ready < len(status.Processes):
		status.State, status.Message = StateDegraded, "not everything runs; `"+e.Command("up")+"` brings back what is missing"
	case missing != nil:
		status.State, status.Message = StateDegraded, oneLine(missing.Error())
	default:
		status.State = StateReady
	}
	return status, nil
}

func (e *Environment) look(ctx context.Context, p program) Process {
	seen := Process{Name: p.name, Title: p.title, State: ProcessStopped, Message: "log: " + e.logPath(p.name)}
	record, err := e.readProcess(p.name)
	if err != nil || !record.alive() {
		return seen
	}
	seen.PID, seen.Since = record.PID, &record.Started
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if p.ready != nil {
		if err := p.ready(ctx); err != nil {
			seen.State, seen.Message = ProcessNotReady, oneLine(err.Error())
			return seen
		}
	}
	seen.State, seen.Message = ProcessReady, ""
	return seen
}
