package guest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/guest/scenario"
)

// VS-D28, VS-D29, VS-D30, VS-D31, VS-D32, VS-D33, VS-D35, VS-D36, VS-D37, VS-D38, VS-D39, VS-R23, VS-R24, VS-R25, hazard H3, hazard H4, hazard H5, hazard H13: the scenarios that the real script goes
// through on real disks (internal/guest), on the disks of a simulated guest: it decides the same and leaves the same.
func TestScenariosOnSimulatedDisks(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) { runScenario(t, s) })
	}
}

// twin and stranger are further disks of a scenario.
const (
	twin     = "6000c29a00000000000000000000002b"
	stranger = "6000c29a00000000000000000000003c"
)

func runScenario(t *testing.T, s scenario.Scenario) {
	g := NewWithT(t)
	m, data, beside := newScenarioGuest(t, s)
	row := s.Row()
	switch s.Mounted {
	case "no":
	case "here":
		m.fs.mount(Mount{Path: row.MountPath, Host: data.rel("fs"), Device: data.UUID, Type: "ext4"})
	case "elsewhere":
		m.fs.mount(Mount{Path: "/elsewhere", Host: data.rel("fs"), Device: data.UUID, Type: "ext4"})
	case "occupied":
		m.fs.mount(Mount{Path: row.MountPath, Host: "disks/" + stranger + "/fs", Device: stranger, Type: "ext4"})
	default:
		t.Fatalf("unknown word %q", s.Mounted)
	}
	before := []map[string]string{tree(t, data), tree(t, beside)}

	facts, _ := m.examine(row)
	g.Expect(script.Decide(facts, row)).To(Equal(script.Decision{Action: s.Action, Reason: s.Reason}), "%+v", facts)
	g.Expect(m.reconcileDisks(t.Context())).To(Equal(s.Succeeds()))

	_, links := m.fs.list()
	log, err := os.ReadFile(m.host(consoleName))
	g.Expect(err).NotTo(HaveOccurred())
	if !s.Succeeds() {
		g.Expect(string(log)).To(And(ContainSubstring("REFUSED: "), ContainSubstring("no disk was touched; containerd and kubelet do not start")))
		g.Expect(links).To(BeEmpty())
		g.Expect(tree(t, beside)).To(Equal(before[1]), "the blank disk beside it")
	} else {
		g.Expect(links).To(And(HaveKey(script.LinkDir+"/"+scenario.Name), HaveKey(script.LinkDir+"/"+scenario.Beside)), "VS-D35")
	}
	at := filepath.Join(data.fs(), scenario.File)
	switch s.After {
	case "untouched", "linked":
		after := tree(t, data)
		if s.Before == "blank" || s.Before == "middle" {
			// A raw disk becomes a file once it is used.
			after["raw"], before[0]["raw"] = strings.Trim(after["raw"], "\x00"), strings.Trim(before[0]["raw"], "\x00")
		}
		g.Expect(after).To(Equal(before[0]), "the disk, bit for bit")
		return
	case "kept":
		g.Expect(os.ReadFile(at)).To(BeEquivalentTo(scenario.Content))
	case "emptied", "formatted":
		g.Expect(at).NotTo(BeAnExistingFile())
	default:
		t.Fatalf("unknown word %q", s.After)
	}
	content, meta := data.probe()
	g.Expect(content).To(Equal(script.Filesystem))
	mounted, _ := m.fs.at(row.MountPath)
	g.Expect(mounted).To(Equal(Mount{Path: row.MountPath, Host: data.rel("fs"), Device: data.UUID, Type: meta.FSType}))
	if s.After == "formatted" {
		g.Expect([]string{meta.FSType, meta.Label}).To(Equal([]string{row.Filesystem, script.Label(row.Key)}))
	} else {
		fsType, _, _ := s.Filesystem()
		g.Expect(meta.FSType).To(Equal(fsType))
	}
	if s.Is("etcd") {
		g.Expect(os.ReadDir(data.fs())).To(BeEmpty(), "kubeadm refuses anything in etcd's directory")
	} else {
		g.Expect(m.fs.read(row.MountPath + "/" + script.MarkerName)).To(BeEquivalentTo(row.Key + "\n"))
	}
}

