package guest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/sim/guest"
)

const noNode = `## template: jinja
#cloud-config

write_files:
-   path: /etc/greeting
    permissions: '0600'
    content: |
      hello {{ ds.meta_data.hostname }} {{ v1.local_hostname }} {{ local_hostname }} {{ ds.meta_data["local-hostname"] }}
-   path: /etc/greeting
    append: true
    content: "again\n"
runcmd:
  - "hostnamectl set-hostname '{{ ds.meta_data.hostname }}'"
  - "mkdir -p /opt/x && echo success > /opt/x/done # as kubeadm's line ends"
  - [touch, /opt/x/list]
  - "false || echo fallback > /opt/x/fallback"
  - "curl -s http://example.test | sh"
  - "rm -rf /host-must-not-notice"
users:
- name: admin
`

func TestAGuestBootsFromItsMetadata(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	v := w.clone("vm-1")
	v.boot("demo-1", address(21), noNode)
	s := v.reaches(guest.PhaseRunning)

	g.Expect(s.HostName).To(Equal("demo-1"))
	g.Expect(s.Addresses).To(Equal([]string{address(21)}))
	g.Expect(s.NotRun).To(ConsistOf("cloud-config module users", "curl -s http://example.test | sh"))
	g.Expect(w.cat("demo-1", "/etc/greeting")).To(Equal("hello demo-1 demo-1 demo-1 demo-1\nagain\n"))
	g.Expect(w.cat("demo-1", "/opt/x/done")).To(Equal("success\n"))
	g.Expect(w.cat("vm-1", "/opt/x/list")).To(BeEmpty())
	g.Expect(w.cat("demo-1", "/opt/x/fallback")).To(Equal("fallback\n"))
	g.Expect(w.cat("demo-1", "/etc/hostname")).To(Equal("demo-1\n"))

	// The hypervisor knows, as with VMware Tools.
	props := v.read()
	g.Expect(props.Guest.HostName).To(Equal("demo-1"))
	g.Expect(props.Guest.ToolsRunningStatus).To(Equal("guestToolsRunning"))
	g.Expect(props.Guest.Net).To(HaveLen(1))
	g.Expect(props.Guest.Net[0].MacAddress).To(Equal(v.mac))
	g.Expect(props.Guest.Net[0].IpAddress).To(Equal([]string{address(21)}))

	files, err := guest.Open(w.options.StateDir)
	g.Expect(err).NotTo(HaveOccurred())
	list, err := files.List("demo-1", "/opt/x")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list).To(HaveLen(3))

	v.powerOff()
	v.reaches(guest.PhaseOff)
	v.destroy()
	g.Eventually(filepath.Join(w.options.StateDir, "guests", "vm-1")).ShouldNot(BeADirectory())
}

// A guest whose data is wrong comes up as far as a real one would, and says what is wrong.
func TestAGuestWithWrongDataFailsVisibly(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		userData string
		want     string
	}{
		"broken YAML":             {"#cloud-config\nruncmd: [\n", "failed loading yaml blob"},
		"not a cloud-config":      {"hello", "unhandled user data"},
		"a jinja statement":       {"## template: jinja\n#cloud-config\n{% if x %}\n", "jinja statement"},
		"kubeadm without a file":  {"#cloud-config\nruncmd: ['kubeadm join --config /run/nothing.yaml']\n", `unable to read config from "/run/nothing.yaml"`},
		"kubeadm with nonsense":   {"#cloud-config\nwrite_files: [{path: /run/kubeadm/k.yaml, content: 'kind: X'}]\nruncmd: ['kubeadm join --config /run/kubeadm/k.yaml']\n", "kubeadm join:"},
		"a file of odd encoding":  {"#cloud-config\nwrite_files: [{path: /a, encoding: rot13, content: x}]\n", `unknown encoding "rot13"`},
		"a command that gives up": {"#cloud-config\nruncmd: ['false || exit 3', 'echo no > /reached']\n", "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := w.in(t)
			v := w.clone("vm-" + name)
			v.boot("demo-1", "", tc.userData)
			s := v.reaches(guest.PhaseFailed)
			g.Expect(s.Message).To(ContainSubstring(tc.want))
			g.Expect(v.console()).To(ContainSubstring(tc.want))
			g.Expect(w.cat("demo-1", "/reached")).To(ContainSubstring("no such file"))
			v.powerOff()
			v.destroy()
		})
	}
}

func TestAGuestWithoutDataHasNoName(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	v := w.clone("vm-1")
	v.powerOn()
	g.Expect(v.reaches(guest.PhaseFailed).Message).To(ContainSubstring("no datasource found"))
}

