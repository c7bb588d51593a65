package machine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Engine runs lives. One serves all machines of a controller. Between passes it remembers only recent failures, by which it
// spaces the retries of each machine, and operations in flight; a restart forgets them at the price of one early retry
// (Notes.RetryAt bounds even that) and a look-up.
type Engine struct {
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Settle is how long nothing must be found of a server whose creation may still be under way before a deletion believes
	// that there is none; DefaultSettle if 0.
	Settle time.Duration

	mu       sync.Mutex
	failures map[string]failure
	// running remembers the operations started by this process until they are seen to have ended: a journal that could not be
	// written, or is read from a cache that is behind, must not lead to a second one.
	running map[Mark]Operation
}

// DefaultSettle covers a platform that shows a server only some time after it was asked for one.
const DefaultSettle = 30 * time.Second

// failure remembers how often in a row a machine's acts failed, until when it rests, and what was last told about it.
type failure struct {
	count int
	until time.Time
	told  string
}

// Pauses. Waits end by events; safetyNet is for the event that never comes.
const (
	firstPause     = time.Second
	longestPause   = 2 * time.Minute
	safetyNet      = time.Minute
	recordAgain    = time.Second
	lookAgain      = 2 * time.Second
	attachedAgain  = 30 * time.Second
	unreadableLook = time.Minute
	lostLook       = 5 * time.Minute
)

// Create carries a machine towards ready: it runs the creation phases in order until one of them has to wait, fails, or all
// hold. The report is also what the journal was closed with. When Report.Unchanged is set the machine rests after a failure:
// nothing was done or written.
func (e *Engine) Create(ctx context.Context, life *Life) Report {
	p := e.begin(life, "create")
	if until := latest(p.memory.until, p.notes.RetryAt); p.now().Before(until) {
		return Report{Phase: "Rest", Unchanged: true, Result: Result{Outcome: Wait, After: until.Sub(p.now())}}
	}
	return p.through(ctx, creation)
}

// Delete carries a machine towards absence. When its Outcome is Done the server is proven gone and the place given back: the
// caller takes its finalizers off.
func (e *Engine) Delete(ctx context.Context, life *Life) Report {
	p := e.begin(life, "delete")
	if p.now().Before(p.memory.until) {
		return Report{Phase: "Rest", Unchanged: true, Result: Result{Outcome: Wait, After: p.memory.until.Sub(p.now())}}
	}
	p.deleting = true
	report := p.through(ctx, deletion)
	if report.Outcome == Done {
		e.Forget(life.Mark)
	}
	return report
}

// Forget drops what is remembered of a machine that is gone.
func (e *Engine) Forget(mark Mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failures, string(mark)+"/create")
	delete(e.failures, string(mark)+"/delete")
	delete(e.running, mark)
}

func latest(a time.Time, b *time.Time) time.Time {
	if b != nil && b.After(a) {
		return *b
	}
	return a
}

func (e *Engine) begin(life *Life, way string) *pass {
	p := &pass{engine: e, life: life, notes: life.Notes, key: string(life.Mark) + "/" + way}
	p.notes.Identity.Mark = life.Mark
	e.mu.Lock()
	p.memory = e.failures[p.key]
	if op, running := e.running[life.Mark]; running {
		p.notes.Operation = op
	}
	e.mu.Unlock()
	return p
}

// follow remembers an operation in flight, or that there is none.
func (e *Engine) follow(mark Mark, op Operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if op.Ref == "" {
		delete(e.running, mark)
		return
	}
	if e.running == nil {
		e.running = map[Mark]Operation{}
	}
	e.running[mark] = op
}

func (e *Engine) remember(key string, f failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f == (failure{}) {
		delete(e.failures, key)
		return
	}
	if e.failures == nil {
		e.failures = map[string]failure{}
	}
	e.failures[key] = f
}

// pass is one run through the phases.
type pass struct {
	engine *Engine
	life   *Life
	key    string
	memory failure
	// notes as they will be closed.
	notes    Notes
	deleting bool
	// ended is the kind of the operation that was found to have ended in this pass: what the watch shows may be older.
	ended string

	spec   ServerSpec
	server *Server
	// live: server comes from a live read in this pass and nothing was done to it since.
	live     bool
	volumes  []Volume
	recorded []Volume
	asked    bool // recorded was read
	unknown  bool // the pool does not know the machine's slot
	report   Report
}

func (p *pass) now() time.Time {
	if p.engine.Now != nil {
		return p.engine.Now()
	}
	return time.Now()
}

