package node_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/internal/sim/node"
	"github.com/berth-dev/berth/internal/tools"
)

const token = "abcdef.0123456789abcdef"

// guest is a guest's disk and address for a test.
type guest struct {
	node.Config
	root string
}

// Path implements node.Files: one disk, mounted at the root.
func (g *guest) Path(p string) (string, error) {
	return filepath.Join(g.root, filepath.FromSlash(p)), nil
}

func (g *guest) read(t *testing.T, p string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(g.root, p))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// copyCAs does what the bootstrap data's write_files do on a joining control plane.
func (g *guest) copyCAs(t *testing.T, from *guest) {
	t.Helper()
	for _, f := range []string{"ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key"} {
		to := filepath.Join(g.root, "etc/kubernetes/pki", f)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, from.read(t, "etc/kubernetes/pki/"+f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var lastGuest atomic.Int32

// newGuest gives every guest of every test process an address of its own.
func newGuest(t *testing.T, name string) *guest {
	t.Helper()
	for _, p := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if _, err := tools.Path(p); err != nil {
			t.Fatal(err)
		}
	}
	etcd, _ := tools.Path("etcd")
	api, _ := tools.Path("kube-apiserver")
	kcm, _ := tools.Path("kube-controller-manager")
	pid := os.Getpid()
	n := lastGuest.Add(1)
	dir := t.TempDir()
	g := &guest{root: filepath.Join(dir, "disk")}
	g.Config = node.Config{
		HostName: name, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{127, 200 + byte(pid>>8&31), byte(pid), byte(10 + n)})},
		ProductUUID: fmt.Sprintf("4215F7A0-0000-4000-8000-%012d", n), Files: g, RunDir: filepath.Join(dir, "run"),
		Binaries: node.Binaries{Etcd: etcd, APIServer: api, ControllerManager: kcm}, DieWithParent: true,
		Console: console(t, name),
	}
	t.Cleanup(func() {
		if err := node.KillRecorded(g.RunDir); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *guest) address() string { return g.Addresses[0].String() }

func console(t *testing.T, name string) logr.Logger {
	var over atomic.Bool
	t.Cleanup(func() { over.Store(true) })
	began := time.Now()
	return funcr.New(func(_, args string) {
		if !over.Load() {
			t.Logf("%6.2fs %s %s", time.Since(began).Seconds(), name, strings.ReplaceAll(args, `\n`, "\n"))
		}
	}, funcr.Options{})
}

func initDocuments(g *guest) []byte {
	return fmt.Appendf(nil, `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: demo
controlPlaneEndpoint: %s:6443
kubernetesVersion: v1.36.3
apiServer:
  extraArgs:
  - {name: profiling, value: "false"}
dns: {}
etcd: {}
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}
scheduler: {}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {}
nodeRegistration:
  name: %s
  criSocket: unix:///run/containerd/containerd.sock
  kubeletExtraArgs:
  - {name: node-ip, value: %s}
  taints: null
`, g.address(), g.HostName, g.address())
}

func joinDocument(version, endpoint, caHash, registration, controlPlane string) []byte {
	return fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/%s
kind: JoinConfiguration
caCertPath: ""
%s
discovery:
  bootstrapToken:
    apiServerEndpoint: %s
    caCertHashes: [%q]
    token: %s
nodeRegistration: %s
`, version, controlPlane, endpoint, caHash, token, registration)
}

func caHash(t *testing.T, g *guest) string {
	t.Helper()
	certs, err := cert.ParseCertsPEM(g.read(t, "etc/kubernetes/pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(certs[0].RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func bootstrapTokenSecret() *corev1.Secret {
	id, secret, _ := strings.Cut(token, ".")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: metav1.NamespaceSystem}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			"usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
		},
	}
}

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
}

func checkNodes(ctx context.Context, t *testing.T, client kubernetes.Interface, first, worker *guest) {
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(nodes.Items).To(HaveLen(3))
		for _, n := range nodes.Items {
			ready := corev1.ConditionUnknown
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready = c.Status
				}
			}
			g.Expect(ready).To(Equal(corev1.ConditionTrue), n.Name)
			g.Expect(n.Status.NodeInfo.KubeletVersion).To(Equal("v1.36.3"))
		}
	}, "30s", "200ms").Should(Succeed())

	get := func(name string) *corev1.Node {
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return n
	}
	keys := func(n *corev1.Node) []string {
		out := []string{}
		for _, t := range n.Spec.Taints {
			if t.Key != corev1.TaintNodeNotReady { // its removal by the node controller may lag
				out = append(out, t.Key)
			}
		}
		return out
	}
	n := get("cp-1")
	g.Expect(n.Labels).To(HaveKey("node-role.kubernetes.io/control-plane"))
	g.Expect(keys(n)).To(ConsistOf("node-role.kubernetes.io/control-plane"), "null taints are the default ones")
	g.Expect(n.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: first.address()}))
	g.Expect(n.Status.NodeInfo.SystemUUID).To(Equal(strings.ToLower(first.ProductUUID)))
	n = get("cp-2")
	g.Expect(keys(n)).To(BeEmpty(), "an empty list is none")
	g.Expect(n.Labels).To(HaveKeyWithValue("zone", "b"))
	n = get("worker-1")
	g.Expect(keys(n)).To(ConsistOf("node.cluster.x-k8s.io/uninitialized", "node.cloudprovider.kubernetes.io/uninitialized"))
	g.Expect(n.Spec.ProviderID).To(BeEmpty())
	g.Expect(n.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: worker.address()}))
}

func checkCloudProvider(ctx context.Context, t *testing.T, rc *rest.Config, client kubernetes.Interface, worker *guest) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() { stop(); <-done }()
	p := &node.CloudProvider{Cluster: rc, Prefix: "vsphere://", Log: console(t, "cloud"), Instances: func(name, uuid string) (node.Instance, bool) {
		return node.Instance{ID: uuid}, name == "worker-1"
	}}
	go func() { defer close(done); _ = p.Run(ctx) }()
	g.Eventually(func(g Gomega) {
		n, err := client.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n.Spec.ProviderID).To(Equal("vsphere://" + strings.ToLower(worker.ProductUUID)))
		for _, taint := range n.Spec.Taints {
			g.Expect(taint.Key).NotTo(Equal("node.cloudprovider.kubernetes.io/uninitialized"))
		}
	}, "20s", "100ms").Should(Succeed())
}

func checkMirrorPods(ctx context.Context, t *testing.T, client kubernetes.Interface, first *guest) {
	g := NewWithT(t)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		for _, host := range []string{"cp-1", "cp-2"} {
			g.Eventually(func(g Gomega) {
				p, err := client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+host, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(p.Labels).To(HaveKeyWithValue("component", name))
				g.Expect(p.Labels).To(HaveKeyWithValue("tier", "control-plane"))
				g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
				ready := false
				for _, c := range p.Status.Conditions {
					ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
				}
				g.Expect(ready).To(BeTrue(), p.Name)
			}, "30s", "200ms").Should(Succeed())
		}
	}
	p, err := client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, "etcd-cp-1", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Annotations).To(HaveKeyWithValue("kubeadm.kubernetes.io/etcd.advertise-client-urls", "https://"+first.address()+":2379"))
	stream, err := client.CoreV1().Pods(metav1.NamespaceSystem).GetLogs("etcd-cp-1", &corev1.PodLogOptions{}).Stream(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = stream.Close() }()
	logs, err := io.ReadAll(stream)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(logs)).To(ContainSubstring("serving client traffic"))
}

// checkEtcd reaches the member the way the control plane provider does: forwarded by API server and kubelet, with a client
// certificate of the etcd CA.
func checkEtcd(ctx context.Context, t *testing.T, rc *rest.Config, first *guest) {
	g := NewWithT(t)
	client, err := kubernetes.NewForConfig(rc)
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(first.read(t, "etc/kubernetes/pki/etcd/healthcheck-client.crt"), first.read(t, "etc/kubernetes/pki/etcd/healthcheck-client.key"))
	g.Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(first.read(t, "etc/kubernetes/pki/etcd/ca.crt"))
	transport, upgrader, err := spdy.RoundTripperFor(rc)
	g.Expect(err).NotTo(HaveOccurred())
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceSystem).Name("etcd-cp-1").SubResource("portforward").URL()

	g.Eventually(func(g Gomega) {
		stop, ready := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		fw, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), []string{"0:2379"}, stop, ready, io.Discard, io.Discard)
		g.Expect(err).NotTo(HaveOccurred())
		go func() { ended <- fw.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			g.Expect(err).NotTo(HaveOccurred())
			return
		}
		defer func() { close(stop); <-ended }()
		ports, err := fw.GetPorts()
		g.Expect(err).NotTo(HaveOccurred())
		etcd, err := clientv3.New(clientv3.Config{
			Endpoints: []string{fmt.Sprintf("https://127.0.0.1:%d", ports[0].Local)}, Logger: zap.NewNop(), DialTimeout: 3 * time.Second,
			TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
		})
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = etcd.Close() }()
		call, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		members, err := etcd.MemberList(call)
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, m := range members.Members {
			g.Expect(m.IsLearner).To(BeFalse())
			names = append(names, m.Name)
		}
		g.Expect(names).To(ConsistOf("cp-1", "cp-2"))
	}, "40s", "500ms").Should(Succeed())
}

// checkKubeletAccess: the kubelet lets in the API server's client certificate and nobody without one.
func checkKubeletAccess(t *testing.T, first *guest) {
	g := NewWithT(t)
	get := func(certs ...tls.Certificate) int {
		c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: certs, MinVersion: tls.VersionTLS12, // the kubelet's certificate is self-signed
		}}}
		resp, err := c.Get("https://" + first.address() + ":10250/pods")
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode
	}
	pair := func(name string) tls.Certificate {
		p, err := tls.X509KeyPair(first.read(t, "etc/kubernetes/pki/"+name+".crt"), first.read(t, "etc/kubernetes/pki/"+name+".key"))
		g.Expect(err).NotTo(HaveOccurred())
		return p
	}
	g.Expect(get()).To(Equal(http.StatusUnauthorized))
	g.Expect(get(pair("apiserver-kubelet-client"))).To(Equal(http.StatusOK))
}

func checkEviction(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	g := NewWithT(t)
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	automount := false
	g.Eventually(func() error {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app"},
			Spec:       corev1.PodSpec{NodeName: "worker-1", AutomountServiceAccountToken: &automount, Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		}, metav1.CreateOptions{})
		return err // refused until the namespace has its default service account
	}, "20s", "200ms").Should(Succeed())
	g.Eventually(func(g Gomega) {
		p, err := pods.Get(ctx, "app", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(p.Status.PodIP).NotTo(BeEmpty())
	}, "10s", "100ms").Should(Succeed())
	g.Expect(pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: metav1.NamespaceDefault}})).To(Succeed())
	g.Eventually(func() bool {
		_, err := pods.Get(ctx, "app", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, "10s", "100ms").Should(BeTrue())
}

func checkRefusals(ctx context.Context, t *testing.T, first *guest, hash string) {
	endpoint := first.address() + ":6443"
	for name, c := range map[string]struct {
		document []byte
		says     string
	}{
		"another CA's hash":         {joinDocument("v1beta4", endpoint, "sha256:"+strings.Repeat("0", 64), "{name: x}", ""), "are pinned"},
		"a Ready node's name":       {joinDocument("v1beta4", endpoint, hash, "{name: cp-2}", ""), `a Node with name "cp-2" and status "Ready" already exists`},
		"the other version's form":  {joinDocument("v1beta4", endpoint, hash, "{name: x, kubeletExtraArgs: {node-ip: 127.0.0.1}}", ""), "cannot unmarshal object"},
		"an address of another":     {joinDocument("v1beta4", endpoint, hash, "{name: x, kubeletExtraArgs: [{name: node-ip, value: 192.0.2.1}]}", ""), "not found in the host's network interfaces"},
		"control plane without CAs": {joinDocument("v1beta4", endpoint, hash, "{name: x}", "controlPlane: {}"), "/etc/kubernetes/pki/ca.crt does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			other := newGuest(t, "x")
			_, err := node.Join(ctx, other.Config, c.document)
			g.Expect(err).To(MatchError(ContainSubstring(c.says)))
			g.Expect(filepath.Glob(filepath.Join(other.RunDir, "*.process.json"))).To(BeEmpty())
		})
	}
}
