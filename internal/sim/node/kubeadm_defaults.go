package node

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

const (
	defaultBindPort = 6443
	etcdClientPort  = 2379
	etcdPeerPort    = 2380
	etcdMetricsPort = 2381

	labelControlPlane        = "node-role.kubernetes.io/control-plane"
	labelExcludeFromBalancer = "node.kubernetes.io/exclude-from-external-load-balancers"
	groupClusterAdmins       = "kubeadm:cluster-admins"
	groupBootstrappers       = "system:bootstrappers:kubeadm:default-node-token"
	groupNodes               = "system:nodes"
	groupMasters             = "system:masters"
)

func controlPlaneTaints() []corev1.Taint {
	return []corev1.Taint{{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
}

// setDefaults fills what kubeadm fills.
func (c *clusterConfiguration) setDefaults() {
	if c.raw == nil {
		c.raw = map[string]any{"kind": "ClusterConfiguration", "apiVersion": kubeadmV1beta4}
		c.APIVersion = kubeadmV1beta4
	}
	fill(&c.CertificatesDir, "/etc/kubernetes/pki")
	fill(&c.ClusterName, "kubernetes")
	fill(&c.ImageRepository, "registry.k8s.io")
	fill(&c.Networking.ServiceSubnet, "10.96.0.0/12")
	fill(&c.Networking.DNSDomain, "cluster.local")
	if c.Etcd.Local == nil {
		c.Etcd.Local = &localEtcd{}
	}
	fill(&c.Etcd.Local.DataDir, "/var/lib/etcd")
}

// stored is the document as kubeadm stores it in the ConfigMap kubeadm-config: what was given plus the defaults, in the
// version it was written in.
func (c *clusterConfiguration) stored() ([]byte, error) {
	out := map[string]any{}
	for k, v := range c.raw {
		if v != nil {
			out[k] = v
		}
	}
	out["kubernetesVersion"] = c.KubernetesVersion
	out["certificatesDir"] = c.CertificatesDir
	out["clusterName"] = c.ClusterName
	out["imageRepository"] = c.ImageRepository
	child(out, "networking")["serviceSubnet"] = c.Networking.ServiceSubnet
	child(out, "networking")["dnsDomain"] = c.Networking.DNSDomain
	etcd := child(out, "etcd")
	if _, external := etcd["external"]; !external {
		child(etcd, "local")["dataDir"] = c.Etcd.Local.DataDir
	}
	for _, k := range []string{"apiServer", "controllerManager", "scheduler", "dns"} {
		child(out, k)
	}
	return yaml.Marshal(out)
}

// child returns the map under a key, made if absent, without touching a map that is shared with the source document.
func child(m map[string]any, key string) map[string]any {
	own := map[string]any{}
	if old, ok := m[key].(map[string]any); ok {
		for k, v := range old {
			own[k] = v
		}
	}
	m[key] = own
	return own
}

func (c *clusterConfiguration) validate() error {
	v, err := version.ParseSemantic(c.KubernetesVersion)
	if err != nil {
		return fmt.Errorf("could not parse kubernetesVersion %q: the simulated image cannot ask the internet for a release name: %w", c.KubernetesVersion, err)
	}
	c.KubernetesVersion = "v" + v.String()
	if len(c.Etcd.External) > 0 && string(c.Etcd.External) != "null" {
		return fmt.Errorf("etcd.external: simulated control planes only run a local etcd member")
	}
	for _, cidr := range strings.Split(c.Networking.ServiceSubnet, ",") {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("networking.serviceSubnet: Invalid value: %q: %w", cidr, err)
		}
	}
	if c.Networking.PodSubnet != "" {
		for _, cidr := range strings.Split(c.Networking.PodSubnet, ",") {
			if _, err := netip.ParsePrefix(cidr); err != nil {
				return fmt.Errorf("networking.podSubnet: Invalid value: %q: %w", cidr, err)
			}
		}
	}
	return nil
}

func (c *clusterConfiguration) minor() uint {
	v, err := version.ParseSemantic(c.KubernetesVersion)
	if err != nil {
		return 0
	}
	return v.Minor()
}

// kubeletTalksLocally: on a control plane, the kubelet's kubeconfig names the node's own kube-apiserver.
func (c *clusterConfiguration) kubeletTalksLocally() bool {
	if on, set := c.FeatureGates["ControlPlaneKubeletLocalMode"]; set {
		return on
	}
	return c.minor() >= 33
}

// serviceIP returns the n-th address of the (first) service subnet.
func (c *clusterConfiguration) serviceIP(n int) (netip.Addr, error) {
	first, _, _ := strings.Cut(c.Networking.ServiceSubnet, ",")
	p, err := netip.ParsePrefix(first)
	if err != nil {
		return netip.Addr{}, err
	}
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a, nil
}

// endpoint is the cluster's address, host:port: controlPlaneEndpoint or, without one, the node's own.
func (c *clusterConfiguration) endpoint(local apiEndpoint) string {
	if c.ControlPlaneEndpoint == "" {
		return local.String()
	}
	if _, _, err := net.SplitHostPort(c.ControlPlaneEndpoint); err == nil {
		return c.ControlPlaneEndpoint
	}
	return net.JoinHostPort(strings.Trim(c.ControlPlaneEndpoint, "[]"), strconv.Itoa(int(local.BindPort)))
}

func (e apiEndpoint) String() string {
	return net.JoinHostPort(e.AdvertiseAddress, strconv.Itoa(int(e.BindPort)))
}

// setDefaults picks the guest's primary address where the document leaves the address open, as kubeadm picks the one of the
// default route.
func (e *apiEndpoint) setDefaults(c Config) error {
	if e.BindPort == 0 {
		e.BindPort = defaultBindPort
	}
	if e.AdvertiseAddress == "" {
		if len(c.Addresses) == 0 {
			return fmt.Errorf("unable to select an IP from default routes: the guest has no address")
		}
		e.AdvertiseAddress = c.Addresses[0].String()
		return nil
	}
	a, err := netip.ParseAddr(e.AdvertiseAddress)
	if err != nil {
		return fmt.Errorf("localAPIEndpoint.advertiseAddress: Invalid value: %q: ip address is not valid", e.AdvertiseAddress)
	}
	for _, own := range c.Addresses {
		if own == a {
			return nil
		}
	}
	return fmt.Errorf("localAPIEndpoint.advertiseAddress: %s is not an address of this guest", a)
}

// nodeName follows kubeadm's order: host name, nodeRegistration.name, the kubelet's own flag.
func (r nodeRegistration) nodeName(hostName string) string {
	name := hostName
	if r.Name != "" {
		name = r.Name
	}
	if flag, ok := r.KubeletExtraArgs.get("hostname-override"); ok {
		name = flag
	}
	return strings.ToLower(strings.TrimSpace(name))
}

func period(p *kubeadmPeriod, otherwise time.Duration) time.Duration {
	if p == nil || p.Duration <= 0 {
		return otherwise
	}
	return p.Duration
}

func fill(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func newReader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }
