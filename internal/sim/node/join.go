package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

func joinNode(ctx context.Context, c Config, data []byte) (*Node, error) {
	docs, err := parseDocuments(data)
	if err != nil {
		return nil, err
	}
	if docs.join == nil {
		return nil, errors.New("no JoinConfiguration kind was found in the YAML file")
	}
	j := docs.join
	fill(&j.CACertPath, "/etc/kubernetes/pki/ca.crt")
	b := &bootstrap{
		c: c, disk: guestDisk{c.Files}, reg: j.NodeRegistration, patches: j.Patches, skip: j.SkipPhases,
		nodeName: j.NodeRegistration.nodeName(c.HostName),
	}
	controlPlane := j.ControlPlane != nil
	if controlPlane {
		b.local = j.ControlPlane.LocalAPIEndpoint
		if err := b.local.setDefaults(c); err != nil {
			return nil, err
		}
	}
	b.say("[preflight] Running pre-flight checks")
	p := newPreflight(c, b.reg)
	if !b.skips("preflight") {
		p.nodeName(b.nodeName)
		p.joining(j.CACertPath, controlPlane)
		if err := p.err(); err != nil {
			return nil, err
		}
	}
	found, err := discover(ctx, j, b.say)
	if err != nil {
		return nil, fmt.Errorf("error execution phase preflight: %w", err)
	}
	tokenClient, err := found.client()
	if err != nil {
		return nil, err
	}
	kubeletConfig, err := b.fetchConfiguration(ctx, tokenClient)
	if err != nil {
		return nil, fmt.Errorf("error execution phase preflight: unable to fetch the kubeadm-config ConfigMap: %w", err)
	}
	if err := b.cluster.kubeadmVersion(c.KubeletVersion); err != nil {
		return nil, fmt.Errorf("error execution phase preflight: %w", err)
	}
	if !b.skips("preflight") {
		p.skew(b.cluster.KubernetesVersion)
		if err := p.err(); err != nil {
			return nil, err
		}
	}
	if controlPlane && !b.skips("preflight") {
		p.controlPlane(b.cluster, b.local)
		if err := p.err(); err != nil {
			return nil, err
		}
		if b.cluster.ControlPlaneEndpoint == "" {
			return nil, errors.New("unable to add a new control plane instance to a cluster that doesn't have a stable controlPlaneEndpoint address")
		}
	}
	if controlPlane {
		return b.joinControlPlane(ctx, j, found, tokenClient, kubeletConfig)
	}
	return b.joinWorker(ctx, j, found, tokenClient, kubeletConfig)
}

// fetchConfiguration reads what the cluster's first control plane uploaded.
func (b *bootstrap) fetchConfiguration(ctx context.Context, client kubernetes.Interface) (kubeletConfig []byte, err error) {
	b.say("[preflight] Reading configuration from the \"kubeadm-config\" ConfigMap in namespace \"kube-system\"...")
	read := func(name, key string) (string, error) {
		var value string
		err := retry(ctx, time.Minute, func(ctx context.Context) error {
			m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			value = m.Data[key]
			return nil
		})
		return value, err
	}
	text, err := read("kubeadm-config", "ClusterConfiguration")
	if err != nil {
		return nil, err
	}
	docs, err := parseDocuments([]byte(text))
	if err != nil {
		return nil, err
	}
	if docs.cluster == nil {
		return nil, errors.New("no ClusterConfiguration in it")
	}
	b.cluster = docs.cluster
	b.cluster.setDefaults()
	if err := b.cluster.validate(); err != nil {
		return nil, err
	}
	config, err := read("kubelet-config", "kubelet")
	if err != nil {
		return nil, err
	}
	var probe map[string]any
	if err := yaml.Unmarshal([]byte(config), &probe); err != nil {
		return nil, fmt.Errorf("reading the kubelet-config ConfigMap: %w", err)
	}
	return []byte(config), nil
}

func (b *bootstrap) joinWorker(ctx context.Context, j *joinConfiguration, found discovered, tokenClient kubernetes.Interface, kubeletConfig []byte) (*Node, error) {
	if err := b.prepareKubelet(ctx, j, found, tokenClient, found.server); err != nil {
		return nil, err
	}
	if err := b.startKubelet(kubeletConfig, true); err != nil {
		return nil, err
	}
	n := b.node(false)
	if err := b.awaitBootstrap(ctx, j); err != nil {
		n.Kill()
		return nil, err
	}
	b.say("This node has joined the cluster")
	return n, nil
}

