package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	script "github.com/berth-dev/berth/internal/guest"
)

// virtualDisk is a disk as its guest sees it. What is on it lives in a directory of its own under the state directory, named
// after its UUID, and goes when the simulated vCenter deletes the VMDK. No directory: a blank disk.
type virtualDisk struct {
	// UUID as guests compare it; serial says whether the guest can see it.
	UUID   string
	serial bool
	// Bus and Unit order the disks; the first one is booted from.
	Bus, Unit int32
	// Bytes is the capacity.
	Bytes int64

	stateDir string
}

// diskMeta is the file meta.json of a disk that has something on it.
type diskMeta struct {
	// FSType is the type a probe reports.
	FSType string `json:"fsType"`
	// Usage is "" or "filesystem" for a file system, else what a probe calls it (raid, crypto, partition table).
	Usage string `json:"usage,omitempty"`
	Label string `json:"label,omitempty"`
	// UUID of the file system.
	UUID string `json:"uuid"`
}

const disksDir = "disks"

func (d virtualDisk) rel(name string) string  { return filepath.Join(disksDir, d.UUID, name) }
func (d virtualDisk) host(name string) string { return filepath.Join(d.stateDir, d.rel(name)) }
func (d virtualDisk) fs() string              { return d.host("fs") }

// probe does what the script's probe does with a real device.
func (d virtualDisk) probe() (script.Content, diskMeta) {
	data, err := os.ReadFile(d.host("meta.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.probeRaw()
	case err != nil:
		return script.Unreadable, diskMeta{}
	}
	var meta diskMeta
	if err := json.Unmarshal(data, &meta); err != nil || meta.FSType == "" {
		return script.Unreadable, diskMeta{}
	}
	if meta.Usage != "" && meta.Usage != "filesystem" {
		return script.Foreign, meta
	}
	return script.Filesystem, meta
}

// sample is how much is read from either end of a disk to prove it blank.
const sample = 1 << 20

func (d virtualDisk) probeRaw() (script.Content, diskMeta) {
	f, err := os.Open(d.host("raw"))
	if errors.Is(err, fs.ErrNotExist) {
		return script.Blank, diskMeta{}
	}
	if err != nil {
		return script.Unreadable, diskMeta{}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return script.Unreadable, diskMeta{}
	}
	for _, at := range []int64{0, max(0, info.Size()-sample)} {
		buf := make([]byte, sample)
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return script.Unreadable, diskMeta{}
		}
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return script.Foreign, diskMeta{FSType: "unknown data"}
		}
	}
	return script.Blank, diskMeta{}
}

// format makes a file system on the disk.
func (d virtualDisk) format(fsType, label string) (diskMeta, error) {
	meta := diskMeta{FSType: fsType, Label: label, UUID: uuid.NewString()}
	if err := os.MkdirAll(d.fs(), 0o755); err != nil {
		return meta, err
	}
	if err := os.Remove(d.host("raw")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return meta, err
	}
	if fsType != "xfs" {
		if err := os.MkdirAll(filepath.Join(d.fs(), lostAndFound), 0o700); err != nil {
			return meta, err
		}
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return meta, err
	}
	return meta, writeAtomically(d.host("meta.json"), data, 0o644)
}

// device makes the disk usable as a block device: a sparse file of its capacity, or what stands for a file system's own blocks.
func (d virtualDisk) device() (string, error) {
	if _, err := os.Stat(d.host("meta.json")); err == nil {
		return d.rel("meta.json"), nil
	}
	if err := os.MkdirAll(filepath.Dir(d.host("raw")), 0o755); err != nil {
		return "", err
	}
	f, err := os.OpenFile(d.host("raw"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() < d.Bytes {
		if err := f.Truncate(d.Bytes); err != nil {
			return "", err
		}
	}
	return d.rel("raw"), nil
}

// marker reads the identity of the disk's file system.
func (d virtualDisk) marker(key string, meta diskMeta) script.Marker {
	data, err := os.ReadFile(filepath.Join(d.fs(), script.MarkerName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return script.MarkerUnreadable
	}
	return script.ReadMarker(key, string(data), err == nil, meta.Label)
}

// lostAndFound is the directory that a new file system of the ext family has.
const lostAndFound = "lost+found"

// wipe deletes the content of the file system, all but our marker and the empty lost+found.
func (d virtualDisk) wipe() error {
	entries, err := os.ReadDir(d.fs())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == script.MarkerName {
			continue
		}
		path := filepath.Join(d.fs(), e.Name())
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if e.Name() == lostAndFound {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeAtomically replaces a file; readers see the old or the new one, whole.
func writeAtomically(name string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), mode); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("replacing %s: %w", name, err)
	}
	return nil
}
