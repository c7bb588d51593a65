package rest

import (
	"maps"
	"sync"
	"time"
)

// Meter counts the calls of clients. Safe for concurrent use; one Meter may serve many clients, and nil counts nothing.
type Meter struct {
	// OnCall, when set, is told of every call that was sent.
	OnCall func(operation string, took time.Duration, err error)

	mu    sync.Mutex
	calls map[string]int
}

func (m *Meter) count(operation string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[operation]++
	m.mu.Unlock()
	if m.OnCall != nil {
		m.OnCall(operation, took, err)
	}
}

// Calls by operation so far.
func (m *Meter) Calls() map[string]int {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}
