package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/guest"
)

// changing are the programs by which the script changes anything; between two of them it only looks, so that a death before
// each of them is a death at every step. awk and find are among them for what they write and delete.
var changing = strings.Fields(`awk chmod find ln mkdir mkfs.ext4 mkfs.xfs mount mv rm rmdir sync umount`)

// looking are the other ones. TestScriptCallsNothingElse holds both lists to the script.
var looking = strings.Fields(`blkid blockdev cat dd findmnt grep readlink sed sha256sum sort stat tail tr wc wipefs`)

// wrapper stands in front of a program. It counts the call and, from the n-th on, ends the whole script with it, as a power cut
// does; mkfs is written down when it really runs.
const wrapper = `#!/bin/sh
printf x >>"$R/count"
read -r calls <"$R/count"
[ "${#calls}" -lt "$DIE_AT" ] || kill -KILL 0
case ${0##*/} in mkfs.*) for device; do :; done; echo "$device" >>"$R/formatted" ;; esac
exec PROGRAM "$@"
`

// dying runs the script in a process group of its own, which dies at its n-th change.
const dying = `dying() {
	: >"$R/count"
	DIE_AT=$1 setsid --wait sh -c '. "$R/script"; devices() { cat "$R/inventory"; }; PATH=$R/bin; main' >"$R/log" 2>&1
}
`

// place is a slot for the crash tests: a file system with content and a blank disk mounted below it, one to be emptied, a raw
// disk. Its disks can be set back to how the script finds them first.
type place struct {
	*machine
	golden []string
}

func newPlace(t *testing.T) *place {
	m := newMachine(t, small, small, small, small)
	key := func(disk string) string { return guest.Label("ns/c/h/" + disk) }
	m.run(fmt.Sprintf(`mkfs.ext4 -q -L %s %s && mkfs.ext4 -q -L %s %s && mkdir a b && mount %[2]s a && mount %[4]s b &&
		echo precious > a/file && echo "old member" > b/member && umount a b && printf 'raw bytes' | dd of=%[5]s conv=notrunc 2>/dev/null`,
		key("data"), m.devices[0], key("etcd"), m.devices[2], m.devices[3]))
	p := &place{machine: m}
	for i, image := range m.images {
		p.sum(i) // flushed
		golden := image + ".golden"
		p.sh("cp --sparse=always " + image + " " + golden)
		p.golden = append(p.golden, golden)
	}
	return p
}

// reset makes the disks what they were and gives the place a new server.
func (p *place) reset() {
	p.t.Helper()
	for i, golden := range p.golden {
		p.sh("blockdev --flushbufs " + p.devices[i] + " && cp --sparse=always " + golden + " " + p.images[i])
	}
	p.newServer("vm-1")
	p.write(guest.MappingPath, guest.Mapping(guest.Rows([]guest.Disk{
		{Name: "data", Identity: identity(0), MountPath: "/var/data", SlotKey: "ns/c/h"},
		{Name: "blank", Identity: identity(1), MountPath: "/var/data/blank", SlotKey: "ns/c/h"},
		{Name: "etcd", Identity: identity(2), MountPath: "/var/lib/etcd", Wipe: true, SlotKey: "ns/c/h"},
		{Name: "raw", Identity: identity(3), SlotKey: "ns/c/h"},
	})))
	if err := os.Mkdir(filepath.Join(p.root, "bin"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	for i, name := range slices.Concat(changing, looking) {
		program, err := exec.LookPath(map[bool]string{true: "true", false: name}[name == "sync"]) // this machine's own disks take their time
		at := filepath.Join(p.root, "bin", name)
		switch {
		case err != nil:
		case i < len(changing):
			err = os.WriteFile(at, []byte(strings.Replace(wrapper, "PROGRAM", program, 1)), 0o755)
		default:
			err = os.Symlink(program, at)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// inspection prints what the place is like after a run.
const inspection = `
cat "$R/log"
echo "data $(cat var/data/file)"
echo "etcd $(ls -A var/lib/etcd | tr '\n' ' ')"
echo "marker $(cat var/data/blank/.capv-disk)"
echo "raw $(head -c 9 dev/disk/by-capv/raw)"
echo "fstab $(wc -l <etc/fstab)"
`

// VS-D30, VS-D36, VS-D37, hazard H4, hazard H5, pain 96: the script dies before every single change it makes, and runs again, in
// the same boot or after a power cycle. It ends where it would have ended, has made one file system and not two, and has lost
// nothing; and a reboot afterwards changes nothing. Every fifth step unless BERTH_EVERY_STEP is set: all of them take a minute of
// processor time.
func TestScriptSurvivesDeathAtEveryStep(t *testing.T) {
	p := newPlace(t)
	stride := 5
	if os.Getenv("BERTH_EVERY_STEP") != "" {
		stride = 1
	}
	n, tried := stride, 0
	for ; p.dieAt(n); n += stride {
		tried++
	}
	const atLeast = 40
	if n < atLeast {
		t.Fatalf("the script made %d changes only: does the test still see them?", n)
	}
	t.Logf("died at %d steps of %d or a few more", tried, n-stride)
}

const never = 1 << 20

// dieAt is false if the script came to its end before.
func (p *place) dieAt(n int) bool {
	p.t.Helper()
	g := NewWithT(p.t)
	p.reset()
	raw := p.sum(3)
	again := fmt.Sprintf("dying %d; echo \"exit status $?\"\n", never) + inspection
	first := fmt.Sprintf("dying %d; echo \"first $?\"\n", n)
	where := fmt.Sprintf("death before change %d", n)
	var out string
	if n%2 == 0 {
		where += ", run again in the same boot"
		out = p.run(dying + first + again)
	} else {
		where += ", then a power cycle"
		out = p.run(dying+first) + p.run(dying+again)
	}
	died := strings.HasPrefix(out, "first 137\n")
	g.Expect(died || strings.HasPrefix(out, "first 0\n")).To(BeTrue(), "%s: %s", where, out)
	g.Expect(out).To(And(ContainSubstring("exit status 0\n"), ContainSubstring("\ndata precious\n"), ContainSubstring("\netcd \n"),
		ContainSubstring("\nmarker ns/c/h/blank\n"), ContainSubstring("\nraw raw bytes\n"), ContainSubstring("\nfstab 3\n")), where)
	formatted, err := os.ReadFile(filepath.Join(p.root, "formatted"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(formatted)).To(Equal(p.devices[1]+"\n"), "%s: what was formatted", where)
	g.Expect(p.sum(3)).To(Equal(raw), "%s: the raw disk, bit for bit", where)

	if n%4 != 0 {
		return died
	}
	// The new member's data survive a reboot.
	p.run("mount " + p.devices[2] + " \"$R/var/lib/etcd\" && echo new > \"$R/var/lib/etcd/member\"")
	out = p.run(dying + again)
	g.Expect(out).To(And(ContainSubstring("exit status 0\n"), ContainSubstring("\netcd member \n"), ContainSubstring("\ndata precious\n")), where)
	g.Expect(os.ReadFile(filepath.Join(p.root, "formatted"))).To(Equal(formatted), "%s: a reboot formats nothing", where)
	return died
}

// With no other programs in reach than those that the test of deaths knows, the script still works.
func TestScriptCallsNothingElse(t *testing.T) {
	g := NewWithT(t)
	p := newPlace(t)
	p.reset()
	out := p.run(dying + fmt.Sprintf("dying %d; echo \"exit status $?\"\n", never) + inspection)
	g.Expect(out).To(ContainSubstring("exit status 0\n"))
	g.Expect(out).NotTo(ContainSubstring("not found"))
}
