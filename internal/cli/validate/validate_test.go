package validate_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/examples"
	"github.com/berth-dev/berth/internal/cli"
	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/manifest/check"
)

func run(stdin string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = cli.Main(append([]string{"validate"}, args...), strings.NewReader(stdin), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// example writes the example of a version into a directory and returns it.
func example(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := fs.Sub(examples.Files, "vsphere/"+version)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExitCodes(t *testing.T) {
	g := NewWithT(t)
	dir := example(t, "v1beta2")
	code, out, errs := run("", "-f", dir)
	g.Expect(code).To(Equal(exit.OK))
	g.Expect(out).To(BeEmpty())
	g.Expect(errs).To(Equal("11 objects checked in 11 files: 0 errors, 0 warnings\n"))

	// Warnings do not fail, unless they are asked to.
	pool := filepath.Join(dir, "17-vspheremachineconfigpool-worker.yaml")
	code, out, errs = run("", "-f", pool)
	g.Expect(code).To(Equal(exit.OK), out)
	g.Expect(out).To(HavePrefix(pool + ":13: warning: VSphereMachineConfigPool/demo-worker: spec.clusterRef.name: Cluster cpaas-system/demo is not in these files"))
	g.Expect(errs).To(ContainSubstring("0 errors, 1 warning"))
	code, _, _ = run("", "-f", pool, "--warnings-as-errors")
	g.Expect(code).To(Equal(exit.Failed))

	// One error fails, whatever else is fine.
	md := filepath.Join(dir, "30-workers-md-0.yaml")
	text, err := os.ReadFile(md)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(md, bytes.Replace(text, []byte("maxSurge: 0 "), []byte("maxSurge: 1 "), 1), 0o600)).To(Succeed())
	code, out, errs = run("", "-f", dir)
	g.Expect(code).To(Equal(exit.Failed))
	g.Expect(out).To(HavePrefix(md + ":17: MachineDeployment/demo-md-0: spec.rollout.strategy.rollingUpdate.maxSurge: Invalid value: 1: maxSurge must be 0"))
	g.Expect(strings.Count(out, "\n")).To(Equal(1))
	g.Expect(errs).To(Equal("11 objects checked in 11 files: 1 error, 0 warnings\n"))
}

func TestWhatCannotBeChecked(t *testing.T) {
	empty := t.TempDir()
	nowhere := filepath.Join(empty, "kubeconfig")
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.WriteFile(closed, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	object := "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: VSphereFailureDomain\nmetadata: {name: a}\n"
	for _, c := range []struct {
		what, stdin string
		args        []string
		says        string
		help        bool
	}{
		{"no -f", "", nil, "say what to check with -f", true},
		{"an unknown flag", "", []string{"--nonsense"}, "unknown flag", true},
		{"an argument", "", []string{"-f", "-", "more"}, "unknown command", true},
		{"a wrong format", "", []string{"-f", "-", "-o", "xml"}, "json, yaml, table", true},
		{"a cluster that nobody reads", object, []string{"-f", "-", "--context", "x"}, "add --server", true},
		{"a file that is not there", "", []string{"-f", filepath.Join(empty, "none.yaml")}, "no such file", false},
		{"a directory without manifests", "", []string{"-f", empty}, "no .yaml, .yml or .json file", false},
		{"a URL", "", []string{"-f", "https://example.test/a.yaml"}, "download it first", false},
		{"nothing on standard input", "", []string{"-f", "-"}, "no object", false},
		{"a kubeconfig that is not there", object, []string{"-f", "-", "--server", "--kubeconfig", nowhere}, "kubeconfig", false},
		{"a server that does not answer", object, []string{"-f", "-", "--server", "--kubeconfig", closed}, "127.0.0.1:1", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := NewWithT(t)
			code, out, errs := run(c.stdin, c.args...)
			g.Expect(code).To(Equal(2), errs)
			g.Expect(out).To(BeEmpty())
			g.Expect(errs).To(ContainSubstring(c.says))
			g.Expect(strings.Contains(errs, "--help")).To(Equal(c.help), errs)
		})
	}
}

// TestDirectoriesAsKubectlReadsThem: only what is directly in a directory, unless -R; only YAML and JSON; a named file whatever its name.
func TestDirectoriesAsKubectlReadsThem(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	write := func(name string) string {
		file := filepath.Join(dir, name)
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+strings.ReplaceAll(filepath.Base(name), ".", "-")+"}\n"), 0o600)).To(Succeed())
		return file
	}
	write("b.yml")
	write("a.yaml")
	write("c.json")
	write("below/d.yaml")
	text := write("e.txt")
	for _, c := range []struct {
		args  []string
		files string
	}{
		{[]string{"-f", dir}, "3 objects checked in 3 files"},
		{[]string{"-R", "-f", dir}, "4 objects checked in 4 files"},
		{[]string{"-f", dir, "-f", text}, "4 objects checked in 4 files"},
		{[]string{"-f", dir + "," + text, "-f", filepath.Join(dir, "a.yaml")}, "4 objects checked in 4 files"}, // once is enough
	} {
		code, out, errs := run("", c.args...)
		g.Expect(code).To(Equal(exit.OK), out+errs)
		g.Expect(errs).To(HavePrefix(c.files))
	}
}

