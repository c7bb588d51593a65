package node

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
)

// credentials returns a client with the node's own certificate; without one it asks the cluster for it with the bootstrap
// token, again and again, as the kubelet does.
func (k *kubelet) credentials(ctx context.Context) (kubernetes.Interface, error) {
	for {
		client, err := k.disk.client(kubeletConf)
		if err == nil {
			return client, nil
		}
		if k.disk.exists(bootstrapConf) {
			err = k.tlsBootstrap(ctx)
			if err == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return nil, errStopped
		}
		k.complain("TLS bootstrap", err)
		if !pause(ctx, time.Second) {
			return nil, errStopped
		}
	}
}

// tlsBootstrap requests a client certificate for system:node:<name> and writes the kubelet's kubeconfig with it.
func (k *kubelet) tlsBootstrap(ctx context.Context) error {
	client, err := k.disk.client(bootstrapConf)
	if err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	user := "system:node:" + k.name
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: []string{groupNodes}},
	}, key)
	if err != nil {
		return err
	}
	csr, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot create certificate signing request: %w", err)
	}
	certPEM, err := awaitCertificate(ctx, client, csr.Name)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	data, err := k.disk.read(bootstrapConf)
	if err != nil {
		return err
	}
	boot, err := clientcmd.Load(data)
	if err != nil {
		return err
	}
	name := boot.Contexts[boot.CurrentContext].Cluster
	cluster := boot.Clusters[name]
	return k.disk.writeKubeletConf(name, cluster.Server, user, cluster.CertificateAuthorityData, certPEM, keyPEM)
}

// awaitCertificate polls the request: a bootstrap token may get its own request but, as in the real kubelet, a watch that
// breaks would need the same fallback. One attempt lasts as long as the kubelet's.
func awaitCertificate(ctx context.Context, client kubernetes.Interface, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	for {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading certificate signing request %s: %w", name, err)
		}
		for _, c := range csr.Status.Conditions {
			if (c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed) && c.Status == corev1.ConditionTrue {
				return nil, fmt.Errorf("certificate signing request %s: %s: %s", name, c.Reason, c.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil, fmt.Errorf("certificate signing request %s was not signed", name)
		}
	}
}
