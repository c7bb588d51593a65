package guest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// unitFile is a parsed unit file: section, key, values in order.
type unitFile map[string]map[string][]string

func parseUnit(t *testing.T, text string) unitFile {
	t.Helper()
	u := unitFile{}
	section := ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
			if u[section] != nil {
				t.Fatalf("line %d: section %s twice", i+1, section)
			}
			u[section] = map[string][]string{}
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" || key != strings.TrimSpace(key) || value == "" || strings.HasSuffix(line, `\`) {
				t.Fatalf("line %d is no assignment in a section: %q", i+1, line)
			}
			u[section][key] = append(u[section][key], strings.Fields(value)...)
		}
	}
	return u
}

// knownKeys are the directives that these units may use, by section: systemd ignores one that it does not know.
var knownKeys = map[string][]string{
	"Unit":    {"Description", "Documentation", "DefaultDependencies", "After", "Before", "Wants", "Requires", "ConditionPathExists"},
	"Service": {"Type", "RemainAfterExit", "ExecStart", "TimeoutStartSec", "StandardOutput", "StandardError"},
	"Install": {"WantedBy"},
}

// VS-D29, VS-D33, VS-B8: the unit runs once at every boot, after what fstab mounts and before the container runtime and the
// kubelet, and these do not start without it.
func TestUnitAndDropIns(t *testing.T) {
	g := NewWithT(t)
	u := parseUnit(t, unit)
	for section, keys := range u {
		g.Expect(knownKeys).To(HaveKey(section))
		for key := range keys {
			g.Expect(knownKeys[section]).To(ContainElement(key), section)
		}
	}
	g.Expect(slices.Sorted(maps.Keys(u))).To(Equal([]string{"Install", "Service", "Unit"}))
	g.Expect(u["Unit"]["Before"]).To(ConsistOf("containerd.service", "kubelet.service"))
	g.Expect(u["Unit"]["After"]).To(ContainElements("local-fs.target", "systemd-udevd.service", "cloud-init-local.service"))
	for _, other := range u["Unit"]["Before"] {
		g.Expect(u["Unit"]["After"]).NotTo(ContainElement(other), "an ordering cycle")
	}
	g.Expect(u["Unit"]["After"]).NotTo(ContainElement("cloud-final.service"), "which starts the unit and waits for it")
	g.Expect(u["Unit"]["ConditionPathExists"]).To(Equal([]string{MappingPath}))
	g.Expect(u["Service"]["Type"]).To(Equal([]string{"oneshot"}), "started means done")
	g.Expect(u["Service"]["RemainAfterExit"]).To(Equal([]string{"yes"}), "a restart of the kubelet does not run it again")
	g.Expect(u["Service"]["ExecStart"]).To(Equal([]string{ScriptPath}))
	g.Expect(u["Install"]["WantedBy"]).To(Equal([]string{"multi-user.target"}))

	d := parseUnit(t, dropIn)
	g.Expect(d).To(Equal(unitFile{"Unit": {"Requires": {UnitName}, "After": {UnitName}}}))
	files, err := diskFiles(disks())
	g.Expect(err).NotTo(HaveOccurred())
	places := map[string]string{}
	for _, f := range files {
		places[f.Path] = f.Content
	}
	for _, service := range u["Unit"]["Before"] {
		g.Expect(places).To(HaveKeyWithValue("/etc/systemd/system/"+service+".d/10-wait-disks.conf", dropIn))
	}
	g.Expect(places).To(HaveKeyWithValue("/etc/systemd/system/"+UnitName, unit))
	fstab := FstabLine(Row{Name: "d", MountPath: "/a", Options: "defaults"}, "u", "ext4")
	g.Expect(fstab).To(And(ContainSubstring(",nofail,"), ContainSubstring(",x-systemd.before="+UnitName+",")), "a mount comes before the look at it, and its failure does not stop the boot")
}

// systemd's own opinion, on machines that have it.
func TestUnitSatisfiesSystemd(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: TestUnitAndDropIns is all there is to say about the unit")
		return
	}
	root := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	files, err := diskFiles(disks())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		mode, err := strconv.ParseUint(f.Permissions, 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		write(f.Path, f.Content, os.FileMode(mode))
	}
	const other = "[Service]\nExecStart=" + ScriptPath + "\n"
	for _, name := range []string{"containerd.service", "kubelet.service", "systemd-udevd.service"} {
		write("/etc/systemd/system/"+name, other, 0o644)
	}
	for _, name := range []string{"local-fs", "sysinit", "basic", "shutdown", "multi-user", "sockets", "timers", "paths", "slices"} {
		write("/etc/systemd/system/"+name+".target", "[Unit]\nDescription="+name+"\nDefaultDependencies=no\n", 0o644)
	}
	out, err := exec.Command(verify, "--root="+root, "--man=no", "verify", UnitName, "containerd.service", "kubelet.service").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "capv") || strings.Contains(line, "10-wait-disks") || strings.Contains(line, "cycle") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

