//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/examples"
	invariants "github.com/berth-dev/berth/internal/invariant/vsphere"
	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

var (
	seed  = flag.Int64("seed", 20261201, "seed of the kills; printed, so that a failure can be repeated")
	table = flag.String("table", "", "append the rows of the table of disturbed flows to this file")
	full  = flag.Bool("full", false, "run every flow in every flavour, with more kills")
)

const (
	namespace = "cpaas-system"
	cluster   = "demo"
	patience  = 10 * time.Minute
	glance    = 500 * time.Millisecond
)

// world is one environment under test.
type world struct {
	env *local.Environment
	// management is the environment whose management cluster has the cluster: env, until it is moved.
	management *local.Environment
	// others are environments beside env, to be stopped with it.
	others []*local.Environment
	kube   client.Client
	cloud  *vcenter.Admin
	// manifests holds a directory per example; dir is the one in use, with its manifests as a user keeps them.
	manifests, dir string
	bin            string
	watch          *invariants.Watch
	// kills counts how often the manager was killed.
	kills atomic.Int32
}

// logging shows the environment's progress in the test's log.
type logging struct{ t *testing.T }

func (l logging) Begin(string)        {}
func (l logging) Note(string, string) {}
func (l logging) End(step string, took time.Duration, err error) {
	if err != nil {
		l.t.Logf("%s: %v (%s)", step, err, took.Round(time.Second))
		return
	}
	l.t.Logf("%s ready after %s", step, took.Round(100*time.Millisecond))
}

// newWorld brings up a bare environment and renders the manifests of one example ("v1beta1", "legacy-disks" ...).
func newWorld(t *testing.T, example string) *world {
	t.Helper()
	g := NewWithT(t)
	root, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	w := &world{bin: filepath.Join(root, "bin"), manifests: t.TempDir()}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "berth-e2e-")
	g.Expect(err).NotTo(HaveOccurred())
	w.env, err = local.Up(ctx, local.Options{Dir: dir, Bare: true, Bin: w.bin, Progress: logging{t}})
	t.Cleanup(func() { w.end(t) })
	g.Expect(err).NotTo(HaveOccurred(), "bringing up a bare environment")

	w.cloud = &vcenter.Admin{URL: w.env.VCenterAdmin()}
	w.manage(t, w.env)
	w.load(t, example)
	return w
}

// manage turns to a management cluster: commands are typed there, and the checker looks there.
func (w *world) manage(t *testing.T, env *local.Environment) {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig())
	g.Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(controlplanev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	w.kube, err = client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	w.management = env
	w.watch = invariants.Start(context.Background(), w.cloud, w.kube, 300*time.Millisecond)
}

// load renders an example's manifests into a directory of their own, where a user would keep them.
func (w *world) load(t *testing.T, example string) {
	t.Helper()
	g := NewWithT(t)
	dir, err := os.MkdirTemp(w.manifests, example+"-")
	g.Expect(err).NotTo(HaveOccurred())
	w.dir = dir
	files, err := examples.Files.ReadDir("vsphere/" + example)
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range files {
		text, err := examples.Files.ReadFile("vsphere/" + example + "/" + f.Name())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(w.manifest(f.Name()), []byte(w.env.Range.Rewrite(string(text))), 0o600)).To(Succeed())
	}
}

// end stops everything; a failed test leaves its logs where a person can read them.
func (w *world) end(t *testing.T) {
	if w.env == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if t.Failed() && w.management != nil {
		w.describe(t)
	}
	for _, env := range append(w.others, w.env) {
		if t.Failed() {
			if err := env.Stop(ctx, nil); err != nil {
				t.Logf("stopping the environment: %v", err)
			}
			t.Logf("logs of all processes are kept in %s", env.Logs())
		} else if err := env.Purge(ctx, nil); err != nil {
			t.Errorf("removing the environment: %v", err)
		}
	}
}

