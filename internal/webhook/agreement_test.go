package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/cli/validate"
	"github.com/berth-dev/berth/internal/manifest/check"
	"github.com/berth-dev/berth/internal/tools"
)

// The manifests that are in the cluster, by name.
var archived = map[string]string{
	"cluster": `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: demo}
spec:
  controlPlaneEndpoint: {host: 192.0.2.10, port: 6443}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereCluster, name: demo}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: other}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereCluster, name: other}
`,
	"infra": `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereCluster
metadata: {name: demo}
spec:
  server: vc.example.test
  controlPlaneEndpoint: {host: 192.0.2.10, port: 6443}
`,
	"pool": `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineConfigPool
metadata: {name: workers}
spec:
  clusterRef: {kind: Cluster, name: demo}
  datacenter: dc-a
  configs:
  - hostname: w-1
    network: {primary: {networkName: pg, ip: 192.0.2.31/24}}
    persistentDisks:
    - {name: var-cpaas, sizeGiB: 10, mountPath: /var/cpaas, fsFormat: ext4}
    - {name: raw, sizeGiB: 5}
    ephemeralDisks: &ephemeral
    - {name: var-lib-kubelet, sizeGiB: 50, mountPath: /var/lib/kubelet, fsFormat: ext4}
    - {name: var-lib-containerd, sizeGiB: 100, mountPath: /var/lib/containerd, fsFormat: ext4}
  - hostname: w-2
    network: {primary: {networkName: pg, ip: 192.0.2.32/24}}
    persistentDisks: &persistent
    - {name: var-cpaas, sizeGiB: 10, mountPath: /var/cpaas, fsFormat: ext4}
    - {name: raw, sizeGiB: 5}
    ephemeralDisks: *ephemeral
  - hostname: w-3
    network: {primary: {networkName: pg, ip: 192.0.2.33/24}}
    persistentDisks: *persistent
    ephemeralDisks: *ephemeral
`,
	"template": `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineTemplate
metadata: {name: v1}
spec:
  template:
    spec:
      template: image
      numCPUs: 4
      memoryMiB: 8192
      network: {devices: [{networkName: pg}]}
      machineConfigPoolRef: {kind: VSphereMachineConfigPool, name: workers}
`,
	"deployment": `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md}
spec:
  clusterName: demo
  replicas: 3
  selector: {matchLabels: {a: b}}
  rollout:
    strategy:
      type: RollingUpdate
      rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
  template:
    metadata: {labels: {a: b}}
    spec:
      clusterName: demo
      version: v1.34.2
      bootstrap: {dataSecretName: secret}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: v1}
`,
	"control-plane": `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineTemplate
metadata: {name: cp}
spec:
  template:
    spec:
      template: image
      numCPUs: 4
      memoryMiB: 8192
      network: {devices: [{networkName: pg, dhcp4: true}]}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp}
spec:
  replicas: 1
  version: v1.34.2
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: cp}}}
  kubeadmConfigSpec: {format: cloud-config}
`,
	"domain": `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereFailureDomain
metadata: {name: fd-agreement}
spec:
  region: {name: r, type: Datacenter, tagCategory: k8s-region}
  zone: {name: z, type: Datacenter, tagCategory: k8s-zone}
  topology: {datacenter: dc-a}
`,
}

// change is an edit of the archived manifests, applied to the cluster where they are in use.
type change struct {
	what string
	// of is the archived manifest; its text is edited by replacing, pair by pair.
	of      string
	replace []string
	// refused and warned: what must come of it, as parts of the sentences.
	refused, warned []string
	// otherWords: the server refuses it before it asks our webhooks, in words of its own.
	otherWords bool
}

