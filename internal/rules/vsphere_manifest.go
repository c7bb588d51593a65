package rules

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// What follows is asked of manifests only. The platform on top of Berth demands it; admission has no say in it.

// ClusterName checks the name of a workload cluster: the management cluster has its name for itself.
func ClusterName(name string) *field.Error {
	const own = "global"
	if name != own && !strings.HasPrefix(name, own+"-") {
		return nil
	}
	return field.Invalid(field.NewPath("metadata", "name"), name, fmt.Sprintf(
		"%q, and names that begin with %q, belong to the management cluster; give the workload cluster another name", own, own+"-"))
}

// RequiredDisks warns of a pool whose slots lack a disk that the platform stores its data on, by name. It looks at the first slot, since
// the others are warned about if they differ from it. A pool without ephemeral disks is one from before there were any. controlPlane says
// whose pool it is.
func RequiredDisks(pool *v1beta1.VSphereMachineConfigPool, controlPlane bool) Verdict {
	var v Verdict
	if len(pool.Spec.Configs) == 0 {
		return v
	}
	slot := &pool.Spec.Configs[0]
	persistent, ephemeral := []string{"var-cpaas"}, []string{"var-lib-kubelet", "var-lib-containerd"}
	if controlPlane {
		ephemeral = append(ephemeral, "var-lib-etcd")
	}
	if len(slot.EphemeralDisks) == 0 && slices.ContainsFunc(slot.PersistentDisks, func(d v1beta1.PersistentDisk) bool { return slices.Contains(ephemeral, d.Name) }) {
		persistent, ephemeral = append(persistent, ephemeral[1:]...), nil
	}
	var missing []string
	for _, name := range persistent {
		if !slices.ContainsFunc(slot.PersistentDisks, func(d v1beta1.PersistentDisk) bool { return d.Name == name }) {
			missing = append(missing, "persistentDisks "+name)
		}
	}
	for _, name := range ephemeral {
		if !slices.ContainsFunc(slot.EphemeralDisks, func(d v1beta1.EphemeralDisk) bool { return d.Name == name }) {
			missing = append(missing, "ephemeralDisks "+name)
		}
	}
	if len(missing) > 0 {
		v.warn(field.NewPath("spec", "configs").Index(0), "slot %s lacks disks that the platform keeps its data on: %s; add them to every slot of the pool", slot.Hostname, strings.Join(missing, ", "))
	}
	return v
}

// KubeletPatchDirectory is where kubeadm is told to look for patches.
const KubeletPatchDirectory = "/etc/kubernetes/patches"

var (
	kubeletPatch      = regexp.MustCompile(`^kubeletconfiguration[^/]*\.(json|yaml)$`)
	kubeletPatchSince = version.MustParseGeneric("1.35.0")
)

// KubeletPatch says what is wrong with the bootstrap configuration of machines of a Kubernetes version, "" if nothing is: from 1.35 on a
// kubelet configuration patch must be among the files, and kubeadm must be told its directory. files are the paths of the files,
// directories what the parts of kubeadm's configuration name.
func KubeletPatch(kubernetes string, files, directories []string) string {
	v, err := version.ParseGeneric(kubernetes)
	if err != nil || v.LessThan(kubeletPatchSince) {
		return ""
	}
	i := slices.IndexFunc(files, func(f string) bool { return kubeletPatch.MatchString(path.Base(f)) })
	if i < 0 {
		return fmt.Sprintf("machines of Kubernetes %s need a kubelet patch (imagePullCredentialsVerificationPolicy) among their files; add %s/kubeletconfiguration0+strategic.json",
			kubernetes, KubeletPatchDirectory)
	}
	for _, dir := range directories {
		if path.Clean(dir) != path.Dir(files[i]) {
			return fmt.Sprintf("the kubelet patch %s is not applied: kubeadm looks for patches in %q; set patches.directory to %s", files[i], dir, path.Dir(files[i]))
		}
	}
	return ""
}
