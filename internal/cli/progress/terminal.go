package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// terminal keeps one line per running step at the bottom and moves it up, for good, when the step has ended.
type terminal struct {
	mu    sync.Mutex
	w     io.Writer
	width func() int
	color bool
	// running steps in the order in which they began.
	running []*running
	// drawn is how many lines are below the last permanent one.
	drawn int
	stop  chan struct{}
	done  chan struct{}
}

type running struct {
	step, text string
	begun      time.Time
}

func newTerminal(w io.Writer, width func() int) *terminal {
	return &terminal{w: w, width: width, stop: make(chan struct{}), done: make(chan struct{})}
}

// animate redraws until Close, so that elapsed times move.
func (t *terminal) animate() {
	defer close(t.done)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-ticker.C:
			t.mu.Lock()
			t.draw("")
			t.mu.Unlock()
		}
	}
}

func (t *terminal) Begin(step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = append(t.running, &running{step: step, begun: time.Now()})
	t.draw("")
}

func (t *terminal) Note(step, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.running {
		if r.step == step {
			r.text = text
		}
	}
}

func (t *terminal) End(step string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(r *running) bool { return r.step == step })
	if err != nil {
		t.draw(t.paint(red, "✗ ") + fmt.Sprintf("%s %s\n", step, outcome(took, err)))
		return
	}
	t.draw(t.paint(green, "✓ ") + fmt.Sprintf("%s  %s\n", step, t.paint(dim, short(took))))
}

func (t *terminal) Close() {
	close(t.stop)
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = nil
	t.draw("")
}

// draw replaces the live lines; permanent, if not empty, is written above them.
func (t *terminal) draw(permanent string) {
	var out strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", t.drawn)
	}
	// From the cursor to the end of the screen.
	out.WriteString("\r\x1b[J")
	out.WriteString(permanent)
	width := t.width()
	for _, r := range t.running {
		line := fmt.Sprintf("%6s %s", short(time.Since(r.begun)), r.step)
		if r.text != "" {
			line += ": " + r.text
		}
		out.WriteString(fit("  "+line, width) + "\n")
	}
	t.drawn = len(t.running)
	_, _ = io.WriteString(t.w, out.String())
}

const (
	red   = "31"
	green = "32"
	dim   = "2"
)

func (t *terminal) paint(code, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
