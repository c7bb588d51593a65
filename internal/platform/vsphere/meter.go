package vsphere

import (
	"maps"
	"sync"
	"time"
)

// Meter counts what sessions ask of a vCenter. Safe for concurrent use; one Meter may serve many sessions.
type Meter struct {
	// OnCall, when set, is told of every finished round trip (for metrics). method is the SOAP method's name, or "GET" and
	// "PUT" for datastore files.
	OnCall func(method string, took time.Duration, err error)
	// OnConnection, when set, is told of every new TLS connection.
	OnConnection func()
	// OnTask, when set, is told of every task of ours that was seen to end: its kind (machine.OpCreate and so on), the time since
	// it was started, or since this process first heard of it, and whether it failed.
	OnTask func(kind string, took time.Duration, failed bool)

	mu          sync.Mutex
	calls       map[string]int
	connections int
}

// Snapshot of a Meter.
type Snapshot struct {
	// Calls by method, long polls (WaitForUpdatesEx) included.
	Calls map[string]int
	// Connections counts new TLS connections.
	Connections int
}

// Total is all round trips without long polls: waiting costs the vCenter nothing that grows with machines.
func (s Snapshot) Total() int {
	n := 0
	for method, calls := range s.Calls {
		if method != longPoll {
			n += calls
		}
	}
	return n
}

// Since subtracts an earlier snapshot.
func (s Snapshot) Since(earlier Snapshot) Snapshot {
	d := Snapshot{Calls: map[string]int{}, Connections: s.Connections - earlier.Connections}
	for method, calls := range s.Calls {
		if n := calls - earlier.Calls[method]; n != 0 {
			d.Calls[method] = n
		}
	}
	return d
}

// Snapshot returns the counts so far.
func (m *Meter) Snapshot() Snapshot {
	if m == nil {
		return Snapshot{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return Snapshot{Calls: maps.Clone(m.calls), Connections: m.connections}
}

const longPoll = "WaitForUpdatesEx"

func (m *Meter) call(method string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[method]++
	m.mu.Unlock()
	if m.OnCall != nil {
		m.OnCall(method, took, err)
	}
}

func (m *Meter) task(kind string, took time.Duration, failed bool) {
	if m != nil && m.OnTask != nil {
		m.OnTask(kind, took, failed)
	}
}

func (m *Meter) connection() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.connections++
	m.mu.Unlock()
	if m.OnConnection != nil {
		m.OnConnection()
	}
}
