package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/cli/exit"
)

func run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = Main(args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestWrongCommandLinesDoNothingAndSayWhereHelpIs(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "env")
	for _, line := range []string{
		"nonsense", "up extra", "up --no-such-flag", "status -o xml", "status extra", "down now", "kubeconfig -n somewhere",
		"up --provider hcs", "up --without nonsense", "guest cat", "guest write node", "guest ls", "guest nonsense",
	} {
		t.Run(line, func(t *testing.T) {
			g := NewWithT(t)
			code, out, errs := run(append(strings.Fields(line), "--state-dir", nowhere)...)
			g.Expect(code).To(Equal(exit.Usage), errs)
			g.Expect(out).To(BeEmpty())
			g.Expect(errs).To(ContainSubstring("--help"))
			g.Expect(nowhere).NotTo(BeADirectory())
		})
	}
}

func TestWithoutAnEnvironmentEveryVerbSaysHowToGetOne(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "env")
	for _, line := range []string{"status", "down", "kubeconfig", "kubeconfig --cluster demo"} {
		t.Run(line, func(t *testing.T) {
			g := NewWithT(t)
			code, _, errs := run(append(strings.Fields(line), "--state-dir", nowhere)...)
			g.Expect(code).To(Equal(exit.NoEnvironment))
			g.Expect(errs).To(ContainSubstring(nowhere + ": no environment here; `berth up --state-dir " + nowhere + "` makes one"))
		})
	}
	g := NewWithT(t)
	code, out, _ := run("down", "--purge", "--state-dir", nowhere)
	g.Expect(code).To(Equal(exit.OK), "what is gone already need not be removed")
	g.Expect(out).To(ContainSubstring("Nothing to remove"))
}

func TestVersionForPrograms(t *testing.T) {
	g := NewWithT(t)
	code, out, _ := run("version", "-o", "json")
	g.Expect(code).To(Equal(exit.OK))
	g.Expect(out).To(And(ContainSubstring(`"version"`), ContainSubstring(`"kubernetes": "v1.36.3"`)))
}

func TestEveryVerbIsExplained(t *testing.T) {
	g := NewWithT(t)
	for _, verb := range New().Commands() {
		g.Expect(verb.Short).NotTo(BeEmpty(), verb.Name())
		g.Expect(verb.Args).NotTo(BeNil(), verb.Name())
	}
}
