package examples_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrapv1beta2 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1"
	controlplanev1beta2 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1beta2 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/examples"
	"github.com/berth-dev/berth/internal/rules"
)

// files of a flavour, in the order in which they are applied.
var files = []string{
	"00-namespace.yaml", "01-secret.yaml", "10-cluster.yaml", "11-vspherecluster.yaml",
	"15-vspheremachineconfigpool-control-plane.yaml", "16-vspheremachinetemplate-control-plane.yaml",
	"17-vspheremachineconfigpool-worker.yaml", "18-vspheremachinetemplate-worker.yaml",
	"20-kubeadmcontrolplane.yaml", "25-kubeadmconfigtemplate-worker.yaml", "30-workers-md-0.yaml",
}

var flavours = []string{"v1beta1", "v1beta2"}

// variants are v1beta1 with one thing changed, by the files in which it is.
var variants = map[string][]string{
	"second-nic": {
		"15-vspheremachineconfigpool-control-plane.yaml", "16-vspheremachinetemplate-control-plane.yaml",
		"17-vspheremachineconfigpool-worker.yaml", "18-vspheremachinetemplate-worker.yaml",
	},
	"legacy-disks": {"15-vspheremachineconfigpool-control-plane.yaml", "17-vspheremachineconfigpool-worker.yaml"},
	"failure-domains": {
		"11-vspherecluster.yaml", "15-vspheremachineconfigpool-control-plane.yaml", "16-vspheremachinetemplate-control-plane.yaml",
		"17-vspheremachineconfigpool-worker.yaml", "18-vspheremachinetemplate-worker.yaml", "30-workers-md-0.yaml",
	},
}

// set is a flavour of the example, decoded.
type set struct {
	pools     map[string]*v1beta1.VSphereMachineConfigPool
	templates map[string]*v1beta1.VSphereMachineTemplate
	cluster   *v1beta1.VSphereCluster
	domains   map[string]*v1beta1.VSphereFailureDomain
	zones     []*v1beta1.VSphereDeploymentZone
	workers   []*clusterv1beta1.MachineDeployment
	consumers []*rules.Consumer
	texts     map[string]string
}

func load(t *testing.T, flavour string) set {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, v1beta1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme, bootstrapv1beta1.AddToScheme,
		bootstrapv1beta2.AddToScheme, controlplanev1beta1.AddToScheme, controlplanev1beta2.AddToScheme,
	} {
		g.Expect(add(scheme)).To(Succeed())
	}
	out := set{
		pools: map[string]*v1beta1.VSphereMachineConfigPool{}, templates: map[string]*v1beta1.VSphereMachineTemplate{},
		domains: map[string]*v1beta1.VSphereFailureDomain{}, texts: map[string]string{},
	}
	entries, err := fs.ReadDir(examples.Files, path.Join("vsphere", flavour))
	g.Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		name := entry.Name()
		text, err := fs.ReadFile(examples.Files, path.Join("vsphere", flavour, name))
		g.Expect(err).NotTo(HaveOccurred())
		out.texts[name] = string(text)
		for _, document := range strings.Split(string(text), "\n---\n") {
			out.add(t, scheme, name, []byte(document))
		}
	}
	return out
}

// add decodes one document of a file.
func (s *set) add(t *testing.T, scheme *runtime.Scheme, name string, text []byte) {
	t.Helper()
	g := NewWithT(t)
	data, err := yaml.YAMLToJSONStrict(text)
	g.Expect(err).NotTo(HaveOccurred(), name)
	raw := &unstructured.Unstructured{}
	g.Expect(raw.UnmarshalJSON(data)).To(Succeed(), name)
	typed, err := scheme.New(raw.GroupVersionKind())
	g.Expect(err).NotTo(HaveOccurred(), name)
	g.Expect(yaml.UnmarshalStrict(text, typed)).To(Succeed(), "%s has fields that its kind does not have", name)
	switch o := typed.(type) {
	case *v1beta1.VSphereMachineConfigPool:
		s.pools[o.Name] = o
	case *v1beta1.VSphereMachineTemplate:
		s.templates[o.Name] = o
	case *v1beta1.VSphereCluster:
		s.cluster = o
	case *v1beta1.VSphereFailureDomain:
		s.domains[o.Name] = o
	case *v1beta1.VSphereDeploymentZone:
		s.zones = append(s.zones, o)
	case *clusterv1beta1.MachineDeployment:
		s.workers = append(s.workers, o)
	}
	if kind := raw.GetKind(); kind == rules.KindKubeadmControlPlane || kind == rules.KindMachineDeployment {
		c, err := rules.ConsumerOf(raw)
		g.Expect(err).NotTo(HaveOccurred(), name)
		s.consumers = append(s.consumers, c)
	}
	if raw.GroupVersionKind().Group == v1beta1.GroupVersion.Group {
		fitsSchema(t, name, raw)
	}
}

