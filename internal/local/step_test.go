package local

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestStepsRunAfterTheOnesTheyWaitFor(t *testing.T) {
	g := NewWithT(t)
	var (
		mu    sync.Mutex
		order []string
	)
	note := func(name string) func(context.Context, func(string)) error {
		return func(context.Context, func(string)) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return nil
		}
	}
	g.Expect(runSteps(t.Context(), []step{
		{name: "roof", after: []string{"walls", "nothing that is listed"}, run: note("roof")},
		{name: "walls", after: []string{"ground"}, run: note("walls")},
		{name: "ground", run: note("ground")},
		{name: "garden", run: note("garden")},
	}, Silent{})).To(Succeed())
	g.Expect(order).To(ConsistOf("ground", "walls", "roof", "garden"))
	g.Expect(slices.Index(order, "ground")).To(BeNumerically("<", slices.Index(order, "walls")))
	g.Expect(slices.Index(order, "walls")).To(BeNumerically("<", slices.Index(order, "roof")))
}

func TestAFailedStepStopsTheOthersAndIsTheOneReported(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("the ground is wet")
	started := make(chan struct{})
	err := runSteps(t.Context(), []step{
		{name: "ground", run: func(context.Context, func(string)) error {
			<-started
			return broken
		}},
		{name: "walls", after: []string{"ground"}, run: func(context.Context, func(string)) error {
			t.Error("walls were built on wet ground")
			return nil
		}},
		{name: "garden", run: func(ctx context.Context, _ func(string)) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}},
	}, Silent{})
	g.Expect(err).To(MatchError(broken))
	g.Expect(err).To(MatchError(ContainSubstring("ground:")))
}

func TestAnInterruptedBringUpSaysSo(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := runSteps(ctx, []step{
		{name: "first", run: func(ctx context.Context, _ func(string)) error {
			cancel()
			return nil
		}},
		{name: "second", after: []string{"never"}, run: func(ctx context.Context, _ func(string)) error {
			<-ctx.Done()
			return ctx.Err()
		}},
	}, Silent{})
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestAwaitEndsWithTheLastAnswer(t *testing.T) {
	g := NewWithT(t)
	limit := errors.New("not ready in time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, limit)
	defer cancel()
	err := await(ctx, time.Millisecond, func(context.Context) error { return errors.New("connection refused") })
	g.Expect(err).To(MatchError(limit))
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))

	gone := errors.New("it has ended")
	g.Expect(await(t.Context(), time.Hour, func(context.Context) error { return final(gone) })).To(MatchError(gone))
}
