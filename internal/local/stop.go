package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// stopOrder is the order in which processes end: who calls somebody ends before who is called. Processes within one group end
// together.
var stopOrder = [][]string{
	{ManagerProcess, CoreProcess, BootstrapProcess, ControlPlaneProcess},
	{GuestsProcess},
	{VCenterProcess, ControllerManagerProcess},
	{APIServerProcess},
	{EtcdProcess},
}

// stopPatience is how long a process may take to end by itself.
const stopPatience = 5 * time.Second

// Stop ends every process of the environment, those of the guests included. It keeps the state directory, but not the world:
// the simulated vCenter ends with it, and Up refuses afterwards. Purge is what makes room for a new one.
func (e *Environment) Stop(ctx context.Context, progress Progress) error {
	if progress == nil {
		progress = Silent{}
	}
	unlock, err := tryLockFile(lockPath(e.Dir))
	if err != nil {
		return err
	}
	defer unlock()
	return e.stop(ctx, progress)
}

func (e *Environment) stop(ctx context.Context, progress Progress) error {
	// Noted now: a process that is ending has no environment any more by which it could be found, but may still hold its sockets.
	noted := e.survivors()
	for _, names := range stopOrder {
		group, together := errgroup.WithContext(ctx)
		for _, name := range names {
			record, ok := e.running(name)
			if !ok {
				continue
			}
			group.Go(func() error {
				begun := time.Now()
				progress.Begin(name)
				progress.Note(name, "stopping")
				err := record.stop(together, stopPatience)
				progress.End(name, time.Since(begun), err)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if slices.Contains(names, GuestsProcess) {
			// A guest's own etcd and API server outlive the program that runs the guests, as they should while that is only restarted.
			if err := e.stopSurvivors(ctx, func(s survivor) bool { return s.process == GuestsProcess }); err != nil {
				return fmt.Errorf("stopping processes of guests: %w", err)
			}
		}
	}
	if err := e.stopSurvivors(ctx, func(survivor) bool { return true }); err != nil {
		return fmt.Errorf("stopping processes left over: %w", err)
	}
	for _, s := range noted {
		if err := s.stop(ctx, stopPatience); err != nil {
			return err
		}
	}
	for _, name := range e.recorded() {
		if err := e.forget(name); err != nil {
			return err
		}
	}
	return nil
}

// stopSurvivors ends the processes that are chosen, together. Some start others while they end, so it looks until none is left.
func (e *Environment) stopSurvivors(ctx context.Context, chosen func(survivor) bool) error {
	for {
		left := slices.DeleteFunc(e.survivors(), func(s survivor) bool { return !chosen(s) })
		if len(left) == 0 {
			return nil
		}
		group, together := errgroup.WithContext(ctx)
		for _, s := range left {
			group.Go(func() error { return s.stop(together, stopPatience) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
}

// Purge ends every process and removes the environment: its state, its logs, its range of addresses.
func (e *Environment) Purge(ctx context.Context, progress Progress) error {
	if progress == nil {
		progress = Silent{}
	}
	unlock, err := tryLockFile(lockPath(e.Dir))
	if err != nil {
		return err
	}
	defer unlock()
	if err := e.stop(ctx, progress); err != nil {
		return err
	}
	if err := release(e.Dir, e.Range); err != nil {
		return fmt.Errorf("giving the address range back: %w", err)
	}
	// The record goes last: an interrupted purge can be called again.
	names := slices.DeleteFunc(slices.Clone(contents), func(name string) bool { return name == "environment.json" })
	for _, name := range append(names, "environment.json") {
		if err := os.RemoveAll(e.path(name)); err != nil {
			return fmt.Errorf("removing the state: %w", err)
		}
	}
	// What somebody else has put there stays, and the directory with it.
	if err := os.Remove(e.Dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// Kill ends a process at once, as a crash would, and returns when it is gone. Names are those of the Process constants.
func (e *Environment) Kill(ctx context.Context, name string) error {
	record, ok := e.running(name)
	if !ok {
		return fmt.Errorf("process %s does not run", name)
	}
	if err := record.signal(unix.SIGKILL); err != nil {
		return err
	}
	return record.wait(ctx)
}
