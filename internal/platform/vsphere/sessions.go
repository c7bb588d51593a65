package vsphere

import (
	"context"
	"sync"

	"github.com/berth-dev/berth/internal/machine"
)

// Sessions shares one Session among all owners with the same server, user, password and thumbprint, and merges what they
// report. The zero value is not usable; call NewSessions.
type Sessions struct {
	changes chan machine.Mark

	mu sync.Mutex
}

// NewSessions returns an empty set.
func NewSessions() *Sessions {
	return &Sessions{changes: make(chan machine.Mark, 1024)}
}

// Acquire returns the session for cfg on behalf of owner (the namespace and name of whatever holds the credentials).
// An owner holds one session per server: with a changed password or thumbprint the old session is given up, and logged out
// once nobody else holds it. A password that the vCenter refused keeps its credential shut for minutes: Refused with
// RetryAfter, without a call.
func (s *Sessions) Acquire(ctx context.Context, owner string, cfg Config) (*Session, error) {
	return nil, nil
}

// Release gives up all sessions of owner; a session that nobody holds is logged out.
func (s *Sessions) Release(ctx context.Context, owner string) {}

// Changes merges the Changes of all sessions. It stays open until Close.
func (s *Sessions) Changes() <-chan machine.Mark { return s.changes }

// Close logs all sessions out.
func (s *Sessions) Close(ctx context.Context) error { return nil }
