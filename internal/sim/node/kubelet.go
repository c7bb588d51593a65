package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// kubeletConfiguration holds the fields of /var/lib/kubelet/config.yaml that have an effect here.
type kubeletConfiguration struct {
	StaticPodPath     *string `json:"staticPodPath"`
	TLSCertFile       string  `json:"tlsCertFile"`
	TLSPrivateKeyFile string  `json:"tlsPrivateKeyFile"`
	Port              int     `json:"port"`
	MaxPods           int64   `json:"maxPods"`
	Authentication    struct {
		X509 struct {
			ClientCAFile string `json:"clientCAFile"`
		} `json:"x509"`
	} `json:"authentication"`
	ProviderID         string         `json:"providerID"`
	RegisterWithTaints []corev1.Taint `json:"registerWithTaints"`
}

// kubeletFlags are the flags of the kubelet's command line that have an effect here.
type kubeletFlags struct {
	hostName      string
	nodeIPs       []netip.Addr
	nodeLabels    map[string]string
	taints        []corev1.Taint
	externalCloud bool
	providerID    string
}

// kubelet is the node's agent. It is started by kubeadm or by a boot and reads all it knows from the guest's disks.
type kubelet struct {
	c       Config
	disk    guestDisk
	say     func(string, ...any)
	name    string
	version string
	conf    kubeletConfiguration
	flags   kubeletFlags

	cancel     context.CancelFunc
	running    sync.WaitGroup
	server     *kubeletServer
	static     *staticPods
	pods       *podAgent
	scan       chan struct{}
	registered chan struct{} // closed when the Node is registered

	mu      sync.Mutex
	lastErr string
	said    map[string]string
}

// newKubelet reads the configuration; an error is one with which the real kubelet exits at once.
func newKubelet(c Config, kubeletVersion string) (*kubelet, error) {
	k := &kubelet{c: c, disk: guestDisk{c.Files}, say: c.say, version: kubeletVersion, registered: make(chan struct{}), scan: make(chan struct{}, 1), said: map[string]string{}}
	data, err := k.disk.read(kubeletConfigFile)
	if err != nil {
		return nil, fmt.Errorf("failed to load kubelet config file: %w", err)
	}
	if err := yaml.Unmarshal(data, &k.conf); err != nil {
		return nil, fmt.Errorf("failed to load kubelet config file %s: %w", kubeletConfigFile, err)
	}
	if err := k.readFlags(); err != nil {
		return nil, err
	}
	k.name = strings.ToLower(orElse(k.flags.hostName, c.HostName))
	if k.conf.Port == 0 {
		k.conf.Port = 10250
	}
	if k.conf.MaxPods == 0 {
		k.conf.MaxPods = 110
	}
	k.static = &staticPods{c: c, disk: k.disk, say: k.say, workers: map[string]*podWorker{}}
	return k, nil
}

// flagFiles are where a kubeadm installation keeps kubelet flags, the later ones winning.
var flagFiles = []struct{ path, variable string }{
	{kubeletFlagsFile, "KUBELET_KUBEADM_ARGS"},
	{"/etc/default/kubelet", "KUBELET_EXTRA_ARGS"},
	{"/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS"},
}

func (k *kubelet) readFlags() error {
	var line []string
	for _, f := range flagFiles {
		data, err := k.disk.read(f.path)
		if err != nil {
			continue
		}
		for l := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(l), f.variable+"="); ok {
				line = append(line, strings.Fields(strings.Trim(value, `"'`))...)
			}
		}
	}
	f := parseFlags(line)
	k.flags.hostName = f.value("hostname-override")
	k.flags.externalCloud = f.value("cloud-provider") == "external"
	k.flags.providerID = orElse(f.value("provider-id"), k.conf.ProviderID)
	if v := f.value("cloud-provider"); v != "" && v != "external" {
		return fmt.Errorf("failed to validate kubelet flags: unsupported value %q for --cloud-provider: only external is left", v)
	}
	for s := range strings.SplitSeq(f.value("node-ip"), ",") {
		s = strings.Trim(strings.TrimSpace(s), "[]")
		if s == "" {
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("bad --node-ip %q: %w", s, err)
		}
		if !a.IsUnspecified() && !k.hasAddress(a) {
			return fmt.Errorf("node IP: %q not found in the host's network interfaces", a)
		}
		k.flags.nodeIPs = append(k.flags.nodeIPs, a)
	}
	k.flags.nodeLabels = map[string]string{}
	for s := range strings.SplitSeq(f.value("node-labels"), ",") {
		if s == "" {
			continue
		}
		key, value, _ := strings.Cut(s, "=")
		if !kubeletMaySetLabel(key) {
			return fmt.Errorf("failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [%s]", key)
		}
		k.flags.nodeLabels[key] = value
	}
	k.flags.taints = append(k.flags.taints, k.conf.RegisterWithTaints...)
	for s := range strings.SplitSeq(f.value("register-with-taints"), ",") {
		if s == "" {
			continue
		}
		t, err := parseTaint(s)
		if err != nil {
			return fmt.Errorf("failed to validate kubelet flags: --register-with-taints: %w", err)
		}
		k.flags.taints = append(k.flags.taints, t)
	}
	return nil
}

