package hcs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Server is a running simulated platform.
type Server struct {
	opts     Options
	cloud    *cloud
	faults   *faults
	counters *counters

	api, admin  net.Listener
	apiServer   *http.Server
	adminServer *http.Server
	certificate []byte

	stopped   chan struct{}
	closeOnce sync.Once
	serving   sync.WaitGroup
}

// Start brings up a simulated platform; it serves when Start returns.
func Start(options Options) (*Server, error) {
	opts, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{opts.Dir, opts.DisksDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("simulated HCS: %w", err)
		}
	}
	s := &Server{opts: opts, cloud: newCloud(opts), faults: &faults{log: opts.Log}, counters: newCounters(), stopped: make(chan struct{})}
	var config net.ListenConfig
	if s.api, err = config.Listen(context.Background(), "tcp", opts.Listen); err != nil {
		return nil, fmt.Errorf("simulated HCS: %w", err)
	}
	if s.admin, err = config.Listen(context.Background(), "tcp", opts.Admin); err != nil {
		_ = s.api.Close()
		return nil, fmt.Errorf("simulated HCS: %w", err)
	}
	if opts.TLS {
		host, _, _ := net.SplitHostPort(s.api.Addr().String())
		pair, pem, err := keyPair(opts.Dir, host)
		if err != nil {
			_, _ = s.api.Close(), s.admin.Close()
			return nil, fmt.Errorf("simulated HCS: %w", err)
		}
		s.certificate = pem
		s.api = tls.NewListener(s.api, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	}
	s.apiServer = &http.Server{Handler: s.front(s.routes()), ReadHeaderTimeout: 10 * time.Second}
	s.adminServer = &http.Server{Handler: s.adminHandler(), ReadHeaderTimeout: 10 * time.Second}
	s.serve(s.apiServer, s.api)
	s.serve(s.adminServer, s.admin)
	s.serving.Add(1)
	go s.clock()
	return s, nil
}

func (s *Server) serve(server *http.Server, on net.Listener) {
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log.Error("serving", "error", err)
		}
	}()
}

// clock carries jobs out when they are due and nobody asks.
func (s *Server) clock() {
	defer s.serving.Done()
	for {
		s.cloud.mu.Lock()
		s.cloud.advance()
		changed, next := s.cloud.changed, s.cloud.next()
		s.cloud.mu.Unlock()
		wait := time.Hour
		if !next.IsZero() {
			wait = max(next.Sub(s.opts.Now()), time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-s.stopped:
			timer.Stop()
			return
		}
	}
}

// Close stops serving. The world is gone.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.stopped)
		_ = s.apiServer.Close()
		_ = s.adminServer.Close()
		s.cloud.mu.Lock()
		for _, l := range s.cloud.listeners {
			l.stop()
		}
		s.cloud.mu.Unlock()
		s.serving.Wait()
	})
}

// Address of the API, host and port.
func (s *Server) Address() string { return s.api.Addr().String() }

// AdminAddress of the side channel, host and port.
func (s *Server) AdminAddress() string { return s.admin.Addr().String() }

// CABundle is the certificate that the API is served with, in PEM form; nil without TLS.
func (s *Server) CABundle() []byte { return s.certificate }

// URL of the API.
func (s *Server) URL() string {
	if s.opts.TLS {
		return "https://" + s.Address()
	}
	return "http://" + s.Address()
}

// Endpoint is the base URL of a service: iam, ecs, evs, vpc, elb or ims.
func (s *Server) Endpoint(service string) string { return s.URL() + "/" + service }

// Credentials that work, in the form of the Secret's data.
func (s *Server) Credentials() map[string][]byte {
	endpoints := ""
	for _, service := range []string{serviceIAM, serviceECS, serviceEVS, serviceVPC, serviceELB, serviceIMS} {
		endpoints += service + ": " + s.Endpoint(service) + "\n"
	}
	data := map[string][]byte{
		"accessKey": []byte(s.opts.AccessKey), "secretKey": []byte(s.opts.SecretKey), "projectID": []byte(s.opts.ProjectID),
		"region": []byte(s.opts.Region), "externalGlobalDomain": []byte("hcs.example.test"), "endpoints": []byte(endpoints),
	}
	if s.certificate != nil {
		data["caBundle"] = s.certificate
	}
	return data
}

// Violations so far.
func (s *Server) Violations() []Violation {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	return append([]Violation(nil), s.cloud.violations...)
}
