package node

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"path"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
)

// pki is the guest's certificate directory. Leaf keys are ECDSA where kubeadm makes RSA ones: nobody looks, and a busy host
// saves seconds per control plane.
type pki struct {
	disk guestDisk
	dir  string
}

// authority is a CA with its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// leaf describes one certificate to sign.
type leaf struct {
	name          string // file base name below the directory, "" for one that is not kept as files
	commonName    string
	organizations []string
	usages        []x509.ExtKeyUsage
	dnsNames      []string
	ips           []net.IP
}

// authorityNamed loads the CA from the directory or creates it there. create=false: a joining control plane must have been
// given its CAs.
func (p pki) authorityNamed(base, commonName string, create bool) (authority, error) {
	certFile, keyFile := path.Join(p.dir, base+".crt"), path.Join(p.dir, base+".key")
	if p.disk.exists(certFile) {
		return p.load(base)
	}
	if !create {
		return authority{}, fmt.Errorf("failure loading certificate for %s: the file %s does not exist", commonName, certFile)
	}
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	now := time.Now().Add(-5 * time.Minute)
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{commonName},
		NotBefore: now, NotAfter: now.Add(caValidity), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, err
	}
	if err := p.writePair(certFile, keyFile, der, key); err != nil {
		return authority{}, err
	}
	return authority{cert: c, key: key}, nil
}

func (p pki) load(base string) (authority, error) {
	certFile, keyFile := path.Join(p.dir, base+".crt"), path.Join(p.dir, base+".key")
	certPEM, err := p.disk.read(certFile)
	if err != nil {
		return authority{}, fmt.Errorf("failure loading certificate: %w", err)
	}
	certs, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return authority{}, fmt.Errorf("couldn't load the certificate file %s: %w", certFile, err)
	}
	if !certs[0].IsCA {
		return authority{}, fmt.Errorf("certificate %q is not a CA", certFile)
	}
	keyPEM, err := p.disk.read(keyFile)
	if err != nil {
		return authority{}, fmt.Errorf("couldn't load the private key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return authority{}, fmt.Errorf("couldn't load the private key file %s: %w", keyFile, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return authority{}, fmt.Errorf("the private key file %s is neither in RSA nor ECDSA format", keyFile)
	}
	return authority{cert: certs[0], key: signer}, nil
}

// issue signs a leaf and, when it has a name, keeps it in the directory unless it is there already.
func (p pki) issue(ca authority, l leaf) (certPEM, keyPEM []byte, err error) {
	certFile, keyFile := path.Join(p.dir, l.name+".crt"), path.Join(p.dir, l.name+".key")
	if l.name != "" && p.disk.exists(certFile) && p.disk.exists(keyFile) {
		if certPEM, err = p.disk.read(certFile); err != nil {
			return nil, nil, err
		}
		keyPEM, err = p.disk.read(keyFile)
		return certPEM, keyPEM, err
	}
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	now := time.Now().Add(-5 * time.Minute)
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: l.commonName, Organization: l.organizations},
		DNSNames: l.dnsNames, IPAddresses: l.ips, NotBefore: now, NotAfter: now.Add(leafValidity),
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature, ExtKeyUsage: l.usages,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", l.commonName, err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	if l.name != "" {
		if err := p.writePair(certFile, keyFile, der, key); err != nil {
			return nil, nil, err
		}
	}
	return encodeCert(der), keyPEM, nil
}

func (p pki) writePair(certFile, keyFile string, der []byte, key crypto.PrivateKey) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := p.disk.write(certFile, encodeCert(der), 0o644); err != nil {
		return err
	}
	return p.disk.write(keyFile, keyPEM, 0o600)
}

// serviceAccountKeys makes the pair that signs service account tokens unless it was given.
func (p pki) serviceAccountKeys(create bool) error {
	pub, priv := path.Join(p.dir, "sa.pub"), path.Join(p.dir, "sa.key")
	if p.disk.exists(priv) && p.disk.exists(pub) {
		return nil
	}
	if !create {
		return fmt.Errorf("failure loading key for service account: %s and %s must exist", pub, priv)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := p.disk.write(pub, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return p.disk.write(priv, keyPEM, 0o600)
}

// authorities are the three CAs of a stacked control plane.
type authorities struct{ cluster, etcd, frontProxy authority }

func (p pki) authorities(create bool) (authorities, error) {
	var a authorities
	var err error
	if a.cluster, err = p.authorityNamed("ca", "kubernetes", create); err != nil {
		return a, err
	}
	if a.etcd, err = p.authorityNamed("etcd/ca", "etcd-ca", create); err != nil {
		return a, err
	}
	a.frontProxy, err = p.authorityNamed("front-proxy-ca", "front-proxy-ca", create)
	return a, err
}

// controlPlaneLeaves are the certificates that kubeadm makes on each control plane.
func controlPlaneLeaves(a authorities, c *clusterConfiguration, nodeName string, local apiEndpoint) ([]signedLeaf, error) {
	own := net.ParseIP(local.AdvertiseAddress)
	first, err := c.serviceIP(1)
	if err != nil {
		return nil, err
	}
	api := leaf{
		name: "apiserver", commonName: "kube-apiserver", usages: serverAuth,
		dnsNames: []string{nodeName, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.Networking.DNSDomain},
		ips:      []net.IP{first.AsSlice(), own},
	}
	host, _, err := net.SplitHostPort(c.endpoint(local))
	if err != nil {
		return nil, fmt.Errorf("error parsing cluster controlPlaneEndpoint %q: %w", c.ControlPlaneEndpoint, err)
	}
	api.addNames(host)
	api.addNames(c.APIServer.CertSANs...)

	// kubeadm puts 127.0.0.1 into etcd's certificates, and guests on loopback need it: their unbound connections leave
	// from there, and etcd compares a peer's certificate with the address it comes from.
	members := leaf{
		commonName: nodeName, usages: both, dnsNames: []string{nodeName, "localhost"},
		ips: []net.IP{own, net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	server, peer := members, members
	server.name, peer.name = "etcd/server", "etcd/peer"
	server.addNames(c.Etcd.Local.ServerCertSANs...)
	peer.addNames(c.Etcd.Local.PeerCertSANs...)

	return []signedLeaf{
		{a.cluster, api},
		{a.cluster, leaf{name: "apiserver-kubelet-client", commonName: "kube-apiserver-kubelet-client", organizations: []string{groupClusterAdmins}, usages: clientAuth}},
		{a.frontProxy, leaf{name: "front-proxy-client", commonName: "front-proxy-client", usages: clientAuth}},
		{a.etcd, server},
		{a.etcd, peer},
		{a.etcd, leaf{name: "etcd/healthcheck-client", commonName: "kube-etcd-healthcheck-client", usages: clientAuth}},
		{a.etcd, leaf{name: "apiserver-etcd-client", commonName: "kube-apiserver-etcd-client", usages: clientAuth}},
	}, nil
}

type signedLeaf struct {
	ca authority
	leaf
}

func (l *leaf) addNames(names ...string) {
	for _, n := range names {
		if a, err := netip.ParseAddr(n); err == nil {
			l.ips = append(l.ips, a.AsSlice())
		} else {
			l.dnsNames = append(l.dnsNames, n)
		}
	}
}

var (
	serverAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	clientAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both       = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the kernel's random source does not fail
	}
	return n.Add(n, big.NewInt(1))
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
