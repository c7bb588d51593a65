package vsphere_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// proxy is an HTTP proxy that leads every CONNECT to the simulated vCenter.
func (c *cloud) proxy(t *testing.T) (address string, connects *atomic.Int32) {
	t.Helper()
	connects = &atomic.Int32{}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = client.Close() }()
				reader := bufio.NewReader(client)
				request, err := http.ReadRequest(reader)
				if err != nil || request.Method != http.MethodConnect {
					return
				}
				connects.Add(1)
				var dialer net.Dialer
				server, err := dialer.Dial("tcp", c.Address())
				if err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
				go func() {
					_, _ = io.Copy(server, reader)
					_ = server.Close()
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return listener.Addr().String(), connects
}

// VS-B24: a proxy of the environment is used, the thumbprint is checked through it, and NO_PROXY keeps vCenter off it.
func TestProxy(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	address, connects := c.proxy(t)
	t.Setenv("HTTPS_PROXY", "http://"+address)
	t.Setenv("NO_PROXY", "")
	cfg := c.config()
	cfg.Server = "vc.example.test" // a name that nobody resolves: only the proxy knows the way
	s, err := vsphere.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if connects.Load() == 0 {
		t.Fatal("the proxy was not used")
	}
	wrong := cfg
	wrong.Thumbprint = "AA:BB:CC"
	_, err = vsphere.Dial(t.Context(), wrong)
	refusal(t, err, machine.Refused, vsphere.ReasonUnreachable, "AA:BB:CC", c.Thumbprint())

	before := connects.Load()
	t.Setenv("NO_PROXY", "example.test")
	_, err = vsphere.Dial(t.Context(), cfg)
	refusal(t, err, machine.Broken, vsphere.ReasonUnreachable, "vc.example.test")
	if now := connects.Load(); now != before {
		t.Fatalf("%d connections by the proxy although NO_PROXY excludes vCenter", now-before)
	}
}
