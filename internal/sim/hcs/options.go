package hcs

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"
)

// Credentials that work unless Options says otherwise.
const (
	DefaultAccessKey = "BERTHSIMULATED"
	DefaultSecretKey = "berth-simulated-secret" //nolint:gosec // the secret of a simulator that listens on loopback only
	DefaultProjectID = "0123456789abcdef0123456789abcdef"
	DefaultRegion    = "sim-1"
)

// Options say how the simulated platform behaves. The zero value is usable once Dir is set: free loopback ports, the default
// inventory, jobs that end at once.
type Options struct {
	// Listen is the address of the API, a loopback address. All services share it: the first element of a path, or the first
	// label of the host, names the service. Default "127.0.0.1:0", a free port.
	Listen string
	// Admin is the address of the side channel (plain http). Default "127.0.0.1:0".
	Admin string
	// TLS serves https with a certificate of its own.
	TLS bool
	// Dir keeps the certificate. Required.
	Dir string
	// DisksDir has one directory per volume with content. Only ever removed from, never written. Default Dir/disks.
	DisksDir string

	// AccessKey, SecretKey and ProjectID of the only account.
	AccessKey, SecretKey, ProjectID string
	// Region is part of host names.
	Region string
	// Inventory is what exists at start. Default DefaultInventory().
	Inventory *Inventory

	// RoundTrip is added to every request.
	RoundTrip time.Duration
	// JobTimes is how long jobs take, by their type: createServer, deleteServer, startServer, stopServer, attachVolume,
	// detachVolume, createVolume, deleteVolume.
	JobTimes map[string]time.Duration
	// Lag is how many reads of an object still show what was before a job changed it. Default 0; the real platform has some.
	Lag int
	// Hosts is the number of physical hosts, for server groups. Default 3.
	Hosts int
	// Quota bounds what the project may have; zero means no limit.
	Quota Quota
	// ShuffleDevices gives data volumes names in another order than they were asked for, as newer flavors do.
	ShuffleDevices bool
	// SCSI calls devices sd instead of vd.
	SCSI bool
	// JobRetention is how long a job can be asked about after it ended. Default 10 minutes.
	JobRetention time.Duration

	// Log receives violations, injected faults and refused requests. Default: discarded.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Quota bounds what the project may have.
type Quota struct {
	Servers, VCPUs, Volumes, VolumeGB int
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("simulated HCS: no directory for its state given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("simulated HCS: resolving %q: %w", o.Dir, err)
	}
	o.Dir = dir
	setDefault(&o.DisksDir, filepath.Join(dir, "disks"))
	setDefault(&o.Listen, "127.0.0.1:0")
	setDefault(&o.Admin, "127.0.0.1:0")
	setDefault(&o.AccessKey, DefaultAccessKey)
	setDefault(&o.SecretKey, DefaultSecretKey)
	setDefault(&o.ProjectID, DefaultProjectID)
	setDefault(&o.Region, DefaultRegion)
	setDefault(&o.Hosts, 3)
	setDefault(&o.JobRetention, 10*time.Minute)
	if o.Inventory == nil {
		o.Inventory = DefaultInventory()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	for _, addr := range []string{o.Listen, o.Admin} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return o, fmt.Errorf("simulated HCS: address %q: %w", addr, err)
		}
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return o, fmt.Errorf("simulated HCS: refuses to listen on %q: not a loopback address", addr)
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
