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

// machine is a guest for the script: a root directory as its system disk and loop devices as its disks.
type machine struct {
	t       *testing.T
	root    string
	devices []string
	// inventory is what the guest's udev would say: device and serial.
	inventory string
}

// partition is an entry of a partition table: Linux, 1000 sectors from 2048.
const partition = "\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\xe8\x03\x00\x00"

const deviceSize = 320 << 20 // the smallest that mkfs.xfs takes

func newMachine(t *testing.T, disks int) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts need root")
	}
	m := &machine{t: t, root: t.TempDir()}
	for i := range disks {
		file := filepath.Join(t.TempDir(), "disk.img")
		f, err := os.Create(file)
		if err == nil {
			err = f.Truncate(deviceSize)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("losetup", "--find", "--show", file).Output()
		if err != nil {
			t.Fatalf("losetup gives no loop device (modprobe loop, or run this test without root to leave it out): %v", err)
		}
		device := strings.TrimSpace(string(out))
		t.Cleanup(func() {
			if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		m.devices = append(m.devices, device)
		m.inventory += fmt.Sprintf("%s 36000c2%02d\n", device, i)
	}
	m.write("/var/lib/cloud/data/instance-id", "vm-1\n")
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// boot runs the script, then code with what it mounted, all in a mount namespace that ends like a power cycle.
func (m *machine) boot(code string) string {
	m.t.Helper()
	m.write("/script", Script())
	m.write("/inventory", m.inventory)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `
. "$R/script"
devices() { cat "$R/inventory"; }
main
echo "exit status $?"
cd "$R"
`+code)
	cmd.Env = append(os.Environ(), "CAPV_SOURCE_ONLY=1", "CAPV_PATIENCE=0", "CAPV_ROOT="+m.root, "R="+m.root)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		m.t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

func (m *machine) map3(filesystem string) { m.write(MappingPath, Mapping(m.rows(filesystem))) }

// rows are a place's three disks; the machine's devices are in the order of the mount paths.
func (m *machine) rows(filesystem string) []Row {
	return Rows([]Disk{
		{Name: "nested", Identity: "6000c201", MountPath: "/var/data/nested dir", Filesystem: "ext4", SlotKey: "ns/c/h"},
		{Name: "data", Identity: "6000c200", MountPath: "/var/data", Filesystem: filesystem, Options: []string{"noatime"}, Wipe: true, SlotKey: "ns/c/h"},
		{Name: "raw", Identity: "6000c202", SlotKey: "ns/c/h"},
	})
}

// VS-D27, VS-D30 to VS-D40: blank disks are formatted and mounted, a reboot keeps what is on them, a new server empties the one
// that asks for it, with the script itself on real file systems.
func TestScriptOnRealDisks(t *testing.T) {
	for _, filesystem := range []string{"ext4", "xfs"} {
		t.Run(filesystem, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, 3)
			if _, err := exec.LookPath("mkfs." + filesystem); err != nil {
				t.Fatalf("mkfs.%s is missing; install e2fsprogs and xfsprogs", filesystem)
			}
			m.map3(filesystem)
			out := m.boot(`cat var/data/.capv-disk; echo one > var/data/file; echo two > "var/data/nested dir/file"
				echo raw > dev/disk/by-capv/raw; findmnt -rno FSTYPE,OPTIONS -M "$R/var/data"; cat etc/fstab`)
			g.Expect(out).To(ContainSubstring("disk data is blank; " + filesystem + " is made on it"))
			g.Expect(out).To(ContainSubstring("exit status 0\nns/c/h/data\n" + filesystem + " "))
			g.Expect(out).To(ContainSubstring("noatime"))
			for i, r := range m.rows(filesystem)[:2] {
				id, err := exec.Command("blkid", "-p", "-o", "value", "-s", "UUID", m.devices[i]).Output()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out).To(ContainSubstring(FstabLine(r, strings.TrimSpace(string(id)), r.Filesystem) + "\n"))
			}

			out = m.boot(`cat var/data/file "var/data/nested dir/file"; head -c 3 dev/disk/by-capv/raw; wc -l < etc/fstab`)
			g.Expect(out).To(ContainSubstring("exit status 0\none\ntwo\nraw2\n"))

			m.write("/var/lib/cloud/data/instance-id", "vm-2\n")
			out = m.boot(`ls -A var/data; cat "var/data/nested dir/file"`)
			g.Expect(out).To(ContainSubstring("disk data: first boot of this server; the content of /var/data is deleted"))
			g.Expect(out).To(ContainSubstring("exit status 0\n.capv-disk\nnested dir\ntwo\n"))
		})
	}
}

// VS-D29 to VS-D31, VS-D37: one disk that is not understood, and none is touched.
func TestScriptTouchesNothingWhenInDoubt(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(m *machine)
		want  string
	}{
		"a physical volume": {
			func(m *machine) {
				m.put(1, 512, "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00\xfe\x7f\x0f\x6b\x20\x00\x00\x00LVM2 001")
			},
			"it is not touched",
		},
		"bytes at the end":    {func(m *machine) { m.put(1, deviceSize-1, "x") }, "carries something else than a file system (unknown data)"},
		"bytes at the start":  {func(m *machine) { m.put(1, 100000, "x") }, "carries something else than a file system (unknown data)"},
		"a partition table":   {func(m *machine) { m.put(1, 446, partition+strings.Repeat("\x00", 48)+"\x55\xaa") }, "(dos)"},
		"a missing device":    {func(m *machine) { m.inventory = strings.Replace(m.inventory, "36000c201", "36000c2ff", 1) }, "no device has UUID 6000c201"},
		"two of one identity": {func(m *machine) { m.inventory += m.devices[2] + " 6000c201\n" }, "more than one device has UUID 6000c201"},
		"another's disk": {
			func(m *machine) { m.sh("mkfs.ext4 -q -F -L " + Label("ns/c/other/nested") + " " + m.devices[1]) },
			"carries the marker of another place",
		},
		"no instance ID": {
			func(m *machine) { m.sh("rm " + m.root + "/var/lib/cloud/data/instance-id") },
			"whether that has happened cannot be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, 3)
			m.map3("ext4")
			tc.spoil(m)
			out := m.boot("")
			g.Expect(out).To(ContainSubstring(tc.want))
			g.Expect(out).To(ContainSubstring("no disk was touched; containerd and kubelet do not start"))
			g.Expect(out).To(ContainSubstring("exit status 1"))
			g.Expect(exec.Command("blkid", "-p", m.devices[0]).Run()).NotTo(Succeed(), "the blank disk beside it was formatted")
		})
	}
}

// put writes bytes on a disk.
func (m *machine) put(disk int, at int64, text string) {
	m.t.Helper()
	f, err := os.OpenFile(m.devices[disk], os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(text), at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) sh(code string) {
	m.t.Helper()
	if out, err := exec.Command("sh", "-c", code).CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", code, err, out)
	}
}
