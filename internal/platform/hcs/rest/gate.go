package rest

import (
	"errors"
	"sync"
	"time"
)

// gate stops all calls of a credential for a while: after a refused signature, so that the account is not locked, and after too
// many calls, so that a platform under load gets the rest that it asks for.
type gate struct {
	mu      sync.Mutex
	refusal *Error
	until   time.Time
	// pause is how long the next stop for too many calls lasts; it doubles while the platform goes on refusing.
	pause time.Duration
}

// longestPause of a credential that is asked for less.
const longestPause = 2 * time.Minute

// allow answers the refusal that stopped the calls, while it does.
func (g *gate) allow(now time.Time, operation string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusal == nil || !now.Before(g.until) {
		return nil
	}
	e := *g.refusal
	e.Operation, e.RetryAfter = operation, g.until.Sub(now)
	return &e
}

// saw looks at the outcome of a call.
func (g *gate) saw(err error, now time.Time, limits Limits) {
	var e *Error
	if err != nil && !errors.As(err, &e) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case e == nil:
		// A call that was under way when the gate closed does not open it.
		if !now.Before(g.until) {
			g.refusal, g.pause = nil, 0
		}
	case e.Kind == Unauthenticated:
		g.stop(e, now, limits.AuthPause)
	case e.Kind == Throttled:
		g.pause = min(max(2*g.pause, limits.ThrottlePause), longestPause)
		g.stop(e, now, max(e.RetryAfter, g.pause))
	}
}

// stop until the later of what holds already and now plus pause.
func (g *gate) stop(e *Error, now time.Time, pause time.Duration) {
	e.RetryAfter = pause
	if until := now.Add(pause); until.After(g.until) || g.refusal == nil {
		g.until = until
	}
	refusal := *e
	g.refusal = &refusal
}