func (k *kubelet) hasAddress(a netip.Addr) bool {
	for _, own := range k.c.Addresses {
		if own == a {
			return true
		}
	}
	return false
}

// kubeletMaySetLabel is the kubelet's own rule for --node-labels: of Kubernetes' name space only the listed labels.
func kubeletMaySetLabel(key string) bool {
	prefix, _, has := strings.Cut(key, "/")
	if !has || (prefix != "kubernetes.io" && prefix != "k8s.io" && !strings.HasSuffix(prefix, ".kubernetes.io") && !strings.HasSuffix(prefix, ".k8s.io")) {
		return true
	}
	for _, open := range []string{"kubelet.kubernetes.io", "node.kubernetes.io"} {
		if prefix == open || strings.HasSuffix(prefix, "."+open) {
			return true
		}
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	return false
}

func parseTaint(s string) (corev1.Taint, error) {
	rest, effect, ok := cutLast(s, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("invalid taint spec: %s", s)
	}
	key, value, _ := strings.Cut(rest, "=")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return t, nil
	}
	return t, fmt.Errorf("invalid taint effect: %s, unsupported taint effect", effect)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// start brings the kubelet up: port 10250, static pods, then credentials, Node and everything that needs them.
func (k *kubelet) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	server, err := k.serve()
	if err != nil {
		cancel()
		return err
	}
	k.server = server
	if k.runsStaticPods() {
		if err := k.static.sync(ctx); err != nil {
			k.say("kubelet: reading %s: %v", manifestsDir, err)
		}
		k.running.Go(func() { k.watchManifests(ctx) })
	}
	k.running.Go(func() { k.join(ctx) })
	return nil
}

// runsStaticPods: a configuration may switch them off (staticPodPath: null on workers).
func (k *kubelet) runsStaticPods() bool {
	return k.conf.StaticPodPath != nil && path.Clean(*k.conf.StaticPodPath) == manifestsDir
}

// rescan makes the kubelet look at its manifests now.
func (k *kubelet) rescan() {
	select {
	case k.scan <- struct{}{}:
	default:
	}
}

func (k *kubelet) watchManifests(ctx context.Context) {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.scan:
		case <-t.C:
		}
		if err := k.static.sync(ctx); err != nil {
			k.say("kubelet: reading %s: %v", manifestsDir, err)
		}
	}
}

// join gets credentials, registers the Node and keeps it current until the kubelet ends.
func (k *kubelet) join(ctx context.Context) {
	if k.runsStaticPods() && !k.awaitOwnServer(ctx) {
		return
	}
	client, err := k.credentials(ctx)
	if err != nil {
		return // the kubelet was stopped
	}
	node := k.register(ctx, client)
	if node == nil {
		return
	}
	k.pods = newPodAgent(k, client, node)
	close(k.registered)
	k.say("kubelet: Successfully registered node %s", k.name)
	k.running.Go(func() { k.renewLease(ctx, client, node) })
	k.pods.run(ctx)
}

// awaitOwnServer waits for the node's own kube-apiserver, where that is the one the kubelet talks to.
func (k *kubelet) awaitOwnServer(ctx context.Context) bool {
	conf := kubeletConf
	if !k.disk.exists(conf) {
		conf = bootstrapConf
	}
	own := k.disk.localEndpoint()
	if own == "" || apiServerOf(k.c, conf) != "https://"+own {
		return true
	}
	for {
		if w := k.static.named(apiServerName); w != nil && w.snapshot().ready {
			return true
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
}

// register creates the Node. If one of that name exists already the kubelet takes it over as it is, with its providerID and
// its taints: only labels of the kubelet's own are brought up to date.
func (k *kubelet) register(ctx context.Context, client kubernetes.Interface) *corev1.Node {
	for {
		node, err := client.CoreV1().Nodes().Create(ctx, k.initialNode(), metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			if node, err = client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{}); err == nil {
				k.say("kubelet: Node %s was previously registered (providerID %q); it is taken over", k.name, node.Spec.ProviderID)
				err = k.reconcileExisting(ctx, client, node)
			}
		case err == nil:
			// Addresses and capacity are status, which a create drops.
			err = k.patchStatus(ctx, client, node)
		}
		if err == nil {
			return node
		}
		k.complain("unable to register node with API server", err)
		if !pause(ctx, 500*time.Millisecond) {
			return nil
		}
	}
}

// complain says each new trouble with a subject once.
func (k *kubelet) complain(subject string, err error) {
	msg := fmt.Sprintf("%s: %v", subject, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastErr = msg
	if k.said[subject] != msg {
		k.said[subject] = msg
		k.say("kubelet: %s", msg)
	}
}

func (k *kubelet) trouble() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastErr
}

// agent is nil until the Node is registered.
func (k *kubelet) agent() *podAgent {
	select {
	case <-k.registered:
		return k.pods
	default:
		return nil
	}
}

// halt ends the kubelet itself; its pods run on.
func (k *kubelet) halt() {
	k.cancel()
	k.server.close()
	k.running.Wait()
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

var errStopped = errors.New("the kubelet was stopped")
