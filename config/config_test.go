package config_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/config"
)

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestKustomizationsNameEveryFile: a manifest that no kustomization names would be missing from a release, and nobody would
// notice here, where everything comes out of the embedded files.
func TestKustomizationsNameEveryFile(t *testing.T) {
	g := NewWithT(t)
	for _, dir := range []string{"crd", "rbac", "webhook", "manager", "certmanager", "default"} {
		var k struct{ Resources, Configurations []string }
		read(t, filepath.Join(dir, "kustomization.yaml"), &k)
		for _, resource := range k.Resources {
			g.Expect(filepath.Join(dir, resource)).To(Or(BeARegularFile(), BeADirectory()))
		}
		pattern := "*.yaml"
		if dir == "crd" {
			pattern = "bases/*.yaml"
		}
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		g.Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			name, err := filepath.Rel(dir, file)
			g.Expect(err).NotTo(HaveOccurred())
			if name != "kustomization.yaml" {
				g.Expect(append(k.Resources, k.Configurations...)).To(ContainElement(name), "%s/kustomization.yaml", dir)
			}
		}
	}
}

// TestEmbeddedFiles: what programs carry is what is in the directories.
func TestEmbeddedFiles(t *testing.T) {
	g := NewWithT(t)
	onDisk, err := filepath.Glob("crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	entries, err := config.CRDs.ReadDir("crd/bases")
	g.Expect(err).NotTo(HaveOccurred())
	var embedded []string
	for _, e := range entries {
		embedded = append(embedded, path.Join("crd/bases", e.Name()))
	}
	g.Expect(embedded).To(Equal(onDisk))
	_, err = config.Webhooks.ReadFile("webhook/manifests.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	rbac, err := config.RBAC.ReadDir("rbac")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rbac).To(HaveLen(5))
}

// TestContractLabels (VS-B1, VS-B3): every kind says which version of it serves which contract of Cluster API, and that version is
// served; without the label Cluster API finds no version and does nothing. The kinds keep their names.
func TestContractLabels(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var kinds []string
	for _, file := range files {
		var crd struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Served bool
				}
			}
		}
		read(t, file, &crd)
		kinds = append(kinds, crd.Spec.Names.Kind)
		for _, contract := range []string{"v1beta1", "v1beta2"} {
			version := crd.Metadata.Labels["cluster.x-k8s.io/"+contract]
			served := false
			for _, v := range crd.Spec.Versions {
				served = served || v.Name == version && v.Served
			}
			g.Expect(served).To(BeTrue(), "%s: contract %s is served by version %q", file, contract, version)
		}
	}
	g.Expect(kinds).To(ContainElements("VSphereCluster", "VSphereMachine", "VSphereMachineTemplate", "VSphereVM", "VSphereMachineConfigPool",
		"VSphereClusterIdentity", "VSphereDeploymentZone", "VSphereFailureDomain", "VSphereClusterTemplate"))
}

// TestManagerRole (VS-V53, VS-B2): the role lets the manager write the status and the finalizers of every kind that has some,
// and gives it no right on everything.
func TestManagerRole(t *testing.T) {
	g := NewWithT(t)
	var role rbacv1.ClusterRole
	read(t, "rbac/role.yaml", &role)
	var binding rbacv1.ClusterRoleBinding
	read(t, "rbac/role_binding.yaml", &binding)
	g.Expect(binding.RoleRef.Name).To(Equal(role.Name))

	may := func(group, resource, verb string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	const ours = "infrastructure.cluster.x-k8s.io"
	for _, kind := range []string{"vsphereclusters", "vspheremachines", "vspherevms", "vspheremachineconfigpools", "vsphereclusteridentities"} {
		for _, verb := range []string{"get", "list", "watch", "update", "patch"} {
			g.Expect(may(ours, kind, verb)).To(BeTrue(), "%s %s", verb, kind)
		}
		g.Expect(may(ours, kind+"/status", "patch") || may(ours, kind+"/status", "update")).To(BeTrue(), "status of %s", kind)
		g.Expect(may(ours, kind+"/finalizers", "update")).To(BeTrue(), "finalizers of %s", kind)
	}
	g.Expect(may(ours, "vspheremachinetemplates", "list")).To(BeTrue())
	g.Expect(may("cluster.x-k8s.io", "machinedeployments", "list")).To(BeTrue())
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		g.Expect(may("ipam.cluster.x-k8s.io", "ipaddressclaims", verb)).To(BeTrue(), "%s claims of addresses", verb)
	}
	g.Expect(may("ipam.cluster.x-k8s.io", "ipaddresses", "list")).To(BeTrue())
	for _, r := range role.Rules {
		g.Expect(r.APIGroups).NotTo(ContainElement("*"))
		g.Expect(r.Verbs).NotTo(ContainElement("*"))
	}
}

// TestProviderContract: what clusterctl asks of a provider's manifests.
func TestProviderContract(t *testing.T) {
	g := NewWithT(t)
	var manager appsv1.Deployment
	read(t, "manager/manager.yaml", &manager)
	g.Expect(manager.Spec.Template.Spec.Containers).To(HaveLen(1))
	g.Expect(manager.Spec.Template.Spec.Containers[0].Name).To(Equal("manager"))
	g.Expect(manager.Spec.Template.Spec.Containers[0].Args).To(ContainElement(HavePrefix("--namespace=")))

	var metadata struct {
		APIVersion, Kind string
		ReleaseSeries    []struct {
			Major, Minor int
			Contract     string
		}
	}
	text, err := os.ReadFile("clusterctl/metadata.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(text, &metadata)).To(Succeed())
	g.Expect(metadata.Kind).To(Equal("Metadata"))
	g.Expect(metadata.ReleaseSeries).NotTo(BeEmpty())
	for _, series := range metadata.ReleaseSeries {
		g.Expect(series.Contract).To(Equal("v1beta2"))
	}
	var all struct {
		Labels []struct{ Pairs map[string]string }
	}
	read(t, "default/kustomization.yaml", &all)
	g.Expect(all.Labels).To(HaveLen(1))
	g.Expect(all.Labels[0].Pairs).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "infrastructure-berth-vsphere"))
}
