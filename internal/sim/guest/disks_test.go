package guest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/sim/guest"
)

const empty = "#cloud-config\nruncmd:\n- echo reached > /reached\n"

// place is a slot with three disks, in the order of paths.
type place struct {
	w     *world
	paths map[string]string
}

func newPlace(w *world) *place {
	p := &place{w: w, paths: map[string]string{}}
	for _, name := range []string{"var-cpaas", "var-lib-etcd", "app-data"} {
		p.paths[name] = w.persistentDisk(name)
	}
	return p
}

// occupy attaches the disks and boots a new machine in the place.
func (p *place) occupy(name string) *vm {
	p.w.t.Helper()
	v := p.w.clone(name)
	v.boot("demo-1", address(31), empty, p.disks(v)...)
	return v
}

func (p *place) disks(v *vm) []script.Disk {
	const key = "ns/demo/demo-1"
	return []script.Disk{
		{Name: "app-data", Identity: v.attach(p.paths["app-data"]), SlotKey: key},
		{Name: "var-lib-etcd", Identity: v.attach(p.paths["var-lib-etcd"]), MountPath: "/var/lib/etcd", Filesystem: "xfs", Wipe: true, SlotKey: key},
		{Name: "var-cpaas", Identity: v.attach(p.paths["var-cpaas"]), MountPath: "/var/cpaas", Filesystem: "ext4", SlotKey: key},
	}
}

// leave takes the machine away and keeps the disks.
func (p *place) leave(v *vm) {
	p.w.t.Helper()
	v.powerOff()
	v.reaches(guest.PhaseOff)
	for _, path := range p.paths {
		v.detach(path)
	}
	v.destroy()
}

// VS-D20, VS-D31, VS-D36, VS-D37: what is on a persistent disk is there for the next machine of the place, except where the
// place asks for an emptied file system: then it is emptied once per machine, and not on a reboot.
func TestPersistentDisksOutliveTheirMachine(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	p := newPlace(w)
	first := p.occupy("vm-1")
	first.reaches(guest.PhaseRunning)
	g.Expect(first.console()).To(ContainSubstring("disk var-cpaas is blank; ext4 is made on it"))
	g.Expect(w.cat("demo-1", "/reached")).To(Equal("reached\n"))
	g.Expect(w.cat("demo-1", "/var/cpaas/"+script.MarkerName)).To(Equal("ns/demo/demo-1/var-cpaas\n"))
	w.write("demo-1", "/var/cpaas/precious", "42")
	w.write("demo-1", "/var/lib/etcd/member/snap/db", "old member")
	w.write("demo-1", "/dev/disk/by-capv/app-data", "raw bytes")
	w.write("demo-1", "/on-the-system-disk", "gone tomorrow")

	// A reboot changes nothing.
	first.powerOff()
	first.reaches(guest.PhaseOff)
	first.powerOn()
	first.reaches(guest.PhaseRunning)
	g.Expect(w.cat("demo-1", "/var/lib/etcd/member/snap/db")).To(Equal("old member"))
	g.Expect(w.cat("demo-1", "/var/cpaas/precious")).To(Equal("42"))

	p.leave(first)
	second := p.occupy("vm-2")
	second.reaches(guest.PhaseRunning)
	g.Expect(second.console()).To(ContainSubstring("first boot of this server; the content of /var/lib/etcd is deleted"))
	g.Expect(w.cat("demo-1", "/var/cpaas/precious")).To(Equal("42"))
	g.Expect(w.cat("demo-1", "/dev/disk/by-capv/app-data")).To(HavePrefix("raw bytes"))
	g.Expect(w.cat("demo-1", "/on-the-system-disk")).To(ContainSubstring("no such file"))
	files, err := guest.Open(w.options.StateDir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files.List("demo-1", "/var/lib/etcd")).To(BeEmpty())
	entries, err := files.List("demo-1", "/dev/disk/by-capv")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(3), "VS-D35: every disk of the place has a link")
	g.Expect(entries[0].Name).To(Equal("app-data"))
	g.Expect(entries[0].Size).To(Equal(int64(1 << 30)))
}

// A disk that was deleted and created again at the same path is another disk, and blank (decision V10).
func TestADiskCreatedAgainAtTheSamePathIsBlank(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	p := newPlace(w)
	first := p.occupy("vm-1")
	first.reaches(guest.PhaseRunning)
	w.write("demo-1", "/var/cpaas/precious", "42")
	p.leave(first)

	dc, err := w.finder.Datacenter(w.ctx, "dc-a")
	w.must(err)
	task, err := object.NewVirtualDiskManager(w.client.Client).DeleteVirtualDisk(w.ctx, p.paths["var-cpaas"], dc)
	w.must(err)
	w.must(task.Wait(w.ctx))
	g.Expect(w.persistentDisk("var-cpaas")).To(Equal(p.paths["var-cpaas"]))

	second := p.occupy("vm-2")
	second.reaches(guest.PhaseRunning)
	g.Expect(second.console()).To(ContainSubstring("disk var-cpaas is blank; ext4 is made on it"))
	g.Expect(w.cat("demo-1", "/var/cpaas/precious")).To(ContainSubstring("no such file"))
}