var changes = []change{
	{what: "nothing at all", of: "pool"},
	{what: "nothing at all", of: "deployment"},
	{what: "nothing at all", of: "control-plane"},
	{
		what: "VS-R11: an InUse slot removed", of: "pool", replace: []string{"hostname: w-1", "hostname: w-9"},
		refused: []string{"slot w-1 cannot be removed or renamed while it is InUse"},
	},
	{what: "an Available slot renamed", of: "pool", replace: []string{"hostname: w-3", "hostname: w-9"}},
	{
		what: "VS-R12: the address of a Released slot", of: "pool", replace: []string{"192.0.2.32/24", "192.0.2.42/24"},
		refused: []string{"slot w-2 is Released, its address cannot change"},
	},
	{what: "the address of an Available slot", of: "pool", replace: []string{"192.0.2.33/24", "192.0.2.43/24"}},
	{
		what: "VS-R14: a disk grown and mounted elsewhere", of: "pool", replace: []string{"sizeGiB: 10, mountPath: /var/cpaas,", "sizeGiB: 20, mountPath: /var/data,"},
		refused: []string{"sizeGiB of disk \"var-cpaas\"", "mountPath of disk \"var-cpaas\""},
	},
	{what: "the same path in other letters", of: "pool", replace: []string{"mountPath: /var/cpaas,", "mountPath: /var/cpaas/,"}},
	{
		what: "VS-R13: a disk removed", of: "pool", replace: []string{"    - {name: raw, sizeGiB: 5}\n", ""},
		refused: []string{"persistent disk \"raw\" of slot w-1 cannot be removed"},
	},
	{
		what: "VS-R16: a disk added to an allocated slot", of: "pool", replace: []string{"    - {name: raw, sizeGiB: 5}\n", "    - {name: raw, sizeGiB: 5}\n    - {name: more, sizeGiB: 5}\n"},
		warned: []string{"disk \"more\" will be created when its machine is replaced"},
	},
	{
		what: "VS-W24: another datacenter", of: "pool", replace: []string{"datacenter: dc-a", "datacenter: dc-b"},
		refused: []string{"its datacenter cannot change from \"dc-a\" to \"dc-b\""},
	},
	{
		what: "VS-W5: another cluster while bound", of: "pool", replace: []string{"name: demo}", "name: other}"},
		refused: []string{"spec.clusterRef"},
	},
	{what: "VS-R15: a new slot", of: "pool", replace: []string{"  - hostname: w-2", "  - {hostname: w-4, network: {primary: {networkName: pg, ip: 192.0.2.34/24}}, persistentDisks: [{name: var-cpaas, sizeGiB: 10, mountPath: /var/cpaas, fsFormat: ext4}, {name: raw, sizeGiB: 5}], ephemeralDisks: *ephemeral}\n  - hostname: w-2"}},
	{
		what: "VS-W11: a new slot with an address in use, VS-W26: and another layout", of: "pool", replace: []string{"  - hostname: w-2", "  - {hostname: w-4, network: {primary: {networkName: pg, ip: 192.0.2.31/24}}, ephemeralDisks: *ephemeral}\n  - hostname: w-2"},
		refused: []string{"is used by slot w-1 of this pool"}, warned: []string{"slots of one pool should have the same layout"},
	},
	{
		what: "decision V4: a second interface, first step", of: "pool", replace: []string{"ip: 192.0.2.33/24}", "ip: 192.0.2.33/24}, additional: [{networkName: stor}]"},
		warned: []string{"slot w-3 of pool"},
	},
	{what: "VS-W14: a size that is none", of: "pool", replace: []string{"sizeGiB: 5}", "sizeGiB: 0}"}, refused: []string{"must be at least 1"}, otherWords: true},
	{what: "decision D4: an unknown field", of: "pool", replace: []string{"datacenter: dc-a", "datacentre: dc-a"}, refused: []string{"datacenter"}, otherWords: true},
	{
		what: "VS-R29, VS-W55: a template edited", of: "template", replace: []string{"numCPUs: 4", "numCPUs: 8"},
		refused: []string{"field is immutable"},
	},
	{what: "a template under another name", of: "template", replace: []string{"name: v1", "name: v2", "numCPUs: 4", "numCPUs: 8"}},
	{
		what: "VS-R43: a new template with one device more", of: "template", replace: []string{"name: v1", "name: v2", "[{networkName: pg}]", "[{networkName: pg}, {networkName: stor}]"},
		refused: []string{"1 network interface(s), template v2 has 2 device(s)"},
	},
	{
		what: "VS-R26: an archived deployment without maxSurge", of: "deployment", replace: []string{"maxSurge: 0, ", "", "replicas: 3", "replicas: 4"},
		refused: []string{"maxSurge must be 0"}, warned: []string{"4 replicas, but machine config pool"},
	},
	{
		what: "VS-R20, decision D7: more replicas than slots", of: "deployment", replace: []string{"replicas: 3", "replicas: 5"},
		warned: []string{"5 replicas, but machine config pool"},
	},
	{
		what: "VS-W38: nothing may be unavailable", of: "deployment", replace: []string{"maxUnavailable: 1", "maxUnavailable: 10%"},
		refused: []string{"is 0 of 3 replicas, rounded down"},
	},
	{what: "VS-R7: OnDelete", of: "deployment", replace: []string{"type: RollingUpdate\n      rollingUpdate: {maxSurge: 0, maxUnavailable: 1}", "type: OnDelete"}},
	{
		what: "VS-W30: a template that is not there", of: "deployment", replace: []string{"VSphereMachineTemplate, name: v1", "VSphereMachineTemplate, name: v7"},
		refused: []string{"v7"},
	},
	{
		what: "VS-W33: a second deployment on one pool", of: "deployment", replace: []string{"metadata: {name: md}", "metadata: {name: md-2}"},
		refused: []string{"is bound to MachineDeployment"},
	},
	{
		what: "VS-W35, VS-W36: a control plane moves to a pool", of: "control-plane", replace: []string{"dhcp4: true}]}", "dhcp4: true}]}\n      machineConfigPoolRef: {kind: VSphereMachineConfigPool, name: workers}", "name: cp", "name: cp-2", "replicas: 1", "replicas: 2"},
		refused: []string{"is bound to MachineDeployment", "maxSurge must be 0", "must have at least 3 replicas"},
	},
	{
		what: "an endpoint that a slot has", of: "infra", replace: []string{"host: 192.0.2.10", "host: 192.0.2.31"},
		refused: []string{"is the address of slot w-1"},
	},
	{
		what: "a server that is a URL", of: "infra", replace: []string{"server: vc", "server: https://vc"},
		refused: []string{"without https://"},
	},
	{
		what: "VS-R49: a failure domain edited", of: "domain", replace: []string{"datacenter: dc-a", "datacenter: dc-a, networks: [pg]"},
		refused: []string{"cannot be modified"},
	},
}

