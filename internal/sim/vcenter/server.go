package vcenter

import (
	"context"
	"crypto/sha1" //nolint:gosec // vSphere's thumbprints are SHA-1
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// Server is a running simulated vCenter.
type Server struct {
	opts     Options
	model    *simulator.Model
	service  *simulator.Service
	registry *simulator.Registry
	strict   *strict
	counters *counters
	faults   *faults

	cert        tls.Certificate
	api, admin  net.Listener
	apiServer   *http.Server
	adminServer *http.Server
	serving     sync.WaitGroup
	stopped     chan struct{}
	closeOnce   sync.Once
	background  background
	rest        restSessions
}

// starting serialises Start: vcsim keeps its default settings in package variables.
var starting sync.Mutex

// Start brings up a simulated vCenter; it serves when Start returns.
func Start(options Options) (*Server, error) {
	opts, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, counters: newCounters(), faults: newFaults(opts.Log), stopped: make(chan struct{})}
	for _, dir := range []string{opts.Dir, opts.DisksDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("simulated vCenter: %w", err)
		}
	}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("simulated vCenter: %w", err)
	}
	if err := s.build(); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulated vCenter: %w", err)
	}
	s.serve()
	return s, nil
}

func (s *Server) listen() error {
	var err error
	var config net.ListenConfig
	if s.api, err = config.Listen(context.Background(), "tcp", s.opts.Listen); err != nil {
		return err
	}
	if s.admin, err = config.Listen(context.Background(), "tcp", s.opts.Admin); err != nil {
		_ = s.api.Close()
		return err
	}
	return nil
}

// build creates the world: vcsim's objects, the strict layer over them, the inventory.
func (s *Server) build() error {
	starting.Lock()
	defer starting.Unlock()

	host, _, err := net.SplitHostPort(s.Address())
	if err != nil {
		return err
	}
	if s.cert, err = keyPair(s.opts.Dir, host); err != nil {
		return err
	}
	s.model = simulator.VPX()
	s.model.Datacenter = 0
	about := &s.model.ServiceContent.About
	about.Version, about.ApiVersion = s.opts.Version, s.opts.Version+".0"
	about.Build = "24022515"
	about.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s (simulated)", about.Version, about.Build)
	if err := s.model.Create(); err != nil {
		return err
	}
	s.service = s.model.Service
	s.registry = s.service.Context.Map
	s.mount()
	s.strict = newStrict(s)
	s.registry.Handler = s.strict.handle

	client, err := vim25.NewClient(context.Background(), s.service)
	if err != nil {
		return err
	}
	b := &builder{ctx: context.Background(), server: s, client: client}
	if err := b.create(s.opts.Inventory); err != nil {
		return fmt.Errorf("building the inventory: %w", err)
	}
	return nil
}

// mount registers vcsim's endpoints on its mux. vcsim insists on opening a listener for that; ours replaces it, because
// latency, counters and cut connections belong in front of vcsim.
func (s *Server) mount() {
	options := s.registry.OptionManager()
	settings := make([]types.BaseOptionValue, 0, len(options.Setting)+1)
	for _, option := range options.Setting {
		value := *option.GetOptionValue()
		settings = append(settings, &value)
	}
	if s.opts.SessionIdle > 0 {
		settings = append(settings, &types.OptionValue{Key: "config.vmacore.soap.sessionTimeout", Value: s.opts.SessionIdle.String()})
	}
	options.Setting = settings

	s.service.RegisterEndpoints = true
	s.service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(s.opts.Username, s.opts.Password)}
	inner := s.service.NewServer()
	was := inner.URL.Host
	inner.Close()
	s.service.Listen.Scheme, s.service.Listen.Host = "https", s.Address()
	s.registry.SessionManager().ServiceHostName = s.Address()
	for _, option := range options.Setting {
		value := option.GetOptionValue()
		if text, ok := value.Value.(string); ok && strings.Contains(text, was) {
			text = strings.ReplaceAll(text, was, s.Address())
			value.Value = strings.Replace(text, "http://", "https://", 1)
		}
	}
}

func (s *Server) serve() {
	config := &tls.Config{
		Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert,
	}
	s.registry.SessionManager().TLS = func() *tls.Config { return config }
	s.apiServer = &http.Server{
		Handler: s.front(s.service.ServeMux), ReadHeaderTimeout: time.Minute,
		ConnContext: s.counters.connection, ErrorLog: quiet(s.opts.Log),
	}
	s.adminServer = &http.Server{Handler: s.adminHandler(), ReadHeaderTimeout: time.Minute}
	s.serving.Go(func() { s.run(s.apiServer, tls.NewListener(s.api, config)) })
	s.serving.Go(func() { s.run(s.adminServer, s.admin) })
	s.serving.Go(s.strict.sweep)
}

func (s *Server) run(server *http.Server, listener net.Listener) {
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.opts.Log.Error("simulated vCenter stopped serving", "address", listener.Addr().String(), "error", err)
	}
}

// Close stops serving and cuts open connections. The world is gone.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.stopped)
		for _, server := range []*http.Server{s.apiServer, s.adminServer} {
			if server != nil {
				_ = server.Close()
			}
		}
		_ = s.api.Close()
		_ = s.admin.Close()
		s.serving.Wait()
		s.background.close()
		if s.model != nil && s.model.Service != nil {
			s.model.Remove()
		}
	})
}

// Address is the host and port of the vSphere API, as in VSphereCluster.spec.server.
func (s *Server) Address() string { return s.api.Addr().String() }

// URL of the SDK endpoint, without credentials.
func (s *Server) URL() *url.URL {
	return &url.URL{Scheme: "https", Host: s.Address(), Path: vim25.Path}
}

// Userinfo is the account.
func (s *Server) Userinfo() *url.Userinfo { return url.UserPassword(s.opts.Username, s.opts.Password) }

// Admin returns a client of the side channel.
func (s *Server) Admin() *Admin { return &Admin{URL: "http://" + s.admin.Addr().String()} }

// Thumbprint is the certificate's SHA-1 fingerprint in vSphere's form, "AA:BB:...".
func (s *Server) Thumbprint() string {
	sum := sha1.Sum(s.cert.Certificate[0]) //nolint:gosec // vSphere's thumbprints are SHA-1
	return colons(sum[:])
}

// ThumbprintSHA256 is the certificate's SHA-256 fingerprint in the same form.
func (s *Server) ThumbprintSHA256() string {
	sum := sha256.Sum256(s.cert.Certificate[0])
	return colons(sum[:])
}

// CertificateFile is the PEM file that a client may trust.
func (s *Server) CertificateFile() string { return filepath.Join(s.opts.Dir, "tls.crt") }

// Service is vcsim itself, for tests that set states no API reaches (a host in maintenance, a lost connection).
func (s *Server) Service() *simulator.Service { return s.service }

func colons(sum []byte) string {
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// internalContext is a context of our own for reading and changing objects. Locks are held per context: use one per
// goroutine.
func (s *Server) internalContext() *simulator.Context {
	ctx := *s.service.Context
	return &ctx
}
