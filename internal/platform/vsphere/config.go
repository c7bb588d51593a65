// Package vsphere is vCenter as a machine.Platform: neutral types in and out, everything of vSphere inside. It knows nothing
// of Kubernetes.
//
// One Session serves all machines of one (server, user, password). It keeps one long poll open for everything that changes
// (our virtual machines, tasks in flight), a store fed by it, and few connections. Reads that decide over data are live.
package vsphere

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Config says how to reach one vCenter.
type Config struct {
	// Server is a host name or an address, with a port if it is not 443, without scheme.
	Server   string
	Username string
	Password string
	// Thumbprint is the certificate's SHA-1 or SHA-256 digest in hexadecimal, with or without colons. Empty accepts any
	// certificate, as published.
	Thumbprint string

	// UserAgent names the program in vCenter's session list.
	UserAgent string
	Log       logr.Logger
	// Meter counts calls; nil counts nothing.
	Meter *Meter
	Limits
}

// Limits bound what one session asks of its vCenter. Zero values take the defaults.
type Limits struct {
	// CallTimeout bounds one round trip where the caller's deadline is later (default 30s). Long polls are exempt.
	CallTimeout time.Duration
	// ReadsPerSecond and ReadBurst bound reads (default 300 and 600).
	ReadsPerSecond float64
	ReadBurst      int
	// Clones and Tasks bound operations that run at the same time (default 64 and 512).
	Clones, Tasks int
	// PathTTL is how long an inventory path is remembered (default 1m).
	PathTTL time.Duration
	// AuthPause is how long a refused password keeps its credential shut (default 2m, doubling to 16m).
	AuthPause time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.CallTimeout <= 0 {
		l.CallTimeout = 30 * time.Second
	}
	if l.ReadsPerSecond <= 0 {
		l.ReadsPerSecond = 300
	}
	if l.ReadBurst <= 0 {
		l.ReadBurst = 600
	}
	if l.Clones <= 0 {
		l.Clones = 64
	}
	if l.Tasks <= 0 {
		l.Tasks = 512
	}
	if l.PathTTL <= 0 {
		l.PathTTL = time.Minute
	}
	if l.AuthPause <= 0 {
		l.AuthPause = 2 * time.Minute
	}
	return l
}

// address is host:port of the vCenter.
func (c Config) address() string {
	server := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Server, "https://"), "http://"), "/")
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server
	}
	return net.JoinHostPort(strings.Trim(server, "[]"), "443")
}

// key identifies the session this configuration needs. The password takes part as a digest only.
func (c Config) key() string {
	sum := sha256.Sum256([]byte(c.Password))
	return strings.Join([]string{c.address(), c.Username, hex.EncodeToString(sum[:]), digits(c.Thumbprint)}, "\x00")
}

// digits strips a thumbprint of everything that is not a hexadecimal digit and lowers it.
func digits(thumbprint string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f':
			return r
		default:
			return -1
		}
	}, strings.ToLower(thumbprint))
}
