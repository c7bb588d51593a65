package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
)

// lifetime of the certificates of an environment; it should not end before the environment does.
const lifetime = 10 * 365 * 24 * time.Hour

// pki is the directory of keys and certificates of one environment. What exists is kept: running programs use it.
type pki struct{ dir string }

func (p pki) file(name string) string { return filepath.Join(p.dir, name) }

// cert and key are where a pair of the name is.
func (p pki) cert(name string) string { return p.file(filepath.Join(name, "tls.crt")) }
func (p pki) key(name string) string  { return p.file(filepath.Join(name, "tls.key")) }

// Authorities. etcd has one of its own, so that being somebody in the API server does not open the database behind it.
const (
	authority     = "ca"
	etcdAuthority = "etcd-ca"
)

// pair describes a certificate to issue.
type pair struct {
	name      string
	authority string
	// user and groups are who a client is to the API server.
	user   string
	groups []string
	// addresses are what a server is reached at.
	addresses []string
}

// ensure makes the authorities, the pairs and the key of ServiceAccount tokens that are not there yet.
func (p pki) ensure(pairs []pair) error {
	for _, name := range []string{authority, etcdAuthority} {
		if err := p.ensureAuthority(name); err != nil {
			return fmt.Errorf("making authority %s: %w", name, err)
		}
	}
	for _, want := range pairs {
		if err := p.ensurePair(want); err != nil {
			return fmt.Errorf("making certificate %s: %w", want.name, err)
		}
	}
	return p.ensureServiceAccountKey()
}

func (p pki) ensureAuthority(name string) error {
	if exists(p.cert(name)) && exists(p.key(name)) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificate("berth local " + name)
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return p.write(name, der, key)
}

func (p pki) ensurePair(want pair) error {
	if exists(p.cert(want.name)) && exists(p.key(want.name)) {
		return nil
	}
	ca, err := tls.LoadX509KeyPair(p.cert(want.authority), p.key(want.authority))
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificate(want.user)
	if err != nil {
		return err
	}
	template.Subject.Organization = want.groups
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(want.addresses) > 0 {
		// etcd presents its server certificate as a client, to itself.
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames = []string{"localhost"}
		for _, a := range want.addresses {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return err
	}
	return p.write(want.name, der, key)
}

func certificate(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		// A clock that steps back a little must not make everything invalid.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
	}, nil
}

func (p pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := os.MkdirAll(p.file(name), 0o700); err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// The key comes first: a certificate without its key would be taken for finished.
	if err := replaceFile(p.key(name), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})); err != nil {
		return err
	}
	return replaceFile(p.cert(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (p pki) serviceAccountKey() string { return p.file("service-accounts.key") }

func (p pki) ensureServiceAccountKey() error {
	if exists(p.serviceAccountKey()) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return replaceFile(p.serviceAccountKey(), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

// bundle is the PEM text of an authority's certificate.
func (p pki) bundle(name string) ([]byte, error) { return os.ReadFile(p.cert(name)) }

// client is the TLS configuration of a client that trusts an authority and, if pair is not empty, shows that certificate.
func (p pki) client(trusted, pair string) (*tls.Config, error) {
	bundle, err := p.bundle(trusted)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s holds no certificate", p.cert(trusted))
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if pair != "" {
		own, err := tls.LoadX509KeyPair(p.cert(pair), p.key(pair))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// writeKubeconfig writes a self-contained kubeconfig that shows the certificate of a pair.
func (p pki) writeKubeconfig(path, server, name string) error {
	ca, err := p.bundle(authority)
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(p.cert(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.key(name))
	if err != nil {
		return err
	}
	const cluster = "berth"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	config.CurrentContext = cluster
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return replaceFile(path, text)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