// VS-D28 to VS-D32: what is not proven blank is not formatted, what is not this place's is not mounted, and then nothing else
// is touched and nothing after it runs.
func TestDisksThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		spoil func(w *world, dir string)
		edit  func(d []script.Disk)
		want  string
	}{
		"a missing device": {
			edit: func(d []script.Disk) { d[2].Identity = "6000c290-0000-0000-0000-00000000dead" },
			want: "disk var-cpaas: no device has UUID 6000c29000000000000000000000dead",
		},
		"a physical volume": {
			spoil: func(w *world, dir string) { w.meta(dir, map[string]string{"fsType": "LVM2_member", "usage": "raid"}) },
			want:  "disk var-cpaas carries something else than a file system (LVM2_member); it is not touched",
		},
		"bytes of nobody": {
			spoil: func(w *world, dir string) { w.raw(dir, 1<<30-5, "x") },
			want:  "disk var-cpaas carries something else than a file system (unknown data); it is not touched",
		},
		"a broken disk": {
			spoil: func(w *world, dir string) { w.must(os.WriteFile(filepath.Join(dir, "meta.json"), []byte("{"), 0o600)) },
			want:  "disk var-cpaas cannot be probed (I/O error or ambiguous result); it is not touched",
		},
		"another place's disk": {
			spoil: func(w *world, dir string) {
				w.meta(dir, map[string]string{"fsType": "ext4"})
				w.must(os.Mkdir(filepath.Join(dir, "fs"), 0o755))
				w.must(os.WriteFile(filepath.Join(dir, "fs", script.MarkerName), []byte("ns/demo/demo-2/var-cpaas\n"), 0o600))
			},
			want: "disk var-cpaas carries the marker of another place or disk; it is not mounted",
		},
		"a file system nobody mounts": {
			spoil: func(w *world, dir string) { w.meta(dir, map[string]string{"fsType": "ntfs"}) },
			want:  "disk var-cpaas carries a file system of type ntfs, which is never mounted here",
		},
		"an ephemeral disk that is not blank": {
			spoil: func(w *world, dir string) { w.meta(dir, map[string]string{"fsType": "ext4"}) },
			edit:  func(d []script.Disk) { d[2].Ephemeral = true },
			want:  "ephemeral disk var-cpaas is neither blank nor ours; it is not touched",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := w.in(t)
			p := newPlaceNamed(w, strings.ReplaceAll(name, " ", "-"))
			v := w.clone("vm " + name)
			disks := p.disks(v)
			dir := filepath.Join(w.options.StateDir, "disks", script.NormalIdentity(disks[2].Identity))
			if tc.spoil != nil {
				w.must(os.MkdirAll(dir, 0o755))
				tc.spoil(w, dir)
			}
			if tc.edit != nil {
				tc.edit(disks)
			}
			v.boot("demo-1", "", empty, disks...)
			g.Expect(v.reaches(guest.PhaseFailed).Message).To(HavePrefix(tc.want))
			g.Eventually(v.console).Should(ContainSubstring("no disk was touched; containerd and kubelet do not start"))
			g.Consistently(func() string { return w.cat("demo-1", "/reached") }, "100ms").Should(ContainSubstring("no such file"))
			g.Expect(filepath.Join(w.options.StateDir, "disks", script.NormalIdentity(disks[1].Identity))).NotTo(BeADirectory())
			v.powerOff()
			v.reaches(guest.PhaseOff)
			for _, path := range p.paths {
				v.detach(path)
			}
			v.destroy()
			g.Eventually(filepath.Join(w.options.StateDir, "guests", v.name)).ShouldNot(BeADirectory())
		})
	}
}

func newPlaceNamed(w *world, prefix string) *place {
	p := &place{w: w, paths: map[string]string{}}
	for _, name := range []string{"var-cpaas", "var-lib-etcd", "app-data"} {
		p.paths[name] = w.persistentDisk(prefix + "-" + name)
	}
	return p
}

func (w *world) meta(dir string, meta map[string]string) {
	w.t.Helper()
	data, err := json.Marshal(meta)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(dir, "meta.json"), data, 0o600))
}

func (w *world) raw(dir string, at int64, text string) {
	w.t.Helper()
	f, err := os.Create(filepath.Join(dir, "raw"))
	w.must(err)
	_, err = f.WriteAt([]byte(text), at)
	w.must(err)
	w.must(f.Close())
}

// Without disk.EnableUUID a guest sees no serials and finds nothing (VS-D5).
func TestDisksWithoutSerialsAreNotFound(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	p := newPlace(w)
	v := w.clone("vm-1")
	disks := p.disks(v)
	v.serials(false)
	v.boot("demo-1", "", empty, disks...)
	g.Expect(v.reaches(guest.PhaseFailed).Message).To(ContainSubstring("no device has UUID"))
}