// fitsSchema validates an object as the API server does.
func fitsSchema(t *testing.T, name string, obj *unstructured.Unstructured) {
	t.Helper()
	g := NewWithT(t)
	file := fmt.Sprintf("crd/bases/%s_%ss.yaml", obj.GroupVersionKind().Group, strings.ToLower(obj.GetKind()))
	text, err := fs.ReadFile(config.CRDs, file)
	g.Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	g.Expect(yaml.Unmarshal(text, &crd)).To(Succeed())
	var internal apiextensions.JSONSchemaProps
	g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil)).To(Succeed())
	validator, _, err := validation.NewSchemaValidator(&internal)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validation.ValidateCustomResource(nil, obj.Object, validator)).To(BeEmpty(), name)
}

// TestExamplesAreAccepted parses every example as strictly as the API server does and asks the rules about all of it.
func TestExamplesAreAccepted(t *testing.T) {
	for _, flavour := range slices.Concat(flavours, slices.Sorted(maps.Keys(variants))) {
		t.Run(flavour, func(t *testing.T) {
			g := NewWithT(t)
			s := load(t, flavour)
			var pools []v1beta1.VSphereMachineConfigPool
			for _, p := range s.pools {
				pools = append(pools, *p)
			}
			var users []rules.VSphereUser
			for _, c := range s.consumers {
				users = append(users, rules.VSphereUser{Consumer: *c, Template: s.templates[c.TemplateName]})
			}
			fine := func(what string, v rules.Verdict) {
				g.Expect(v.Errors).To(BeEmpty(), what)
				g.Expect(v.Warnings).To(BeEmpty(), what)
			}
			cluster := &rules.Cluster{Namespace: s.cluster.Namespace, Name: "demo", Endpoint: s.cluster.Spec.ControlPlaneEndpoint.Host}
			fine("VSphereCluster", rules.VSphereCluster(nil, s.cluster, pools))
			for name, p := range s.pools {
				fine("pool "+name, rules.VSphereMachineConfigPool(nil, p, rules.VSpherePoolWorld{Cluster: cluster, Pools: pools, Users: users}))
			}
			for name, tmpl := range s.templates {
				pool := s.pools[tmpl.Spec.Template.Spec.MachineConfigPoolRef.Name]
				g.Expect(pool).NotTo(BeNil(), name)
				fine("template "+name, rules.VSphereMachineTemplate(nil, tmpl, rules.VSphereTemplateWorld{Pool: pool}))
			}
			for _, c := range s.consumers {
				tmpl := s.templates[c.TemplateName]
				fine(c.String(), rules.VSphereConsumer(nil, c, rules.VSphereConsumerWorld{Template: tmpl, Pool: s.pools[tmpl.Spec.Template.Spec.MachineConfigPoolRef.Name], Others: users}))
			}
		})
	}
}

// TestFlavoursDescribeOneCluster holds the two flavours together: what is ours differs in the version of the reference to the
// Cluster and in nothing else.
func TestFlavoursDescribeOneCluster(t *testing.T) {
	g := NewWithT(t)
	old, current := load(t, "v1beta1"), load(t, "v1beta2")
	for _, p := range old.pools {
		p.Spec.ClusterRef.APIVersion = "cluster.x-k8s.io/v1beta2"
	}
	for _, pair := range [][2]any{{old.pools, current.pools}, {old.templates, current.templates}, {old.cluster, current.cluster}} {
		a, err := json.Marshal(pair[0])
		g.Expect(err).NotTo(HaveOccurred())
		b, err := json.Marshal(pair[1])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(a)).To(MatchJSON(string(b)))
	}
}

// TestVariantsChangeOneThing: a variant is the example and nothing else, apart from the files that make the difference.
func TestVariantsChangeOneThing(t *testing.T) {
	base := load(t, "v1beta1").texts
	for variant, changed := range variants {
		texts := load(t, variant).texts
		for _, file := range files {
			if slices.Contains(changed, file) {
				NewWithT(t).Expect(texts[file]).NotTo(Equal(base[file]), "%s/%s", variant, file)
			} else {
				NewWithT(t).Expect(texts[file]).To(Equal(base[file]), "%s/%s", variant, file)
			}
		}
	}
}

