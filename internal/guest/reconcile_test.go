package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/guest"
)

func (m *machine) map3(filesystem string) {
	m.write(guest.MappingPath, guest.Mapping(m.rows(filesystem)))
}

// rows are a place's three disks; the machine's devices are in the order of the mount paths.
func (m *machine) rows(filesystem string) []guest.Row {
	return guest.Rows([]guest.Disk{
		{Name: "nested", Identity: identity(1), MountPath: "/var/data/nested dir", Filesystem: "ext4", SlotKey: "ns/c/h", Options: []string{"noatime", "x-note=a b"}},
		{Name: "data", Identity: identity(0), MountPath: "/var/data", Filesystem: filesystem, Options: []string{"noatime"}, Wipe: true, SlotKey: "ns/c/h"},
		{Name: "raw", Identity: identity(2), SlotKey: "ns/c/h"},
	})
}

// VS-D27, VS-D30 to VS-D40: blank disks are formatted and mounted, parents before children, a reboot keeps what is on them, a
// new server empties the one that asks for it, with the script itself on real file systems.
func TestScriptOnRealDisks(t *testing.T) {
	for _, filesystem := range []string{"ext4", "xfs"} {
		t.Run(filesystem, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, forXFS, small, small)
			m.map3(filesystem)
			out := m.boot(`cat var/data/.capv-disk; echo one > var/data/file; echo two > "var/data/nested dir/file"
				echo raw > dev/disk/by-capv/raw; findmnt -rno FSTYPE,OPTIONS -M "$R/var/data"; cat etc/fstab`)
			g.Expect(out).To(ContainSubstring("disk data is blank; " + filesystem + " is made on it"))
			g.Expect(out).To(ContainSubstring("exit status 0\nns/c/h/data\n" + filesystem + " "))
			g.Expect(out).To(ContainSubstring("noatime"))
			for i, r := range m.rows(filesystem)[:2] {
				id, err := exec.Command("blkid", "-p", "-o", "value", "-s", "UUID", m.devices[i]).Output()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out).To(ContainSubstring(guest.FstabLine(r, strings.TrimSpace(string(id)), r.Filesystem) + "\n"))
			}

			out = m.boot(`cat var/data/file "var/data/nested dir/file"; head -c 3 dev/disk/by-capv/raw; wc -l < etc/fstab
				readlink -f dev/disk/by-capv/data "dev/disk/by-capv/nested"`)
			g.Expect(out).To(ContainSubstring("exit status 0\none\ntwo\nraw2\n" + m.devices[0] + "\n" + m.devices[1] + "\n"))
			g.Expect(out).NotTo(ContainSubstring("is made on it"))

			m.newServer("vm-2")
			out = m.boot(`ls -A var/data; cat "var/data/nested dir/file"`)
			g.Expect(out).To(ContainSubstring("disk data: first boot of this server; the content of /var/data is deleted"))
			want := ".capv-disk\nnested dir\ntwo\n"
			if filesystem == "ext4" {
				want = ".capv-disk\nlost+found\nnested dir\ntwo\n" // VS-D39: only etcd needs it gone
			}
			g.Expect(out).To(ContainSubstring("exit status 0\n" + want))
		})
	}
}

// VS-D33: a reboot mounts what the script has put into fstab, and does not need the script.
func TestMountsSurviveWithoutTheScript(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, small, small, small)
	m.map3("ext4")
	m.boot(`echo one > var/data/file; echo two > "var/data/nested dir/file"`)
	// mount has no way to read an fstab of another root: the paths get the root in front.
	fstab, err := os.ReadFile(filepath.Join(m.root, "/etc/fstab"))
	g.Expect(err).NotTo(HaveOccurred())
	m.write("/fstab", strings.ReplaceAll(string(fstab), " /var", " "+m.root+"/var"))
	out := m.run(`mount --all --fstab "$R/fstab" && cat var/data/file "var/data/nested dir/file"; findmnt -rno OPTIONS -M "$R/var/data/nested dir"`)
	g.Expect(out).To(HavePrefix("one\ntwo\n"))
	g.Expect(out).To(ContainSubstring("noatime"))
	g.Expect(m.boot("")).To(ContainSubstring("exit status 0"), "after a mount by fstab the script has nothing left to do")
}

// VS-D33: what fstab says of a mount path is replaced when the file system there is another one, and nothing else is.
func TestFstabIsReplacedLineByLine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, small, small, small)
	m.map3("ext4")
	stale := guest.FstabLine(m.rows("ext4")[1], "00000000-0000-0000-0000-000000000000", "ext4")
	m.write("/etc/fstab", "LABEL=root / ext4 defaults 0 1\n"+stale+"\n")
	out := m.boot("cat etc/fstab")
	g.Expect(out).To(ContainSubstring("exit status 0\nLABEL=root / ext4 defaults 0 1\n"))
	g.Expect(out).NotTo(ContainSubstring(stale))
	g.Expect(strings.Count(out, `/var/data/nested\040dir`)).To(Equal(1))
}

