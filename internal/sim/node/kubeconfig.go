package node

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	manifestsDir        = "/etc/kubernetes/manifests"
	adminConf           = "/etc/kubernetes/admin.conf"
	superAdminConf      = "/etc/kubernetes/super-admin.conf"
	controllerConf      = "/etc/kubernetes/controller-manager.conf"
	schedulerConf       = "/etc/kubernetes/scheduler.conf"
	kubeletConf         = "/etc/kubernetes/kubelet.conf"
	bootstrapConf       = "/etc/kubernetes/bootstrap-kubelet.conf"
	kubeletConfigFile   = "/var/lib/kubelet/config.yaml"
	kubeletFlagsFile    = "/var/lib/kubelet/kubeadm-flags.env"
	kubeletClientCert   = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	kubeletServingCert  = "/var/lib/kubelet/pki/kubelet.crt"
	kubeletServingKey   = "/var/lib/kubelet/pki/kubelet.key"
	bootstrapClientName = "tls-bootstrap-token-user"
)

// kubeconfig builds a configuration with one cluster and one user.
func kubeconfig(cluster, server, user string, caPEM []byte, auth *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
	name := fmt.Sprintf("%s@%s", user, cluster)
	c.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = name
	if auth != nil {
		c.AuthInfos[user] = auth
	}
	return c
}

func (d guestDisk) writeKubeconfig(guest string, c *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return d.write(guest, data, 0o600)
}

// restConfig loads a kubeconfig of the guest; files that it names are the guest's.
func (d guestDisk) restConfig(guest string) (*rest.Config, error) {
	data, err := d.read(guest)
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", guest, err)
	}
	for _, a := range c.AuthInfos {
		for _, file := range []*string{&a.ClientCertificate, &a.ClientKey} {
			if path.IsAbs(*file) {
				if *file, err = d.files.Path(*file); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, cl := range c.Clusters {
		if path.IsAbs(cl.CertificateAuthority) {
			if cl.CertificateAuthority, err = d.files.Path(cl.CertificateAuthority); err != nil {
				return nil, err
			}
		}
	}
	return clientcmd.NewDefaultClientConfig(*c, nil).ClientConfig()
}

func (d guestDisk) client(guest string) (kubernetes.Interface, error) {
	rc, err := d.restConfig(guest)
	if err != nil {
		return nil, err
	}
	return newClient(rc)
}

// handshakeLimit bounds TLS handshakes: a starting kube-apiserver accepts connections seconds before it serves them, and
// client-go's own ten seconds would be the longest wait of a join.
const handshakeLimit = 3 * time.Second

// newClient makes a client with connections of its own, without client-go's throttle: the server has one that knows better.
func newClient(rc *rest.Config) (kubernetes.Interface, error) {
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.Burst = -1, -1
	tlsConfig, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, err
	}
	base := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: handshakeLimit, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	})
	wrapped, err := rest.HTTPWrappersForConfig(rc, base)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(rc, &http.Client{Transport: wrapped, Timeout: rc.Timeout})
}

// writeControlPlaneKubeconfigs writes what kubeadm's kubeconfig phase writes. The kubelet's own file is among them only on the
// first control plane; a joining kubelet earns its credentials by TLS bootstrap.
func writeControlPlaneKubeconfigs(p pki, ca authority, c *clusterConfiguration, nodeName string, local apiEndpoint, first bool) error {
	caPEM := encodeCert(ca.cert.Raw)
	public, own := "https://"+c.endpoint(local), "https://"+local.String()
	type file struct {
		path, server, user, organization string
	}
	files := []file{
		{adminConf, public, "kubernetes-admin", groupClusterAdmins},
		{controllerConf, own, "system:kube-controller-manager", ""},
		{schedulerConf, own, "system:kube-scheduler", ""},
	}
	if first {
		files = append(files, file{superAdminConf, public, "kubernetes-super-admin", groupMasters})
	}
	for _, f := range files {
		auth, err := p.clientAuth(ca, f.user, f.organization)
		if err != nil {
			return err
		}
		if err := p.disk.writeKubeconfig(f.path, kubeconfig(c.ClusterName, f.server, f.user, caPEM, auth)); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	user := "system:node:" + nodeName
	auth, err := p.clientAuth(ca, user, groupNodes)
	if err != nil {
		return err
	}
	server := public
	if c.kubeletTalksLocally() {
		server = own
	}
	return p.disk.writeKubeletConf(c.ClusterName, server, user, caPEM, auth.ClientCertificateData, auth.ClientKeyData)
}

func (p pki) clientAuth(ca authority, user, organization string) (*clientcmdapi.AuthInfo, error) {
	l := leaf{commonName: user, usages: clientAuth}
	if organization != "" {
		l.organizations = []string{organization}
	}
	certPEM, keyPEM, err := p.issue(ca, l)
	return &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}, err
}

// writeKubeletConf keeps the kubelet's credentials the way it does itself: one PEM file with certificate and key, named by
// the kubeconfig.
func (d guestDisk) writeKubeletConf(cluster, server, user string, caPEM, certPEM, keyPEM []byte) error {
	if err := d.write(kubeletClientCert, bytes.Join([][]byte{certPEM, keyPEM}, nil), 0o600); err != nil {
		return err
	}
	auth := &clientcmdapi.AuthInfo{ClientCertificate: kubeletClientCert, ClientKey: kubeletClientCert}
	return d.writeKubeconfig(kubeletConf, kubeconfig(cluster, server, user, caPEM, auth))
}

// localClient reaches the node's own kube-apiserver with the credentials of a kubeconfig.
func (d guestDisk) localClient(guest string, local apiEndpoint) (kubernetes.Interface, error) {
	rc, err := d.restConfig(guest)
	if err != nil {
		return nil, err
	}
	rc.Host = "https://" + local.String()
	return newClient(rc)
}