// TestFailureDomains: every zone has slots of the control plane and workers with a pool of their own; where a machine goes is said
// by its zone and its slot and nowhere else (VS-R2, VS-R44).
func TestFailureDomains(t *testing.T) {
	g := NewWithT(t)
	s := load(t, "failure-domains")
	selector, err := metav1.LabelSelectorAsSelector(s.cluster.Spec.FailureDomainSelector)
	g.Expect(err).NotTo(HaveOccurred())
	datacenters := map[string]string{}
	for _, zone := range s.zones {
		g.Expect(selector.Matches(labels.Set(zone.Labels))).To(BeTrue(), zone.Name)
		g.Expect(zone.Spec.Server).To(Equal(s.cluster.Spec.Server), zone.Name)
		domain := s.domains[zone.Spec.FailureDomain]
		g.Expect(domain).NotTo(BeNil(), zone.Name)
		g.Expect(rules.VSphereFailureDomain(nil, domain).Errors).To(BeEmpty(), domain.Name)
		datacenters[zone.Name] = domain.Spec.Topology.Datacenter
	}
	g.Expect(datacenters).To(HaveLen(2))
	for name, template := range s.templates {
		spec := template.Spec.Template.Spec
		g.Expect([]string{spec.Datacenter, spec.Folder, spec.ResourcePool, spec.Datastore}).To(HaveEach(BeEmpty()), name)
		g.Expect(spec.Network.Devices).To(HaveLen(1), name)
	}
	for _, md := range s.workers {
		g.Expect(md.Spec.Template.Spec.FailureDomain).NotTo(BeNil(), md.Name)
		zone := *md.Spec.Template.Spec.FailureDomain
		pool := s.pools[s.templates[md.Spec.Template.Spec.InfrastructureRef.Name].Spec.Template.Spec.MachineConfigPoolRef.Name]
		for _, slot := range pool.Spec.Configs {
			g.Expect(slot.Datacenter).To(Equal(datacenters[zone]), slot.Hostname)
		}
		delete(datacenters, zone)
	}
	g.Expect(datacenters).To(BeEmpty(), "zones without workers")
}

// TestSecondNIC: slots and templates agree about the interfaces, and there is one default route (VS-R43, VS-R49).
func TestSecondNIC(t *testing.T) {
	g := NewWithT(t)
	s := load(t, "second-nic")
	for name, pool := range s.pools {
		for _, slot := range pool.Spec.Configs {
			g.Expect(slot.Network.Additional).To(HaveLen(1), slot.Hostname)
			g.Expect(slot.Network.Additional[0].NetworkName).To(Equal("pg-stor"), slot.Hostname)
			g.Expect(slot.Network.Additional[0].Gateway).To(BeEmpty(), slot.Hostname)
		}
		g.Expect(s.templates[name].Spec.Template.Spec.Network.Devices).To(HaveExactElements(
			HaveField("NetworkName", "pg-node"), HaveField("NetworkName", "pg-stor")), name)
	}
}

// TestLegacyDisks: no ephemeral disks, and etcd's disk is emptied for a new member (VS-R22, VS-R57).
func TestLegacyDisks(t *testing.T) {
	g := NewWithT(t)
	for name, pool := range load(t, "legacy-disks").pools {
		for _, slot := range pool.Spec.Configs {
			g.Expect(slot.EphemeralDisks).To(BeEmpty(), slot.Hostname)
			paths := map[string]bool{}
			for _, d := range slot.PersistentDisks {
				paths[d.MountPath] = ptr.Deref(d.WipeFilesystem, false)
			}
			want := map[string]bool{"/var/cpaas": false, "/var/lib/containerd": false}
			if name == "demo-control-plane" {
				want["/var/lib/etcd"] = true
			}
			g.Expect(paths).To(Equal(want), slot.Hostname)
		}
	}
}

// TestRequiredLayout: the names that the platform builds on (VS-R45), the raw disk of the workers (VS-R23), the kubelet patch
// from Kubernetes 1.35 on (VS-R40, decision V12), no file beside those that are tested.
func TestRequiredLayout(t *testing.T) {
	for _, flavour := range flavours {
		t.Run(flavour, func(t *testing.T) {
			g := NewWithT(t)
			s := load(t, flavour)
			for name, pool := range s.pools {
				g.Expect(pool.Spec.Configs).To(HaveLen(3), name)
				for _, slot := range pool.Spec.Configs {
					persistent, ephemeral := map[string]v1beta1.PersistentDisk{}, map[string]v1beta1.EphemeralDisk{}
					for _, d := range slot.PersistentDisks {
						persistent[d.Name] = d
					}
					for _, d := range slot.EphemeralDisks {
						ephemeral[d.Name] = d
					}
					g.Expect(persistent["var-cpaas"].MountPath).To(Equal("/var/cpaas"), slot.Hostname)
					g.Expect(ephemeral["var-lib-kubelet"].MountPath).To(Equal("/var/lib/kubelet"), slot.Hostname)
					g.Expect(ephemeral["var-lib-containerd"].MountPath).To(Equal("/var/lib/containerd"), slot.Hostname)
					switch name {
					case "demo-control-plane":
						g.Expect(ephemeral["var-lib-etcd"].MountPath).To(Equal("/var/lib/etcd"), slot.Hostname)
					case "demo-worker":
						g.Expect(persistent["app-data"]).To(Equal(v1beta1.PersistentDisk{Name: "app-data", SizeGiB: 50}), slot.Hostname)
					}
				}
			}
			for _, name := range []string{"20-kubeadmcontrolplane.yaml", "25-kubeadmconfigtemplate-worker.yaml"} {
				g.Expect(s.texts[name]).To(ContainSubstring("/etc/kubernetes/patches/kubeletconfiguration0+strategic.json"))
				g.Expect(s.texts[name]).To(ContainSubstring(`"imagePullCredentialsVerificationPolicy": "NeverVerify"`))
			}
			entries, err := fs.ReadDir(examples.Files, "vsphere/"+flavour)
			g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			g.Expect(names).To(Equal(files))
		})
	}
}
