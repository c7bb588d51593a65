package vcenter

import (
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// sessionGate serves logins and logouts.
type sessionGate struct {
	*simulator.SessionManager
	unlocked
	strict *strict
}

// account is what is remembered about a user name's failed logins.
type account struct {
	failures    []time.Time
	lockedUntil time.Time
}

// Login applies the account policy and the limit of sessions.
func (g *sessionGate) Login(ctx *simulator.Context, req *types.Login) soap.HasFault {
	s := g.strict
	if !s.mayLogin(req.UserName) {
		s.server.counters.login(loginLocked)
		return &methods.LoginBody{Fault_: simulator.Fault("Cannot complete login: the account is locked.", &types.InvalidLogin{})}
	}
	if limit := s.server.opts.MaxSessions; limit > 0 && len(s.server.sessions()) >= limit {
		s.server.counters.login(loginLocked)
		return &methods.LoginBody{Fault_: simulator.Fault("The maximum number of sessions has been exceeded.", &types.SystemError{Reason: "too many sessions"})}
	}
	response := g.SessionManager.Login(ctx, req)
	failed := response.Fault() != nil
	s.loggedIn(req.UserName, failed)
	if failed {
		s.server.counters.login(loginFailed)
	} else {
		s.server.counters.login(loginSucceeded)
	}
	return response
}

func (s *strict) mayLogin(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.logins[user]
	return a == nil || time.Now().After(a.lockedUntil)
}

func (s *strict) loggedIn(user string, failed bool) {
	policy := s.server.opts.Lockout
	s.mu.Lock()
	defer s.mu.Unlock()
	if !failed {
		delete(s.logins, user)
		return
	}
	a := s.logins[user]
	if a == nil {
		a = &account{}
		s.logins[user] = a
	}
	now := time.Now()
	recent := a.failures[:0]
	for _, at := range a.failures {
		if now.Sub(at) < policy.Window {
			recent = append(recent, at)
		}
	}
	a.failures = append(recent, now)
	if policy.Failures > 0 && len(a.failures) >= policy.Failures {
		a.lockedUntil, a.failures = now.Add(policy.Duration), nil
	}
}

// Logout ends the session and what waits in it.
func (g *sessionGate) Logout(ctx *simulator.Context, req *types.Logout) soap.HasFault {
	response := g.SessionManager.Logout(ctx, req)
	g.strict.sessionEnded(ctx.Session.Key)
	return response
}

// TerminateSession ends other sessions; their open waits end with them.
func (g *sessionGate) TerminateSession(ctx *simulator.Context, req *types.TerminateSession) soap.HasFault {
	response := g.SessionManager.TerminateSession(ctx, req)
	if response.Fault() == nil {
		for _, key := range req.SessionId {
			g.strict.sessionEnded(key)
		}
	}
	return response
}

// track remembers the sessions that are in use.
func (s *strict) track(ctx *simulator.Context) {
	if ctx.Session.Key == "" || ctx.Session.Registry == nil {
		return
	}
	s.mu.Lock()
	s.sessions[ctx.Session.Key] = ctx.Session
	s.mu.Unlock()
}

// sessionEnded ends the waits of a session and takes its views and filters out of vcsim's notification.
func (s *strict) sessionEnded(key string) {
	s.mu.Lock()
	session := s.sessions[key]
	delete(s.sessions, key)
	s.mu.Unlock()
	s.collectors.forget(key, nil)
	if session == nil {
		return
	}
	for _, object := range session.Registry.AllReference("") {
		if handler, ok := object.(simulator.RegisterObject); ok {
			s.server.registry.RemoveHandler(handler)
		}
	}
}

// sweep looks from time to time for sessions that expired, and forgets old tasks.
func (s *strict) sweep() {
	ticker := time.NewTicker(min(10*time.Second, max(s.server.opts.TaskRetention, 100*time.Millisecond)))
	defer ticker.Stop()
	for {
		select {
		case <-s.server.stopped:
			return
		case now := <-ticker.C:
			s.sweepSessions()
			s.sweepTasks(now.Add(-s.server.opts.TaskRetention))
		}
	}
}

func (s *strict) sweepSessions() {
	open := map[string]bool{}
	for _, session := range s.server.sessions() {
		open[session.Key] = true
	}
	s.mu.Lock()
	var lost []string
	for key, session := range s.sessions {
		if !open[key] && session.UserName != "" {
			lost = append(lost, key)
		}
	}
	s.mu.Unlock()
	for _, key := range lost {
		s.sessionEnded(key)
	}
}

// sessions lists the open sessions of the vSphere API.
func (s *Server) sessions() []Session {
	// vcsim makes the list for whoever looks at the session manager from within a session.
	viewer := &simulator.Session{Registry: simulator.NewRegistry(), Map: s.registry}
	manager, ok := viewer.Get(s.registry.SessionManager().Reference()).(*simulator.SessionManager)
	if !ok {
		return []Session{}
	}
	list := make([]Session, 0, len(manager.SessionList))
	for _, session := range manager.SessionList {
		list = append(list, Session{
			Key: session.Key, User: session.UserName, UserAgent: session.UserAgent, Login: session.LoginTime, LastActive: session.LastActiveTime,
		})
	}
	return list
}

// background runs what outlives the call that began it, until the server is closed.
type background struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// Go runs f, unless the server is closed.
func (b *background) Go(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Go(f)
	}
}

func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
