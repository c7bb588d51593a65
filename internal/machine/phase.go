package machine

import "time"

// Outcome of a phase.
type Outcome string

const (
	// Done: the phase holds; go on with the next one in the same pass.
	Done Outcome = "Done"
	// Wait: something else must happen first; an event will wake us, After is only the safety net.
	Wait Outcome = "Wait"
	// Fail: it cannot go on without a change from outside or a retry after a pause.
	Fail Outcome = "Fail"
)

// Result is what a phase returns.
type Result struct {
	Outcome Outcome
	// Reason and Message are what the user reads in the condition.
	Reason, Message string
	// After bounds the wait or spaces the retry; 0 leaves it to the caller's back-off.
	After time.Duration
	Err   error
}