// TestValidateAgreesWithAdmission: berth validate --server and kubectl against a server with our webhooks say the same about a change.
func TestValidateAgreesWithAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	kubeconfig := kubeconfigFile(t)
	kubectl := func(text string, args ...string) (string, error) {
		return runKubectl(t, kubeconfig, ns, text, args...)
	}
	for _, name := range []string{"cluster", "infra", "pool", "template", "deployment", "control-plane", "domain"} {
		out, err := kubectl(archived[name], "apply", "-f", "-")
		g.Expect(err).NotTo(HaveOccurred(), out)
	}
	pool := &v1beta1.VSphereMachineConfigPool{}
	g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: ns, Name: "workers"}, pool)).To(Succeed())
	pool.Status.ConfigStatuses = []v1beta1.VSphereMachineConfigStatus{
		{Hostname: "w-1", State: v1beta1.ConfigStateInUse}, {Hostname: "w-2", State: v1beta1.ConfigStateReleased}, {Hostname: "w-3", State: v1beta1.ConfigStateAvailable},
	}
	pool.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment", Namespace: ns, Name: "md"}
	g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())

	for _, c := range changes {
		t.Run(strings.ReplaceAll(c.what+" ("+c.of+")", " ", "_"), func(t *testing.T) {
			g := NewWithT(t)
			text := archived[c.of]
			for i := 0; i < len(c.replace); i += 2 {
				g.Expect(text).To(ContainSubstring(c.replace[i]), "the edit finds its place")
				text = strings.ReplaceAll(text, c.replace[i], c.replace[i+1])
			}
			ours := validated(t, kubeconfig, ns, text)
			for _, part := range c.refused {
				g.Expect(ours.errors).To(ContainElement(ContainSubstring(part)))
			}
			for _, part := range c.warned {
				g.Expect(ours.warnings).To(ContainElement(ContainSubstring(part)))
			}
			if len(c.refused) == 0 {
				g.Expect(ours.errors).To(BeEmpty())
			}
			if len(c.warned) == 0 {
				g.Expect(ours.warnings).To(BeEmpty())
			}

			// A dry run judges each document alone, so a set is really applied. It is refused as a whole, or it leaves the cluster as it was.
			args := []string{"apply", "-f", "-"}
			if !strings.Contains(text, "\n---\n") {
				args = append(args, "--dry-run=server")
			}
			out, err := kubectl(text, args...)
			if len(c.refused) == 0 {
				g.Expect(err).NotTo(HaveOccurred(), out)
			} else {
				g.Expect(err).To(HaveOccurred(), out)
			}
			if !c.otherWords {
				theirs := heard(out)
				g.Expect(ours.errors).To(ConsistOf(theirs.errors), "errors; kubectl said:\n%s", out)
				g.Expect(ours.warnings).To(ConsistOf(theirs.warnings), "warnings; kubectl said:\n%s", out)
			}
		})
	}

	// decision D17: a known pool without status counts every slot as allocated; here, too.
	pool.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
	g.Expect(k8s.Update(ctx, pool)).To(Succeed())
	pool.Status = v1beta1.VSphereMachineConfigPoolStatus{}
	g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())
	renamed := strings.ReplaceAll(archived["pool"], "hostname: w-3", "hostname: w-9")
	out, err := kubectl(renamed, "apply", "-f", "-", "--dry-run=server")
	g.Expect(err).To(HaveOccurred())
	g.Expect(validated(t, kubeconfig, ns, renamed).errors).To(And(ConsistOf(heard(out).errors), ConsistOf(ContainSubstring("slot w-3 cannot be removed or renamed"))))
	pool.Finalizers = nil
	g.Expect(k8s.Update(ctx, pool)).To(Succeed())
}

