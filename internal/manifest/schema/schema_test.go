package schema_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/internal/manifest/schema"
	"github.com/berth-dev/berth/internal/tools"
)

// TestSchemasAreThoseOfTheManagers: what is embedded here is what the Cluster API managers that Berth is tested with serve.
func TestSchemasAreThoseOfTheManagers(t *testing.T) {
	g := NewWithT(t)
	dir, err := tools.CAPIConfig()
	g.Expect(err).NotTo(HaveOccurred())
	files, err := filepath.Glob("capi/*.json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(files)).To(BeNumerically(">=", 10))
	for _, file := range files {
		embedded, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		name := strings.TrimSuffix(filepath.Base(file), ".json") + ".yaml"
		released, err := filepath.Glob(filepath.Join(dir, "*", "crd", "bases", name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(released).To(HaveLen(1), name)
		text, err := os.ReadFile(released[0])
		g.Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(yaml.Unmarshal(text, &crd)).To(Succeed())
		want, err := json.Marshal(schema.Compact(&crd))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Valid(embedded)).To(BeTrue())
		g.Expect(string(embedded)).To(MatchJSON(want), "run hack/generate.sh: %s", name)
	}
}

func TestNearestName(t *testing.T) {
	g := NewWithT(t)
	known := []string{"hostname", "datacenter", "network", "persistentDisks", "ephemeralDisks", "ip", "ipv6", "gateway", "dns", "name"}
	for given, want := range map[string]string{
		"hostName": "hostname", "datacentre": "datacenter", "persistantDisks": "persistentDisks", "persistentDisk": "persistentDisks", "netwok": "network",
		"IP": "ip", "address": "", "zzz": "", "x": "", "gatway": "gateway",
	} {
		g.Expect(schema.Nearest(given, known)).To(Equal(want), given)
	}
}

// TestLookup: both versions of Cluster API's types are known, kinds of nobody's business are not, and slips of the pen are told apart.
func TestLookup(t *testing.T) {
	g := NewWithT(t)
	for _, known := range []string{
		"v1/Secret", "infrastructure.cluster.x-k8s.io/v1beta1/VSphereMachineConfigPool", "cluster.x-k8s.io/v1beta1/Cluster", "cluster.x-k8s.io/v1beta2/Cluster",
		"bootstrap.cluster.x-k8s.io/v1beta1/KubeadmConfigTemplate", "bootstrap.cluster.x-k8s.io/v1beta2/KubeadmConfigTemplate",
		"controlplane.cluster.x-k8s.io/v1beta1/KubeadmControlPlane", "controlplane.cluster.x-k8s.io/v1beta2/KubeadmControlPlane",
	} {
		k, err := schema.Lookup(gvk(known))
		g.Expect(err).NotTo(HaveOccurred(), known)
		g.Expect(k.Namespaced).To(BeTrue(), known)
	}
	_, err := schema.Lookup(gvk("apps/v1/Deployment"))
	g.Expect(err).To(MatchError(schema.ErrUnknown))
	for _, foreign := range []string{"OtherMachineTemplate", "AWSMachine", "ElfMachineTemplate", "HCSCluster", "VCDMachineTemplate"} {
		_, err = schema.Lookup(gvk("infrastructure.cluster.x-k8s.io/v1beta1/" + foreign))
		g.Expect(err).To(MatchError(schema.ErrUnknown), "other providers share the group: %s", foreign)
	}
	_, err = schema.Lookup(gvk("cluster.x-k8s.io/v1/MachineDeployment"))
	g.Expect(err).To(MatchError(ContainSubstring("write cluster.x-k8s.io/v1beta1 or cluster.x-k8s.io/v1beta2")))
	_, err = schema.Lookup(gvk("cluster.x-k8s.io/v1beta1/MachineDeploymnet"))
	g.Expect(err).To(MatchError(ContainSubstring(`did you mean "MachineDeployment"?`)))
}

func gvk(text string) kschema.GroupVersionKind {
	i := strings.LastIndexByte(text, '/')
	return kschema.FromAPIVersionAndKind(text[:i], text[i+1:])
}
