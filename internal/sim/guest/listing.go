package guest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
)

// entries lists a guest's directory.
func (t *mountTable) entries(guest string) ([]Entry, error) {
	guest = path.Clean(guest)
	list := map[string]Entry{}
	host, err := t.Path(guest)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(host)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing:
	case err != nil:
		return nil, inGuest(err, guest)
	case !info.IsDir():
		return []Entry{entryOf(host, info)}, nil
	default:
		files, err := os.ReadDir(host)
		if err != nil {
			return nil, inGuest(err, guest)
		}
		for _, file := range files {
			if info, err := file.Info(); err == nil {
				list[file.Name()] = entryOf(filepath.Join(host, file.Name()), info)
			}
		}
	}
	t.addSpecial(guest, list)
	if missing && len(list) == 0 {
		return nil, inGuest(err, guest)
	}
	out := make([]Entry, 0, len(list))
	for _, e := range list {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// addSpecial adds mount points and device files directly in a directory, and the directories that lead to device files.
func (t *mountTable) addSpecial(dir string, list map[string]Entry) {
	mounts, devices := t.list()
	for _, m := range mounts {
		if m.Path == "/" || path.Dir(m.Path) != dir {
			continue
		}
		e := Entry{Name: path.Base(m.Path), Mode: fs.ModeDir | 0o755, Mounted: m.Device}
		if info, err := os.Stat(filepath.Join(t.stateDir, m.Host)); err == nil {
			e.Modified = info.ModTime()
		}
		list[e.Name] = e
	}
	for device, host := range devices {
		at, leaf := device, true
		for path.Dir(at) != dir && at != "/" {
			at, leaf = path.Dir(at), false
		}
		if at == "/" {
			continue
		}
		e := Entry{Name: path.Base(at), Mode: fs.ModeDir | 0o755}
		if info, err := os.Stat(filepath.Join(t.stateDir, host)); err == nil && leaf {
			e.Mode, e.Size, e.Modified = fs.ModeDevice|0o660, info.Size(), info.ModTime()
		}
		list[e.Name] = e
	}
}

func entryOf(host string, info fs.FileInfo) Entry {
	e := Entry{Name: info.Name(), Mode: info.Mode(), Size: info.Size(), Modified: info.ModTime()}
	if info.Mode()&fs.ModeSymlink != 0 {
		e.Target, _ = os.Readlink(host)
	}
	return e
}