// newScenarioGuest is a guest with the scenario's disks, as it is when the disk script starts.
func newScenarioGuest(t *testing.T, s scenario.Scenario) (m *machine, data, beside virtualDisk) {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{options: Options{StateDir: dir, Patience: -1}, log: logr.Discard()}
	m = &machine{d: d, name: "vm-1", dir: guestsDir + "/vm-1", fs: newMountTable(dir), units: map[string]unitState{}, ctx: context.Background()}
	disk := func(id string) virtualDisk { return virtualDisk{UUID: id, serial: true, Bytes: 4 << 20, stateDir: dir} }
	data, beside = disk(scenario.Identity), disk(scenario.BesideIdentity)
	system := disk("5757")
	m.hardware.Disks = []virtualDisk{system, data, beside}
	must(t, os.MkdirAll(m.host("."), 0o755))
	var err error
	if m.console, err = openConsole(m.host(consoleName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.console.close)
	meta, err := system.format("ext4", "system")
	must(t, err)
	m.fs.mount(Mount{Path: "/", Host: system.rel("fs"), Device: system.UUID, Type: meta.FSType})
	must(t, m.fs.write(script.MappingPath, []byte(s.Mapping()), 0o600))
	must(t, m.fs.write(script.InstanceIDPath, []byte(scenario.InstanceID+"\n"), 0o644))
	prepareRecord(t, m, s)
	prepareDisk(t, m, s, data)
	return m, data, beside
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prepareRecord(t *testing.T, m *machine, s scenario.Scenario) {
	t.Helper()
	record := script.StateDir + "/" + script.VisitPrefix + scenario.Name
	switch s.Record {
	case "none":
	case "ours":
		must(t, m.fs.write(record, []byte(scenario.InstanceID+"\n"), 0o644))
	case "other":
		must(t, m.fs.write(record, []byte(scenario.OtherInstanceID+"\n"), 0o644))
	case "damaged":
		must(t, m.fs.write(record+"/a-directory", nil, 0o644))
	case "nameless":
		host, err := m.fs.Path(script.InstanceIDPath)
		must(t, err)
		must(t, os.Remove(host))
	default:
		t.Fatalf("unknown word %q", s.Record)
	}
}

// signatures are what a probe reports of foreign uses.
var signatures = map[string]diskMeta{
	"ntfs": {FSType: "ntfs"}, "zfs": {FSType: "zfs_member", Usage: "filesystem"}, "gpt": {FSType: "gpt", Usage: "partition table"},
	"mbr": {FSType: "dos", Usage: "partition table"}, "luks": {FSType: "crypto_LUKS", Usage: "crypto"},
	"lvm": {FSType: "LVM2_member", Usage: "raid"}, "raid": {FSType: "linux_raid_member", Usage: "raid"}, "swap": {FSType: "swap", Usage: "other"},
}

func prepareDisk(t *testing.T, m *machine, s scenario.Scenario, data virtualDisk) {
	t.Helper()
	put := func(name string, content []byte) {
		must(t, os.MkdirAll(filepath.Dir(data.host(name)), 0o755))
		must(t, os.WriteFile(data.host(name), content, 0o644))
	}
	raw := func(at int64) {
		content := make([]byte, data.Bytes)
		content[at] = 'x'
		put("raw", content)
	}
	if fsType, whose, ok := s.Filesystem(); ok {
		label := map[string]string{"ours": script.Label(s.Row().Key), "label": script.Label(s.Row().Key), "other-label": script.Label(scenario.OtherKey)}[whose]
		_, err := data.format(fsType, label)
		must(t, err)
		put("fs/"+scenario.File, []byte(scenario.Content))
		switch whose {
		case "ours":
			put("fs/"+script.MarkerName, []byte(s.Row().Key+"\n"))
		case "other":
			put("fs/"+script.MarkerName, []byte(scenario.OtherKey+"\n"))
		case "damaged":
			put("fs/"+script.MarkerName+"/unreadable", nil)
		case "label", "other-label", "none":
		default:
			t.Fatalf("unknown word %q", s.Before)
		}
		return
	}
	switch s.Before {
	case "blank":
	case "start":
		raw(100000)
	case "end":
		raw(data.Bytes - 1)
	case "middle":
		raw(data.Bytes / 2)
	case "io-error", "io-error-end":
		put("meta.json", []byte("not readable"))
	case "missing":
		m.hardware.Disks[1].UUID = "6000c29affffffffffffffffffffffff"
	case "twice":
		m.hardware.Disks = append(m.hardware.Disks, m.hardware.Disks[1])
		m.hardware.Disks[3].stateDir = filepath.Join(data.stateDir, twin)
	default:
		meta, ok := signatures[s.Before]
		if !ok {
			t.Fatalf("unknown word %q", s.Before)
		}
		content, err := json.Marshal(meta)
		must(t, err)
		put("meta.json", content)
	}
}

// tree is all that is on a disk.
func tree(t *testing.T, d virtualDisk) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(d.host("."), func(path string, e os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(d.host("."), path)
		out[rel] = string(data)
		return err
	})
	must(t, err)
	return out
}
