package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	guestsDir   = "guests"
	consoleName = "console.log"
	statusName  = "status.json"
	mountsName  = "mounts.json"
	// runtimeDir and tmpfsDir hold what a power cycle loses: process records and logs; the guest's /run.
	runtimeDir = "runtime"
	tmpfsDir   = "run"
)

// Phase of a guest's life.
type Phase string

// The phases.
const (
	PhaseOff     Phase = "Off"
	PhaseBooting Phase = "Booting"
	// PhaseRunning: everything the guest was told to do is done.
	PhaseRunning Phase = "Running"
	// PhaseFailed: the guest runs, but something it was told to do went wrong; Message says what.
	PhaseFailed Phase = "Failed"
)

// Status is the file status.json in a guest's directory.
type Status struct {
	// VM is the virtual machine's name, Ref its reference, UUID its BIOS UUID.
	VM   string `json:"vm"`
	Ref  string `json:"ref"`
	UUID string `json:"uuid,omitempty"`
	// HostName of the guest; Node is its Kubernetes name once it has one.
	HostName     string    `json:"hostName,omitempty"`
	Node         string    `json:"node,omitempty"`
	ControlPlane bool      `json:"controlPlane,omitempty"`
	Phase        Phase     `json:"phase"`
	Message      string    `json:"message,omitempty"`
	Addresses    []string  `json:"addresses,omitempty"`
	InstanceID   string    `json:"instanceID,omitempty"`
	BootTime     time.Time `json:"bootTime"`
	Changed      time.Time `json:"changed"`
	// NotRun are commands of the user data that have no effect here.
	NotRun []string `json:"notRun,omitempty"`
}

func readStatus(dir string) (Status, error) {
	var s Status
	data, err := os.ReadFile(filepath.Join(dir, statusName))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// console is a guest's serial console, appended to a file.
type console struct {
	mu   sync.Mutex
	file *os.File
}

func openConsole(path string) (*console, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &console{file: f}, nil
}

// say writes lines, each with the time and who speaks.
func (c *console) say(who, format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	now := time.Now().UTC().Format("15:04:05.000")
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(&b, "%s %s: %s\n", now, who, line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		_, _ = c.file.WriteString(b.String())
	}
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}

// logger gives the console to code that logs.
func (c *console) logger() logr.Logger { return logr.New(consoleSink{console: c, who: "kubernetes"}) }

// consoleSink writes log lines as a console shows them: the message, then names and values.
type consoleSink struct {
	console *console
	who     string
	values  []any
}

var _ logr.LogSink = consoleSink{}

// Init implements logr.LogSink.
func (s consoleSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s consoleSink) Enabled(level int) bool { return level <= 1 }

// Info implements logr.LogSink.
func (s consoleSink) Info(_ int, msg string, values ...any) {
	s.console.say(s.who, "%s%s", msg, pairs(append(slices.Clone(s.values), values...)))
}

// Error implements logr.LogSink.
func (s consoleSink) Error(err error, msg string, values ...any) {
	s.console.say(s.who, "%s: %v%s", msg, err, pairs(append(slices.Clone(s.values), values...)))
}

// WithValues implements logr.LogSink.
func (s consoleSink) WithValues(values ...any) logr.LogSink {
	s.values = append(slices.Clone(s.values), values...)
	return s
}

// WithName implements logr.LogSink.
func (s consoleSink) WithName(name string) logr.LogSink {
	s.who = name
	return s
}

func pairs(values []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(&b, " %v=%v", values[i], values[i+1])
	}
	return b.String()
}