// describe prints what a person would look at first.
func (w *world) describe(t *testing.T) {
	for _, args := range [][]string{
		{"-n", namespace, "get", "cluster,kubeadmcontrolplane,machinedeployment,machine,vspherecluster,vspheremachine,vspherevm,vspheremachineconfigpool", "-o", "wide"},
		{"-n", namespace, "get", "vspheremachine", "-o", `jsonpath={range .items[*]}{.metadata.name}{": "}{range .status.conditions[*]}{.type}={.status}/{.reason}: {.message}{"; "}{end}{"\n"}{end}`},
		{"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, err := w.run(context.Background(), w.tool("kubectl"), args...)
		t.Logf("kubectl %s\n%s%v", strings.Join(args, " "), tail(out, 60), errText(err))
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n") + "\n"
}

func (w *world) manifest(name string) string { return filepath.Join(w.dir, name) }
func (w *world) tool(name string) string     { return filepath.Join(w.bin, name) }

// run executes a program with the management cluster's kubeconfig and returns what it prints.
func (w *world) run(ctx context.Context, program string, args ...string) (string, error) {
	out, _, err := w.heed(ctx, program, args...)
	return out, err
}

// heed is run for whoever wants to read the warnings too.
func (w *world) heed(ctx context.Context, program string, args ...string) (out, warnings string, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.management.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	var kept strings.Builder
	for line := range strings.Lines(stderr.String()) {
		// That Cluster API's old version is deprecated is known.
		if !strings.Contains(line, " is deprecated; use ") {
			kept.WriteString(line)
		}
	}
	return stdout.String(), kept.String(), nil
}

// shell types lines into a shell, in the directory with the manifests. Like kubectl, it types again what found nobody to answer.
func (w *world) shell(t *testing.T, lines string) string {
	t.Helper()
	t.Logf("$ %s", lines)
	var out []byte
	NewWithT(t).Eventually(func(g Gomega) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", lines)
		cmd.Dir = w.dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+w.management.Kubeconfig(), "PATH="+w.bin+":"+os.Getenv("PATH"))
		var err error
		out, err = cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "failed to call webhook") {
			StopTrying("the command was refused").Wrap(fmt.Errorf("%w: %s", err, out)).Now()
		}
		g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	}, time.Minute, glance).Should(Succeed())
	return string(out)
}

// follow types a command that goes on until stop is called, which returns what it has printed.
func (w *world) follow(t *testing.T, line string) (stop func() string) {
	t.Helper()
	t.Logf("$ %s &", line)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.management.Kubeconfig(), "PATH="+w.bin+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	NewWithT(t).Expect(cmd.Start()).To(Succeed())
	return func() string {
		cancel()
		_ = cmd.Wait()
		return out.String()
	}
}

// refused types a kubectl command that must be refused with all of these words.
func (w *world) refused(t *testing.T, words []string, args ...string) {
	t.Helper()
	t.Logf("$ kubectl %s", strings.Join(args, " "))
	_, err := w.run(t.Context(), w.tool("kubectl"), args...)
	g := NewWithT(t)
	g.Expect(err).To(HaveOccurred(), "kubectl %s is refused", strings.Join(args, " "))
	for _, word := range words {
		g.Expect(err.Error()).To(ContainSubstring(word))
	}
	t.Logf("%v", err)
}

// warned types a kubectl command that must succeed with a warning of all of these words; without words, with no warning.
func (w *world) warned(t *testing.T, words []string, args ...string) {
	t.Helper()
	t.Logf("$ kubectl %s", strings.Join(args, " "))
	_, warnings, err := w.heed(t.Context(), w.tool("kubectl"), args...)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	t.Log(warnings)
	for _, word := range words {
		g.Expect(warnings).To(ContainSubstring(word))
	}
	if len(words) == 0 {
		g.Expect(warnings).To(BeEmpty())
	}
}

// kubectl types a command that must succeed. While the manager is down nobody answers admission; a person types the command
// again then, and so does this.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	t.Logf("$ kubectl %s", strings.Join(args, " "))
	var out string
	NewWithT(t).Eventually(func(g Gomega) {
		var err error
		out, err = w.run(t.Context(), w.tool("kubectl"), args...)
		if err != nil && !strings.Contains(err.Error(), "failed to call webhook") {
			StopTrying("the command was refused").Wrap(err).Now()
		}
		g.Expect(err).NotTo(HaveOccurred())
	}, time.Minute, glance).Should(Succeed())
	return out
}

// berth types a berth command that must succeed.
func (w *world) berth(t *testing.T, args ...string) string {
	t.Helper()
	args = append(args, "--state-dir", w.env.Dir)
	out, err := w.run(t.Context(), w.tool("berth"), args...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return out
}

// writeInGuest puts text into a file of a guest.
func (w *world) writeInGuest(t *testing.T, node, path, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.tool("berth"), "guest", "write", node, path, "--state-dir", w.env.Dir)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%s", out)
}

// applyAll applies every manifest, in the order of the file names, as `kubectl apply -f DIR` does.
func (w *world) applyAll(t *testing.T) {
	t.Helper()
	w.kubectl(t, "apply", "-f", w.dir)
}
