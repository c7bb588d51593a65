package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	"github.com/berth-dev/berth/internal/sim/node/process"
)

// Files is the guest's file system, seen from the host.
type Files interface {
	// Path returns the host path behind an absolute guest path, honouring the guest's mounts. The file need not exist;
	// missing parents are created by the caller.
	Path(guest string) (string, error)
}

// Binaries are the host paths of the programs that run as the guest's static pods.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
}

// Hardware is what the kubelet reports as capacity. Zero values become 2 CPUs, 4096 MiB and 20 GiB.
type Hardware struct {
	CPUs      int32
	MemoryMiB int64
	DiskGiB   int64
}

// Config describes the guest to kubeadm and the kubelet.
type Config struct {
	// HostName of the guest: the node name unless nodeRegistration.name says otherwise.
	HostName string
	// Addresses of the guest, the primary one first.
	Addresses []netip.Addr
	// ProductUUID is the DMI product UUID, as the kubelet reports it in nodeInfo.systemUUID.
	ProductUUID string
	// Hardware is the node's capacity.
	Hardware Hardware
	// KubeletVersion is the version of kubelet and kubeadm in the guest's image ("v1.36.3"). Empty: the kubernetesVersion that
	// the kubeadm configuration or, for a join, the cluster's kubeadm-config names.
	KubeletVersion string
	// Images says what the node claims to run; empty: a plain Linux.
	OSImage, KernelVersion string

	// Files is the guest's file system.
	Files Files
	// RunDir is a host directory outside the guest's disks for what a power cycle loses: process records and logs.
	// One guest, one directory.
	RunDir string
	// Binaries of the static pods; unused on workers.
	Binaries Binaries
	// DieWithParent ties the guest's processes to this process: when it dies, however it dies, they are killed. Without
	// it they live on and Resume adopts them.
	DieWithParent bool
	// IgnorePreflightErrors are the names given to kubeadm's --ignore-preflight-errors, beside those of nodeRegistration.
	IgnorePreflightErrors []string

	// Console takes what kubeadm and the kubelet say on the guest's console.
	Console logr.Logger
}

// ErrNotInitialized is returned by Resume when the guest's disks hold no node: kubeadm never completed there.
var ErrNotInitialized = errors.New("no kubelet configuration on the guest's disks")

// Node is a running guest's Kubernetes part. Its processes and its kubelet work until Stop, Kill or Release; only the first of
// them has an effect.
type Node struct {
	kubelet      *kubelet
	controlPlane bool
	endpoint     string
	end          sync.Once
}

// Init does what `kubeadm init --config` does with the given documents (ClusterConfiguration and InitConfiguration, v1beta3
// or v1beta4) and returns when the control plane answers, the cluster's objects exist and the Node is registered. An error
// is kubeadm's failure: its text is what a real one would print. On error nothing keeps running.
func Init(ctx context.Context, c Config, documents []byte) (*Node, error) {
	return initNode(ctx, c.withDefaults(), documents)
}

// Join does what `kubeadm join --config` does with the given JoinConfiguration: a control plane if it has a controlPlane
// section, else a worker. It returns when the Node is registered. On error nothing keeps running.
func Join(ctx context.Context, c Config, documents []byte) (*Node, error) {
	return joinNode(ctx, c.withDefaults(), documents)
}

// Resume starts the node from what its disks hold, as a booting guest's kubelet does: after a power cycle, or after the
// process that ran the guests was restarted (then still running processes are adopted). It does not wait for the API
// server. ErrNotInitialized if kubeadm never got to the kubelet on these disks.
func Resume(_ context.Context, c Config) (*Node, error) {
	c = c.withDefaults()
	disk := guestDisk{c.Files}
	if !disk.exists(kubeletConfigFile) || (!disk.exists(kubeletConf) && !disk.exists(bootstrapConf)) {
		return nil, ErrNotInitialized
	}
	k, err := newKubelet(c, orElse(c.KubeletVersion, readLife(c)))
	if err == nil {
		err = k.start()
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet does not start: %w", err)
	}
	n := &Node{kubelet: k, endpoint: disk.localEndpoint()}
	n.controlPlane = n.endpoint != ""
	return n, nil
}

// Name is the Node's name.
func (n *Node) Name() string { return n.kubelet.name }

// Version is the kubelet's version.
func (n *Node) Version() string { return n.kubelet.version }

// ControlPlane says whether the node runs control plane components.
func (n *Node) ControlPlane() bool { return n.controlPlane }

// APIServer is host:port of the node's own kube-apiserver, "" on a worker.
func (n *Node) APIServer() string { return n.endpoint }

// Registered is closed once the kubelet has registered the Node: before Init and Join return, some time after Resume.
func (n *Node) Registered() <-chan struct{} { return n.kubelet.registered }

// Stop shuts the guest down in order: kubelet, then kube-apiserver, controller manager and etcd. What does not end within
// the context's deadline is killed. The Node object stays.
func (n *Node) Stop(ctx context.Context) error {
	n.end.Do(func() {
		n.kubelet.halt()
		n.kubelet.static.shutdown(ctx, true)
	})
	return nil
}

// Kill cuts the power: everything ends at once.
func (n *Node) Kill() {
	n.end.Do(func() {
		n.kubelet.cancel()
		n.kubelet.static.shutdown(context.Background(), false)
		n.kubelet.halt()
	})
}

// Release ends the kubelet but leaves the guest's processes running for a later Resume: the end of the process that runs
// the guests, not of the guests.
func (n *Node) Release() {
	n.end.Do(func() {
		n.kubelet.halt()
		n.kubelet.static.release()
	})
}

// KillRecorded ends every guest process recorded under dir (a RunDir, or a directory that holds many) that still runs: how an
// environment is taken down when the process that ran the guests is gone.
func KillRecorded(dir string) error { return process.KillRecorded(dir) }

func (c Config) withDefaults() Config {
	if c.Hardware.CPUs == 0 {
		c.Hardware.CPUs = 2
	}
	if c.Hardware.MemoryMiB == 0 {
		c.Hardware.MemoryMiB = 4096
	}
	if c.Hardware.DiskGiB == 0 {
		c.Hardware.DiskGiB = 20
	}
	c.HostName = strings.ToLower(strings.TrimSpace(c.HostName))
	return c
}

// say prints on the guest's console.
func (c Config) say(format string, a ...any) { c.Console.Info(fmt.Sprintf(format, a...)) }

func (c Config) logTail(name string) string {
	var b strings.Builder
	process.Tail(&b, c.RunDir, name, 4096)
	return b.String()
}

// versionFile keeps the version of the kubelet binary in the guest's image.
const versionFile = "/var/lib/kubelet/.simulated-version"

func writeLife(c Config, version string) error {
	return guestDisk{c.Files}.write(versionFile, []byte(version+"\n"), 0o644)
}

func readLife(c Config) string {
	data, err := guestDisk{c.Files}.read(versionFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
