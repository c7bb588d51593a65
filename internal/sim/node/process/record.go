package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const recordSuffix = ".process.json"

// record identifies one process for good: the pid counts only together with the boot and the start time.
type record struct {
	PID    int      `json:"pid"`
	Boot   string   `json:"boot"`
	Start  uint64   `json:"start"`
	Path   string   `json:"path"`
	Args   []string `json:"args,omitempty"`
	Parent int      `json:"parent"`
}

func recordPath(dir, name string) string { return filepath.Join(dir, name+recordSuffix) }

func writeRecord(path string, s Spec, pid int) error {
	start, _, err := processStat(pid)
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	data, err := json.Marshal(record{PID: pid, Boot: boot, Start: start, Path: s.Path, Args: s.Args, Parent: os.Getpid()})
	if err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func readRecord(path string) (record, error) {
	var r record
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading process record %s: %w", path, err)
	}
	return r, nil
}

// open returns a pidfd of the recorded process if it still runs.
func (r record) open() (int, bool) {
	if boot, err := bootID(); err != nil || boot != r.Boot {
		return -1, false
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return -1, false
	}
	// Compared after the pidfd is held: the pid cannot change hands any more.
	start, state, err := processStat(r.PID)
	if err != nil || start != r.Start || state == "Z" {
		_ = unix.Close(fd)
		return -1, false
	}
	return fd, true
}

// KillRecorded ends every process recorded under dir, at any depth, that is still the process which was recorded, and
// removes the records. It is how guests are taken down when the program that ran them is gone.
func KillRecorded(dir string) error {
	var errs []error
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, recordSuffix) {
			return nil
		}
		r, err := readRecord(path)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		if fd, alive := r.open(); alive {
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("killing process %d: %w", r.PID, err))
			} else {
				awaitExit(fd)
			}
			_ = unix.Close(fd)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// processStat returns the start time (in clock ticks since boot) and the state letter of a process.
func processStat(pid int) (start uint64, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The second field is the command in parentheses, which may itself contain spaces and parentheses.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 20 {
		return 0, "", fmt.Errorf("unexpected content of /proc/%d/stat", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
