package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Progress hears what Up and Stop do. Methods are called from several goroutines, never for one step at the same time.
type Progress interface {
	// Begin is called when a step's turn has come.
	Begin(step string)
	// Note says what a step does now, or waits for. The same text may come many times.
	Note(step, text string)
	// End is called once per begun step; err is nil if it succeeded, and context.Canceled if it was stopped.
	End(step string, took time.Duration, err error)
}

// Silent is a Progress that tells nobody.
type Silent struct{}

// Begin says nothing.
func (Silent) Begin(string) {}

// Note says nothing.
func (Silent) Note(_, _ string) {}

// End says nothing.
func (Silent) End(string, time.Duration, error) {}

// step is one part of bringing an environment up.
type step struct {
	name string
	// after names the steps that must have succeeded before. A name that is not in the list counts as done.
	after []string
	run   func(ctx context.Context, say func(string)) error
}

// runSteps runs each step as soon as those before it are done. The first failure stops the others; it is the one returned.
func runSteps(ctx context.Context, steps []step, progress Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(map[string]chan struct{}, len(steps))
	for _, s := range steps {
		done[s.name] = make(chan struct{})
	}
	var (
		wait  sync.WaitGroup
		once  sync.Once
		first error
	)
	for _, s := range steps {
		wait.Go(func() {
			for _, before := range s.after {
				ch, ok := done[before]
				if !ok {
					continue
				}
				select {
				case <-ch:
				case <-ctx.Done():
					return
				}
			}
			begun := time.Now()
			progress.Begin(s.name)
			err := s.run(ctx, func(text string) { progress.Note(s.name, text) })
			if err == nil {
				progress.End(s.name, time.Since(begun), nil)
				close(done[s.name])
				return
			}
			if ctx.Err() != nil {
				// It was stopped, because of another step or of the user; how it took that is of no interest.
				progress.End(s.name, time.Since(begun), context.Canceled)
				return
			}
			once.Do(func() { first = fmt.Errorf("%s: %w", s.name, err) })
			cancel(errors.New("another step failed"))
			progress.End(s.name, time.Since(begun), err)
		})
	}
	wait.Wait()
	if first != nil {
		return first
	}
	return context.Cause(ctx)
}
