package check_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

func lines(t *testing.T, options check.Options, files ...string) []string {
	t.Helper()
	var sources []manifest.Source
	for i := 0; i < len(files); i += 2 {
		sources = append(sources, manifest.Source{File: files[i], Text: []byte(files[i+1])})
	}
	report, err := check.Run(context.Background(), sources, options)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, p := range report.Problems {
		out = append(out, p.String())
	}
	return out
}

// TestJSON: JSON has lines as well, alone, in lists, and one object after the other.
func TestJSON(t *testing.T) {
	g := NewWithT(t)
	g.Expect(lines(t, check.Options{}, "b.json", `{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one", "namespace": "ns1"},
   "data": {"password": "%%%"}
  },
	{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}, "specs": {}}
]}
{"apiVersion": "v1", "kind": "Namespace",
 "metadata": {"name": "NS2"}}
`)).To(HaveExactElements(
		HavePrefix(`b.json:3: Secret/one: data.password: Invalid value: "%%%": must be written in base64`),
		`b.json:5: Namespace/ns1: specs: unknown field; did you mean "spec"?`,
		HavePrefix(`b.json:8: Namespace/NS2: metadata.name: Invalid value: "NS2": a lowercase RFC 1123 subdomain`),
	))
}

// TestPartsOfAText: comments, empty documents, CRLF, a byte order mark and anchors leave lines where an editor shows them.
func TestPartsOfAText(t *testing.T) {
	g := NewWithT(t)
	text := strings.Join([]string{
		"\xef\xbb\xbf# a comment",
		"--- # the first",
		"",
		"---",
		"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1",
		"kind: VSphereMachineConfigPool",
		"metadata: {name: pool, namespace: ns1}",
		"spec:",
		"  clusterRef: {kind: Cluster, name: demo}",
		"  configs:",
		"  - &slot",
		"    hostname: w-1",
		"    network: {primary: {networkName: pg, ip: 192.0.2.31/24}}",
		"    persistentDisks: &disks",
		"    - {name: var-cpaas, sizeGiB: 1, mountPath: /run/x, fsFormat: ext4}",
		"    ephemeralDisks:",
		"    - {name: var-lib-kubelet, sizeGiB: 50, mountPath: /var/lib/kubelet, fsFormat: ext4}",
		"    - {name: var-lib-containerd, sizeGiB: 100, mountPath: /var/lib/containerd, fsFormat: ext4}",
		"  - <<: *slot",
		"    network: {primary: {networkName: pg, ip: 192.0.2.32/24}}",
		"...",
	}, "\r\n")
	g.Expect(lines(t, check.Options{Partial: true}, "-", text)).To(ConsistOf(
		ContainSubstring("-:9: warning: VSphereMachineConfigPool/pool: spec.clusterRef.name: Cluster ns1/demo is not in these files"),
		HavePrefix("-:15: VSphereMachineConfigPool/pool: spec.configs[0].persistentDisks[0].mountPath: "),
		// What is wrong in the second slot stands where its anchor is; its host name comes with the merge.
		HavePrefix("-:15: VSphereMachineConfigPool/pool: spec.configs[1].persistentDisks[0].mountPath: "),
		HavePrefix("-:12: VSphereMachineConfigPool/pool: spec.configs[1].hostname: "),
	))
}

// TestOrderDoesNotMatter: decision D2: documents are one set. The last file comes first.
func TestOrderDoesNotMatter(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("testdata/base/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(files)).To(BeNumerically(">", 4))
	for range len(files) {
		files = append(files[1:], files[0])
		var stream strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			g.Expect(err).NotTo(HaveOccurred())
			stream.WriteString(string(text) + "---\n")
		}
		g.Expect(lines(t, check.Options{}, "-", stream.String())).To(BeEmpty())
	}
}

func TestStrictMakesWarningsErrors(t *testing.T) {
	g := NewWithT(t)
	pool := `apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereDeploymentZone
metadata: {name: zone-a}
spec: {server: vc, failureDomain: fd, placementConstraint: {}}
`
	g.Expect(lines(t, check.Options{Partial: true}, "z.yaml", pool)).To(ConsistOf(HavePrefix("z.yaml:4: warning: ")))
	g.Expect(lines(t, check.Options{Partial: true, Strict: true}, "z.yaml", pool)).To(ConsistOf(HavePrefix("z.yaml:4: VSphereDeploymentZone/zone-a: ")))
}

func TestNothingToCheckIsNotValid(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"", "# nothing\n---\n", "\n"} {
		_, err := check.Run(t.Context(), []manifest.Source{{File: "-", Text: []byte(text)}}, check.Options{})
		g.Expect(err).To(MatchError(ContainSubstring("no object")), "%q", text)
	}
}
