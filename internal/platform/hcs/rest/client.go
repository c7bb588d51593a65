package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Client speaks for one credential. Safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	limiter *rate.Limiter
	gate    gate
	now     func() time.Time
}

// connections that a client keeps to one host.
const connections = 8

// maxAnswer bounds what is read of an answer.
const maxAnswer = 32 << 20

// New returns a client. Nothing is sent before the first call; there is no session to close.
func New(cfg Config) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.InsecureSkipTLSVerify} //nolint:gosec // the Secret says so
	if len(bytes.TrimSpace(cfg.CABundle)) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(cfg.CABundle) {
			return nil, fmt.Errorf("the key %s has no certificate in PEM form", keyCABundle)
		}
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.UserAgent == "" {
		cfg.UserAgent = "berth"
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
	}
	return &Client{
		cfg: cfg, now: time.Now,
		// A redirect would be followed with a signature that is not the target's.
		http:    &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		limiter: rate.NewLimiter(rate.Limit(cfg.Limits.PerSecond), cfg.Limits.Burst),
	}, nil
}

// Config of the client.
func (c *Client) Config() Config { return c.cfg }

// Close gives the connections up.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	// operation in words, for messages and the meter.
	operation string
	service   Service
	method    string
	// path after the service's base; "{project}" is replaced.
	path  string
	query url.Values
	// token makes a repeated creation the same one, where the platform knows it.
	token string
	// in is sent as JSON, out is read from it; nil is nothing.
	in, out any
}

// do makes a call. Every error is an *Error.
func (c *Client) do(ctx context.Context, k call) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Limits.CallTimeout)
	defer cancel()
	if err := c.gate.allow(c.now(), k.operation); err != nil {
		return err
	}
	if err := c.limiter.Wait(ctx); err != nil {
		return &Error{Kind: Throttled, Operation: k.operation, Err: errors.New("waiting for our own limit of calls took too long"), RetryAfter: c.cfg.Limits.ThrottlePause}
	}
	// Others may have been refused while this one waited.
	if err := c.gate.allow(c.now(), k.operation); err != nil {
		return err
	}
	var body []byte
	if k.in != nil {
		var err error
		if body, err = json.Marshal(k.in); err != nil {
			return &Error{Kind: Invalid, Operation: k.operation, Err: err}
		}
	}
	target := c.cfg.Base(k.service) + strings.ReplaceAll(k.path, "{project}", url.PathEscape(c.cfg.ProjectID))
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, bytes.NewReader(body))
	if err != nil {
		return &Error{Kind: Invalid, Operation: k.operation, Err: err}
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	req.Header.Set("X-Project-Id", c.cfg.ProjectID)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json;charset=UTF-8")
	}
	if k.token != "" {
		req.Header.Set("X-Client-Token", k.token)
	}
	start := c.now()
	sign(req, body, c.cfg.AccessKey, c.cfg.SecretKey, start)
	err = c.send(req, k)
	c.cfg.Meter.count(k.operation, c.now().Sub(start), err)
	c.gate.saw(err, c.now(), c.cfg.Limits)
	return err
}

func (c *Client) send(req *http.Request, k call) error {
	res, err := c.http.Do(req)
	if err != nil {
		return &Error{Kind: Unavailable, Operation: k.operation, Err: plain(err)}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &Error{Kind: Unavailable, Operation: k.operation, Status: res.StatusCode, Err: fmt.Errorf("reading the answer: %w", plain(err))}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		e := answered(k.operation, res, body)
		if e.Kind == Unauthenticated {
			e.Text += c.clock(res)
		}
		return e
	}
	if k.out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, k.out); err != nil {
		return &Error{
			Kind: Unavailable, Operation: k.operation, Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id"),
			Err: fmt.Errorf("the answer cannot be read: %w", err),
		}
	}
	return nil
}

// maxSkew between two clocks that a signature survives.
const maxSkew = 15 * time.Minute

// clock says how far the platform's clock is away if that is why a signature was refused.
func (c *Client) clock(res *http.Response) string {
	theirs, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return ""
	}
	if skew := c.now().Sub(theirs).Round(time.Second); skew.Abs() > maxSkew {
		return fmt.Sprintf("; our clock and the platform's are %s apart, correct the clock", skew.Abs())
	}
	return ""
}

// plain takes the URL out of a transport's error: the operation already says what was tried.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if u.Timeout() {
			return errors.New("no answer in time")
		}
		return u.Err
	}
	return err
}