// VS-D27, VS-B7: a mapping file that lost its end, or a column, is not taken for a place with fewer disks.
func TestADamagedMappingStopsTheBoot(t *testing.T) {
	whole := func(m *machine) string { return guest.Mapping(m.rows("ext4")) }
	for name, damage := range map[string]func(m *machine) string{
		"empty":            func(*machine) string { return "" },
		"cut at a line":    func(m *machine) string { return strings.TrimSuffix(whole(m), "# end\n") },
		"cut in a line":    func(m *machine) string { return whole(m)[:len(whole(m))-20] },
		"a column less":    func(m *machine) string { return strings.Replace(whole(m), "\tfalse\t", "\t", 1) },
		"a column too few": func(m *machine) string { return strings.Replace(whole(m), "\tns/c/h/raw", "\t", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, small, small, small)
			text := damage(m)
			g.Expect(text).NotTo(Equal(whole(m)))
			m.write(guest.MappingPath, text)
			g.Expect(m.boot("")).To(And(ContainSubstring("is cut short or damaged"), ContainSubstring("exit status 1")))
			_, err := guest.ParseMapping(text)
			g.Expect(err).To(HaveOccurred(), "the simulated guests read it alike")
		})
	}
	t.Run("none at all is a place without disks", func(t *testing.T) {
		NewWithT(t).Expect(newMachine(t).boot("")).To(Equal("exit status 0\n"))
	})
}

// VS-D36, VS-B8, hazard H5: when the mount is not what it should be at the moment of the deletion, nothing is deleted, neither
// from the directory below nor from what is mounted there instead.
func TestWipeNeedsTheMountOfItsDisk(t *testing.T) {
	for name, sabotage := range map[string]string{
		"the mount reports success and does nothing": `mount() { case $* in *look*) command mount "$@" ;; esac; }`,
		"another disk gets mounted": `mount() { case $* in
			*look*) command mount "$@" ;;
			*) command mount "$OTHER" "$R/var/data" ;;
			esac; }`,
		"the mount goes away before the deletion": `is_mounted() { mounts "$dev" "$ROOT$r_path"; umount "$R/var/data" 2>/dev/null; [ "$f_mounted" = here ]; }`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, small, small)
			disks := []guest.Disk{{Name: "data", Identity: identity(0), MountPath: "/var/data", Wipe: true, SlotKey: "ns/c/h"}}
			m.write(guest.MappingPath, guest.Mapping(guest.Rows(disks)))
			for i, content := range []string{"right", "wrong"} {
				label := guest.Label("ns/c/h/data")
				m.sh(fmt.Sprintf(`mkfs.ext4 -q -L %s %s && d=$(mktemp -d) && mount %[2]s $d && echo %[3]s > $d/file && umount $d && rmdir $d`, label, m.devices[i], content))
			}
			m.write("/var/data/below", "not on any disk")
			out := m.run("OTHER=" + m.devices[1] + "\n" + sabotage + "\nmain\necho \"exit status $?\"\nunset -f mount\numount var/data 2>/dev/null\ncat var/data/below\n" +
				"for d in " + strings.Join(m.devices, " ") + "; do command mount $d mnt 2>/dev/null || { mkdir -p mnt; command mount $d mnt; }; cat mnt/file; umount mnt; done")
			g.Expect(out).To(ContainSubstring("exit status 1\nnot on any diskright\nwrong\n"))
		})
	}
}

// VS-D34: a disk that the place got after this server was created is none of its business, blank or not.
func TestDisksThatTheMappingDoesNotNameAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, small, small, small, small)
	m.map3("ext4")
	before := m.sum(3)
	out := m.boot("ls dev/disk/by-capv")
	g.Expect(out).To(ContainSubstring("exit status 0\ndata\nnested\nraw\n"))
	g.Expect(m.sum(3)).To(Equal(before))
}

// VS-D28, VS-B16, hazard H3, pain 9: the devices of a real system, by every name that udev has for them; a path of a multipath device stands for the device.
func TestDeviceInventory(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	for _, f := range []string{"sda/x", "sdb/holders/dm-0/dm/uuid", "dm-0/x", "sdc/holders/dm-1/dm/uuid", "loop0/x", "nvme0n1/x"} {
		m.write("/sys/block/"+f, map[bool]string{true: "mpath-36000c2000\n", false: "LVM-abc\n"}[strings.Contains(f, "dm-0")])
	}
	out := m.run(`unset -f devices; CAPV_SYS=$R/sys; . "$R/script"
udevadm() {
	case $3 in
	*/sda) printf 'ID_SERIAL=36000C29-aa\nDEVLINKS=/dev/disk/by-path/pci-1 /dev/disk/by-id/wwn-0x6000c29aa\n' ;;
	*/sdb) echo ID_SERIAL=36000c2000 ;;
	*/sdc) echo ID_WWN_WITH_EXTENSION=0x6000c2dd ;;
	*/dm-0) echo DEVLINKS=/dev/disk/by-id/dm-uuid-mpath-36000c2000 ;;
	*/loop0) echo ID_SERIAL=6000c29aa ;;
	*/nvme0n1) echo ID_SERIAL_SHORT=6000c2ee ;;
	*) echo "asked for $3" >&2 ;;
	esac
}
for id in 6000c29aa 6000c2000 6000c2dd 6000c2ee 6000c29a 000c29aa; do echo "$id" $(carriers $id); done`)
	g.Expect(out).To(Equal("6000c29aa /dev/sda\n6000c2000 /dev/dm-0\n6000c2dd /dev/sdc\n6000c2ee /dev/nvme0n1\n6000c29a\n000c29aa\n"))
}
