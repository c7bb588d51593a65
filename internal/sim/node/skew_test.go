package node

import (
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// pain 33: a kubelet that the version skew policy does not allow beside the control plane is refused before it registers.
func TestSkewOfKubeletAndControlPlane(t *testing.T) {
	for name, tc := range map[string]struct {
		kubelet, cluster string
		ignored          []string
		refusal          string
	}{
		"same":                       {kubelet: "v1.36.3", cluster: "v1.36.3"},
		"newer patch":                {kubelet: "v1.36.4", cluster: "v1.36.3"},
		"newer minor":                {kubelet: "v1.37.0", cluster: "v1.36.3", refusal: "[ERROR KubeletVersion]: the kubelet version is higher than the control plane version"},
		"newer minor, ignored":       {kubelet: "v1.37.0", cluster: "v1.36.3", ignored: []string{"kubeletversion"}},
		"three minors older":         {kubelet: "v1.33.9", cluster: "v1.36.0"},
		"four minors older":          {kubelet: "v1.32.9", cluster: "v1.36.0", refusal: `[ERROR KubeletVersion]: Kubelet version "1.32.9" is lower than kubeadm can support`},
		"no version":                 {kubelet: "newest", cluster: "v1.36.3", refusal: "couldn't get kubelet version"},
		"an image that does not say": {kubelet: "", cluster: "v1.25.15"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := newPreflight(Config{KubeletVersion: tc.kubelet, IgnorePreflightErrors: tc.ignored, Console: logr.Discard()}, nodeRegistration{})
			p.skew(tc.cluster)
			if tc.refusal == "" {
				g.Expect(p.err()).NotTo(HaveOccurred())
				return
			}
			g.Expect(p.err()).To(MatchError(ContainSubstring(tc.refusal)))
		})
	}
}

// A kubeadm works on clusters of its own minor version and the one before.
func TestKubeadmOfAnImageAndAnOlderCluster(t *testing.T) {
	g := NewWithT(t)
	cluster := &clusterConfiguration{KubernetesVersion: "v1.36.3"}
	for _, image := range []string{"", "v1.32.0", "v1.36.4", "v1.37.0"} {
		g.Expect(cluster.kubeadmVersion(image)).To(Succeed(), image)
	}
	g.Expect(cluster.kubeadmVersion("v1.38.0")).To(MatchError(ContainSubstring(">= 1.37.0. Current version: v1.36.3")))
}
