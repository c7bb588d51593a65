package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
)

const (
	clusterInfo       = bootstrapapi.ConfigMapClusterInfo
	kubeconfigKey     = bootstrapapi.KubeConfigKey
	signaturePrefix   = bootstrapapi.JWSSignatureKeyPrefix
	discoveryInterval = time.Second
)

var tokenForm = regexp.MustCompile(bootstrapapi.BootstrapTokenPattern)

// discovered is what a joining node learns about the cluster before it trusts it with anything.
type discovered struct {
	server string // https://host:port
	caPEM  []byte
	token  string // for TLS bootstrap
}

// discover fetches cluster-info anonymously, checks that it is signed with the token's secret and that its CA is the pinned one,
// then fetches it once more over a connection that this CA vouches for.
func discover(ctx context.Context, j *joinConfiguration, say func(string, ...any)) (discovered, error) {
	d := j.Discovery
	if d.BootstrapToken == nil {
		return discovered{}, errors.New("discovery: Invalid value: \"\": bootstrapToken or file must be set (a simulated guest only knows bootstrapToken)")
	}
	parts := tokenForm.FindStringSubmatch(d.BootstrapToken.Token)
	if parts == nil {
		return discovered{}, fmt.Errorf("discovery.bootstrapToken.token: Invalid value: the bootstrap token %q was not of the form %q", redact(d.BootstrapToken.Token), bootstrapapi.BootstrapTokenPattern)
	}
	if len(d.BootstrapToken.CACertHashes) == 0 && !d.BootstrapToken.Unsafe {
		return discovered{}, errors.New("discovery.bootstrapToken: Invalid value: \"\": using token-based discovery without caCertHashes can be unsafe. Set unsafeSkipCAVerification as true in your kubeadm config file")
	}
	limit := period(j.Timeouts.Discovery, period(d.Timeout, 5*time.Minute))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	server := "https://" + d.BootstrapToken.APIServerEndpoint
	id, secret := parts[1], parts[2]

	open, err := kubernetes.NewForConfig(&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1, Timeout: 10 * time.Second})
	if err != nil {
		return discovered{}, err
	}
	first, err := signedClusterInfo(ctx, open, id, say)
	if err != nil {
		return discovered{}, fmt.Errorf("couldn't validate the identity of the API Server: %w", err)
	}
	content := first.Data[kubeconfigKey]
	if content == "" {
		return discovered{}, fmt.Errorf("there is no %s key in the %s ConfigMap. This API Server isn't set up for token bootstrapping, can't connect", kubeconfigKey, clusterInfo)
	}
	if !jws.DetachedTokenIsValid(first.Data[signaturePrefix+id], content, id, secret) {
		return discovered{}, errors.New("couldn't validate the identity of the API Server: failed to verify JWS signature of received cluster info object, can't trust this API Server")
	}
	caPEM, publicServer, err := readClusterInfo(content)
	if err != nil {
		return discovered{}, err
	}
	if len(d.BootstrapToken.CACertHashes) > 0 {
		if err := checkPins(caPEM, d.BootstrapToken.CACertHashes); err != nil {
			return discovered{}, fmt.Errorf("couldn't validate the identity of the API Server: cluster CA found in %s ConfigMap is invalid: %w", clusterInfo, err)
		}
		trusted, err := kubernetes.NewForConfig(&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{CAData: caPEM}, QPS: -1, Timeout: 10 * time.Second})
		if err != nil {
			return discovered{}, err
		}
		second, err := signedClusterInfo(ctx, trusted, id, say)
		if err != nil {
			return discovered{}, fmt.Errorf("couldn't validate the identity of the API Server: %w", err)
		}
		if second.Data[kubeconfigKey] != content {
			return discovered{}, fmt.Errorf("the second kubeconfig from the %s ConfigMap (using validated TLS) was different from the first", clusterInfo)
		}
	}
	return discovered{server: publicServer, caPEM: caPEM, token: orElse(d.TLSBootstrapToken, d.BootstrapToken.Token)}, nil
}

// signedClusterInfo waits for the ConfigMap with a signature for the token: the leading controller manager adds it a moment
// after the token was made.
func signedClusterInfo(ctx context.Context, client kubernetes.Interface, tokenID string, say func(string, ...any)) (*corev1.ConfigMap, error) {
	last := ""
	for {
		cm, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfo, metav1.GetOptions{})
		switch {
		case err != nil:
			err = fmt.Errorf("failed to request the cluster-info ConfigMap: %w", err)
		case cm.Data[signaturePrefix+tokenID] == "":
			err = fmt.Errorf("could not find a JWS signature in the cluster-info ConfigMap for token ID %q", tokenID)
		default:
			return cm, nil
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			say("[discovery] Retrying due to error: %s", last)
		}
		if !pause(ctx, discoveryInterval) {
			if last != "" {
				return nil, errors.New(last)
			}
			return nil, err
		}
	}
}

func readClusterInfo(content string) (caPEM []byte, server string, err error) {
	c, err := clientcmd.Load([]byte(content))
	if err != nil {
		return nil, "", fmt.Errorf("couldn't parse the kubeconfig file in the %s ConfigMap: %w", clusterInfo, err)
	}
	for _, cl := range c.Clusters {
		caPEM, server = cl.CertificateAuthorityData, cl.Server
	}
	if server == "" {
		return nil, "", fmt.Errorf("malformed kubeconfig in the %s ConfigMap: no cluster in it", clusterInfo)
	}
	return caPEM, server, nil
}

// checkPins: one of the CA certificates must have a pinned public key, written sha256:<hex of its SubjectPublicKeyInfo>.
func checkPins(caPEM []byte, pins []string) error {
	certs, err := cert.ParseCertsPEM(caPEM)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, p := range pins {
		kind, value, ok := strings.Cut(p, ":")
		if !ok || !strings.EqualFold(kind, "sha256") || len(value) != 2*sha256.Size {
			return fmt.Errorf("invalid public key hash %q, expected \"sha256:<hex>\"", p)
		}
		wanted[strings.ToLower(value)] = true
	}
	var seen []string
	for _, c := range certs {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		h := hex.EncodeToString(sum[:])
		if wanted[h] {
			return nil
		}
		seen = append(seen, "sha256:"+h)
	}
	return fmt.Errorf("none of the public keys %q are pinned", strings.Join(seen, ":"))
}

// bootstrapKubeconfig authenticates with the token.
func (d discovered) bootstrapKubeconfig(cluster, server string) *clientcmdapi.Config {
	return kubeconfig(cluster, server, bootstrapClientName, bytes.Clone(d.caPEM), &clientcmdapi.AuthInfo{Token: d.token})
}

func (d discovered) client() (kubernetes.Interface, error) {
	return newClient(&rest.Config{Host: d.server, BearerToken: d.token, TLSClientConfig: rest.TLSClientConfig{CAData: d.caPEM}, Timeout: 30 * time.Second})
}

func redact(token string) string {
	id, _, ok := strings.Cut(token, ".")
	if !ok {
		return "..."
	}
	return id + ".***"
}
