package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/guest/scenario"
)

// VS-D28, VS-D29, VS-D30, VS-D31, VS-D32, VS-D33, VS-D35, VS-D36, VS-D37, VS-D38, VS-D39, VS-R23, VS-R24, VS-R25, VS-B8, hazard H3, hazard H4, hazard H5, hazard H13, pain 9, pain 96, pain 97, pain 99: every scenario on
// loop devices with real file systems. Whatever is refused is bit for bit as before, and so is the blank disk beside it.
func TestScenariosOnRealDisks(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) { runScenario(t, s) })
	}
}

func runScenario(t *testing.T, s scenario.Scenario) {
	g := NewWithT(t)
	size := int64(small)
	if s.Is("xfs") || strings.HasPrefix(s.Before, "xfs:") {
		size = forXFS
	}
	m := newMachine(t)
	dev, beside := m.attach(size), m.attach(small)
	m.inventory = fmt.Sprintf("%s 3%s\n%s wwn-0x%s\n", dev, scenario.Identity, beside, scenario.BesideIdentity)
	prepareDisk(m, s, size)
	m.write("/run/cloud-init/.instance-id", scenario.InstanceID+"\n")
	prepareRecord(m, s)
	m.write(guest.MappingPath, s.Mapping())

	row := s.Row()
	at := "." + row.MountPath
	before := map[string]string{
		"no":        "",
		"here":      fmt.Sprintf("mkdir -p %s && mount %s %[1]s\n", at, dev),
		"elsewhere": fmt.Sprintf("mkdir -p elsewhere && mount %s elsewhere\n", dev),
		"occupied":  fmt.Sprintf("mkdir -p %s && mkfs.ext4 -q %s && mount %[2]s %[1]s\n", at, m.attach(small)),
	}[s.Mounted]
	if s.Mounted == "no" {
		before = ""
	}
	sums := []string{m.sum(0), m.sum(1)}
	out := m.run(before + fmt.Sprintf(`main >log 2>&1
echo "exit status $?"
cat log
[ ! -L dev/disk/by-capv/data ] || echo "link $(readlink -f dev/disk/by-capv/data)"
[ ! -L dev/disk/by-capv/beside ] || echo "beside $(readlink -f dev/disk/by-capv/beside)"
echo "mount $(findmnt -rnvo SOURCE,FSTYPE -M "$R/%[1]s" | tail -n 1)"
echo "entries" $(ls -A %[1]s 2>/dev/null)
echo "precious $(cat %[1]s/precious 2>/dev/null)"
echo "marker $(cat %[1]s/.capv-disk 2>/dev/null)"
echo "label $(blkid -p -o value -s LABEL %[2]s 2>/dev/null)"
`, at, dev))

	d := guest.Decision{Action: s.Action, Reason: s.Reason}
	facts := guest.Facts{}
	text := strings.Split(d.Text(facts, row), "()")[0]
	status := map[bool]string{true: "exit status 0\n", false: "exit status 1\n"}[s.Succeeds()]
	g.Expect(out).To(ContainSubstring(status))
	if s.Reason != "other-filesystem" && s.Reason != "as-declared" && s.Reason != "marker-unreadable" && s.Reason != "unknown-filesystem-found" {
		g.Expect(out).To(ContainSubstring(text), "what the script says")
	}
	if !s.Succeeds() {
		g.Expect(out).To(And(ContainSubstring("REFUSED: "), ContainSubstring("no disk was touched; containerd and kubelet do not start")))
		g.Expect(out).NotTo(Or(ContainSubstring("\nlink "), ContainSubstring("\nbeside ")))
		g.Expect(m.sum(1)).To(Equal(sums[1]), "the blank disk beside it")
	} else {
		g.Expect(out).To(ContainSubstring("\nlink "+dev+"\n"), "VS-D35")
		g.Expect(out).To(ContainSubstring("\nbeside " + beside + "\n"))
	}
	marker := "\nmarker " + row.Key + "\n"
	if s.Is("etcd") {
		marker = "\nmarker \n"
		g.Expect(out).To(ContainSubstring("\nentries\n"), "kubeadm refuses anything in etcd's directory")
	}
	switch s.After {
	case "untouched", "linked":
		if s.Mounted == "no" {
			g.Expect(m.sum(0)).To(Equal(sums[0]), "the disk, bit for bit")
		}
		if s.Mounted == "here" || s.Mounted == "elsewhere" {
			g.Expect(m.run("mkdir -p look && mount -o ro " + dev + " look && cat look/precious")).To(Equal(scenario.Content))
		}
	case "formatted":
		g.Expect(out).To(And(ContainSubstring("\nmount "+dev+" "+row.Filesystem+"\n"), ContainSubstring(marker), ContainSubstring("\nlabel "+guest.Label(row.Key)+"\n")))
	case "kept":
		fsType, _, _ := s.Filesystem()
		g.Expect(out).To(And(ContainSubstring("\nmount "+dev+" "+fsType+"\n"), ContainSubstring(marker), ContainSubstring("\nprecious "+scenario.Content)))
	case "emptied":
		fsType, _, _ := s.Filesystem()
		g.Expect(out).To(And(ContainSubstring("\nmount "+dev+" "+fsType+"\n"), ContainSubstring(marker), ContainSubstring("\nprecious \n")))
	default:
		t.Fatalf("unknown word %q", s.After)
	}
}

