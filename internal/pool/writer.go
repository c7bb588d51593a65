package pool

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Options of a Writer; the zero value works.
type Options struct {
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Linger is how long the first of several callers waits for company before the write; 0 means 2 ms, negative not at all.
	Linger time.Duration
	// Emit publishes an event on the pool, at the moment it is called: what is to be deleted is told before it is deleted.
	Emit func(machine.Event)
	// Changed, if set, is called after every durable change of the state.
	Changed func()
}

// Writer is the one writer of a pool's status in this process. It implements machine.Places for the pool's machines.
type Writer struct {
	store    Store
	facts    Facts
	platform PlatformFor
	options  Options

	mu      sync.Mutex
	queue   []*request
	running bool
	// last is the state as this writer last read or wrote it. Nobody else in the process writes, so it answers questions whose
	// answer is checked again by the next write.
	last *State
	// passing serialises Reconcile; machines are serialised by their own controllers.
	passing sync.Mutex
	// announced are the slots whose deletion this process has told; passing guards it.
	announced map[string]bool
	// gate is held from a load to its save.
	gate sync.Mutex
}

var _ machine.Places = (*Writer)(nil)

// NewWriter returns the writer of one pool. There must be one per pool in the process.
func NewWriter(store Store, facts Facts, platform PlatformFor, options Options) *Writer {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Linger == 0 {
		options.Linger = 2 * time.Millisecond
	}
	if options.Emit == nil {
		options.Emit = func(machine.Event) {}
	}
	if options.Changed == nil {
		options.Changed = func() {}
	}
	return &Writer{store: store, facts: facts, platform: platform, options: options}
}

// request is one caller's part of a write. apply may run several times, on ever fresher states; it must leave the state alone
// when it returns an error.
type request struct {
	apply func(*State) error
	done  chan error
}

const (
	// conflictBudget bounds the attempts of one write (VS-A15); beyond it the callers come back later.
	conflictBudget = 8
	// writeTimeout bounds one batch; it is not any caller's context, because a batch belongs to many.
	writeTimeout = 30 * time.Second
)

// update applies a change to the newest state and returns when the result is durable, or with apply's error.
func (w *Writer) update(ctx context.Context, apply func(*State) error) error {
	c := &request{apply: apply, done: make(chan error, 1)}
	w.mu.Lock()
	w.queue = append(w.queue, c)
	if !w.running {
		w.running = true
		go w.drain(context.WithoutCancel(ctx))
	}
	w.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return &machine.Error{Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Message: "the pool's record was not written in time", Err: ctx.Err()}
	}
}

// read returns the newest state, shared with whatever write is under way.
func (w *Writer) read(ctx context.Context) (State, error) {
	got := make(chan State, conflictBudget+1)
	err := w.update(ctx, func(s *State) error {
		select {
		case got <- clone(*s):
		default:
		}
		return nil
	})
	if err != nil {
		return State{}, err
	}
	var last State
	for {
		select {
		case last = <-got:
		default:
			return last, nil
		}
	}
}

// current returns the state as this writer last read or wrote it, or reads it.
func (w *Writer) current(ctx context.Context) (State, error) {
	if s := w.known(); s != nil {
		return clone(*s), nil
	}
	return w.read(ctx)
}

// change is update for what will most often turn out to change nothing: then there is no read either.
func (w *Writer) change(ctx context.Context, apply func(*State) error) error {
	if s := w.known(); s != nil {
		trial := clone(*s)
		if err := apply(&trial); err == nil && reflect.DeepEqual(trial, *s) {
			return nil
		}
	}
	return w.update(ctx, apply)
}

// drain writes batches until nobody waits.
func (w *Writer) drain(ctx context.Context) {
	if w.options.Linger > 0 {
		linger := time.NewTimer(w.options.Linger)
		<-linger.C
	}
	for {
		w.mu.Lock()
		batch := w.queue
		w.queue = nil
		if len(batch) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		w.write(ctx, batch)
	}
}

func (w *Writer) write(ctx context.Context, batch []*request) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	results := make([]error, len(batch))
	changed, err := w.attempt(ctx, batch, results)
	for i, c := range batch {
		if err != nil {
			c.done <- err
		} else {
			c.done <- results[i]
		}
	}
	if changed {
		w.options.Changed()
	}
}

