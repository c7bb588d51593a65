package machine

import (
	"context"
	"sync"
	"time"
)

// Engine runs lives. One serves all machines of a controller; it holds no state but the memory of recent failures.
type Engine struct {
	// Now is the clock, time.Now if nil.
	Now func() time.Time

	mu       sync.Mutex
	failures map[Mark]failure
}

// failure remembers how often in a row a machine's acts failed; losing it at a restart costs one early retry.
type failure struct {
	count int
	until time.Time
}

// Create carries a machine towards ready: it runs the creation phases in order until one of them has to wait, fails, or all
// hold. The report is also what the journal was closed with.
func (e *Engine) Create(ctx context.Context, life *Life) Report { panic("to be written") }

// Delete carries a machine towards absence. When its Outcome is Done the server is proven gone and the place given back: the
// caller takes its finalizers off.
func (e *Engine) Delete(ctx context.Context, life *Life) Report { panic("to be written") }
