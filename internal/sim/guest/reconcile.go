package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	script "github.com/berth-dev/berth/internal/guest"
)

func runScript(s *shell, _ []string, _ *strings.Builder) int {
	if s.g.reconcileDisks(s.ctx) {
		return 0
	}
	return 1
}

// reconcileDisks is the disk script in this guest: the same mapping file, the same decisions, acts on the virtual disks'
// contents. Like the script it first understands every disk and only then touches one. false is exit status 1.
func (g *machine) reconcileDisks(ctx context.Context) bool {
	say := func(format string, args ...any) { g.console.say("capv-disks", format, args...) }
	text, err := g.fs.read(script.MappingPath)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		say("FAILED: %v", err)
		return false
	}
	rows, err := script.ParseMapping(string(text))
	if err != nil {
		say("FAILED: %v", err)
		return false
	}
	defer g.save()
	g.awaitDevices(ctx, rows)
	refused := false
	for _, r := range rows {
		f, _ := g.examine(r)
		if d := script.Decide(f, r); d.Action == script.ActRefuse || d.Action == script.ActWait {
			say("REFUSED: %s", d.Text(f, r))
			g.fail("%s", d.Text(f, r))
			refused = true
		}
	}
	if refused {
		say("no disk was touched; containerd and kubelet do not start")
		return false
	}
	for _, r := range rows {
		f, disk := g.examine(r)
		d := script.Decide(f, r)
		say("%s", d.Text(f, r))
		if err := g.act(d, r, f, disk); err != nil {
			say("FAILED: disk %s: %s: %v", r.Name, d.Action, err)
			g.fail("disk %s: %s: %v", r.Name, d.Action, err)
			return false
		}
	}
	return true
}

// awaitDevices looks for missing devices until they are there or patience ends: a disk may be added to a running guest.
func (g *machine) awaitDevices(ctx context.Context, rows []script.Row) {
	deadline := time.Now().Add(g.d.options.Patience)
	for {
		missing := false
		for _, r := range rows {
			missing = missing || (r.Identity != "" && len(g.dataDisks(r.Identity)) == 0)
		}
		if !missing || time.Now().After(deadline) || !wait(ctx, g.d.options.Patience/10+time.Millisecond) {
			return
		}
		if hw, err := g.d.inspect(ctx, g.ref); err == nil {
			g.mu.Lock()
			g.hardware = hw
			g.mu.Unlock()
		}
	}
}

// examine finds the facts about a row's device.
func (g *machine) examine(r script.Row) (script.Facts, virtualDisk) {
	f := script.Facts{
		Content: script.Unreadable, Marker: script.MarkerUnreadable, Mounted: script.MountedNo, Visit: script.VisitUnknown,
	}
	var disk virtualDisk
	if r.Identity != "" {
		found := g.dataDisks(r.Identity)
		f.Devices = len(found)
		if len(found) > 0 {
			disk = found[len(found)-1]
		}
	}
	if f.Devices != 1 || r.Raw() {
		return f, disk
	}
	f.Mounted = g.mountState(disk, r.MountPath)
	var meta diskMeta
	f.Content, meta = disk.probe()
	f.FSType = meta.FSType
	if r.Wipe {
		f.Visit = g.visit(r)
	}
	if f.Content == script.Filesystem {
		f.Marker = disk.marker(r.Key, meta)
	}
	return f, disk
}

func (g *machine) mountState(disk virtualDisk, at string) script.Mounted {
	if m, ok := g.fs.at(at); ok {
		if m.Device == disk.UUID {
			return script.MountedHere
		}
		return script.MountedOver
	}
	if _, ok := g.fs.whereIs(disk.UUID); ok {
		return script.MountedElsewhere
	}
	return script.MountedNo
}

