package node

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// guestDisk reads and writes the guest's files.
type guestDisk struct{ files Files }

func (d guestDisk) read(guest string) ([]byte, error) {
	host, err := d.files.Path(guest)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(host)
	if err != nil {
		return nil, inGuest(err, guest)
	}
	return data, nil
}

func (d guestDisk) write(guest string, data []byte, mode fs.FileMode) error {
	host, err := d.files.Path(guest)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
		return inGuest(err, path.Dir(guest))
	}
	if err := os.WriteFile(host, data, mode); err != nil {
		return inGuest(err, guest)
	}
	return nil
}

func (d guestDisk) remove(guest string) {
	if host, err := d.files.Path(guest); err == nil {
		_ = os.Remove(host)
	}
}

func (d guestDisk) exists(guest string) bool {
	host, err := d.files.Path(guest)
	if err != nil {
		return false
	}
	_, err = os.Stat(host)
	return err == nil
}

// list returns the names in a directory; an absent directory has none.
func (d guestDisk) list(guest string) ([]string, error) {
	host, err := d.files.Path(guest)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, inGuest(err, guest)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// inGuest makes a host error speak of the path that the guest knows.
func inGuest(err error, guest string) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: guest, Err: pe.Err}
	}
	return err
}