// udevPart is one match or assignment of a udev rule.
var udevPart = regexp.MustCompile(`^([A-Z]+(?:\{[A-Z_]+\})?)(==|!=|\+=|=)"([^"]*)"$`)

type udevRule map[string]string

// parseRules reads udev rules; keys come with their operator.
func parseRules(t *testing.T, text string) []udevRule {
	t.Helper()
	var rules []udevRule
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		rule := udevRule{}
		for _, part := range strings.Split(line, ", ") {
			m := udevPart.FindStringSubmatch(part)
			if m == nil {
				t.Fatalf("line %d: %q is no key, operator and value", i+1, part)
			}
			rule[m[1]+m[2]] = m[3]
		}
		rules = append(rules, rule)
	}
	return rules
}

// links are what udev makes of a device with these properties.
func links(rules []udevRule, properties map[string]string) []string {
	made := map[string]bool{}
	label := ""
	for _, rule := range rules {
		if label != "" {
			if rule["LABEL="] == label {
				label = ""
			}
			continue
		}
		matches := true
		for key, want := range rule {
			name, negated := strings.CutSuffix(key, "!=")
			if !negated {
				var ok bool
				if name, ok = strings.CutSuffix(key, "=="); !ok {
					continue
				}
			}
			name = strings.TrimSuffix(strings.TrimPrefix(name, "ENV{"), "}")
			matches = matches && slices.Contains(strings.Split(want, "|"), properties[name]) != negated
		}
		if matches && rule["GOTO="] != "" {
			label = rule["GOTO="]
		}
		if link := rule["SYMLINK+="]; matches && link != "" {
			made["/dev/"+link] = true
		}
	}
	return slices.Sorted(maps.Keys(made))
}

// VS-D35, VS-R24: every disk of the place, raw or not, gets its link from every form that udev knows its serial in, and
// nothing else does.
func TestRule(t *testing.T) {
	g := NewWithT(t)
	rules := parseRules(t, Rule(Rows(disks())))
	for _, d := range disks() {
		id := NormalIdentity(d.Identity)
		want := []string{LinkDir + "/" + d.Name}
		for _, serial := range []string{"ID_SERIAL=3" + id, "ID_SERIAL=" + id, "ID_SERIAL_SHORT=" + id, "ID_WWN_WITH_EXTENSION=0x" + id, "DM_UUID=mpath-3" + id} {
			name, value, _ := strings.Cut(serial, "=")
			properties := map[string]string{"SUBSYSTEM": "block", "DEVTYPE": "disk", name: value}
			g.Expect(links(rules, properties)).To(Equal(want), serial)
			properties["DEVTYPE"] = "partition"
			g.Expect(links(rules, properties)).To(BeEmpty(), "a partition of it")
			properties["DEVTYPE"], properties["SUBSYSTEM"] = "disk", "scsi"
			g.Expect(links(rules, properties)).To(BeEmpty(), "the SCSI device of it")
			properties["SUBSYSTEM"], properties["DM_MULTIPATH_DEVICE_PATH"] = "block", "1"
			g.Expect(links(rules, properties)).To(BeEmpty(), "one path of a multipath device")
		}
		g.Expect(links(rules, map[string]string{"SUBSYSTEM": "block", "DEVTYPE": "disk", "ID_SERIAL": "3" + id + "0"})).To(BeEmpty())
	}
	var number int
	_, err := fmt.Sscanf(filepath.Base(rulePath), "%d-", &number)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(number).To(BeNumerically(">", 60), "60-persistent-storage.rules set the serials")
	if _, err := exec.LookPath("udevadm"); err != nil {
		t.Log("udevadm is not here to verify the rules as well")
		return
	}
	path := filepath.Join(t.TempDir(), filepath.Base(rulePath))
	g.Expect(os.WriteFile(path, []byte(Rule(Rows(disks()))), 0o600)).To(Succeed())
	out, err := exec.Command("udevadm", "verify", path).CombinedOutput()
	if strings.Contains(string(out), "Unknown command verb") {
		t.Log("this udevadm cannot verify rules")
		return
	}
	g.Expect(err).NotTo(HaveOccurred(), string(out))
}
