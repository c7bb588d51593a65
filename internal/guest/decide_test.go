package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// cases is the whole table: every combination of facts, every kind of row.
func cases() (facts []Facts, rows []Row) {
	bools := []bool{false, true}
	for _, identity := range []string{"6000c29a", ""} {
		for _, path := range []string{"/var/cpaas", ""} {
			for _, fs := range []string{"ext4", "xfs", "ntfs"} {
				for _, wipe := range bools {
					for _, ephemeral := range bools {
						rows = append(rows, Row{
							Name: "d", Identity: identity, MountPath: path, Filesystem: fs, Options: "defaults",
							Wipe: wipe, Ephemeral: ephemeral, Key: "ns/c/h/d",
						})
					}
				}
			}
		}
	}
	for _, devices := range []int{0, 1, 2} {
		for _, content := range []Content{Blank, Filesystem, Foreign, Unreadable} {
			types := []string{""}
			switch content {
			case Filesystem:
				types = []string{"ext3", "ext4", "xfs", "btrfs", "vfat"}
			case Foreign:
				types = []string{"LVM2_member"}
			case Blank, Unreadable:
			}
			for _, fsType := range types {
				for _, marker := range []Marker{MarkerNone, MarkerOurs, MarkerOther, MarkerUnreadable} {
					for _, mounted := range []Mounted{MountedNo, MountedHere, MountedElsewhere, MountedOver} {
						for _, visit := range []Visit{VisitNew, VisitDone, VisitOther, VisitUnknown} {
							facts = append(facts, Facts{devices, content, fsType, marker, mounted, visit})
						}
					}
				}
			}
		}
	}
	return facts, rows
}

// shellHarness feeds the table to the script's decide and prints what it says.
const shellHarness = `
. "$1"
while IFS='|' read -r f_devices f_content f_type f_marker f_mounted f_visit r_name r_uuid r_path r_fs r_wipe r_kind r_key; do
	d_action='' d_reason=''
	decide
	printf '%s|%s|' "$d_action" "$d_reason"
	sentence
done
`

// VS-D28 to VS-D38: the script in real guests and the simulated guests decide alike, in every case there is.
func TestScriptAndGoDecideAlike(t *testing.T) {
	g := NewWithT(t)
	facts, rows := cases()
	var in, want bytes.Buffer
	n := 0
	seen := map[string]bool{}
	for _, f := range facts {
		for _, r := range rows {
			if (f.Devices != 1 || r.Identity == "") && f.Content != Blank {
				continue // decided before anybody looks at the content
			}
			n++
			d := Decide(f, r)
			kind := "persistent"
			if r.Ephemeral {
				kind = "ephemeral"
			}
			seen[d.Reason] = true
			fmt.Fprintf(&in, "%d|%s|%s|%s|%s|%s|%s|%s|%s|%s|%t|%s|%s\n", f.Devices, f.Content, f.FSType, f.Marker, f.Mounted, f.Visit,
				r.Name, r.Identity, r.MountPath, r.Filesystem, r.Wipe, kind, r.Key)
			fmt.Fprintf(&want, "%s|%s|%s\n", d.Action, d.Reason, d.Text(f, r))
		}
	}
	for reason := range sentences {
		g.Expect(seen).To(HaveKey(reason), "the table has no case for this reason")
	}
	for _, shell := range shells() {
		got := runShell(t, shell, shellHarness, in.Bytes())
		gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(want.String(), "\n")
		g.Expect(gotLines).To(HaveLen(len(wantLines)), shell)
		inLines := strings.Split(in.String(), "\n")
		for i := range wantLines {
			if gotLines[i] != wantLines[i] {
				t.Fatalf("%s decides %q, Go decides %q for\n%s", shell, gotLines[i], wantLines[i], inLines[i])
			}
		}
	}
	t.Logf("%d cases", n)
}

// VS-D31: both sides derive the same label.
func TestScriptAndGoLabelAlike(t *testing.T) {
	g := NewWithT(t)
	for _, key := range []string{"ns/c/h/d", "a", "cpaas-system/demo/demo-worker-1/var-cpaas"} {
		out := runShell(t, "sh", ". \"$1\"\nlabel_of "+key+"\n", nil)
		g.Expect(string(out)).To(Equal(Label(key)))
		g.Expect(Label(key)).To(HaveLen(12))
	}
}

// VS-D30: nothing but a blank disk is ever formatted, whatever else is true.
func TestOnlyBlankDisksAreFormatted(t *testing.T) {
	facts, rows := cases()
	for _, f := range facts {
		for _, r := range rows {
			d := Decide(f, r)
			if d.Action == ActFormat && (f.Content != Blank || f.Devices != 1 || f.Mounted != MountedNo) {
				t.Fatalf("%+v %+v: format", f, r)
			}
			if d.Action == ActWipe && (!r.Wipe || f.Visit != VisitNew || f.Content != Filesystem || f.Marker == MarkerOther) {
				t.Fatalf("%+v %+v: wipe", f, r)
			}
			if r.Raw() && d.Action != ActLink && d.Action != ActWait && d.Action != ActRefuse {
				t.Fatalf("%+v %+v: %s on a raw disk", f, r, d.Action)
			}
		}
	}
}

func TestReadMarker(t *testing.T) {
	g := NewWithT(t)
	key := "ns/c/h/d"
	g.Expect(ReadMarker(key, key+"\n", true, "")).To(Equal(MarkerOurs))
	g.Expect(ReadMarker(key, "ns/c/h/e\n", true, Label(key))).To(Equal(MarkerOther))
	g.Expect(ReadMarker(key, "", false, Label(key))).To(Equal(MarkerOurs))
	g.Expect(ReadMarker(key, "", false, Label("ns/c/other/d"))).To(Equal(MarkerOther))
	g.Expect(ReadMarker(key, "", false, "data")).To(Equal(MarkerNone))
}

// shells are the shells of this machine that guests may have as sh, each once.
func shells() []string {
	var found []string
	seen := map[string]bool{}
	for _, name := range []string{"sh", "dash", "bash"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		found = append(found, name)
	}
	return found
}

// runShell runs code with the path of the script as $1 and none of the script's own run.
func runShell(t *testing.T, shell, code string, stdin []byte, env ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reconcile.sh")
	if err := os.WriteFile(path, []byte(Script()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell, "-c", code, shell, path)
	cmd.Env = append(append(os.Environ(), "CAPV_SOURCE_ONLY=1"), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", shell, err, out, stderr.String())
	}
	return out
}