func prepareDisk(m *machine, s scenario.Scenario, size int64) {
	m.t.Helper()
	if fsType, whose, ok := s.Filesystem(); ok {
		label, marker := "", ""
		switch whose {
		case "ours":
			label, marker = guest.Label(s.Row().Key), s.Row().Key
		case "label":
			label = guest.Label(s.Row().Key)
		case "other":
			marker = scenario.OtherKey
		case "other-label":
			label = guest.Label(scenario.OtherKey)
		case "none", "damaged":
		default:
			m.t.Fatalf("unknown word %q", s.Before)
		}
		m.run(fmt.Sprintf(`mkfs.%s -q ${L:+-L "$L"} %s && mkdir -p prepare && mount %[2]s prepare && printf '%%s' '%s' > prepare/%s &&
			{ [ -z '%[5]s' ] || echo '%[5]s' > prepare/.capv-disk; } && umount prepare && rmdir prepare`, fsType, m.devices[0], scenario.Content, scenario.File, marker))
		if label != "" {
			m.sh(map[bool]string{true: "xfs_admin -L ", false: "e2label "}[fsType == "xfs"] + map[bool]string{
				true: label + " " + m.devices[0], false: m.devices[0] + " " + label,
			}[fsType == "xfs"])
		}
		if whose == "damaged" {
			m.put(0, 2048, strings.Repeat("damaged!", 256)) // the group descriptors
		}
		return
	}
	switch s.Before {
	case "blank":
	case "start":
		m.put(0, 100000, "x")
	case "end":
		m.put(0, size-1, "x")
	case "middle":
		m.put(0, size/2, "x")
	case "io-error", "io-error-end":
		left := map[string]int64{"io-error": 0, "io-error-end": size / 2}[s.Before]
		if err := os.Truncate(m.images[0], left); err != nil {
			m.t.Fatal(err)
		}
	case "missing":
		m.inventory = strings.Replace(m.inventory, scenario.Identity, "6000c29affffffffffffffffffffffff", 1)
	case "twice":
		m.inventory += fmt.Sprintf("%s %s\n", m.attach(small), scenario.Identity)
	default:
		parts := signature(s.Before, size)
		if len(parts) == 0 {
			m.t.Fatalf("unknown word %q", s.Before)
		}
		for at, bytes := range parts {
			m.put(0, at, bytes)
		}
	}
}

func prepareRecord(m *machine, s scenario.Scenario) {
	m.t.Helper()
	record := guest.StateDir + "/" + guest.VisitPrefix + scenario.Name
	switch s.Record {
	case "none":
	case "ours":
		m.write(record, scenario.InstanceID+"\n")
	case "other":
		m.write(record, scenario.OtherInstanceID+"\n")
	case "damaged":
		m.write(record+"/a-directory", "")
	case "nameless":
		for _, path := range []string{"/run/cloud-init/.instance-id", guest.InstanceIDPath} {
			if err := os.Remove(filepath.Join(m.root, path)); err != nil {
				m.t.Fatal(err)
			}
		}
	default:
		m.t.Fatalf("unknown word %q", s.Record)
	}
}

// The scenarios leave no reason out, but one that no real disk can be brought to.
func TestScenariosCoverEveryReason(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	missing := guest.Reasons()
	for _, s := range all {
		delete(missing, s.Reason)
	}
	NewWithT(t).Expect(missing).To(HaveLen(1), "%v", missing)
	NewWithT(t).Expect(missing).To(HaveKey("blank-but-mounted"))
}
