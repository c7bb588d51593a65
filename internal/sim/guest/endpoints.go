package guest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// endpoints are the load balancers in front of control planes: one TCP proxy per cluster endpoint. A kube-apiserver can
// listen and yet be of no use (its etcd member was removed), so each is probed at /readyz, and the connections of one that
// is not ready are cut.
type endpoints struct {
	ctx context.Context //nolint:containedctx // the life of the daemon
	log logr.Logger

	mu      sync.Mutex
	byAddr  map[string]*endpoint
	running sync.WaitGroup
}

func newEndpoints(ctx context.Context, log logr.Logger) *endpoints {
	return &endpoints{ctx: ctx, log: log, byAddr: map[string]*endpoint{}}
}

// endpoint is one proxy.
type endpoint struct {
	addr   string
	log    logr.Logger
	cancel context.CancelFunc
	// gone is told when the last backend left.
	gone []func()

	mu       sync.Mutex
	backends map[*machine]*backend
	turn     int
}

// backend is one kube-apiserver.
type backend struct {
	addr   string
	cancel context.CancelFunc

	mu    sync.Mutex
	ready bool
	conns map[net.Conn]struct{}
}

// add puts a guest's kube-apiserver behind an endpoint, which is opened if it is new. Endpoints that are not on loopback are
// somebody else's business.
func (e *endpoints) add(g *machine, addr, backendAddr string) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() || addr == backendAddr {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.byAddr[addr]
	if p == nil {
		ctx, cancel := context.WithCancel(e.ctx)
		p = &endpoint{addr: addr, log: e.log, cancel: cancel, backends: map[*machine]*backend{}}
		e.byAddr[addr] = p
		e.running.Go(func() { p.serve(ctx) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.backends[g]; old != nil {
		if old.addr == backendAddr {
			return
		}
		old.close()
	}
	ctx, cancel := context.WithCancel(e.ctx)
	b := &backend{addr: backendAddr, cancel: cancel, conns: map[net.Conn]struct{}{}}
	p.backends[g] = b
	e.running.Go(func() { b.probe(ctx) })
}

// onGone calls f when the endpoint is closed because its last control plane left.
func (e *endpoints) onGone(addr string, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.byAddr[addr]; p != nil {
		p.gone = append(p.gone, f)
	}
}

// remove takes a guest from behind all endpoints. An endpoint that nobody is behind any more is closed.
func (e *endpoints) remove(g *machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for addr, p := range e.byAddr {
		p.mu.Lock()
		if b := p.backends[g]; b != nil {
			b.close()
			delete(p.backends, g)
		}
		empty := len(p.backends) == 0
		p.mu.Unlock()
		if empty {
			p.cancel()
			delete(e.byAddr, addr)
			for _, f := range p.gone {
				f()
			}
		}
	}
}

func (e *endpoints) close() {
	e.mu.Lock()
	for _, p := range e.byAddr {
		p.cancel()
		p.mu.Lock()
		for _, b := range p.backends {
			b.close()
		}
		p.mu.Unlock()
	}
	e.mu.Unlock()
	e.running.Wait()
}

// serve accepts connections until the context ends. A taken address is tried again: the predecessor may be leaving.
func (p *endpoint) serve(ctx context.Context) {
	var listener net.Listener
	for complained := false; ; complained = true {
		var err error
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", p.addr); err == nil {
			break
		}
		if !complained {
			p.log.Error(err, "the control plane endpoint cannot be opened; trying on", "endpoint", p.addr)
		}
		if !wait(ctx, 500*time.Millisecond) {
			return
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	p.log.Info("control plane endpoint opened", "endpoint", p.addr)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go p.forward(ctx, conn)
	}
}

// forward connects a client to a ready backend, the next one in turn. Without one the client is turned away at once, as by
// a load balancer.
func (p *endpoint) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	for _, b := range p.ready() {
		server, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", b.addr)
		if err != nil {
			continue
		}
		if !b.hold(client) {
			_ = server.Close()
			continue
		}
		defer b.release(client)
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
		_ = server.Close()
		return
	}
}

func (p *endpoint) ready() []*backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*backend
	for _, b := range p.backends {
		b.mu.Lock()
		if b.ready {
			list = append(list, b)
		}
		b.mu.Unlock()
	}
	if len(list) > 1 {
		p.turn++
		n := p.turn % len(list)
		list = append(list[n:], list[:n]...)
	}
	return list
}

// probeClient trusts anybody: the load balancer does not know the cluster's CA.
var probeClient = &http.Client{
	Timeout: 2 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     10 * time.Second,
	},
}

// probe asks /readyz again and again until the context ends.
func (b *backend) probe(ctx context.Context) {
	const often, seldom = 200 * time.Millisecond, time.Second
	for {
		pause := often
		if b.set(askReady(ctx, b.addr)) {
			pause = seldom
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

func askReady(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := probeClient.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4096))
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// set records readiness and cuts all connections of a backend that is not ready.
func (b *backend) set(ready bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = ready
	if !ready {
		b.cut()
	}
	return ready
}

func (b *backend) cut() {
	for c := range b.conns {
		_ = c.Close()
	}
	clear(b.conns)
}

func (b *backend) close() {
	b.cancel()
	b.set(false)
}

func (b *backend) hold(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready {
		b.conns[c] = struct{}{}
	}
	return b.ready
}

func (b *backend) release(c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}