// visit reads the record of a wipe, as the script does.
func (g *machine) visit(r script.Row) script.Visit {
	id := g.instanceID()
	if id == "" {
		return script.VisitUnknown
	}
	seen, err := g.fs.read(visitPath(r))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return script.VisitNew
	case err != nil || strings.TrimSpace(string(seen)) == "":
		return script.VisitUnknown
	case strings.TrimSpace(string(seen)) == id:
		return script.VisitDone
	default:
		return script.VisitOther
	}
}

func visitPath(r script.Row) string { return script.StateDir + "/" + script.VisitPrefix + r.Name }

func (g *machine) instanceID() string {
	for _, p := range []string{"/run/cloud-init/.instance-id", script.InstanceIDPath} {
		if data, err := g.fs.read(p); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}

func (g *machine) act(d script.Decision, r script.Row, f script.Facts, disk virtualDisk) error {
	if d.Action == script.ActRefuse || d.Action == script.ActWait {
		return fmt.Errorf("no act for %s", d.Action)
	}
	_, meta := disk.probe()
	if d.Action == script.ActFormat {
		var err error
		if meta, err = disk.format(r.Filesystem, script.Label(r.Key)); err != nil {
			return err
		}
	}
	host, err := disk.device()
	if err != nil {
		return err
	}
	g.fs.link(script.LinkDir+"/"+r.Name, host)
	if d.Action == script.ActLink {
		return nil
	}
	if err := g.mountDisk(r, f, disk, meta); err != nil {
		return err
	}
	if d.Action == script.ActWipe {
		if g.mountState(disk, r.MountPath) != script.MountedHere {
			return fmt.Errorf("%s is not a mount of the disk", r.MountPath)
		}
		if err := disk.wipe(); err != nil {
			return err
		}
	}
	if err := g.putMarker(r, disk); err != nil {
		return err
	}
	if d.Action == script.ActMount {
		return nil
	}
	return g.rememberVisit(r)
}

// mountDisk mounts the disk unless it is, and remembers that in fstab.
func (g *machine) mountDisk(r script.Row, f script.Facts, disk virtualDisk, meta diskMeta) error {
	if f.Mounted != script.MountedHere {
		under, err := g.fs.Path(r.MountPath)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(under, 0o755); err != nil {
			return inGuest(err, r.MountPath)
		}
		if entries, err := os.ReadDir(under); err == nil && len(entries) > 0 {
			g.console.say("capv-disks", "warning: %d entries that were in %s before are hidden by the mount", len(entries), r.MountPath)
		}
		g.fs.mount(Mount{Path: r.MountPath, Host: disk.rel("fs"), Device: disk.UUID, Type: meta.FSType})
	}
	path := script.FstabField(r.MountPath)
	line := script.FstabLine(r, meta.UUID, meta.FSType)
	var lines []string
	if old, err := g.fs.read("/etc/fstab"); err == nil {
		for l := range strings.SplitSeq(strings.TrimSpace(string(old)), "\n") {
			fields := strings.Fields(l)
			if len(fields) > 3 && fields[1] == path && strings.Contains(fields[3], "x-capv.disk=") {
				continue
			}
			if l != "" {
				lines = append(lines, l)
			}
		}
	}
	return g.fs.write("/etc/fstab", []byte(strings.Join(append(lines, line), "\n")+"\n"), 0o644)
}

func (g *machine) putMarker(r script.Row, disk virtualDisk) error {
	if script.MustBeEmpty(r.MountPath) {
		err := os.Remove(filepath.Join(disk.fs(), lostAndFound))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.console.say("capv-disks", "warning: %s/%s holds what a check of the file system has found; it is left", r.MountPath, lostAndFound)
		}
		return nil
	}
	marker := filepath.Join(disk.fs(), script.MarkerName)
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	return os.WriteFile(marker, []byte(r.Key+"\n"), 0o644)
}

func (g *machine) rememberVisit(r script.Row) error {
	if !r.Wipe {
		return nil
	}
	return g.fs.write(visitPath(r), []byte(g.instanceID()+"\n"), 0o644)
}