func (w *Writer) attempt(ctx context.Context, batch []*request, results []error) (changed bool, err error) {
	w.gate.Lock()
	defer w.gate.Unlock()
	for range conflictBudget {
		state, version, err := w.store.Load(ctx)
		if err != nil {
			w.keep(nil)
			return false, storeError(err)
		}
		next := clone(state)
		for i, c := range batch {
			results[i] = c.apply(&next)
		}
		if reflect.DeepEqual(next, state) {
			w.keep(&state)
			return false, nil
		}
		switch err := w.store.Save(ctx, next, version); {
		case err == nil:
			w.keep(&next)
			return true, nil
		case !errors.Is(err, ErrStale):
			w.keep(nil) // it may have been written all the same
			return false, storeError(err)
		}
	}
	return false, &machine.Error{
		Kind: machine.Busy, Reason: machine.ReasonPlaceUnavailable, RetryAfter: time.Second,
		Message: "the pool is being changed by others; its record was not written",
	}
}

// Between runs f while no write of this writer is under way. Whatever else its process writes to the object that the store
// keeps the pool in goes through here, so that the two do not make each other's versions stale.
func (w *Writer) Between(f func() error) error {
	w.gate.Lock()
	defer w.gate.Unlock()
	return f()
}

// Forget drops what the writer remembers of the state, because somebody else has written it or may have lost it. There is still
// one writer, so the gate and the queue go on to hold.
func (w *Writer) Forget() { w.keep(nil) }

func (w *Writer) keep(s *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = s
}

// known returns the last state, nil if there is none. It must not be altered.
func (w *Writer) known() *State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func storeError(err error) error {
	if errors.Is(err, ErrGone) {
		return &machine.Error{Kind: machine.NotFound, Reason: machine.ReasonPlaceUnknown, Message: "the pool does not exist", Err: err}
	}
	return &machine.Error{Kind: machine.Broken, Reason: machine.ReasonPlaceUnavailable, Message: "the pool cannot be read or written", Err: err}
}

// clone copies what a change may alter. Pointers inside the records are never written through.
func clone(s State) State {
	if s.Consumer != nil {
		c := *s.Consumer
		s.Consumer = &c
	}
	s.Records = slices.Clone(s.Records)
	s.Disks = slices.Clone(s.Disks)
	s.Ephemeral = slices.Clone(s.Ephemeral)
	return s
}

// Mark is the mark under which the operations of a pool itself (reclaims) wake it: the adapter delivers it in its changes like a
// machine's. No machine has such a mark.
func Mark(namespace, name string) machine.Mark {
	return machine.Mark(markPrefix + namespace + "/" + name)
}

const markPrefix = "pool:"

// Marked names the pool that Mark made a mark of; ok is false for every other mark.
func Marked(mark machine.Mark) (namespace, name string, ok bool) {
	text, ours := strings.CutPrefix(string(mark), markPrefix)
	if !ours {
		return "", "", false
	}
	return strings.Cut(text, "/")
}

// record finds a slot's record.
func (s *State) record(hostName string) *slot.Record {
	for i := range s.Records {
		if s.Records[i].HostName == hostName {
			return &s.Records[i]
		}
	}
	return nil
}

// heldBy finds the record of the slot that a machine has; a slot that only remembers it does not count.
func (s *State) heldBy(holder slot.Holder) *slot.Record {
	for i := range s.Records {
		r := &s.Records[i]
		switch r.State {
		case slot.Held, slot.Vacating, slot.Quarantined:
			if r.Holder.Same(holder) {
				return r
			}
		case slot.Available, slot.Released, slot.Reclaiming:
		}
	}
	return nil
}

// disk finds a disk's record.
func (s *State) disk(hostName, name string) *disk.Record {
	for i := range s.Disks {
		if s.Disks[i].HostName == hostName && s.Disks[i].Name == name {
			return &s.Disks[i]
		}
	}
	return nil
}

// put stores a disk's record in place of the one it had.
func (s *State) put(rec disk.Record) {
	if have := s.disk(rec.HostName, rec.Name); have != nil {
		*have = rec
		return
	}
	s.Disks = append(s.Disks, rec)
}
