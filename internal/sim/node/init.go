package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// controlPlaneLimit is how long kubeadm waits for the control plane to come up.
const controlPlaneLimit = 4 * time.Minute

// bootstrap is one run of kubeadm on a guest.
type bootstrap struct {
	c        Config
	disk     guestDisk
	cluster  *clusterConfiguration
	reg      nodeRegistration
	local    apiEndpoint
	patches  *patches
	skip     []string
	nodeName string
	kubelet  *kubelet
}

func (b *bootstrap) say(format string, a ...any) { b.c.say(format, a...) }

// skips: a phase or one of its parents is listed in skipPhases.
func (b *bootstrap) skips(phase string) bool {
	for _, s := range b.skip {
		if s == phase || strings.HasPrefix(phase, s+"/") {
			return true
		}
	}
	return false
}

func initNode(ctx context.Context, c Config, data []byte) (*Node, error) {
	docs, err := parseDocuments(data)
	if err != nil {
		return nil, err
	}
	if docs.cluster == nil && docs.init == nil {
		return nil, errors.New("no InitConfiguration or ClusterConfiguration kind was found in the YAML file")
	}
	if docs.cluster == nil {
		docs.cluster = &clusterConfiguration{KubernetesVersion: c.KubeletVersion}
	}
	if docs.init == nil {
		docs.init = &initConfiguration{}
	}
	in := docs.init
	b := &bootstrap{
		c: c, disk: guestDisk{c.Files}, cluster: docs.cluster, reg: in.NodeRegistration, local: in.LocalAPIEndpoint,
		patches: in.Patches, skip: in.SkipPhases, nodeName: in.NodeRegistration.nodeName(c.HostName),
	}
	b.cluster.setDefaults()
	if err := b.local.setDefaults(c); err != nil {
		return nil, err
	}
	if err := b.cluster.validate(); err != nil {
		return nil, err
	}
	if err := b.cluster.kubeadmVersion(c.KubeletVersion); err != nil {
		return nil, err
	}
	b.say("[init] Using Kubernetes version: %s", b.cluster.KubernetesVersion)
	if !b.skips("preflight") {
		p := newPreflight(c, b.reg)
		p.nodeName(b.nodeName)
		p.skew(b.cluster.KubernetesVersion)
		p.freePort(10250)
		p.controlPlane(b.cluster, b.local)
		if err := p.err(); err != nil {
			return nil, err
		}
	}

	keys := pki{b.disk, b.cluster.CertificatesDir}
	cas, err := b.certificates(keys, true)
	if err != nil {
		return nil, err
	}
	if err := writeControlPlaneKubeconfigs(keys, cas.cluster, b.cluster, b.nodeName, b.local, true); err != nil {
		return nil, fmt.Errorf("error execution phase kubeconfig: %w", err)
	}
	if err := b.disk.writeManifest(etcdManifest(b.cluster, b.local, b.nodeName, nil), b.patches); err != nil {
		return nil, fmt.Errorf("error execution phase etcd/local: %w", err)
	}
	if err := b.controlPlaneManifests(); err != nil {
		return nil, err
	}
	kubeletConfig, err := kubeletDefaults(b.cluster, docs.kubelet)
	if err != nil {
		return nil, err
	}
	if err := b.startKubelet(kubeletConfig, false); err != nil {
		return nil, err
	}
	n := b.node(true)
	if err := b.finishInit(ctx, cas, kubeletConfig, in); err != nil {
		n.Kill()
		return nil, err
	}
	b.say("Your Kubernetes control-plane has initialized successfully!")
	return n, nil
}

