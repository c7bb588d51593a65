package vsphere

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/berth-dev/berth/internal/machine"
)

// Sessions shares one Session among all owners with the same server, user, password and thumbprint, and merges what they
// report. Use NewSessions.
type Sessions struct {
	changes *queue
	dials   singleflight.Group

	mu       sync.Mutex
	open     map[string]*shared
	breakers map[string]*breaker
	// away remembers what could not be connected to, by address or, where the configuration is at fault, by session key.
	away   map[string]*absence
	closed bool
}

// shared is a session with its holders.
type shared struct {
	session *Session
	owners  map[string]bool
	address string
}

// NewSessions returns an empty set.
func NewSessions() *Sessions {
	return &Sessions{changes: newQueue(), open: map[string]*shared{}, breakers: map[string]*breaker{}, away: map[string]*absence{}}
}

// Acquire returns the session for cfg on behalf of owner (the namespace and name of whatever holds the credentials).
// An owner holds one session per server: with a changed password or thumbprint the old session is given up, and logged out
// once nobody else holds it. A password that the vCenter refused keeps its credential shut for minutes: Refused with
// RetryAfter, without a call. A vCenter that cannot be reached is left alone for seconds in the same way.
func (s *Sessions) Acquire(ctx context.Context, owner string, cfg Config) (*Session, error) {
	key := cfg.key()
	if session := s.join(key, owner); session != nil {
		return session, nil
	}
	done := s.dials.DoChan(key, func() (any, error) {
		s.mu.Lock()
		if have := s.open[key]; have != nil {
			s.mu.Unlock()
			return nil, nil
		}
		if err := s.absent(cfg, time.Now()); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		b := s.breakers[key]
		if b == nil {
			b = &breaker{pause: cfg.Limits.withDefaults().AuthPause}
			s.breakers[key] = b
		}
		s.mu.Unlock()
		// The login outlives the caller that happened to start it: others wait for it too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		session, err := dial(ctx, cfg, b)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			return nil, s.missed(cfg, failed(err, "connecting to vCenter %s", cfg.Server), time.Now())
		}
		delete(s.away, cfg.address())
		delete(s.away, key)
		if s.closed {
			go func() { _ = session.Close(context.WithoutCancel(ctx)) }()
			return nil, errClosed
		}
		s.open[key] = &shared{session: session, owners: map[string]bool{}, address: cfg.address()}
		go s.forward(session)
		return nil, nil
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return nil, failed(r.Err, "connecting to vCenter %s", cfg.Server)
		}
	case <-ctx.Done():
		return nil, failed(ctx.Err(), "connecting to vCenter %s", cfg.Server)
	}
	session := s.join(key, owner)
	if session == nil {
		return nil, busy(ReasonUnreachable, time.Second, "the session at vCenter %s was closed meanwhile", cfg.Server)
	}
	return session, nil
}

// absence is a vCenter, or a configuration of one, that could not be connected to.
type absence struct {
	err   machine.Error
	until time.Time
	pause time.Duration
}

// However many owners ask, a vCenter that cannot be connected to is tried once after each of these pauses.
const (
	firstAbsence   = time.Second
	longestAbsence = 30 * time.Second
)

// absent answers the last failure while its pause lasts. The caller holds the lock.
func (s *Sessions) absent(cfg Config, now time.Time) error {
	for _, key := range []string{cfg.address(), cfg.key()} {
		if a := s.away[key]; a != nil && now.Before(a.until) {
			e := a.err
			e.RetryAfter = a.until.Sub(now)
			return &e
		}
	}
	return nil
}

// missed remembers a failed connection: one that got no answer for the vCenter, one that was refused for the configuration. A
// refused password has its breaker. The caller holds the lock.
func (s *Sessions) missed(cfg Config, err error, now time.Time) error {
	var e *machine.Error
	if !errors.As(err, &e) || e.Reason == ReasonCredentials {
		return err
	}
	key := cfg.address()
	if e.Kind == machine.Refused {
		key = cfg.key()
	}
	a := s.away[key]
	if a == nil {
		a = &absence{}
		s.away[key] = a
	}
	a.pause = max(firstAbsence, min(2*a.pause, longestAbsence))
	a.err, a.until = *e, now.Add(a.pause)
	told := a.err
	told.RetryAfter = a.pause
	return &told
}

// dialTimeout bounds connecting, logging in and opening the watch.
const dialTimeout = time.Minute

// join makes owner a holder of an open session, and of no other one at that server.
func (s *Sessions) join(key, owner string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.open[key]
	if have == nil {
		return nil
	}
	if !have.owners[owner] {
		have.owners[owner] = true
		for other, sh := range s.open {
			if other != key && sh.address == have.address && sh.owners[owner] {
				s.leave(other, sh, owner)
			}
		}
	}
	return have.session
}

// leave takes an owner off a session and closes the session when it was the last one. The caller holds the lock.
func (s *Sessions) leave(key string, sh *shared, owner string) {
	delete(sh.owners, owner)
	if len(sh.owners) > 0 {
		return
	}
	delete(s.open, key)
	delete(s.breakers, key)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		_ = sh.session.Close(ctx)
	}()
}

// Release gives up all sessions of owner; a session that nobody holds is logged out.
func (s *Sessions) Release(_ context.Context, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, sh := range s.open {
		if sh.owners[owner] {
			s.leave(key, sh, owner)
		}
	}
}

// forward hands on what one session reports.
func (s *Sessions) forward(session *Session) {
	for m := range session.Changes() {
		s.changes.put(m)
	}
}

// Changes merges the Changes of all sessions. It stays open until Close.
func (s *Sessions) Changes() <-chan machine.Mark { return s.changes.out }

// Close logs all sessions out.
func (s *Sessions) Close(ctx context.Context) error {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = map[string]*shared{}, true
	s.mu.Unlock()
	var errs []error
	for _, sh := range open {
		errs = append(errs, sh.session.Close(ctx))
	}
	s.changes.close()
	return errors.Join(errs...)
}
