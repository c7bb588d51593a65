package pool

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// Options of a Writer; the zero value works.
type Options struct {
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Linger is how long the first of several callers waits for company before the write; 0 means 2 ms, negative none.
	Linger time.Duration
	// Changed, if set, is called after every durable change of the state, with the marks of the waiting machines' pool:
	// the controller wakes machines that wait for a slot and the pool itself.
	Changed func()
}

// Writer is the one writer of a pool's status in this process. It implements machine.Places.
type Writer struct {
	store    Store
	facts    Facts
	platform PlatformFor
	options  Options
}

var _ machine.Places = (*Writer)(nil)

// NewWriter returns the writer of one pool. There must be one per pool in the process (see Writers).
func NewWriter(store Store, facts Facts, platform PlatformFor, options Options) *Writer {
	return &Writer{store: store, facts: facts, platform: platform, options: options}
}

// Claim implements machine.Places.
func (w *Writer) Claim(ctx context.Context, request slot.Request) (slot.Slot, error) {
	panic("to be written")
}

// Ensure implements machine.Places.
func (w *Writer) Ensure(ctx context.Context, holder slot.Holder, spec machine.ServerSpec) ([]machine.Volume, error) {
	panic("to be written")
}

// Attached implements machine.Places.
func (w *Writer) Attached(ctx context.Context, holder slot.Holder, server *machine.Server) error {
	panic("to be written")
}

// Volumes implements machine.Places.
func (w *Writer) Volumes(ctx context.Context, holder slot.Holder) ([]machine.Volume, error) {
	panic("to be written")
}

// Vacate implements machine.Places.
func (w *Writer) Vacate(ctx context.Context, holder slot.Holder) error {
	panic("to be written")
}

// Reconcile carries the pool itself one pass further: initialises and repairs records, frees vacated slots from facts,
// reclaims what is due, unbinds an empty pool, prunes records of removed slots; for a pool being deleted, reclaims everything.
func (w *Writer) Reconcile(ctx context.Context) (Summary, error) {
	panic("to be written")
}