func (b *bootstrap) finishInit(ctx context.Context, cas authorities, kubeletConfig []byte, in *initConfiguration) error {
	limit := period(in.Timeouts.ControlPlane, period(b.cluster.APIServer.Timeout, controlPlaneLimit))
	b.say("[wait-control-plane] Waiting for the kubelet to boot up the control plane as static Pods. This can take up to %v", limit)
	if err := readyStatic(ctx, b.kubelet, apiServerName, limit); err != nil {
		return b.failed("wait-control-plane", err)
	}
	client, err := b.disk.localClient(superAdminConf, b.local)
	if err != nil {
		return err
	}
	o := clusterObjects{client: client, c: b.cluster, local: b.local}
	b.say("[upload-config] Storing the configuration used in ConfigMap \"kubeadm-config\" in the \"kube-system\" Namespace")
	if err := retry(ctx, time.Minute, o.rbac); err != nil {
		return fmt.Errorf("error execution phase upload-config: %w", err)
	}
	err = retry(ctx, time.Minute, func(ctx context.Context) error {
		return o.configMaps(ctx, kubeletConfig, encodeCert(cas.cluster.cert.Raw))
	})
	if err != nil {
		return fmt.Errorf("error execution phase upload-config: %w", err)
	}
	if err := b.awaitNode(ctx, 4*time.Minute); err != nil {
		return err
	}
	if !b.skips("mark-control-plane") {
		if err := markControlPlane(ctx, client, b.nodeName, b.reg.Taints); err != nil {
			return fmt.Errorf("error execution phase mark-control-plane: %w", err)
		}
	}
	tokens := in.BootstrapTokens
	if len(tokens) == 0 {
		tokens = []bootstrapToken{{}}
	}
	for i := range tokens {
		if tokens[i].Token == "" {
			tokens[i].Token = randomToken()
		}
	}
	if err := retry(ctx, time.Minute, func(ctx context.Context) error { return o.tokens(ctx, tokens) }); err != nil {
		return fmt.Errorf("error execution phase bootstrap-token: %w", err)
	}
	if !b.skips("addon") {
		if err := retry(ctx, time.Minute, func(ctx context.Context) error { return o.addons(ctx, b.skips) }); err != nil {
			return fmt.Errorf("error execution phase addon: %w", err)
		}
	}
	return nil
}

// certificates makes every leaf of a control plane, and the CAs unless they must be there.
func (b *bootstrap) certificates(keys pki, create bool) (authorities, error) {
	cas, err := keys.authorities(create)
	if err != nil {
		return cas, fmt.Errorf("error execution phase certs: %w", err)
	}
	if err := keys.serviceAccountKeys(create); err != nil {
		return cas, fmt.Errorf("error execution phase certs: %w", err)
	}
	leaves, err := controlPlaneLeaves(cas, b.cluster, b.nodeName, b.local)
	if err != nil {
		return cas, fmt.Errorf("error execution phase certs: %w", err)
	}
	for _, l := range leaves {
		if _, _, err := keys.issue(l.ca, l.leaf); err != nil {
			return cas, fmt.Errorf("error execution phase certs: %w", err)
		}
	}
	return cas, nil
}

func (b *bootstrap) controlPlaneManifests() error {
	for _, pod := range []func() error{
		func() error { return b.disk.writeManifest(apiServerManifest(b.cluster, b.local), b.patches) },
		func() error { return b.disk.writeManifest(controllerManagerManifest(b.cluster), b.patches) },
		func() error { return b.disk.writeManifest(schedulerManifest(b.cluster), b.patches) },
	} {
		if err := pod(); err != nil {
			return fmt.Errorf("error execution phase control-plane: %w", err)
		}
	}
	return nil
}

func (b *bootstrap) startKubelet(config []byte, registerTaints bool) error {
	if err := b.disk.writeKubeletFiles(config, b.reg, b.c.HostName, b.nodeName, registerTaints, b.patches); err != nil {
		return fmt.Errorf("error execution phase kubelet-start: %w", err)
	}
	version := orElse(b.c.KubeletVersion, b.cluster.KubernetesVersion)
	if err := writeLife(b.c, version); err != nil {
		return err
	}
	b.say("[kubelet-start] Starting the kubelet")
	k, err := newKubelet(b.c, version)
	if err == nil {
		err = k.start()
	}
	if err != nil {
		b.say("kubelet: %v", err)
		return fmt.Errorf("error execution phase kubelet-start: the kubelet is not running: %w", err)
	}
	b.kubelet = k
	return nil
}

func (b *bootstrap) awaitNode(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-b.kubelet.registered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("the kubelet did not register node %s within %v: %s", b.nodeName, limit, orElse(b.kubelet.trouble(), "no error reported"))
	}
}

func (b *bootstrap) failed(phase string, err error) error {
	for _, name := range []string{etcdName, apiServerName} {
		if tail := b.c.logTail(name); tail != "" {
			b.say("--- end of the log of %s:\n%s", name, tail)
		}
	}
	return fmt.Errorf("error execution phase %s: %w", phase, err)
}

func (b *bootstrap) node(controlPlane bool) *Node {
	n := &Node{kubelet: b.kubelet, controlPlane: controlPlane}
	if controlPlane {
		n.endpoint = b.local.String()
	}
	return n
}

// adminClient reaches the cluster as kubeadm's administrator through a kubeconfig's own server.
func (b *bootstrap) adminClient() (kubernetes.Interface, error) { return b.disk.client(adminConf) }

func randomToken() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	pick := func(n int) string {
		out := make([]byte, n)
		for i := range out {
			j, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
			if err != nil {
				panic(err) // the kernel's random source does not fail
			}
			out[i] = letters[j.Int64()]
		}
		return string(out)
	}
	return pick(6) + "." + pick(16)
}
