package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

func emptyEnvironment(t *testing.T) *Environment {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(prepare(dir)).To(Succeed())
	e := &Environment{Dir: dir}
	t.Cleanup(func() {
		g.Expect(e.stopSurvivors(context.WithoutCancel(t.Context()), func(survivor) bool { return true })).To(Succeed())
	})
	return e
}

// sleeper is a program that has a child, as the program that runs the guests does.
var sleeper = program{name: "sleeper", path: "/bin/sh", args: []string{"-c", "sleep 600 & sleep 600"}}

func TestAProcessIsKnownBeyondTheReuseOfItsNumber(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	id, err := e.spawn(sleeper)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(id.alive()).To(BeTrue())

	reused := id
	reused.Start++
	g.Expect(reused.alive()).To(BeFalse())
	g.Expect(reused.signal(unix.SIGKILL)).To(Succeed())
	g.Expect(reused.wait(t.Context())).To(Succeed())
	g.Expect(id.alive()).To(BeTrue(), "a signal for somebody who is gone must not reach the one who has his number now")

	g.Expect(id.stop(t.Context(), time.Minute)).To(Succeed())
	g.Expect(id.alive()).To(BeFalse())
	g.Expect(id.stop(t.Context(), time.Minute)).To(Succeed())
}

func TestADeadProcessThatNobodyWaitedForIsNotAlive(t *testing.T) {
	g := NewWithT(t)
	cmd := exec.Command("/bin/true")
	g.Expect(cmd.Start()).To(Succeed())
	g.Eventually(func() bool { _, ok := identify(cmd.Process.Pid); return ok }, 10*time.Second, time.Millisecond).Should(BeFalse())
	g.Expect(cmd.Wait()).To(Succeed())
}

func TestAProcessOutsideTheRecordsIsFoundAndStopped(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	id, err := e.spawn(sleeper)
	g.Expect(err).NotTo(HaveOccurred())
	// As if the starter had been killed between starting and recording.
	g.Expect(e.forget(sleeper.name)).To(Succeed())

	found, ok := e.running(sleeper.name)
	g.Expect(ok).To(BeTrue())
	g.Expect(found.identity).To(Equal(id))
	g.Expect(e.recorded()).To(ConsistOf(sleeper.name))

	g.Eventually(func() int { return len(e.survivors()) }, 10*time.Second, 10*time.Millisecond).Should(Equal(3), "the shell and its two children")
	g.Expect(e.stop(t.Context(), Silent{})).To(Succeed())
	g.Expect(e.survivors()).To(BeEmpty())
	g.Expect(e.recorded()).To(BeEmpty())
}

func TestProcessesOfGuestsAreStoppedWhenTheProgramThatRanThemIsDead(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	guests := sleeper
	guests.name = GuestsProcess
	_, err := e.spawn(guests)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return len(e.survivors()) }, 10*time.Second, 10*time.Millisecond).Should(Equal(3))
	g.Expect(e.Kill(t.Context(), GuestsProcess)).To(Succeed())
	g.Expect(e.survivors()).To(HaveLen(2))
	g.Expect(e.stop(t.Context(), Silent{})).To(Succeed())
	g.Expect(e.survivors()).To(BeEmpty())
}

func TestAStubbornProcessIsKilled(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	id, err := e.spawn(program{name: "stubborn", path: "/bin/sh", args: []string{"-c", "trap '' TERM; touch ready; exec sleep 600"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(e.path("ready"), 10*time.Second).Should(BeAnExistingFile())
	g.Expect(id.stop(t.Context(), 50*time.Millisecond)).To(Succeed())
	g.Expect(id.alive()).To(BeFalse())
}

func TestAProgramThatEndsIsReportedWithTheEndOfItsLog(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	p := program{
		name: "broken", path: "/bin/sh", args: []string{"-c", "echo something is wrong with the flags; exit 1"},
		ready: answers("http://127.0.0.1:1/", nil),
	}
	err := e.ensure(t.Context(), p, func(string) {})
	g.Expect(err).To(MatchError(ContainSubstring("something is wrong with the flags")))
	g.Expect(err).To(MatchError(ContainSubstring(e.logPath("broken"))))
}

func TestAChangedProgramIsRestartedAndAnUnchangedOneLeftAlone(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	g.Expect(e.ensure(t.Context(), sleeper, func(string) {})).To(Succeed())
	first, _ := e.running(sleeper.name)
	g.Expect(e.ensure(t.Context(), sleeper, func(string) {})).To(Succeed())
	same, _ := e.running(sleeper.name)
	g.Expect(same.identity).To(Equal(first.identity))

	changed := sleeper
	changed.args = []string{"-c", "sleep 500 & sleep 500"}
	g.Expect(e.ensure(t.Context(), changed, func(string) {})).To(Succeed())
	other, _ := e.running(sleeper.name)
	g.Expect(other.identity).NotTo(Equal(first.identity))

	changed.args, changed.irreplaceable = sleeper.args, true
	g.Expect(e.ensure(t.Context(), changed, func(string) {})).To(Succeed())
	kept, _ := e.running(sleeper.name)
	g.Expect(kept.identity).To(Equal(other.identity))
}

func TestTheUsersShellDoesNotLeakIntoProcesses(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", "/somewhere/else")
	t.Setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
	e := emptyEnvironment(t)
	id, err := e.spawn(sleeper)
	g.Expect(err).NotTo(HaveOccurred())
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.PID))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(environ)).NotTo(Or(ContainSubstring("KUBECONFIG"), ContainSubstring("PROXY")))
	sid, err := unix.Getsid(id.PID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(sid).To(Equal(id.PID), "it has a session of its own and survives the terminal")
}
