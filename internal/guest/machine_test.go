package guest_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/guest"
)

// machine is a guest for the script: a root directory as its system disk and loop devices as its disks.
type machine struct {
	t       *testing.T
	root    string
	devices []string
	// images are the files behind the devices.
	images []string
	// inventory is what the guest's udev would say: device and serial.
	inventory string
}

const (
	// small is enough for ext4, forXFS the least that mkfs.xfs takes.
	small  = 16 << 20
	forXFS = 320 << 20
)

// identity of the n-th disk of a machine.
func identity(n int) string { return fmt.Sprintf("6000c2%02d", n) }

func newMachine(t *testing.T, sizes ...int64) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts need root")
	}
	for _, tool := range []string{"mkfs.ext4", "mkfs.xfs", "blkid", "wipefs", "findmnt", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing; install util-linux, e2fsprogs and xfsprogs", tool)
		}
	}
	m := &machine{t: t, root: t.TempDir()}
	for i, size := range sizes {
		device := m.attach(size)
		m.inventory += fmt.Sprintf("%s 3%s\n", device, identity(i))
	}
	m.newServer("vm-1")
	return m
}

// attach gives the machine a blank disk that no inventory knows yet.
func (m *machine) attach(size int64) string {
	m.t.Helper()
	image := filepath.Join(fastDir(m.t), "disk.img")
	f, err := os.Create(image)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		m.t.Fatalf("losetup gives no loop device (modprobe loop, or run this test without root to leave it out): %v", err)
	}
	device := strings.TrimSpace(string(out))
	m.t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			m.t.Errorf("%v: %s", err, out)
		}
	})
	m.devices, m.images = append(m.devices, device), append(m.images, image)
	return device
}

// fastDir is in memory where that is possible: every file system is flushed to its disk several times.
func fastDir(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "disks-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newServer puts a fresh system disk under the machine; the mapping file is written again with the user data.
func (m *machine) newServer(id string) {
	m.t.Helper()
	mapping, err := os.ReadFile(filepath.Join(m.root, guest.MappingPath))
	m.root = m.t.TempDir()
	m.write("/var/lib/cloud/data/instance-id", id+"\n")
	if err == nil {
		m.write(guest.MappingPath, string(mapping))
	}
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

// run runs code with the script's functions defined, in a mount namespace that ends like a power cycle. $R is the root.
func (m *machine) run(code string) string {
	m.t.Helper()
	m.write("/script", guest.Script())
	m.write("/inventory", m.inventory)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `
. "$R/script"
devices() { cat "$R/inventory"; }
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

// boot runs the script, then code with what it mounted.
func (m *machine) boot(code string) string {
	m.t.Helper()
	return m.run("main\necho \"exit status $?\"\n" + code)
}

// put writes bytes on a disk.
func (m *machine) put(disk int, at int64, data string) {
	m.t.Helper()
	f, err := os.OpenFile(m.devices[disk], os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(data), at)
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

// sum is of all that is on a disk.
func (m *machine) sum(disk int) string {
	m.t.Helper()
	_ = exec.Command("sync", m.devices[disk]).Run() // fails where the test made the disk fail
	f, err := os.Open(m.images[disk])
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (m *machine) sh(code string) {
	m.t.Helper()
	if out, err := exec.Command("sh", "-c", code).CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", code, err, out)
	}
}
