package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
)

// Mount is one line of a guest's mount table.
type Mount struct {
	// Path in the guest.
	Path string `json:"path"`
	// Host is the directory behind it, relative to the state directory.
	Host string `json:"host"`
	// Device is what is mounted: a disk's UUID, or "tmpfs".
	Device string `json:"device"`
	// Type of the file system.
	Type string `json:"type"`
}

// mountTable is a guest's file system: host directories under guest paths, and device files. It resolves guest paths the way
// the guest's kernel would, symbolic links included, and never leaves the guest's directories.
type mountTable struct {
	stateDir string

	mu sync.RWMutex
	// mounts by guest path.
	mounts map[string]Mount
	// devices are device files: guest path to host file, relative to the state directory.
	devices map[string]string
}

func newMountTable(stateDir string) *mountTable {
	return &mountTable{stateDir: stateDir, mounts: map[string]Mount{}, devices: map[string]string{}}
}

func (t *mountTable) mount(m Mount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mounts[m.Path] = m
}

func (t *mountTable) link(guest, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.devices[guest] = host
}

// at returns what is mounted on exactly this path.
func (t *mountTable) at(guest string) (Mount, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	m, ok := t.mounts[guest]
	return m, ok
}

// whereIs returns the path a device is mounted on.
func (t *mountTable) whereIs(device string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, m := range t.mounts {
		if m.Device == device {
			return m.Path, true
		}
	}
	return "", false
}

// list returns the mounts by path and the device files.
func (t *mountTable) list() ([]Mount, map[string]string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	mounts := make([]Mount, 0, len(t.mounts))
	for _, m := range t.mounts {
		mounts = append(mounts, m)
	}
	sort.Slice(mounts, func(i, j int) bool { return mounts[i].Path < mounts[j].Path })
	devices := make(map[string]string, len(t.devices))
	for k, v := range t.devices {
		devices[k] = v
	}
	return mounts, devices
}

// maxLinks is how many symbolic links a path may lead through.
const maxLinks = 40

// Path returns the host path behind a guest path, following symbolic links inside the guest. The file need not exist.
func (t *mountTable) Path(guest string) (string, error) { return t.resolve(guest, true) }

func (t *mountTable) resolve(guest string, followLast bool) (string, error) {
	if !strings.HasPrefix(guest, "/") {
		return "", fmt.Errorf("%q is not an absolute path", guest)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	pending := strings.Split(guest, "/")
	current, links := "/", 0
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			current = path.Dir(current)
			continue
		}
		next := path.Join(current, name)
		if host, ok := t.devices[next]; ok {
			return filepath.Join(t.stateDir, host), nil
		}
		if _, ok := t.mounts[next]; ok {
			current = next
			continue
		}
		host, err := t.hostOf(next)
		if err != nil {
			return "", err
		}
		info, err := os.Lstat(host)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 || (len(pending) == 0 && !followLast) {
			current = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: guest, Err: errors.New("too many levels of symbolic links")}
		}
		target, err := os.Readlink(host)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			current = "/"
		}
		pending = append(strings.Split(target, "/"), pending...)
	}
	return t.hostOf(current)
}

// hostOf maps a path without symbolic links; t.mu is held.
func (t *mountTable) hostOf(guest string) (string, error) {
	for at := guest; ; at = path.Dir(at) {
		if m, ok := t.mounts[at]; ok {
			return filepath.Join(t.stateDir, m.Host, strings.TrimPrefix(guest, at)), nil
		}
		if at == "/" {
			return "", errors.New("the guest has no root file system")
		}
	}
}

func (t *mountTable) read(guest string) ([]byte, error) {
	host, err := t.Path(guest)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(host)
	return data, inGuest(err, guest)
}

func (t *mountTable) exists(guest string) bool {
	host, err := t.Path(guest)
	if err != nil {
		return false
	}
	_, err = os.Stat(host)
	return err == nil
}

// write puts a file in place, with its parents.
func (t *mountTable) write(guest string, data []byte, mode fs.FileMode) error {
	host, err := t.Path(guest)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		return inGuest(err, path.Dir(guest))
	}
	if err := os.WriteFile(host, data, mode); err != nil {
		return inGuest(err, guest)
	}
	return inGuest(os.Chmod(host, mode), guest)
}

// extend appends to a file, made if needed.
func (t *mountTable) extend(guest string, data []byte, mode fs.FileMode) error {
	old, err := t.read(guest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.write(guest, append(old, data...), mode)
}

// inGuest makes an error speak of the path that the guest knows, instead of the host's.
func inGuest(err error, guest string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: guest, Err: pe.Err}
	}
	return err
}
