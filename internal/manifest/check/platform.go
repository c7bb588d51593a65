package check

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// platform asks what the platform on top of Berth demands of manifests.
func (s *set) platform() {
	for _, o := range s.objects {
		if !o.applied {
			continue
		}
		switch o.GroupKind {
		case clusterGK:
			if err := rules.ClusterName(o.Name); err != nil {
				severity := Error
				if o.old != nil {
					severity = Warning // decision D12: it has the name already
				}
				o.at(severity, err.Field, err.ErrorBody())
			}
		case poolGK:
			var pool v1beta1.VSphereMachineConfigPool
			if o.into(&pool) == nil {
				o.take(rules.RequiredDisks(&pool, s.ofControlPlane(o)))
			}
		default:
			s.kubeletPatch(o)
		}
	}
}

// ofControlPlane reports whether a KubeadmControlPlane of the set gets its places from a pool.
func (s *set) ofControlPlane(pool *object) bool {
	for _, o := range s.objects {
		if o.Kind != rules.KindKubeadmControlPlane || !o.applied {
			continue
		}
		c, err := rules.ConsumerOf(o.data)
		if err != nil || !rules.UsesVSphere(c) {
			continue
		}
		t := s.index[key{templateGK, c.Namespace, c.TemplateName}]
		if t == nil {
			continue
		}
		name, _, _ := unstructured.NestedString(t.data.Object, "spec", "template", "spec", "machineConfigPoolRef", "name")
		if name == pool.Name && t.Namespace == pool.Namespace {
			return true
		}
	}
	return false
}

// kubeletPatch looks at the bootstrap configuration of an owner of our machines, said where the configuration is.
func (s *set) kubeletPatch(o *object) {
	if o.Kind != rules.KindKubeadmControlPlane && o.Kind != rules.KindMachineDeployment {
		return
	}
	c, err := rules.ConsumerOf(o.data)
	if err != nil || !rules.UsesVSphere(c) {
		return
	}
	if o.Kind == rules.KindKubeadmControlPlane {
		version, _, _ := unstructured.NestedString(o.data.Object, "spec", "version")
		o.bootstrap(version, "initConfiguration", "spec", "kubeadmConfigSpec")
		return
	}
	version, _, _ := unstructured.NestedString(o.data.Object, "spec", "template", "spec", "version")
	name, _, _ := unstructured.NestedString(o.data.Object, "spec", "template", "spec", "bootstrap", "configRef", "name")
	for _, t := range s.objects {
		if t.Kind == "KubeadmConfigTemplate" && t.Name == name && t.Namespace == o.Namespace && t.applied {
			t.bootstrap(version, "", "spec", "template", "spec")
		}
	}
}

// bootstrap looks at the files and at the patches' directories of a kubeadm configuration. extra is a part of it that is used beside
// joinConfiguration.
func (o *object) bootstrap(version, extra string, at ...string) {
	spec, _, _ := unstructured.NestedMap(o.data.Object, at...)
	list, _, _ := unstructured.NestedSlice(spec, "files")
	var files, directories []string
	for _, f := range list {
		if file, ok := f.(map[string]any); ok {
			name, _ := file["path"].(string)
			files = append(files, name)
		}
	}
	for _, part := range []string{"joinConfiguration", extra} {
		if part != "" {
			directory, _, _ := unstructured.NestedString(spec, part, "patches", "directory")
			directories = append(directories, directory)
		}
	}
	path := strings.Join(append(at, "files"), ".")
	if text := rules.KubeletPatch(version, files, directories); text != "" && !o.spoilt(path) {
		o.at(Warning, path, text)
	}
}