// through runs the phases and closes the journal.
func (p *pass) through(ctx context.Context, phases []phase) Report {
	result := Result{Outcome: Done}
	for _, ph := range phases {
		p.report.Phase = ph.name
		result = ph.run(p, ctx)
		if result.Outcome != Done {
			break
		}
	}
	memory := p.memory
	memory.until = time.Time{}
	if counted := (*countedError)(nil); result.Outcome == Fail && errors.As(result.Err, &counted) {
		result.Err = counted.err
		memory.count++
		result.After = max(result.After, pause(memory.count))
		memory.until = p.now().Add(result.After)
		if !p.deleting {
			until := memory.until
			p.notes.RetryAt = &until
		}
	} else {
		p.notes.RetryAt = nil
		if result.Outcome == Done {
			memory = failure{}
		}
	}
	if told := p.tell(result); told != "" {
		memory.told = told
	}
	p.engine.remember(p.key, memory)

	p.report.Result = result
	p.report.Server = p.server
	if p.report.Place == nil {
		p.report.Place = p.spec.Place
	}
	if result.Reason == ReasonRecordingFailed && result.Err != nil {
		return p.report // the journal was refused a moment ago; the next pass reads it anew
	}
	if err := p.life.Journal.Save(ctx, p.notes, p.report); err != nil {
		p.report.Result = recordingFailed(err)
	}
	return p.report
}

// pause grows with the number of failures in a row.
func pause(count int) time.Duration {
	d := firstPause
	for range count - 1 {
		if d *= 2; d >= longestPause {
			return longestPause
		}
	}
	return d
}

// tell publishes a failure once, not at every retry, and returns what was told last.
func (p *pass) tell(result Result) string {
	if result.Outcome != Fail && !p.report.Lost {
		return ""
	}
	var reason string
	switch {
	case p.report.Lost:
		reason = EventServerLost
	case result.Reason == ReasonCreateFailed:
		reason = EventCreateFailed
	case result.Reason == ReasonPowerOnFailed:
		reason = EventPowerOnFailed
	case result.Reason == ReasonDiskStillAttached:
		reason = EventStillAttached
	case result.Reason == ReasonTaskFailure:
		reason = EventOperationFailed
	default:
		reason = result.Reason
	}
	told := reason + ": " + result.Message
	if told != p.memory.told {
		p.event(true, reason, result.Message)
	}
	return told
}

func (p *pass) event(warning bool, reason, message string) {
	p.report.Events = append(p.report.Events, Event{Warning: warning, Reason: reason, Message: message})
}

// countedError marks a failure after which the machine rests, longer each time.
type countedError struct{ err error }

func (e *countedError) Error() string { return e.err.Error() }
func (e *countedError) Unwrap() error { return e.err }

func done() Result { return Result{Outcome: Done} }

func wait(reason, message string, after time.Duration) Result {
	return Result{Outcome: Wait, Reason: reason, Message: message, After: after}
}

// stop is a failure that only a change from outside ends; an event tells, so it is not spaced.
func stop(reason, message string, after time.Duration) Result {
	return Result{Outcome: Fail, Reason: reason, Message: message, After: after}
}

// platformFailed turns a platform's no into a result: busy waits, everything else rests longer each time. reason is used when
// the platform gives none of its own.
func platformFailed(reason string, err error) Result {
	var e *Error
	if !errors.As(err, &e) {
		return Result{Outcome: Fail, Reason: reason, Message: err.Error(), Err: &countedError{err}}
	}
	if e.Reason != "" {
		reason = e.Reason
	}
	if e.Kind == Busy {
		after := e.RetryAfter
		if after == 0 {
			after = lookAgain
		}
		return Result{Outcome: Wait, Reason: reason, Message: e.Error(), After: after, Err: err}
	}
	return Result{Outcome: Fail, Reason: reason, Message: e.Error(), After: e.RetryAfter, Err: &countedError{err}}
}

// placeFailed turns a pool's no into a result. The pool spaces its own retries and wakes who waits for it, so only what went
// wrong below it is counted.
func placeFailed(err error) Result {
	var e *Error
	if !errors.As(err, &e) || e.Kind == Broken {
		return platformFailed(ReasonPlaceUnavailable, err)
	}
	result := Result{Outcome: Wait, Reason: e.Reason, Message: e.Error(), After: e.RetryAfter, Err: err}
	if e.Kind == Refused || e.Kind == Conflict {
		result.Outcome = Fail
	}
	if result.After == 0 {
		result.After = safetyNet
	}
	return result
}

func recordingFailed(err error) Result {
	return Result{Outcome: Wait, Reason: ReasonRecordingFailed, Message: err.Error(), After: recordAgain, Err: err}
}

// save makes the notes durable in the middle of a pass, before an act that depends on it.
func (p *pass) save(ctx context.Context, reason, message string) *Result {
	report := p.report
	report.Result = Result{Outcome: Wait, Reason: reason, Message: message}
	report.Server = p.server
	report.Place = p.spec.Place
	report.Events = nil // published once, at the end of the pass
	if err := p.life.Journal.Save(ctx, p.notes, report); err != nil {
		r := recordingFailed(err)
		return &r
	}
	return nil
}
