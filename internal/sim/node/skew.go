package node

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestKubelet is how many minor versions a kubelet may be behind its control plane.
const oldestKubelet = 3

// skew applies the version skew policy to the image's kubelet and kubeadm, which have one version, and a control plane of the
// given version. A real kubeadm looks at the kubelet and the control plane at init only, and at itself and the control plane at
// both; here a join is as strict as an init, since a kubelet newer than its kube-apiserver is nothing anybody supports.
func (p *preflight) skew(controlPlane string) {
	if p.c.KubeletVersion == "" {
		return
	}
	kubelet, err := version.ParseSemantic(p.c.KubeletVersion)
	if err != nil {
		p.fail("KubeletVersion", "couldn't get kubelet version: %v", err)
		return
	}
	cluster, err := version.ParseSemantic(controlPlane)
	if err != nil {
		p.fail("KubeletVersion", "couldn't parse Kubernetes version %q: %v", controlPlane, err)
		return
	}
	switch {
	case kubelet.Major() != cluster.Major() || kubelet.Minor() > cluster.Minor():
		p.fail("KubeletVersion", "the kubelet version is higher than the control plane version. This is not a supported version skew and may lead to a malfunctional cluster. "+
			"Kubelet version: %q Control plane version: %q", kubelet, cluster)
	case kubelet.Minor()+oldestKubelet < cluster.Minor():
		p.fail("KubeletVersion", "Kubelet version %q is lower than kubeadm can support. Please upgrade kubelet. Control plane version: %q", kubelet, cluster)
	}
}

// kubeadmVersion is fatal whatever is ignored: a kubeadm cannot write or read the configuration of much older clusters.
func (c *clusterConfiguration) kubeadmVersion(image string) error {
	own, err := version.ParseSemantic(image)
	if err != nil {
		return nil //nolint:nilerr // the preflight check complains of it
	}
	cluster, err := version.ParseSemantic(c.KubernetesVersion)
	if err != nil || own.Minor() == 0 || cluster.Major() != own.Major() {
		return err
	}
	if oldest := own.Minor() - 1; cluster.Minor() < oldest {
		return fmt.Errorf("this version of kubeadm only supports deploying clusters with the control plane version >= %d.%d.0. Current version: %s",
			own.Major(), oldest, c.KubernetesVersion)
	}
	return nil
}
