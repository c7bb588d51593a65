package vcenter

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"
)

// Defaults of [Options].
const (
	DefaultUsername = "capv@vsphere.local"
	DefaultPassword = "berth-simulated" //nolint:gosec // the password of a simulator that listens on loopback only
	DefaultVersion  = "8.0.3"
)

// Options say how the simulated vCenter behaves. The zero value is usable once Dir is set: free loopback ports, the
// default inventory, an answer at once.
type Options struct {
	// Listen is the address of the vSphere API (https), a loopback address. Default "127.0.0.1:0", a free port.
	Listen string
	// Admin is the address of the side channel (plain http), a loopback address. Default "127.0.0.1:0".
	Admin string
	// Dir keeps the TLS key pair (so that the thumbprint outlives a restart) and the datastores' files. Required.
	Dir string
	// DisksDir is where the contents of virtual disks are kept, one directory per backing UUID in lower case without
	// dashes. Only ever removed from, never written. Default Dir/disks.
	DisksDir string

	// Username and Password of the only account. Defaults: DefaultUsername, DefaultPassword.
	Username, Password string
	// Version is what About reports. Default DefaultVersion.
	Version string
	// Inventory is what exists at start. Default DefaultInventory().
	Inventory *Inventory

	// RoundTrip is added to every request, as the network to a distant vCenter would.
	RoundTrip time.Duration
	// CloneTime is how long a clone takes.
	CloneTime time.Duration
	// TaskTimes is how long other tasks take, by API method ("PowerOnVM_Task"). No lock is held meanwhile: the objects
	// stay readable and other tasks on them run.
	TaskTimes map[string]time.Duration
	// ShutdownTime is how long a guest takes to shut down when asked.
	ShutdownTime time.Duration

	// TaskRetention is how long tasks that ended can be asked about. Default 10 minutes.
	TaskRetention time.Duration

	// MaxSessions refuses further logins when so many sessions are open. 0 means no limit.
	MaxSessions int
	// SessionIdle ends a session that made no call for so long. Default 30 minutes, as vCenter; negative means never.
	SessionIdle time.Duration
	// Lockout locks an account after failed logins.
	Lockout Lockout

	// Log receives violations, injected faults and refused operations. Default: discarded.
	Log *slog.Logger
}

// Lockout is the account policy: after Failures wrong passwords within Window no login succeeds for Duration, with the
// right password neither. The zero value never locks; vCenter's default is 5 failures in 3 minutes lock for 5 minutes.
type Lockout struct {
	Failures int
	Window   time.Duration
	Duration time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("simulated vCenter: no directory for its state given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("simulated vCenter: resolving %q: %w", o.Dir, err)
	}
	o.Dir = dir
	setDefault(&o.DisksDir, filepath.Join(dir, "disks"))
	setDefault(&o.Listen, "127.0.0.1:0")
	setDefault(&o.Admin, "127.0.0.1:0")
	setDefault(&o.Username, DefaultUsername)
	setDefault(&o.Password, DefaultPassword)
	setDefault(&o.Version, DefaultVersion)
	setDefault(&o.TaskRetention, 10*time.Minute)
	setDefault(&o.SessionIdle, 30*time.Minute)
	if o.Inventory == nil {
		o.Inventory = DefaultInventory()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, addr := range []string{o.Listen, o.Admin} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return o, fmt.Errorf("simulated vCenter: address %q: %w", addr, err)
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return o, fmt.Errorf("simulated vCenter: refuses to listen on %q: not a loopback address", addr)
		}
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
