package process

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func sleeper(dir string) Spec {
	return Spec{Name: "sleeper", Dir: dir, Path: "/bin/sleep", Args: []string{"300"}, DieWithParent: true}
}

func TestAStoppedProcessLeavesNoRecord(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	p, err := Start(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Exit()).To(BeEmpty())
	p.Stop(10 * time.Second)
	g.Expect(p.Exit()).To(Equal("signal: terminated"))
	g.Expect(os.ReadDir(dir)).To(HaveLen(1), "only the log stays")
}

func TestARunningProcessIsAdopted(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first, err := Start(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	second, ok, err := Adopt(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeTrue())
	g.Expect(second.PID()).To(Equal(first.PID()))
	second.Kill()
	<-first.Done()
	_, ok, err = Adopt(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeFalse())
}

func TestAProcessWithAnotherCommandLineIsReplaced(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first, err := Start(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	other := sleeper(dir)
	other.Args = []string{"301"}
	_, ok, err := Adopt(other)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeFalse())
	<-first.Done()
}

func TestKillRecordedSparesAStrangerWithTheSamePID(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	p, err := Start(sleeper(dir))
	g.Expect(err).NotTo(HaveOccurred())
	defer p.Kill()

	// The record of a process that had this pid before: same pid, another start time.
	r, err := readRecord(p.record)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := os.ReadFile(p.record)
	g.Expect(err).NotTo(HaveOccurred())
	stale := strings.Replace(string(data), `"start":`, `"start":1`, 1)
	g.Expect(os.WriteFile(p.record, []byte(stale), 0o600)).To(Succeed())
	g.Expect(KillRecorded(dir)).To(Succeed())
	g.Consistently(p.Done(), "300ms").ShouldNot(BeClosed())
	g.Expect(p.record).NotTo(BeAnExistingFile())

	g.Expect(writeRecord(p.record, sleeper(dir), r.PID)).To(Succeed())
	g.Expect(KillRecorded(dir)).To(Succeed())
	g.Eventually(p.Done()).Should(BeClosed())
}
