package disturb

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // vSphere's thumbprints are SHA-1
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// Kinds of faults beside those of the simulated vCenter.
const (
	// Unavailable answers 503; nothing happened.
	Unavailable vcenter.FaultKind = "503"
	// Expired ends the client's session at the vCenter right before the call.
	Expired vcenter.FaultKind = "expired"
)

// Witness sees every call. Its answers decide whether the client still lives: false cuts the connection, in the first case
// before the call has happened, in the second after it and before the client has the answer.
type Witness interface {
	Before(c Call) bool
	After(c Call) bool
}

// Tasks carries out the faults of tasks; [vcenter.Admin] does.
type Tasks interface {
	Inject(ctx context.Context, faults ...vcenter.Fault) error
}

// Options of a proxy.
type Options struct {
	// Target is host and port of the vCenter.
	Target string
	// Tasks takes the rules of tasks; nil refuses them.
	Tasks Tasks
	// Witness of all calls, or nil.
	Witness Witness
}

// Proxy is a running proxy.
type Proxy struct {
	options Options
	server  *httptest.Server
	out     *http.Transport
	rules   rules
	hidden  hidden

	mu    sync.Mutex
	seen  map[string]int
	calls []Call
}

// Start serves on a free loopback port until Close.
func Start(o Options) *Proxy {
	p := &Proxy{options: o, seen: map[string]int{}, out: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // a test's own vCenter
		MaxIdleConnsPerHost: 32,
	}}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p
}

// Close ends all talk.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.out.CloseIdleConnections()
	p.server.Close()
}

// Address is host and port, for clients in place of the vCenter's.
func (p *Proxy) Address() string { return p.server.Listener.Addr().String() }

// Thumbprint of the certificate that clients see, in vSphere's form.
func (p *Proxy) Thumbprint() string {
	sum := sha1.Sum(p.server.Certificate().Raw) //nolint:gosec // vSphere's thumbprints are SHA-1
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// Inject adds rules; those of tasks go to the vCenter.
func (p *Proxy) Inject(ctx context.Context, faults ...vcenter.Fault) error {
	for _, f := range faults {
		switch f.Kind {
		case vcenter.FaultTask, vcenter.FaultTaskAfter, vcenter.FaultTaskHang:
			if p.options.Tasks == nil {
				return fmt.Errorf("a fault of kind %q needs a vCenter that can be told", f.Kind)
			}
			if err := p.options.Tasks.Inject(ctx, f); err != nil {
				return err
			}
		default:
			if err := p.rules.add(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// Struck is how many calls the proxy's own rules have hit.
func (p *Proxy) Struck() int { return p.rules.struck() }

// Hide makes objects disappear from answers for a while: virtual machines by reference ("vm-42"), files by their path in the
// datastore ("dir/disk.vmdk").
func (p *Proxy) Hide(d time.Duration, objects ...string) { p.hidden.add(time.Now().Add(d), objects...) }

// Calls of all clients so far, in the order of their arrival.
func (p *Proxy) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...)
}

// Reset forgets the calls; numbers start from 1 again.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.calls = map[string]int{}, nil
}

func (p *Proxy) count(c *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[c.Method]++
	c.N = p.seen[c.Method]
	p.calls = append(p.calls, *c)
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := callOf(r, body)
	p.count(&c)
	if p.options.Witness != nil && !p.options.Witness.Before(c) {
		panic(http.ErrAbortHandler)
	}
	rule, struck := p.rules.strike(c)
	if struck {
		switch rule.Kind {
		case vcenter.FaultCut:
			panic(http.ErrAbortHandler)
		case vcenter.FaultBefore:
			refuse(w, r, rule)
			return
		case Unavailable:
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		case vcenter.FaultDelay:
			if !pause(r.Context(), rule.Delay) {
				panic(http.ErrAbortHandler)
			}
		case Expired:
			if err := p.logOut(r); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
	}
	a, err := p.forward(r, c, body)
	if p.options.Witness != nil && !p.options.Witness.After(c) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case struck && rule.Kind == vcenter.FaultDrop:
		panic(http.ErrAbortHandler)
	case struck && rule.Kind == vcenter.FaultAfter:
		refuse(w, r, rule)
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// forward lets the vCenter answer, as far as nothing that is hidden is concerned.
func (p *Proxy) forward(r *http.Request, c Call, body []byte) (answer, error) {
	if a, instead := p.hidden.instead(c, body); instead {
		return a, nil
	}
	a, err := p.send(r, body)
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.header.Get("Content-Type"), "xml") {
		return a, err
	}
	if strings.HasPrefix(c.Method, "WaitForUpdates") {
		// A change that was filtered out would never be told again: the answer waits until everything in it shows.
		for p.hidden.mentioned(a.body) {
			if !pause(r.Context(), 20*time.Millisecond) {
				return a, r.Context().Err()
			}
		}
		return a, nil
	}
	a.body = p.hidden.without(a.body)
	return a, nil
}

func (p *Proxy) send(r *http.Request, body []byte) (answer, error) {
	u := *r.URL
	u.Scheme, u.Host = "https", p.options.Target
	out, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	out.Header = r.Header.Clone()
	res, err := p.out.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: data}, err
}

// logOut ends the session in whose name a request was made.
func (p *Proxy) logOut(r *http.Request) error {
	const logout = `<?xml version="1.0" encoding="UTF-8"?><Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/">` +
		`<Body><Logout xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this></Logout></Body></Envelope>`
	end := r.Clone(r.Context())
	end.Method, end.URL.Path, end.URL.RawQuery = http.MethodPost, "/sdk", ""
	end.Header.Set("Content-Type", `text/xml; charset="utf-8"`)
	a, err := p.send(end, []byte(logout))
	if err == nil && a.status != http.StatusOK {
		err = errors.New(string(a.body))
	}
	return err
}

// refuse answers a call with the fault of a rule.
func refuse(w http.ResponseWriter, r *http.Request, rule vcenter.Fault) {
	if !strings.Contains(r.Header.Get("Content-Type"), "xml") {
		http.Error(w, "injected fault", http.StatusInternalServerError)
		return
	}
	rule.Answer(w)
}

// pause waits; false means that the client has left.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
