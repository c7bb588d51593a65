package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// printing is a Progress for tests: what Up does is in the test's log.
type printing struct{ t *testing.T }

func (p printing) Begin(step string)      { p.t.Logf("%s begins", step) }
func (p printing) Note(step, text string) {}
func (p printing) End(step string, took time.Duration, err error) {
	p.t.Logf("%s ends after %s: %v", step, took.Round(time.Millisecond), err)
}

// management brings up a management cluster without Berth.
func management(t *testing.T) *Environment {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	t.Cleanup(func() {
		e, err := Open(dir)
		if err != nil {
			return
		}
		if t.Failed() {
			for _, name := range e.recorded() {
				t.Log(name, e.lastWords(name))
			}
		}
		g.Expect(e.Purge(context.WithoutCancel(t.Context()), nil)).To(Succeed())
	})
	e, err := Up(t.Context(), managementOptions(t, dir))
	g.Expect(err).NotTo(HaveOccurred())
	return e
}

func managementOptions(t *testing.T, dir string) Options {
	return Options{Dir: dir, Bare: true, Progress: printing{t}, Without: []string{ManagerProcess, VCenterProcess, GuestsProcess}}
}

func TestManagement(t *testing.T) {
	g := NewWithT(t)
	e := management(t)
	fmt.Fprintln(os.Stderr, e.Dir, e.Range)
	var _ net.Listener
	begun := time.Now()
	_, err := Up(t.Context(), managementOptions(t, e.Dir))
	g.Expect(err).NotTo(HaveOccurred())
	t.Log("again", time.Since(begun))
}
