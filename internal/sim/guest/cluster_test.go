package guest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/internal/sim/guest"
	"github.com/berth-dev/berth/internal/sim/node"
	"github.com/berth-dev/berth/internal/tools"
)

const token = "abcdef.0123456789abcdef"

func withBinaries(t *testing.T) func(*guest.Options) {
	t.Helper()
	paths := map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		path, err := tools.Path(name)
		if err != nil {
			t.Fatal(err)
		}
		paths[name] = path
	}
	return func(o *guest.Options) {
		o.Binaries = node.Binaries{
			Etcd: paths["etcd"], APIServer: paths["kube-apiserver"], ControllerManager: paths["kube-controller-manager"],
		}
	}
}

// initData is the user data of a first control plane, as CAPI's kubeadm bootstrap provider writes it.
func initData(endpoint string) string {
	return fmt.Sprintf(`## template: jinja
#cloud-config

write_files:
-   path: /run/kubeadm/kubeadm.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      kind: ClusterConfiguration
      clusterName: demo
      controlPlaneEndpoint: %[1]s
      kubernetesVersion: v1.36.3
      networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}

      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      bootstrapTokens:
      - token: %[2]s
      kind: InitConfiguration
      localAPIEndpoint: {}
      nodeRegistration:
        criSocket: unix:///run/containerd/containerd.sock
        kubeletExtraArgs:
        - {name: cloud-provider, value: external}
        name: '{{ local_hostname }}'
        taints: null
-   path: /run/cluster-api/placeholder
    content: "placeholder"
runcmd:
  - "hostnamectl set-hostname '{{ ds.meta_data.hostname }}'"
  - 'kubeadm init --config /run/kubeadm/kubeadm.yaml  && echo success > /run/cluster-api/bootstrap-success.complete'
`, endpoint, token)
}

func joinData(endpoint, caHash string) string {
	return fmt.Sprintf(`## template: jinja
#cloud-config

write_files:
-   path: /run/kubeadm/kubeadm-join-config.yaml
    content: |
      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      kind: JoinConfiguration
      discovery:
        bootstrapToken:
          apiServerEndpoint: %s
          caCertHashes: [%q]
          token: %s
      nodeRegistration:
        kubeletExtraArgs:
        - {name: cloud-provider, value: external}
        name: '{{ local_hostname }}'
        taints: []
runcmd:
  - kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && echo success > /run/cluster-api/bootstrap-success.complete
`, endpoint, caHash, token)
}

// caHash is the pin of the cluster's CA, read off the control plane's disk.
func (w *world) caHash(node string) string {
	w.t.Helper()
	certs, err := cert.ParseCertsPEM([]byte(w.cat(node, "/etc/kubernetes/pki/ca.crt")))
	w.must(err)
	sum := sha256.Sum256(certs[0].RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// cluster is a client with the control plane's own admin rights.
func (w *world) cluster(node string) kubernetes.Interface {
	w.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(w.cat(node, "/etc/kubernetes/admin.conf")))
	w.must(err)
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	w.must(err)
	return client
}

// nodes are the providerIDs and readiness of a cluster's nodes by name.
func nodes(ctx context.Context, c kubernetes.Interface) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, n := range list.Items {
			ready := "not ready"
			for _, cond := range n.Status.Conditions {
				if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
					ready = "ready"
				}
			}
			out[n.Name] = n.Spec.ProviderID + " " + ready
		}
		return out, nil
	}
}

