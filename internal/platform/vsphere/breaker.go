package vsphere

import (
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/machine"
)

// breaker keeps a credential that its vCenter refused from being tried again and again: accounts get locked that way. One
// probe after each pause, the pause doubling.
type breaker struct {
	pause time.Duration

	mu      sync.Mutex
	refusal *machine.Error
	until   time.Time
	next    time.Duration
}

const maxPauseFactor = 8

// allow answers the last refusal while the pause lasts.
func (b *breaker) allow(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusal == nil || !now.Before(b.until) {
		return nil
	}
	e := *b.refusal
	e.RetryAfter = b.until.Sub(now)
	return &e
}

// refused records that the vCenter refused the credential.
func (b *breaker) refused(now time.Time, cfg Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == 0 {
		b.next = b.pause
	}
	b.refusal = refused(ReasonCredentials, "vCenter %s refuses the password of user %s: correct the credentials; the next "+
		"attempt with these is made in %s, so that the account does not get locked", cfg.Server, cfg.Username, b.next)
	b.until = now.Add(b.next)
	e := *b.refusal
	e.RetryAfter = b.next
	b.next = min(2*b.next, maxPauseFactor*b.pause)
	return &e
}

func (b *breaker) accepted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal, b.next = nil, 0
}
