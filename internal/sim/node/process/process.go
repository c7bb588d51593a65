// Package process runs the programs of simulated guests: they write their own logs, can outlive the program that started
// them, are found again by a record that names pid and start time (a pid alone may belong to a stranger), and are signalled
// through pidfds, which cannot hit the wrong process.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxLog is the size at which a log is started anew when its process starts.
const maxLog = 16 << 20

// Spec says what to run.
type Spec struct {
	// Name of the process within its directory: <Dir>/<Name>.log and <Dir>/<Name>.process.json.
	Name string
	// Dir holds log and record.
	Dir string
	// Path of the program and its arguments without the program's name.
	Path string
	Args []string
	// Env is added to this process' environment.
	Env []string
	// DieWithParent makes the kernel kill it when this process dies.
	DieWithParent bool
}

// Process is a running program, started or adopted.
type Process struct {
	name   string
	record string
	pid    int
	fd     int
	done   chan struct{}

	mu   sync.Mutex
	exit string
}

// Start runs the program and records it.
func Start(s Spec) (*Process, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	logFile, err := openLog(LogPath(s.Dir, s.Name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()

	// No context: the process outlives every caller, that is its point.
	cmd := exec.CommandContext(context.Background(), s.Path, s.Args...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// A group of its own: an interrupt on the terminal is for the program that runs the guests, not for the guests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.DieWithParent {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		err = onLastingThread(cmd.Start)
	} else {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	p := &Process{name: s.Name, record: recordPath(s.Dir, s.Name), pid: cmd.Process.Pid, fd: -1, done: make(chan struct{})}
	err = writeRecord(p.record, s, p.pid)
	if err == nil {
		p.fd, err = unix.PidfdOpen(p.pid, 0)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(p.record)
		return nil, fmt.Errorf("recording %s: %w", s.Name, err)
	}
	go func() {
		_ = cmd.Wait()
		p.ended(cmd.ProcessState.String())
	}()
	return p, nil
}

// Adopt finds the process that an earlier program recorded under the spec's name, if it still runs. One with another
// command line is killed instead: what it was started for has changed.
func Adopt(s Spec) (*Process, bool, error) {
	path := recordPath(s.Dir, s.Name)
	r, err := readRecord(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	fd, alive := r.open()
	if !alive {
		_ = os.Remove(path)
		return nil, false, nil
	}
	p := &Process{name: s.Name, record: path, pid: r.PID, fd: fd, done: make(chan struct{})}
	go func() {
		awaitExit(fd)
		p.ended("exit status unknown (adopted process)")
	}()
	if r.Path != s.Path || !slices.Equal(r.Args, s.Args) {
		p.Kill()
		return nil, false, nil
	}
	return p, true, nil
}

// PID of the process.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the process ended; "" while it runs.
func (p *Process) Exit() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Stop asks the process to end and kills it when grace has passed.
func (p *Process) Stop(grace time.Duration) {
	p.signal(unix.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.Kill()
	}
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	p.signal(unix.SIGKILL)
	<-p.done
}

func (p *Process) signal(sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == "" {
		_ = unix.PidfdSendSignal(p.fd, sig, nil, 0)
	}
}

func (p *Process) ended(how string) {
	p.mu.Lock()
	p.exit = how
	_ = unix.Close(p.fd)
	p.mu.Unlock()
	// A successor may have recorded itself under the same name already.
	if r, err := readRecord(p.record); err == nil && r.PID == p.pid {
		_ = os.Remove(p.record)
	}
	close(p.done)
}

// LogPath is where the named process of a directory writes.
func LogPath(dir, name string) string { return filepath.Join(dir, name+".log") }

func openLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// awaitExit blocks until the process behind a pidfd has ended; it works for processes that are not our children.
func awaitExit(fd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// The kernel delivers the parent-death signal when the *thread* that started a child ends, and the runtime ends threads as it
// likes. So all children that are to die with us are started on one thread that lives as long as we do.
var lasting = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

func onLastingThread(start func() error) error {
	result := make(chan error, 1)
	lasting() <- func() { result <- start() }
	return <-result
}

// Tail copies the end of a process log, at most n bytes, to w: for messages about a process that failed.
func Tail(w io.Writer, dir, name string, n int64) {
	f, err := os.Open(LogPath(dir, name))
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if fi, err := f.Stat(); err == nil && fi.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return
		}
	}
	_, _ = io.CopyN(w, f, n)
}
