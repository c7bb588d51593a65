package vsphere

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/vmware/govmomi/vapi/rest"

	"github.com/berth-dev/berth/internal/machine"
)

// desk is the login at vCenter's REST services (tags, cluster modules), which know nothing of the SOAP session. All calls under
// way share one: the first opens it and the last closes it, so that none is ever left behind and a wave of machines costs one
// login.
type desk struct {
	// turn is held while the login is opened or closed.
	turn  chan struct{}
	users int
	open  *rest.Client
}

func newDesk() *desk { return &desk{turn: make(chan struct{}, 1)} }

// rest runs do with the shared login; what for words, such as "checking tags". Errors are *machine.Error. A login that vCenter
// ended meanwhile is made anew, once.
func (s *Session) rest(ctx context.Context, doing string, do func(context.Context, *rest.Client) error) error {
	if s.client.closed.Load() {
		return failed(errClosed, "%s", doing)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.client.cfg.CallTimeout)
	defer cancel()
	c, err := s.enter(ctx, nil)
	if err != nil {
		return failed(described(err, doing+": reaching the REST services of vCenter "+s.client.cfg.Server), "%s", doing)
	}
	defer s.leaveDesk(ctx)
	err = do(ctx, c)
	if rest.IsStatusError(err, http.StatusUnauthorized) {
		if c, err = s.enter(ctx, c); err != nil {
			return failed(described(err, doing+": reaching the REST services of vCenter "+s.client.cfg.Server), "%s", doing)
		}
		defer s.leaveDesk(ctx)
		err = do(ctx, c)
	}
	return failed(described(restFault(err), doing), "%s", doing)
}

// described puts words before what vCenter answered, if it has none.
func described(err error, words string) error {
	var e *machine.Error
	switch {
	case errors.As(err, &e) && e.Message == "":
		e.Message = words
	case e == nil:
		return failed(err, "%s", words)
	}
	return err
}

// enter takes part in the shared login. dead is a client whose login has ended; nil for none.
func (s *Session) enter(ctx context.Context, dead *rest.Client) (*rest.Client, error) {
	d := s.desk
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.open == nil || d.open == dead {
		c, err := s.logInREST(ctx)
		if err != nil {
			return nil, err
		}
		d.open = c
	}
	d.users++
	return d.open, nil
}

func (s *Session) leaveDesk(ctx context.Context) {
	d := s.desk
	d.turn <- struct{}{} // held for one call at most, which has a deadline
	defer func() { <-d.turn }()
	if d.users--; d.users > 0 || d.open == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.client.cfg.CallTimeout)
	defer cancel()
	_ = d.open.Logout(ctx)
	d.open = nil
}

// logInREST opens a login. A password that vCenter refuses shuts the credential, as it does for the SOAP session: it is the same
// account that would get locked.
func (s *Session) logInREST(ctx context.Context) (*rest.Client, error) {
	cfg := s.client.cfg
	if err := s.client.breaker.allow(time.Now()); err != nil {
		return nil, err
	}
	c := rest.NewClient(s.client.vim)
	c.Client.Transport = counted{c.Client.Transport, cfg.Meter}
	ctx, cancel := context.WithTimeout(ctx, cfg.CallTimeout)
	defer cancel()
	err := c.Login(ctx, url.UserPassword(cfg.Username, cfg.Password))
	switch {
	case rest.IsStatusError(err, http.StatusUnauthorized):
		return nil, s.client.breaker.refused(time.Now(), cfg)
	case err != nil:
		return nil, restFault(err)
	}
	return c, nil
}

// counted counts the round trips of a REST client.
type counted struct {
	http.RoundTripper
	meter *Meter
}

func (t counted) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	res, err := drained{t.RoundTripper}.RoundTrip(req)
	t.meter.call("REST "+req.Method+" "+resource(req.URL.Path), time.Since(start), err)
	return res, err
}

// resource is the path of a REST call without identifiers: a name that few calls share would make the counts useless.
func resource(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/rest"), "/com/vmware")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "id:") || strings.Contains(part, "-") && strings.ContainsAny(part, "0123456789") {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// restFault gives the answers of the REST services the meaning that faults have elsewhere. Bad requests come as text.
func restFault(err error) error {
	var typed *machine.Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	e := &machine.Error{Kind: machine.Broken, Reason: ReasonTask, Err: err}
	switch text := err.Error(); {
	case rest.IsStatusError(err, http.StatusUnauthorized):
		e.Kind, e.Reason = machine.Refused, ReasonCredentials
	case rest.IsStatusError(err, http.StatusForbidden):
		e.Kind, e.Reason = machine.Refused, ReasonNoPermission
	case rest.IsStatusError(err, http.StatusNotFound):
		e.Kind = machine.NotFound
	case rest.IsStatusError(err, http.StatusServiceUnavailable), rest.IsStatusError(err, http.StatusTooManyRequests):
		e.Kind, e.RetryAfter = machine.Busy, 10*time.Second
	case strings.Contains(text, "already_exists"):
		e.Kind = machine.Conflict
	case strings.HasPrefix(text, "400 "):
		e.Kind = machine.Refused
	default:
		return err // of the network
	}
	return e
}