// Point 4 of the simulated guests: a control plane and a worker come up from nothing but their virtual machines, behind a real
// endpoint, with provider IDs from a simulated cloud; they go on after a power cycle and after a restart of the daemon.
func TestAClusterOfTwoGuests(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, withBinaries(t))
	endpoint := address(10) + ":6443"
	cp, worker := w.clone("vm-cp"), w.clone("vm-worker")
	cp.boot("demo-cp", address(11), initData(endpoint))
	s := cp.reachesWithin(guest.PhaseRunning, time.Minute)
	g.Expect(s.ControlPlane).To(BeTrue())
	g.Expect(s.Node).To(Equal("demo-cp"))

	worker.boot("demo-worker", address(12), joinData(endpoint, w.caHash("demo-cp")))
	worker.reachesWithin(guest.PhaseRunning, time.Minute)
	g.Expect(w.cat("demo-worker", "/run/cluster-api/bootstrap-success.complete")).To(Equal("success\n"))

	client := w.cluster("demo-cp")
	both := map[string]string{
		"demo-cp":     "vsphere://" + cp.uuid + " ready",
		"demo-worker": "vsphere://" + worker.uuid + " ready",
	}
	g.Eventually(nodes(w.ctx, client)).WithTimeout(30 * time.Second).Should(Equal(both))

	t.Run("a kubelet has the version of its image", func(t *testing.T) { imageVersions(t, w.in(t), endpoint, client) })

	// Asked by the hypervisor, a guest shuts down in order before its power goes off.
	w.must(worker.ShutdownGuest(w.ctx))
	worker.reaches(guest.PhaseOff)
	g.Expect(worker.console()).To(ContainSubstring("systemd: shutting down"))
	worker.powerOn()
	worker.reaches(guest.PhaseRunning)

	// The power fails: nothing answers at the endpoint. Then it comes back, and with it the cluster, from the disks.
	cp.powerOff()
	cp.reaches(guest.PhaseOff)
	g.Eventually(func() error { _, err := nodes(w.ctx, client)(); return err }).Should(HaveOccurred())
	cp.powerOn()
	cp.reachesWithin(guest.PhaseRunning, time.Minute)
	g.Eventually(nodes(w.ctx, client)).WithTimeout(30 * time.Second).Should(HaveKey("demo-worker"))

	// The daemon is restarted.
	w.stop()
	w.startGuests()
	g.Eventually(cp.console).WithTimeout(10 * time.Second).Should(ContainSubstring("goes on after a restart of the simulator"))
	g.Eventually(nodes(w.ctx, client)).WithTimeout(30 * time.Second).Should(Equal(both))
	g.Expect(strings.Count(cp.console(), "has initialized successfully")).To(Equal(1))
}

// imageVersions: a worker reports its image's version, not its cluster's, and one whose version does not fit says why it does
// not join (pain 33).
func imageVersions(t *testing.T, w *world, endpoint string, client kubernetes.Interface) {
	g := NewWithT(t)
	join := joinData(endpoint, w.caHash("demo-cp"))
	patch := w.cloneOf("os-v136-4", "vm-patch")
	patch.boot("demo-patch", address(13), join)
	patch.reachesWithin(guest.PhaseRunning, time.Minute)
	node, err := client.CoreV1().Nodes().Get(w.ctx, "demo-patch", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal("v1.36.4"))
	patch.powerOff()
	g.Expect(client.CoreV1().Nodes().Delete(w.ctx, "demo-patch", metav1.DeleteOptions{})).To(Succeed())

	for i, refused := range []struct{ image, version, why string }{
		{"os-v137-0", "v1.37.0", `the kubelet version is higher than the control plane version`},
		{"os-v132-0", "v1.32.0", `Kubelet version "1.32.0" is lower than kubeadm can support`},
	} {
		v := w.cloneOf(refused.image, "vm-"+refused.image)
		host := fmt.Sprintf("demo-skew-%d", i)
		v.boot(host, address(14+i), join)
		s := v.reachesWithin(guest.PhaseFailed, time.Minute)
		g.Expect(s.Message).To(And(HavePrefix("kubeadm join:"), ContainSubstring(refused.why)), "what berth status and berth guest ls show")
		g.Expect(v.console()).To(ContainSubstring(refused.why), "what berth guest log shows")
		g.Expect(w.cat(host, "/etc/image-info")).To(Equal("KUBERNETES_VERSION=" + refused.version + "\n"))
		v.powerOff()
	}
	g.Expect(nodes(w.ctx, client)()).To(HaveLen(2))
}
