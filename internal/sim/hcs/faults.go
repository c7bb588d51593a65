package hcs

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// FaultKind says what goes wrong with a call.
type FaultKind string

// The kinds of faults.
const (
	// FaultBefore refuses the call without an effect.
	FaultBefore FaultKind = "before"
	// FaultAfter carries the call out and answers with an error.
	FaultAfter FaultKind = "after"
	// FaultDrop carries the call out and closes the connection without an answer.
	FaultDrop FaultKind = "drop"
	// FaultCut closes the connection without an effect.
	FaultCut FaultKind = "cut"
	// FaultDelay only delays the call.
	FaultDelay FaultKind = "delay"
	// FaultJob lets the job that the call starts fail, without an effect.
	FaultJob FaultKind = "job"
	// FaultJobAfter lets the job fail after its effect.
	FaultJobAfter FaultKind = "jobAfter"
	// FaultJobHang lets the job run for ever.
	FaultJobHang FaultKind = "jobHang"
)

// Fault is something that goes wrong on demand.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Operation that it hits, such as "CreateServer"; empty hits all.
	Operation string `json:"operation,omitempty"`
	// Match is a regular expression over path, query and body; empty hits all.
	Match string `json:"match,omitempty"`
	// Skip lets so many calls pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how many calls it hits, 0 means one, negative all.
	Count int `json:"count,omitempty"`
	// Delay before anything happens.
	Delay time.Duration `json:"delay,omitempty"`
	// Status, Code and Message of the error. Defaults: 500, "Ecs.0000", "injected fault".
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Struck is how many calls it has hit so far.
	Struck int `json:"struck"`
}

func (f Fault) refusal() *refusal {
	return &refusal{
		status: cmp.Or(f.Status, http.StatusInternalServerError), shape: shapeGateway, code: cmp.Or(f.Code, "Ecs.0000"),
		message: cmp.Or(f.Message, "injected fault"), retryAfter: f.RetryAfter,
	}
}

// mark turns a job into one that fails.
func (f Fault) mark(j *job) {
	effect := j.effect
	switch f.Kind {
	case FaultJob:
		j.effect = f.refusal
	case FaultJobAfter:
		j.effect = func() *refusal {
			effect()
			return f.refusal()
		}
	case FaultJobHang:
		j.stuck, j.state = true, jobRunning
	}
}

type faults struct {
	log   *slog.Logger
	mu    sync.Mutex
	rules []*rule
}

type rule struct {
	Fault
	match *regexp.Regexp
	seen  int
}

func (f *faults) add(list ...Fault) error {
	var rules []*rule
	for _, fault := range list {
		switch fault.Kind {
		case FaultBefore, FaultAfter, FaultDrop, FaultCut, FaultDelay, FaultJob, FaultJobAfter, FaultJobHang:
		default:
			return fmt.Errorf("unknown kind of fault %q", fault.Kind)
		}
		if fault.Count == 0 {
			fault.Count = 1
		}
		fault.Struck = 0
		match, err := regexp.Compile(fault.Match)
		if err != nil {
			return fmt.Errorf("match: %w", err)
		}
		rules = append(rules, &rule{Fault: fault, match: match})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rules...)
	return nil
}

func (f *faults) list() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Fault, 0, len(f.rules))
	for _, r := range f.rules {
		out = append(out, r.Fault)
	}
	return out
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// strike returns the rule that hits a call, if any, and counts it.
func (f *faults) strike(operation, text string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.Operation != "" && r.Operation != operation || r.Count >= 0 && r.Struck >= r.Count || !r.match.MatchString(text) {
			continue
		}
		if r.seen++; r.seen <= r.Skip {
			continue
		}
		r.Struck++
		f.log.Info("injecting a fault", "kind", r.Kind, "operation", operation)
		return r.Fault, true
	}
	return Fault{}, false
}
