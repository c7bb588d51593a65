package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables that every process of an environment carries, and hands on to its children. They are how a process is
// found whose number nobody had time to write down.
const (
	variableEnvironment = "BERTH_ENVIRONMENT"
	variableProcess     = "BERTH_PROCESS"
)

// identity names one process for as long as the machine runs: a number is used again, a number with its start time is not.
type identity struct {
	PID int `json:"pid"`
	// Start is the time of the process's birth in clock ticks since boot, as the kernel tells it.
	Start uint64 `json:"start"`
	// Boot is the kernel's random name of this boot.
	Boot string `json:"boot"`
}

// processRecord is the content of <dir>/run/<name>.json.
type processRecord struct {
	identity
	// Program identifies the executable and its arguments, to notice when another one is wanted.
	Program string    `json:"program"`
	Started time.Time `json:"started"`
}

// identify reads who the process with this number is. ok is false if there is none, or a dead one that nobody has waited for.
func identify(pid int) (id identity, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, false
	}
	// The second field is the program's name in parentheses and may itself contain spaces and parentheses.
	_, rest, found := cutLast(string(stat), ") ")
	fields := strings.Fields(rest)
	const state, threads, start = 0, 17, 19
	if !found || len(fields) <= start {
		return identity{}, false
	}
	// The first thread may be dead while others still hold files and sockets.
	if dead := fields[state] == "Z" || fields[state] == "X"; dead && (fields[threads] == "0" || fields[threads] == "1") {
		return identity{}, false
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return identity{}, false
	}
	return identity{PID: pid, Start: ticks, Boot: bootID()}, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func (id identity) alive() bool {
	now, ok := identify(id.PID)
	return ok && now == id
}

// signal reaches this very process or nobody: the handle is taken first and the identity compared after.
func (id identity) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting hold of process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	return nil
}

// wait returns when the process has ended, or with the context's error.
func (id identity) wait(ctx context.Context) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting hold of process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.alive() {
		return nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The time limit is only there so that a cancelled context is noticed.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

// stop asks a process to end, and after patience makes it.
func (id identity) stop(ctx context.Context, patience time.Duration) error {
	if !id.alive() {
		return nil
	}
	if err := id.signal(unix.SIGTERM); err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := id.wait(patient); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if err := id.signal(unix.SIGKILL); err != nil {
		return err
	}
	return id.wait(ctx)
}

// spawn starts a program detached from the caller's terminal and session, with its output appended to its log, and records it.
func (e *Environment) spawn(p program) (identity, error) {
	log, err := openLog(e.logPath(p.name))
	if err != nil {
		return identity{}, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s berth starts %s %s\n", time.Now().UTC().Format(time.RFC3339), p.path, strings.Join(p.args, " "))

	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = e.Dir
	cmd.Env = append(e.childEnvironment(p.name), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return identity{}, fmt.Errorf("starting %s: %w", p.name, err)
	}
	id, ok := identify(cmd.Process.Pid)
	// Reap it if it ends while this process still runs; afterwards that is the init process's job.
	go func() { _ = cmd.Wait() }()
	if !ok {
		return identity{}, fmt.Errorf("%s ended at once; %s", p.name, e.lastWords(p.name))
	}
	return id, e.writeProcess(p.name, processRecord{identity: id, Program: p.fingerprint(), Started: time.Now().UTC()})
}

// childEnvironment is small on purpose: a KUBECONFIG or a proxy of the user's shell must not leak into the world.
func (e *Environment) childEnvironment(name string) []string {
	env := []string{variableEnvironment + "=" + e.Dir, variableProcess + "=" + name}
	for _, key := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "BERTH_TOOLS_DIR"} {
		if value, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+value)
		}
	}
	return env
}

// running is the recorded process if it lives. A process that was started and not recorded, because its starter was killed in
// between, is found by its environment and recorded.
func (e *Environment) running(name string) (processRecord, bool) {
	record, err := e.readProcess(name)
	if err == nil && record.alive() {
		return record, true
	}
	for _, c := range e.survivors() {
		if c.process == name && c.leader {
			record := processRecord{identity: c.identity, Started: time.Now().UTC()}
			return record, e.writeProcess(name, record) == nil
		}
	}
	return processRecord{}, false
}

// survivor is a process that carries this environment's mark.
type survivor struct {
	identity
	// process is the program it descends from, by its mark.
	process string
	// leader is set for the program itself, which leads a session, and not for its children.
	leader bool
}

// survivors lists every process of this user that was started for this environment, directly or by one of its processes.
func (e *Environment) survivors() []survivor {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	mark := []byte(variableEnvironment + "=" + e.Dir)
	var found []survivor
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, ok := identify(pid)
		if !ok {
			continue
		}
		// Processes of other users cannot be read, and are not ours.
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		variables := bytes.Split(environ, []byte{0})
		if !slices.ContainsFunc(variables, func(v []byte) bool { return bytes.Equal(v, mark) }) {
			continue
		}
		s := survivor{identity: id}
		for _, v := range variables {
			if name, ok := bytes.CutPrefix(v, []byte(variableProcess+"=")); ok {
				s.process = string(name)
			}
		}
		sid, err := unix.Getsid(pid)
		s.leader = err == nil && sid == pid
		found = append(found, s)
	}
	return found
}

func (e *Environment) processPath(name string) string { return e.path("run", name+".json") }

func (e *Environment) readProcess(name string) (processRecord, error) {
	var record processRecord
	text, err := os.ReadFile(e.processPath(name))
	if err != nil {
		return record, err
	}
	return record, json.Unmarshal(text, &record)
}

func (e *Environment) writeProcess(name string, record processRecord) error {
	if err := writeJSON(e.processPath(name), record); err != nil {
		return fmt.Errorf("recording process %s: %w", name, err)
	}
	return nil
}

func (e *Environment) forget(name string) error {
	if err := os.Remove(e.processPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// recorded lists the names of all processes that have a record.
func (e *Environment) recorded() []string {
	files, _ := filepath.Glob(e.path("run", "*.json"))
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	return names
}

func (e *Environment) logPath(name string) string { return filepath.Join(e.Logs(), name+".log") }

// openLog appends, and moves a log away that has grown too large to look at.
func openLog(path string) (*os.File, error) {
	const enough = 64 << 20
	if info, err := os.Stat(path); err == nil && info.Size() > enough {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// lastWords is what a person wants to see when a process has ended: the end of its log and where the rest is.
func (e *Environment) lastWords(name string) string {
	const tail, lines = 8 << 10, 8
	path := e.logPath(name)
	f, err := os.Open(path)
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		_, _ = f.Seek(-tail, 2)
	}
	var text bytes.Buffer
	_, _ = text.ReadFrom(f)
	all := strings.Split(strings.TrimSpace(text.String()), "\n")
	all = all[max(0, len(all)-lines):]
	return fmt.Sprintf("the end of %s:\n    %s", path, strings.Join(all, "\n    "))
}
