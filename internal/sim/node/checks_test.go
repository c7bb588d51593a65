package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/berth-dev/berth/internal/sim/node"
)

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
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelHostname: "worker-1"}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				AutomountServiceAccountToken: &automount, Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
			},
		}, metav1.CreateOptions{})
		return err // refused until the namespace has its default service account
	}, "20s", "200ms").Should(Succeed())
	g.Eventually(func(g Gomega) {
		p, err := pods.Get(ctx, "app", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(p.Status.PodIP).NotTo(BeEmpty())
		g.Expect(p.Spec.NodeName).To(Equal("worker-1"))
		proxies, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(proxies.Items).To(HaveLen(3))
		dns, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(dns.Items).To(HaveLen(2))
		for _, addon := range append(proxies.Items, dns.Items...) {
			g.Expect(addon.Status.Phase).To(Equal(corev1.PodRunning))
		}
	}, "10s", "100ms").Should(Succeed())
	g.Expect(pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: metav1.NamespaceDefault}})).To(Succeed())
	g.Eventually(func() bool {
		_, err := pods.Get(ctx, "app", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, "10s", "100ms").Should(BeTrue())
}

// checkTakeOver replaces the worker's machine while its Node is still there: the real kubelet registers into the old object
// (VS-A26), which is why a slot waits for the Node to go.
func checkTakeOver(ctx context.Context, t *testing.T, client kubernetes.Interface, old *node.Node, worker *guest, join []byte) *node.Node {
	g := NewWithT(t)
	old.Kill()
	g.Eventually(func() error {
		n, err := client.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for i := range n.Status.Conditions {
			// What the node controller would write once the lease has run out.
			n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
		}
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	}, "10s", "100ms").Should(Succeed())
	before, err := client.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	successor := newGuest(t, "worker-1")
	n, err := node.Join(ctx, successor.Config, join)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(n.Kill)
	g.Eventually(func(g Gomega) {
		after, err := client.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after.UID).To(Equal(before.UID))
		g.Expect(after.Spec.ProviderID).To(Equal("vsphere://" + strings.ToLower(worker.ProductUUID)))
		g.Expect(after.Status.NodeInfo.SystemUUID).To(Equal(strings.ToLower(successor.ProductUUID)))
		g.Expect(after.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: successor.address()}))
		g.Expect(after.Status.Addresses).NotTo(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: worker.address()}))
	}, "20s", "200ms").Should(Succeed())
	return n
}

func checkMemberRemoval(ctx context.Context, t *testing.T, first *guest, removed string) {
	g := NewWithT(t)
	c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}}
	ready := func() bool {
		resp, err := c.Get("https://" + removed + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	}
	g.Eventually(ready, "20s", "200ms").Should(BeTrue())
	pair, err := tls.X509KeyPair(first.read(t, "etc/kubernetes/pki/etcd/healthcheck-client.crt"), first.read(t, "etc/kubernetes/pki/etcd/healthcheck-client.key"))
	g.Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(first.read(t, "etc/kubernetes/pki/etcd/ca.crt"))
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + first.address() + ":2379"}, Logger: zap.NewNop(), DialTimeout: 3 * time.Second,
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
	})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = etcd.Close() }()
	members, err := etcd.MemberList(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	for _, m := range members.Members {
		if m.Name == "cp-2" {
			_, err := etcd.MemberRemove(ctx, m.ID)
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
	g.Eventually(ready, "20s", "200ms").Should(BeFalse())
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
