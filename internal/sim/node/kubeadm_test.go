package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// dir is a guest's file system below a host directory.
type dir string

func (d dir) Path(p string) (string, error) { return filepath.Join(string(d), p), nil }

func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		HostName: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("127.200.0.9")}, Files: dir(t.TempDir()), RunDir: t.TempDir(),
		Binaries: Binaries{Etcd: "/bin/etcd", APIServer: "/bin/kube-apiserver", ControllerManager: "/bin/kube-controller-manager"},
		Console:  logr.Discard(),
	}.withDefaults()
}

func TestBothFormsOfExtraArgumentsAreRead(t *testing.T) {
	for name, c := range map[string]struct{ document, fails string }{
		"a map in v1beta3":  {"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration: {kubeletExtraArgs: {node-ip: 127.0.0.9}}", ""},
		"a list in v1beta4": {"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: 127.0.0.9}]}", ""},
		"a map in v1beta4":  {"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {kubeletExtraArgs: {node-ip: 127.0.0.9}}", "cannot unmarshal object"},
		"a list in v1beta3": {"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: 127.0.0.9}]}", "cannot unmarshal array"},
		"an older version":  {"apiVersion: kubeadm.k8s.io/v1beta2\nkind: JoinConfiguration", "unsupported API version"},
		"no kind at all":    {"nodeRegistration: {}", "kind and apiVersion is mandatory"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d, err := parseDocuments([]byte(c.document))
			if c.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			value, ok := d.join.NodeRegistration.KubeletExtraArgs.get("node-ip")
			g.Expect(ok).To(BeTrue())
			g.Expect(value).To(Equal("127.0.0.9"))
		})
	}
}

func TestAbsentTaintsAreNotNoTaints(t *testing.T) {
	g := NewWithT(t)
	read := func(taints string) []corev1.Taint {
		d, err := parseDocuments([]byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {" + taints + "}"))
		g.Expect(err).NotTo(HaveOccurred())
		return d.init.NodeRegistration.Taints
	}
	g.Expect(read("taints: null")).To(BeNil())
	g.Expect(read("name: x")).To(BeNil())
	g.Expect(read("taints: []")).To(And(Not(BeNil()), BeEmpty()))
}

func TestTheStoredConfigurationKeepsWhatWasGivenAndAddsDefaults(t *testing.T) {
	g := NewWithT(t)
	d, err := parseDocuments([]byte(`apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
kubernetesVersion: v1.25.15
controlPlaneEndpoint: 127.0.0.9:6443
apiServer: {extraArgs: {audit-log-path: /var/log/audit.log}}
networking: {podSubnet: 10.1.0.0/16}
`))
	g.Expect(err).NotTo(HaveOccurred())
	d.cluster.setDefaults()
	g.Expect(d.cluster.validate()).To(Succeed())
	text, err := d.cluster.stored()
	g.Expect(err).NotTo(HaveOccurred())
	var stored map[string]any
	g.Expect(yaml.Unmarshal(text, &stored)).To(Succeed())
	g.Expect(stored).To(HaveKeyWithValue("apiVersion", "kubeadm.k8s.io/v1beta3"))
	g.Expect(stored).To(HaveKeyWithValue("kubernetesVersion", "v1.25.15"))
	g.Expect(stored).To(HaveKeyWithValue("networking", And(HaveKeyWithValue("podSubnet", "10.1.0.0/16"), HaveKeyWithValue("dnsDomain", "cluster.local"))))
	g.Expect(stored).To(HaveKeyWithValue("etcd", HaveKeyWithValue("local", HaveKeyWithValue("dataDir", "/var/lib/etcd"))))
	g.Expect(stored).To(HaveKeyWithValue("apiServer", HaveKeyWithValue("extraArgs", HaveKeyWithValue("audit-log-path", "/var/log/audit.log"))))
	g.Expect(d.cluster.raw).To(HaveKeyWithValue("networking", Not(HaveKey("dnsDomain"))), "the source document is untouched")
}

func TestStaticPodsRunOnTheGuestsOwnAddressAndDisks(t *testing.T) {
	g := NewWithT(t)
	c := testConfig(t)
	cluster := &clusterConfiguration{KubernetesVersion: "v1.36.3"}
	cluster.setDefaults()
	cluster.APIServer.ExtraArgs.list = []arg{{"audit-log-path", "/var/log/kube/audit.log"}, {"audit-policy-file", "/etc/nowhere/policy.yaml"}, {"bind-address", "0.0.0.0"}}
	cluster.APIServer.ExtraVolumes = []extraVolume{{Name: "audit", HostPath: "/var/cpaas/audit", MountPath: "/var/log/kube"}}
	local := apiEndpoint{AdvertiseAddress: "127.200.0.9", BindPort: 6443}
	host, err := c.Files.Path("/")
	g.Expect(err).NotTo(HaveOccurred())

	l, ok, err := adapt(c, apiServerManifest(cluster, local))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeTrue())
	g.Expect(l.Args).To(ContainElements(
		"--bind-address=127.200.0.9", "--etcd-servers=https://127.200.0.9:2379", "--endpoint-reconciler-type=none", "--etcd-cafile="+host+"/etc/kubernetes/pki/etcd/ca.crt",
		"--audit-log-path="+host+"/var/cpaas/audit/audit.log",                           // through the mount
		"--audit-policy-file="+c.RunDir+"/kube-apiserver.layer/etc/nowhere/policy.yaml", // not mounted: the container's own, empty layer
	))
	g.Expect(l.Args).NotTo(ContainElement("--bind-address=0.0.0.0"))

	l, ok, err = adapt(c, etcdManifest(cluster, local, "node-1", nil))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeTrue())
	g.Expect(l.Args).To(ContainElements("--listen-client-urls=https://127.200.0.9:2379", "--listen-metrics-urls=http://127.200.0.9:2381", "--data-dir="+host+"/var/lib/etcd",
		"--initial-cluster=node-1=https://127.200.0.9:2380"))
	g.Expect(strings.Join(l.Args, " ")).NotTo(ContainSubstring("127.0.0.1"))

	_, ok, err = adapt(c, schedulerManifest(cluster))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ok).To(BeFalse(), "no program stands in for it")
}

