package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// mountsFile is mounts.json: all that is needed to look into a guest's file systems, with or without the guest running.
type mountsFile struct {
	HostName string            `json:"hostName"`
	Mounts   []Mount           `json:"mounts"`
	Devices  map[string]string `json:"devices,omitempty"`
}

// Files gives access to the file systems of the guests in a state directory.
type Files struct{ stateDir string }

// Open returns the guests' files. The daemon need not run.
func Open(stateDir string) (*Files, error) {
	info, err := os.Stat(filepath.Join(stateDir, guestsDir))
	if err != nil {
		return nil, fmt.Errorf("there are no simulated guests in %s: %w", stateDir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory of simulated guests", stateDir)
	}
	return &Files{stateDir: stateDir}, nil
}

// Guests returns the status of every guest, by virtual machine name.
func (f *Files) Guests() ([]Status, error) {
	entries, err := os.ReadDir(filepath.Join(f.stateDir, guestsDir))
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, e := range entries {
		if s, err := readStatus(filepath.Join(f.stateDir, guestsDir, e.Name())); err == nil {
			list = append(list, s)
		}
	}
	return list, nil
}

// Console returns the path of a guest's console log.
func (f *Files) Console(node string) (string, error) {
	dir, _, err := f.find(node)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, consoleName), nil
}

// find looks a guest up by host name or node name, else by the virtual machine's name. Of several, one that is not off.
func (f *Files) find(node string) (dir string, table *mountTable, err error) {
	root := filepath.Join(f.stateDir, guestsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", nil, err
	}
	best := 0
	var known []string
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		s, err := readStatus(path)
		if err != nil {
			continue
		}
		known = append(known, s.HostName)
		score := 0
		switch node {
		case s.HostName, s.Node:
			score = 3
		case s.VM, e.Name():
			score = 1
		}
		if score > 0 && s.Phase != PhaseOff {
			score++
		}
		if score > best {
			best, dir = score, path
		}
	}
	if best == 0 {
		sort.Strings(known)
		return "", nil, fmt.Errorf("no guest has the name %q; there are %q", node, known)
	}
	data, err := os.ReadFile(filepath.Join(dir, mountsName))
	if err != nil {
		return "", nil, err
	}
	var m mountsFile
	if err := json.Unmarshal(data, &m); err != nil {
		return "", nil, fmt.Errorf("reading the mounts of %s: %w", node, err)
	}
	table = newMountTable(f.stateDir)
	for _, mount := range m.Mounts {
		table.mount(mount)
	}
	for guest, host := range m.Devices {
		table.link(guest, host)
	}
	return dir, table, nil
}

// resolve finds the guest and the host path behind a guest path.
func (f *Files) resolve(node, guest string) (host string, device bool, table *mountTable, err error) {
	_, table, err = f.find(node)
	if err != nil {
		return "", false, nil, err
	}
	if host, err = table.Path(guest); err != nil {
		return "", false, nil, onGuest(err, node, guest)
	}
	_, device = table.devices[guest]
	return host, device, table, nil
}

// Cat copies a file, or what has been written to a raw disk up to its last block with data, to w.
func (f *Files) Cat(node, guest string, w io.Writer) error {
	host, device, _, err := f.resolve(node, guest)
	if err != nil {
		return err
	}
	file, err := os.Open(host)
	if err != nil {
		return onGuest(err, node, guest)
	}
	defer func() { _ = file.Close() }()
	var r io.Reader = file
	if device {
		end, err := lastData(file)
		if err != nil {
			return onGuest(err, node, guest)
		}
		r = io.LimitReader(file, end)
	}
	_, err = io.Copy(w, r)
	return onGuest(err, node, guest)
}

// onGuest makes an error name the guest and the path that the guest knows, instead of the host's.
func onGuest(err error, node, guest string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("guest %s: %w", node, inGuest(err, guest))
}

// lastData is the end of the last stretch of a sparse file that holds data.
func lastData(f *os.File) (int64, error) {
	var end int64
	for at := int64(0); ; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return 0, err
		}
		if end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
			return 0, err
		}
		at = end
	}
	_, err := f.Seek(0, io.SeekStart)
	return end, err
}

// Write replaces a file, made with its parents if needed, or overwrites the beginning of a raw disk.
func (f *Files) Write(node, guest string, r io.Reader) error {
	host, device, _, err := f.resolve(node, guest)
	if err != nil {
		return err
	}
	flags := os.O_WRONLY
	if !device {
		flags |= os.O_CREATE | os.O_TRUNC
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			return onGuest(err, node, guest)
		}
	}
	file, err := os.OpenFile(host, flags, 0o644)
	if err != nil {
		return onGuest(err, node, guest)
	}
	_, err = io.Copy(file, r)
	return onGuest(errors.Join(err, file.Close()), node, guest)
}

// Entry is one line of a listing.
type Entry struct {
	Name     string      `json:"name"`
	Mode     fs.FileMode `json:"mode"`
	Size     int64       `json:"size"`
	Modified time.Time   `json:"modified"`
	// Target of a symbolic link.
	Target string `json:"target,omitempty"`
	// Mounted is the disk's UUID if something is mounted there.
	Mounted string `json:"mounted,omitempty"`
}

// List returns the entries of a directory, or the one entry of a file, by name. Mount points and device files that have no
// place of their own below the directory are listed as well.
func (f *Files) List(node, guest string) ([]Entry, error) {
	_, table, err := f.find(node)
	if err != nil {
		return nil, err
	}
	entries, err := table.entries(guest)
	return entries, onGuest(err, node, guest)
}