func (b *bootstrap) joinControlPlane(ctx context.Context, j *joinConfiguration, found discovered, tokenClient kubernetes.Interface, kubeletConfig []byte) (*Node, error) {
	keys := pki{b.disk, b.cluster.CertificatesDir}
	cas, err := b.certificates(keys, false)
	if err != nil {
		return nil, fmt.Errorf("one or more conditions for hosting a new control plane instance is not satisfied: %w", err)
	}
	if err := writeControlPlaneKubeconfigs(keys, cas.cluster, b.cluster, b.nodeName, b.local, false); err != nil {
		return nil, fmt.Errorf("error execution phase control-plane-prepare/kubeconfig: %w", err)
	}
	if err := b.controlPlaneManifests(); err != nil {
		return nil, err
	}
	admin, err := b.adminClient()
	if err != nil {
		return nil, err
	}
	limit := period(j.Timeouts.EtcdAPICall, 2*time.Minute)
	etcd, err := dialEtcd(ctx, admin, keys, limit, b.say)
	if err != nil {
		return nil, fmt.Errorf("error execution phase check-etcd: %w", err)
	}
	defer etcd.close()
	b.say("[check-etcd] Checking that the etcd cluster is healthy")
	if err := etcd.healthy(ctx); err != nil {
		return nil, fmt.Errorf("error execution phase check-etcd: %w", err)
	}
	server := found.server
	if b.cluster.kubeletTalksLocally() {
		server = "https://" + b.local.String()
	}
	if err := b.prepareKubelet(ctx, j, found, tokenClient, server); err != nil {
		return nil, err
	}
	if err := b.startKubelet(kubeletConfig, false); err != nil {
		return nil, err
	}
	n := b.node(true)
	if err := b.finishControlPlane(ctx, j, etcd, admin); err != nil {
		n.Kill()
		return nil, err
	}
	b.say("This node has joined the cluster and a new control plane instance was created")
	return n, nil
}

func (b *bootstrap) finishControlPlane(ctx context.Context, j *joinConfiguration, etcd *etcdCluster, admin kubernetes.Interface) error {
	peer := peerURL(b.local.AdvertiseAddress)
	id, initial, err := etcd.addLearner(ctx, b.nodeName, peer)
	if err != nil {
		return fmt.Errorf("error execution phase etcd-join: %w", err)
	}
	b.say("[etcd] Announced new etcd member joining to the existing etcd cluster")
	if err := b.disk.writeManifest(etcdManifest(b.cluster, b.local, b.nodeName, initial), b.patches); err != nil {
		return fmt.Errorf("error execution phase etcd-join: %w", err)
	}
	b.kubelet.rescan()
	err = etcd.awaitServing(ctx, id, clientURL(b.local.AdvertiseAddress), func() { b.kubelet.static.bounce(etcdName) })
	if err != nil {
		return b.failed("etcd-join", err)
	}
	if err := etcd.promote(ctx, id); err != nil {
		return b.failed("etcd-join", err)
	}
	limit := period(j.Timeouts.ControlPlane, controlPlaneLimit)
	if err := readyStatic(ctx, b.kubelet, apiServerName, limit); err != nil {
		return b.failed("wait-control-plane", err)
	}
	if err := b.awaitBootstrap(ctx, j); err != nil {
		return err
	}
	if err := markControlPlane(ctx, admin, b.nodeName, b.reg.Taints); err != nil {
		return fmt.Errorf("error execution phase control-plane-join/mark-control-plane: %w", err)
	}
	return nil
}

// prepareKubelet writes what the kubelet needs to earn its credentials. A Node of this name that is Ready belongs to another
// machine, and kubeadm leaves it alone.
func (b *bootstrap) prepareKubelet(ctx context.Context, j *joinConfiguration, found discovered, tokenClient kubernetes.Interface, server string) error {
	if err := b.disk.writeKubeconfig(bootstrapConf, found.bootstrapKubeconfig(b.cluster.ClusterName, server)); err != nil {
		return err
	}
	if !b.disk.exists(j.CACertPath) {
		if err := b.disk.write(j.CACertPath, found.caPEM, 0o644); err != nil {
			return err
		}
	}
	existing, err := tokenClient.CoreV1().Nodes().Get(ctx, b.nodeName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("error execution phase kubelet-start: cannot get Node %q: %w", b.nodeName, err)
	}
	// This machine's own Node is there when an earlier attempt was cut short.
	if err == nil && !strings.EqualFold(existing.Status.NodeInfo.SystemUUID, b.c.ProductUUID) {
		for _, c := range existing.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return fmt.Errorf("error execution phase kubelet-start: a Node with name %q and status %q already exists in the cluster. "+
					"You must delete the existing Node or change the name of this new joining Node", b.nodeName, corev1.NodeReady)
			}
		}
	}
	return nil
}

// awaitBootstrap waits for the kubelet's credentials and its Node, then forgets the token.
func (b *bootstrap) awaitBootstrap(ctx context.Context, j *joinConfiguration) error {
	b.say("[kubelet-start] Waiting for the kubelet to perform the TLS Bootstrap")
	err := b.awaitNode(ctx, period(j.Timeouts.TLSBootstrap, 5*time.Minute))
	if err != nil {
		return fmt.Errorf("error execution phase kubelet-wait-bootstrap: %w", err)
	}
	b.disk.remove(bootstrapConf)
	return nil
}

// localEndpoint reads the node's own API server from its controller manager's kubeconfig, "" on a worker.
func (d guestDisk) localEndpoint() string {
	rc, err := d.restConfig(controllerConf)
	if err != nil {
		return ""
	}
	u, err := url.Parse(rc.Host)
	if err != nil {
		return ""
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return ""
	}
	return u.Host
}