func TestFlagsOfAnotherVersionAreDropped(t *testing.T) {
	g := NewWithT(t)
	program := filepath.Join(t.TempDir(), "kube-apiserver")
	g.Expect(os.WriteFile(program, []byte("#!/bin/sh\nprintf '      --known string\\n  -v, --v Level\\n'\n"), 0o700)).To(Succeed())
	old := parseFlags([]string{"--known=1", "--cloud-provider=external", "--v=2"})
	g.Expect(old.dropUnknown("registry.k8s.io/kube-apiserver:v1.25.15", "kube-apiserver", program)).To(ConsistOf("--cloud-provider"))
	g.Expect(old.line()).To(Equal([]string{"--known=1", "--v=2"}))
	own := parseFlags([]string{"--cloud-provider=external"})
	g.Expect(own.dropUnknown("registry.k8s.io/kube-apiserver:v1.36.3", "kube-apiserver", program)).To(BeEmpty(), "there the program complains itself")
}

func TestPatchesApplyInTheOrderOfTheirNames(t *testing.T) {
	g := NewWithT(t)
	d := guestDisk{dir(t.TempDir())}
	p := &patches{Directory: "/etc/kubernetes/patches"}
	_, err := d.patch(p, "kubeletconfiguration", []byte("maxPods: 1"), nil)
	g.Expect(err).To(MatchError(ContainSubstring("could not list patch files")))

	write := func(name, content string) {
		g.Expect(d.write("/etc/kubernetes/patches/"+name, []byte(content), 0o600)).To(Succeed())
	}
	write("kubeletconfiguration0+strategic.json", `{"maxPods": 2, "staticPodPath": null}`)
	write("kubeletconfiguration1+json.yaml", "- {op: add, path: /port, value: 10251}")
	write("kubeletconfiguration2.yaml", "maxPods: 3")
	write("kube-apiserver0+merge.yaml", "metadata: {labels: {x: z}}")
	write("README.md", "not a patch")
	out, err := d.patch(p, "kubeletconfiguration", []byte("maxPods: 1\nstaticPodPath: /x\n"), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchYAML("{maxPods: 3, port: 10251}"))
	out, err = d.patch(p, "kube-apiserver", []byte("metadata: {name: a}"), corev1.Pod{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchYAML("metadata: {name: a, labels: {x: z}}"))
}

func TestPreflightFindsLeftoversOfAnotherLife(t *testing.T) {
	g := NewWithT(t)
	c := testConfig(t)
	d := guestDisk{c.Files}
	g.Expect(d.write("/var/lib/etcd/member/wal/0.wal", nil, 0o600)).To(Succeed())
	g.Expect(d.write(kubeletConf, nil, 0o600)).To(Succeed())
	cluster := &clusterConfiguration{}
	cluster.setDefaults()
	check := func(ignored ...string) error {
		c.IgnorePreflightErrors = ignored
		p := newPreflight(c, nodeRegistration{})
		p.etcd(cluster)
		p.noFile(kubeletConf)
		return p.err()
	}
	g.Expect(check()).To(MatchError(And(
		ContainSubstring("[ERROR DirAvailable--var-lib-etcd]: /var/lib/etcd is not empty"),
		ContainSubstring("[ERROR FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists"),
	)))
	g.Expect(check("DirAvailable--var-lib-etcd,FileAvailable--etc-kubernetes-kubelet.conf")).To(Succeed())
	g.Expect(check("all")).To(Succeed())
}

func TestTheKubeletReadsItsFlagsAndRefusesWrongOnes(t *testing.T) {
	for name, c := range map[string]struct{ flags, fails string }{
		"all that is known":       {"--node-ip=127.200.0.9 --cloud-provider=external --provider-id=vsphere://1 --node-labels=a=b,node.kubernetes.io/x=y --register-with-taints=k=v:NoSchedule,l:NoExecute", ""},
		"a role label":            {"--node-labels=node-role.kubernetes.io/worker=", "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels"},
		"a strange address":       {"--node-ip=192.0.2.1", "not found in the host's network interfaces"},
		"an in-tree cloud":        {"--cloud-provider=vsphere", "only external is left"},
		"a taint with no effect":  {"--register-with-taints=k=v", "invalid taint spec"},
		"a taint with bad effect": {"--register-with-taints=k=v:Never", "unsupported taint effect"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			conf := testConfig(t)
			d := guestDisk{conf.Files}
			g.Expect(d.write(kubeletConfigFile, []byte("staticPodPath: /etc/kubernetes/manifests\n"), 0o600)).To(Succeed())
			g.Expect(d.write(kubeletFlagsFile, []byte(`KUBELET_KUBEADM_ARGS="`+c.flags+"\"\n"), 0o600)).To(Succeed())
			k, err := newKubelet(conf, "v1.36.3")
			if c.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			n := k.initialNode()
			g.Expect(n.Spec.ProviderID).To(Equal("vsphere://1"))
			g.Expect(n.Labels).To(And(HaveKeyWithValue("a", "b"), HaveKeyWithValue("node.kubernetes.io/x", "y"), HaveKeyWithValue("kubernetes.io/hostname", "node-1")))
			g.Expect(n.Spec.Taints).To(ConsistOf(
				corev1.Taint{Key: "k", Value: "v", Effect: "NoSchedule"}, corev1.Taint{Key: "l", Effect: "NoExecute"},
				corev1.Taint{Key: taintUninitialized, Value: "true", Effect: "NoSchedule"}))
			g.Expect(n.Annotations).To(HaveKeyWithValue(annotationProvidedIP, "127.200.0.9"))
		})
	}
}