// sentences that were heard, as field: message.
type sentences struct{ errors, warnings []string }

// validated is what berth validate --server says.
func validated(t *testing.T, kubeconfig, namespace, text string) sentences {
	t.Helper()
	g := NewWithT(t)
	var out, errs bytes.Buffer
	cmd := validate.New()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(strings.NewReader(text))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs([]string{"-f", "-", "--server", "--kubeconfig", kubeconfig, "-n", namespace, "-o", "json"})
	code := exit.Code(cmd.ExecuteContext(t.Context()))
	var report check.Report
	g.Expect(json.Unmarshal(out.Bytes(), &report)).To(Succeed(), "%s%s", out.String(), errs.String())
	var said sentences
	for _, p := range report.Problems {
		text := p.Message
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		if p.Severity == check.Warning {
			said.warnings = append(said.warnings, text)
		} else {
			said.errors = append(said.errors, text)
		}
	}
	want := exit.OK
	if len(said.errors) > 0 {
		want = exit.Failed
	}
	g.Expect(code).To(Equal(want))
	return said
}

// heard takes the sentences out of what kubectl prints.
func heard(out string) sentences {
	var said sentences
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "Warning: "); ok {
			if !strings.Contains(text, "is deprecated") {
				said.warnings = append(said.warnings, text)
			}
			continue
		}
		if text, ok := strings.CutPrefix(line, "* "); ok {
			said.errors = append(said.errors, text)
			continue
		}
		// One cause alone stands behind the name.
		if _, text, ok := strings.Cut(line, " is invalid: "); ok && text != "" {
			said.errors = append(said.errors, text)
		} else if _, text, ok := strings.Cut(line, " is forbidden: "); ok {
			said.errors = append(said.errors, text)
		}
	}
	slices.Sort(said.errors)
	said.errors = slices.Compact(said.errors)
	return said
}

func runKubectl(t *testing.T, kubeconfig, namespace, stdin string, args ...string) (string, error) {
	t.Helper()
	program, err := tools.Path("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", kubeconfig, "-n", namespace, "--cache-dir", filepath.Join(filepath.Dir(kubeconfig), "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kubeconfigFile leads to the API server of the tests.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: k8sConfig.Host, CertificateAuthorityData: k8sConfig.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: k8sConfig.CertData, ClientKeyData: k8sConfig.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if !strings.HasPrefix(k8sConfig.Host, "http") {
		config.Clusters["test"].Server = "https://" + k8sConfig.Host
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(fmt.Errorf("writing %s: %w", file, err))
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	return file
}
