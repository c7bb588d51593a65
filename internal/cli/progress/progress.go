// Package progress shows what a long command does: on a terminal one live line per step, in a log one line per event.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/berth-dev/berth/internal/local"
)

// Reporter is a local.Progress that has to be closed when the command is done.
type Reporter interface {
	local.Progress
	// Close removes what is live. Nothing may be reported afterwards.
	Close()
}

// New chooses by what w is. NO_COLOR and TERM=dumb are respected.
func New(w io.Writer) Reporter {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		t := newTerminal(f, func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 80
			}
			return width
		})
		t.color = os.Getenv("NO_COLOR") == ""
		go t.animate()
		return t
	}
	return &log{w: w, start: time.Now(), notes: map[string]string{}}
}

// log writes plain lines: the time since the command began, the step, what happens.
type log struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
	notes map[string]string
}

func (l *log) Begin(string) {}

func (l *log) Note(step, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes[step] != text {
		l.notes[step] = text
		l.line(step, text)
	}
}

func (l *log) End(step string, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(step, outcome(took, err))
}

// outcome is how a step ended.
func outcome(took time.Duration, err error) string {
	switch {
	case err == nil:
		return "done in " + short(took)
	case errors.Is(err, context.Canceled):
		return "stopped after " + short(took)
	default:
		return fmt.Sprintf("failed after %s: %v", short(took), err)
	}
}

func (l *log) Close() {}

func (l *log) line(step, text string) {
	fmt.Fprintf(l.w, "[%6s] %s: %s\n", short(time.Since(l.start)), step, text)
}

// short is a duration as people read it: tenths of a second below a minute, seconds above.
func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// fit cuts a line to a width, so that it stays one line.
func fit(line string, width int) string {
	runes := []rune(line)
	if width < 2 || len(runes) <= width {
		return line
	}
	return strings.TrimRight(string(runes[:width-1]), " ") + "…"
}