func TestAnImageWithoutASystemDoesNotBoot(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	v := w.cloneOf("os-no-boot", "vm-1")
	v.boot("demo-1", address(29), noNode)
	g.Expect(v.reaches(guest.PhaseFailed).Message).To(ContainSubstring("holds no operating system"))
	g.Expect(v.read().Guest.IpAddress).To(BeEmpty())
}

func TestTwoGuestsWithOneAddress(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	first, second := w.clone("vm-1"), w.clone("vm-2")
	first.boot("demo-1", address(22), noNode)
	first.reaches(guest.PhaseRunning)
	second.boot("demo-2", address(22), noNode)
	g.Eventually(second.console).WithTimeout(10 * time.Second).Should(ContainSubstring(address(22) + " is in use by vm-1 (demo-1)"))
	g.Expect(second.status().Phase).To(Equal(guest.PhaseBooting))
	g.Expect(second.read().Guest.IpAddress).To(BeEmpty())

	first.powerOff()
	g.Expect(second.reaches(guest.PhaseRunning).Addresses).To(Equal([]string{address(22)}))
}

// A power cycle keeps the disks and loses /run; cloud-init does not run again.
func TestPowerCycle(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	v := w.clone("vm-1")
	v.boot("demo-1", address(23), noNode)
	v.reaches(guest.PhaseRunning)
	w.write("demo-1", "/etc/greeting", "mine\n")
	w.write("demo-1", "/run/scratch", "x")
	v.powerOff()
	v.reaches(guest.PhaseOff)
	g.Expect(v.read().Guest.ToolsRunningStatus).NotTo(Equal("guestToolsRunning"))

	v.powerOn()
	v.reaches(guest.PhaseRunning)
	g.Expect(v.console()).To(ContainSubstring("was initialised before"))
	g.Expect(w.cat("demo-1", "/etc/greeting")).To(Equal("mine\n"))
	g.Expect(w.cat("demo-1", "/run/scratch")).To(Equal("guest demo-1: open /run/scratch: no such file or directory"), "which guest, and its own path")
}

// The guests go on when their daemon is restarted; what was switched off meanwhile stays off, what was destroyed is forgotten.
func TestDaemonRestart(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	stays, off, gone := w.clone("vm-stays"), w.clone("vm-off"), w.clone("vm-gone")
	for i, v := range []*vm{stays, off, gone} {
		v.boot("demo-"+v.name, address(24+i), noNode)
	}
	for _, v := range []*vm{stays, off, gone} {
		v.reaches(guest.PhaseRunning)
	}
	w.write("demo-vm-stays", "/etc/greeting", "mine\n")
	w.stop()
	off.powerOff()
	gone.powerOff()
	gone.destroy()
	w.startGuests()
	stays.reaches(guest.PhaseRunning)
	g.Expect(w.cat("demo-vm-stays", "/etc/greeting")).To(Equal("mine\n"))
	off.reaches(guest.PhaseOff)
	g.Eventually(filepath.Join(w.options.StateDir, "guests", "vm-gone")).ShouldNot(BeADirectory())
	g.Expect(filepath.Join(w.options.StateDir, "guests", "vm-off")).To(BeADirectory())
}

// The user data sees and changes the guest's files only, whatever links it makes.
func TestUserDataStaysInTheGuest(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	outside := filepath.Join(w.options.StateDir, "outside")
	g.Expect(os.WriteFile(outside, []byte("untouched"), 0o600)).To(Succeed())
	v := w.clone("vm-1")
	v.boot("demo-1", address(27), "#cloud-config\nruncmd:\n- ln -s / /etc/up\n- ln -s ../../../../../../../../../.. /etc/dots\n"+
		"- echo 1 > /etc/up/one\n- echo 2 > /etc/dots/two\n- echo 3 > "+outside+"\n- rm -f "+outside+"\n")
	v.reaches(guest.PhaseRunning)
	g.Expect(w.cat("demo-1", "/one")).To(Equal("1\n"))
	g.Expect(w.cat("demo-1", "/two")).To(Equal("2\n"))
	g.Expect(os.ReadFile(outside)).To(Equal([]byte("untouched")))
}

func TestLightGuestsOnlyReport(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, func(o *guest.Options) { o.Light = true })
	v := w.clone("vm-1")
	v.boot("demo-1", address(28), noNode, script.Disk{Name: "a", Identity: "1", MountPath: "/a"})
	g.Eventually(func() string { return v.read().Guest.IpAddress }).Should(Equal(address(28)))
	g.Expect(v.read().Guest.HostName).To(Equal("demo-1"))
	entries, err := os.ReadDir(filepath.Join(w.options.StateDir, "guests"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(BeEmpty())
	v.powerOff()
	v.destroy()
}
