package vsphere

import (
	"context"

	"github.com/berth-dev/berth/internal/machine"
)

// Session is one login at one vCenter. It implements machine.Platform.
type Session struct {
	machine.Platform
}

// Dial logs in and starts the watch. Errors: Refused (credentials, thumbprint, not a vCenter), Broken (unreachable).
// ctx bounds the login only. Most callers want Sessions.Acquire.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	return nil, nil
}

// Version is the vCenter's version, such as "8.0.3".
func (s *Session) Version() string { return "" }

// Healthy tells whether the watch is open: nil, or why the vCenter cannot be reached at the moment. It makes no call.
func (s *Session) Healthy() error { return nil }

// Close ends the watch and logs out.
func (s *Session) Close(ctx context.Context) error { return nil }
