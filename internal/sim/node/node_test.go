package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/internal/sim/node"
)

// TestAClusterOfSimulatedNodes goes through a cluster's life once: each step stands on the one before, and starting a control
// plane for every single assertion would cost minutes.
func TestAClusterOfSimulatedNodes(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	first, second, worker := newGuest(t, "cp-1"), newGuest(t, "cp-2"), newGuest(t, "worker-1")
	cp1, err := node.Init(ctx, first.Config, initDocuments(first))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { cp1.Kill() }()
	g.Expect(cp1.ControlPlane()).To(BeTrue())
	g.Expect(cp1.APIServer()).To(Equal(first.address() + ":6443"))

	rc, err := clientcmd.RESTConfigFromKubeConfig(first.read(t, "etc/kubernetes/admin.conf"))
	g.Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(rc)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, bootstrapTokenSecret(), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	second.copyCAs(t, first)
	hash := caHash(t, first)
	cp2, err := node.Join(ctx, second.Config, joinDocument("v1beta4", first.address()+":6443", hash,
		fmt.Sprintf("{name: cp-2, taints: [], kubeletExtraArgs: [{name: node-ip, value: %s}, {name: node-labels, value: zone=b}]}", second.address()), "controlPlane: {localAPIEndpoint: {}}"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { cp2.Kill() }()

	w, err := node.Join(ctx, worker.Config, joinDocument("v1beta3", first.address()+":6443", hash,
		fmt.Sprintf("{name: worker-1, taints: [{key: node.cluster.x-k8s.io/uninitialized, effect: NoSchedule}], kubeletExtraArgs: {cloud-provider: external, node-ip: %q}}", worker.address()), ""))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { w.Kill() }()
	g.Expect(w.ControlPlane()).To(BeFalse())

	t.Run("nodes are what kubeadm registers", func(t *testing.T) { checkNodes(ctx, t, client, first, worker) })
	t.Run("the cloud provider initialises the worker", func(t *testing.T) { checkCloudProvider(ctx, t, rc, client, worker) })
	t.Run("static pods are mirrored", func(t *testing.T) { checkMirrorPods(ctx, t, client, first) })
	t.Run("etcd answers through the kubelet", func(t *testing.T) { checkEtcd(ctx, t, rc, first) })
	t.Run("the apiserver certificate is reachable through the kubelet", func(t *testing.T) { checkKubeletAccess(t, first) })
	t.Run("a pod runs and is evicted", func(t *testing.T) { checkEviction(ctx, t, client) })
	t.Run("wrong bootstrap data fails", func(t *testing.T) { checkRefusals(ctx, t, first, hash) })
	t.Run("a release leaves the processes for the next life", func(t *testing.T) {
		g := NewWithT(t)
		before, err := filepath.Glob(filepath.Join(second.RunDir, "*.process.json"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(before).To(HaveLen(3))
		record, err := os.ReadFile(before[0])
		g.Expect(err).NotTo(HaveOccurred())
		cp2.Release()
		cp2, err = node.Resume(ctx, second.Config)
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(cp2.Registered()).Should(BeClosed())
		g.Expect(os.ReadFile(before[0])).To(Equal(record), "the same process, adopted")
	})
	t.Run("a power cycle keeps the member", func(t *testing.T) {
		g := NewWithT(t)
		g.SetDefaultEventuallyTimeout(60 * time.Second)
		stopping, done := context.WithTimeout(ctx, 20*time.Second)
		defer done()
		g.Expect(w.Stop(stopping)).To(Succeed())
		cp2.Kill()
		cp1.Kill()
		g.Expect(filepath.Glob(filepath.Join(first.RunDir, "*.process.json"))).To(BeEmpty())

		cp1, err = node.Resume(ctx, first.Config)
		g.Expect(err).NotTo(HaveOccurred())
		cp2, err = node.Resume(ctx, second.Config)
		g.Expect(err).NotTo(HaveOccurred())
		w, err = node.Resume(ctx, worker.Config)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Version()).To(Equal("v1.36.3"))
		for _, n := range []*node.Node{cp1, cp2, w} {
			g.Eventually(n.Registered()).Should(BeClosed())
		}
		checkEtcd(ctx, t, rc, first)
	})
	t.Run("a machine that takes over a stale Node keeps its providerID", func(t *testing.T) {
		w = checkTakeOver(ctx, t, client, w, worker, joinDocument("v1beta4", first.address()+":6443", hash, "{name: worker-1}", ""))
	})
	t.Run("a removed etcd member takes its API server out of service", func(t *testing.T) {
		checkMemberRemoval(ctx, t, first, cp2.APIServer())
	})
}

// TestAnOldKubernetesRunsOnTheProgramsAtHand: what a guest says about its version is its configuration's (E9); flags that only
// the old programs had are left out.
func TestAnOldKubernetesRunsOnTheProgramsAtHand(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	guest := newGuest(t, "old-1")
	n, err := node.Init(ctx, guest.Config, fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
controlPlaneEndpoint: %[1]s:6443
kubernetesVersion: v1.25.15
apiServer: {extraArgs: {cloud-provider: external, profiling: "false"}}
---
apiVersion: kubeadm.k8s.io/v1beta3
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: {cloud-provider: external, node-ip: %[1]s}}
`, guest.address()))
	g.Expect(err).NotTo(HaveOccurred())
	defer n.Kill()
	rc, err := clientcmd.RESTConfigFromKubeConfig(guest.read(t, "etc/kubernetes/admin.conf"))
	g.Expect(err).NotTo(HaveOccurred())
	client, err := kubernetes.NewForConfig(rc)
	g.Expect(err).NotTo(HaveOccurred())
	registered, err := client.CoreV1().Nodes().Get(ctx, "old-1", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(registered.Status.NodeInfo.KubeletVersion).To(Equal("v1.25.15"))
	stored, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stored.Data["ClusterConfiguration"]).To(And(ContainSubstring("kubernetesVersion: v1.25.15"), ContainSubstring("kubeadm.k8s.io/v1beta3")))
}
