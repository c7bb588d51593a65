package vsphere

import (
	"context"
	"crypto/sha1" //nolint:gosec // vCenter's published thumbprints are SHA-1 digests
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
	"golang.org/x/net/http/httpproxy"
)

// connections is how many connections a session has at most, and keeps. govmomi's default of two idle ones per host makes
// every burst of calls pay for TLS handshakes; without a bound a burst opens one per call. One of them is the long poll.
const connections = 16

// thumbprintError is a certificate that is not the expected one.
type thumbprintError struct {
	server, want, sha1, sha256 string
}

func (e *thumbprintError) Error() string {
	return fmt.Sprintf("the certificate of vCenter %s has thumbprint %s (SHA-256 %s), expected is %s: correct the "+
		"thumbprint if the certificate was renewed on purpose", e.server, e.sha1, e.sha256, e.want)
}

// newTransport returns a SOAP client whose connections are counted, kept, verified and bound to contexts.
func newTransport(cfg Config) *soap.Client {
	u := &url.URL{Scheme: "https", Host: cfg.address(), Path: "/sdk"}
	c := soap.NewClient(u, true)
	c.UserAgent = cfg.UserAgent
	if c.UserAgent == "" {
		c.UserAgent = "berth"
	}
	host, _, _ := net.SplitHostPort(cfg.address())
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: host,
		// As published: without a thumbprint any certificate is accepted, with one exactly the certificate it names.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks the thumbprint
		VerifyConnection:   func(state tls.ConnectionState) error { return verify(cfg, state.PeerCertificates) },
	}
	t := c.DefaultTransport()
	// The environment of now, not of the process's first request: HTTPS_PROXY and NO_PROXY are read per session. Through a proxy
	// the certificate is checked in the same way, by TLSClientConfig.
	proxy := httpproxy.FromEnvironment().ProxyFunc()
	t.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	t.TLSClientConfig = config
	t.MaxIdleConns = 2 * connections
	t.MaxIdleConnsPerHost = connections
	t.MaxConnsPerHost = connections
	t.IdleConnTimeout = 5 * time.Minute
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t.DialContext = dialer.DialContext
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
		if err == nil {
			cfg.Meter.connection()
		}
		return conn, err
	}
	c.Client.Transport = drained{t}
	return c
}

// drained reads response bodies to their end before closing them. govmomi stops at the last XML element, and a connection
// whose body was not read to the end is not used again.
type drained struct{ http.RoundTripper }

func (d drained) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := d.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = drainedBody{res.Body}
	}
	return res, err
}

type drainedBody struct{ io.ReadCloser }

func (b drainedBody) Close() error {
	const tail = 64 << 10
	_, _ = io.CopyN(io.Discard, b.ReadCloser, tail)
	return b.ReadCloser.Close()
}

func verify(cfg Config, chain []*x509.Certificate) error {
	want := digits(cfg.Thumbprint)
	if want == "" {
		return nil
	}
	if len(chain) == 0 {
		return errors.New("the server showed no certificate")
	}
	one := sha1.Sum(chain[0].Raw) //nolint:gosec // as above
	two := sha256.Sum256(chain[0].Raw)
	if want == hex.EncodeToString(one[:]) || want == hex.EncodeToString(two[:]) {
		return nil
	}
	return &thumbprintError{server: cfg.Server, want: cfg.Thumbprint, sha1: colons(one[:]), sha256: colons(two[:])}
}

func colons(digest []byte) string {
	parts := make([]string, len(digest))
	for i, b := range digest {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
