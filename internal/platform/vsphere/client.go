package vsphere

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// client is the road every call takes: deadline, rate, count, and one new login when the vCenter forgot us.
type client struct {
	cfg     Config
	soap    *soap.Client
	vim     *vim25.Client
	reads   *rate.Limiter
	breaker *breaker
	login   singleflight.Group
	// logins counts successful logins, so that of many calls that met the same dead session one logs in.
	logins atomic.Int64
	closed atomic.Bool
}

func connect(ctx context.Context, cfg Config, b *breaker) (*client, error) {
	c := &client{
		cfg:     cfg,
		soap:    newTransport(cfg),
		reads:   rate.NewLimiter(rate.Limit(cfg.ReadsPerSecond), cfg.ReadBurst),
		breaker: b,
	}
	if err := b.allow(time.Now()); err != nil {
		return nil, err
	}
	// vim25.NewClient tells the SOAP client its namespace only when it is given one as the round tripper.
	c.soap.Namespace, c.soap.Version = "urn:"+vim25.Namespace, vim25.Version
	vim, err := vim25.NewClient(ctx, &bare{c})
	if err != nil {
		return nil, unreachable(cfg, err)
	}
	vim.Client = c.soap
	if !vim.IsVC() {
		return nil, refused(ReasonUnreachable, "%s is not a vCenter but %q (%s): give the address of a vCenter", cfg.Server,
			vim.ServiceContent.About.ApiType, vim.ServiceContent.About.FullName)
	}
	vim.RoundTripper = c
	c.vim = vim
	if err := c.logIn(ctx, 0); err != nil {
		return nil, err
	}
	return c, nil
}

// logIn makes a session unless somebody made one since seen was read.
func (c *client) logIn(ctx context.Context, seen int64) error {
	done := c.login.DoChan("login", func() (any, error) {
		if c.logins.Load() != seen {
			return nil, nil
		}
		if err := c.breaker.allow(time.Now()); err != nil {
			return nil, err
		}
		// The login outlives the caller that happened to start it: others wait for it too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CallTimeout)
		defer cancel()
		viaBare := *c.vim
		viaBare.RoundTripper = &bare{c}
		err := session.NewManager(&viaBare).Login(ctx, url.UserPassword(c.cfg.Username, c.cfg.Password))
		if err != nil && isLoginRefusal(err) {
			c.cfg.Log.Info("vCenter refused the credentials", "user", c.cfg.Username)
			return nil, c.breaker.refused(time.Now(), c.cfg)
		}
		if err != nil {
			return nil, unreachable(c.cfg, err)
		}
		c.breaker.accepted()
		if c.logins.Add(1) > 1 {
			c.cfg.Log.Info("Logged in again: vCenter had ended the session")
		}
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *client) logOut(ctx context.Context) error {
	c.closed.Store(true)
	viaBare := *c.vim
	viaBare.RoundTripper = &bare{c}
	err := session.NewManager(&viaBare).Logout(ctx)
	c.soap.CloseIdleConnections()
	return err
}

// RoundTrip implements soap.RoundTripper for everything after the login.
func (c *client) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	if c.closed.Load() {
		return errClosed
	}
	method := methodOf(req)
	if isRead(method) {
		if err := c.reads.Wait(ctx); err != nil {
			return err
		}
	}
	seen := c.logins.Load()
	err := c.once(ctx, method, req, res)
	if !notAuthenticated(err, res) {
		return err
	}
	if err := c.logIn(ctx, seen); err != nil {
		return err
	}
	reset(res)
	return c.once(ctx, method, req, res)
}

// bare is the client before and during a login.
type bare struct{ *client }

func (b *bare) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	return b.once(ctx, methodOf(req), req, res)
}

// once is one round trip with a deadline and a count.
func (c *client) once(ctx context.Context, method string, req, res soap.HasFault) error {
	timeout := c.cfg.CallTimeout
	if method == longPoll {
		timeout += pollSeconds * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	err := c.soap.RoundTrip(ctx, req, res)
	c.cfg.Meter.call(method, time.Since(start), err)
	return err
}

// file fetches (body nil) or stores a small file of a datastore. Status 404 is errNoFile.
func (c *client) file(ctx context.Context, method string, datacenter, datastore, path string, body []byte) ([]byte, error) {
	if c.closed.Load() {
		return nil, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	u := c.soap.URL()
	u.Path = "/folder/" + path
	u.RawQuery = url.Values{"dcPath": {datacenter}, "dsName": {datastore}}.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	req.Header.Set("User-Agent", c.soap.UserAgent)
	start := time.Now()
	var data []byte
	res, err := c.soap.Client.Do(req)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
		_ = res.Body.Close()
		switch {
		case err != nil:
		case res.StatusCode == http.StatusNotFound:
			err = errNoFile
		case res.StatusCode >= http.StatusMultipleChoices:
			err = &statusError{code: res.StatusCode, text: method + " " + u.Path + ": " + res.Status}
		}
	}
	c.cfg.Meter.call(method, time.Since(start), err)
	return data, err
}

var (
	errClosed = errors.New("the session is closed")
	errNoFile = errors.New("no such file")
)

type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// methodOf names the SOAP method of a request body: *methods.CloneVM_TaskBody is CloneVM_Task.
func methodOf(req soap.HasFault) string {
	return strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Body")
}

func isRead(method string) bool {
	return strings.HasPrefix(method, "Retrieve") || strings.HasPrefix(method, "Find") || strings.HasPrefix(method, "Query")
}

// notAuthenticated recognises a dead session: by the fault, and for property reads also by properties withheld for that
// reason.
func notAuthenticated(err error, res soap.HasFault) bool {
	if err != nil {
		return isFault[*types.NotAuthenticated](err)
	}
	body, ok := res.(*methods.RetrievePropertiesBody)
	if !ok || body.Res == nil {
		return false
	}
	for _, object := range body.Res.Returnval {
		for _, missing := range object.MissingSet {
			if _, ok := missing.Fault.Fault.(*types.NotAuthenticated); ok {
				return true
			}
		}
	}
	return false
}

// reset empties a response body for the second try.
func reset(res soap.HasFault) {
	v := reflect.ValueOf(res).Elem()
	v.Set(reflect.Zero(v.Type()))
}
