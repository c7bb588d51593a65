package node_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