// TestOneStream: what kustomize and kubectl print, everything in one stream with sorted keys, is judged like the files.
func TestOneStream(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			dir := example(t, version)
			files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
			g.Expect(err).NotTo(HaveOccurred())
			var documents []string
			for _, file := range files {
				text, err := os.ReadFile(file)
				g.Expect(err).NotTo(HaveOccurred())
				var object any
				g.Expect(yaml.Unmarshal(text, &object)).To(Succeed())
				sorted, err := yaml.Marshal(object)
				g.Expect(err).NotTo(HaveOccurred())
				documents = append([]string{string(sorted)}, documents...)
			}
			code, out, errs := run(strings.Join(documents, "---\n"), "-f", "-")
			g.Expect(code).To(Equal(exit.OK), out)
			g.Expect(out).To(BeEmpty())
			g.Expect(errs).To(HavePrefix("11 objects checked in 1 file: 0 errors"))
		})
	}
}

// TestForPrograms holds the JSON form, which docs/validate.md promises.
func TestForPrograms(t *testing.T) {
	g := NewWithT(t)
	code, out, _ := run(`apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereDeploymentZone
metadata: {name: zone-a}
spec: {server: vc, failureDomain: fd-a, placementConstrain: {}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: not-looked-at}
`, "-f", "-", "-o", "json")
	g.Expect(code).To(Equal(exit.Failed))
	var raw map[string]any
	g.Expect(json.Unmarshal([]byte(out), &raw)).To(Succeed())
	g.Expect(raw).To(HaveKeyWithValue("summary", And(
		HaveKeyWithValue("files", 1.0), HaveKeyWithValue("objects", 2.0), HaveKeyWithValue("checked", 1.0), HaveKeyWithValue("ignored", 1.0),
		HaveKeyWithValue("errors", 2.0), HaveKeyWithValue("warnings", 0.0), HaveKeyWithValue("valid", false))))
	g.Expect(raw["problems"]).To(ContainElement(And(
		HaveKeyWithValue("severity", "error"), HaveKeyWithValue("file", "-"), HaveKeyWithValue("line", 4.0),
		HaveKeyWithValue("apiVersion", "infrastructure.cluster.x-k8s.io/v1beta1"), HaveKeyWithValue("kind", "VSphereDeploymentZone"), HaveKeyWithValue("name", "zone-a"),
		HaveKeyWithValue("field", "spec.placementConstrain"), HaveKeyWithValue("message", `unknown field; did you mean "placementConstraint"?`))))

	code, out, _ = run("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "-f", "-", "-o", "json")
	g.Expect(code).To(Equal(exit.OK))
	var report check.Report
	g.Expect(json.Unmarshal([]byte(out), &report)).To(Succeed())
	g.Expect(report.Problems).NotTo(BeNil(), "a list, even if it is empty")
	g.Expect(report.Summary.Valid).To(BeTrue())
}

// TestWhatTheManualShows: the lines in docs/validate.md are those that an archived deployment really gets.
func TestWhatTheManualShows(t *testing.T) {
	g := NewWithT(t)
	var manuals []string
	for _, name := range []string{"validate.md", "validate.zh.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
		g.Expect(err).NotTo(HaveOccurred())
		manuals = append(manuals, string(text))
	}
	t.Chdir(example(t, "v1beta1"))
	const md = "30-workers-md-0.yaml"
	text, err := os.ReadFile(md)
	g.Expect(err).NotTo(HaveOccurred())
	var archived []string
	for line := range strings.Lines(strings.Replace(string(text), "replicas: 3", "replicas: 4", 1)) {
		if !strings.Contains(line, "maxSurge:") {
			archived = append(archived, line)
		}
	}
	g.Expect(os.WriteFile(md, []byte(strings.Join(archived, "")), 0o600)).To(Succeed())
	code, out, _ := run("", "-f", ".")
	g.Expect(code).To(Equal(exit.Failed))
	for _, manual := range manuals {
		g.Expect(manual).To(ContainSubstring("\n```\n" + out + "```\n"))
	}
}
