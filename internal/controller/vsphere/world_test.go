package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	controllers "github.com/berth-dev/berth/internal/controller/vsphere"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/workload"
)

var ctx = context.Background()

const controllerNamespace = "berth-system"

// world is one test's namespace, vCenter and manager.
type world struct {
	t  *testing.T
	g  *WithT
	ns string

	vcenter *vcenter.Server
	meter   *vsphere.Meter
	writes  *writeCounter

	cluster *clusterv1.Cluster
	infra   *infrav1.VSphereCluster

	// failureDomain of the Machines that withMachine creates.
	failureDomain string
	// mute names virtual machines whose guests report nothing by themselves; set before they are made.
	mute map[string]bool
	// antiAffinity is the manager's feature gate NodeAntiAffinity.
	antiAffinity bool
	// filter is the manager's watch filter.
	filter string

	// stop ends the manager in good order; kill ends it in the middle of whatever it does: its writes fail from that moment on.
	stop, kill func()
}

func newWorld(t *testing.T, options ...func(*vcenter.Options)) *world {
	t.Helper()
	w := &world{t: t, g: NewWithT(t), meter: &vsphere.Meter{}, writes: &writeCounter{by: map[string]int{}}, stop: func() {}}
	w.g.SetDefaultEventuallyTimeout(patience)
	w.g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)

	o := vcenter.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, set := range options {
		set(&o)
	}
	var err error
	w.vcenter, err = vcenter.Start(o)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.vcenter.Close)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "berth-"}}
	w.g.Expect(k8s.Create(ctx, ns)).To(Succeed())
	w.ns = ns.Name
	t.Cleanup(func() { w.stop() })
	w.guests()
	t.Cleanup(func() {
		for _, v := range w.vcenter.Violations() {
			t.Errorf("the simulated vCenter saw %s: %s", v.Kind, v.Detail)
		}
	})
	return w
}

// start runs a manager with the provider, as berth-manager does, for this namespace.
func (w *world) start() {
	w.t.Helper()
	restCopy := rest.CopyConfig(restConfig)
	restCopy.Impersonate.UserName = managerUser
	var dead atomic.Bool
	restCopy.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counted := w.writes.wrap(next)
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if dead.Load() {
				return nil, errors.New("the manager is dead")
			}
			return counted.RoundTrip(r)
		})
	})
	mgr, err := ctrl.NewManager(restCopy, ctrl.Options{
		Scheme:     scheme,
		Controller: config.Controller{UsePriorityQueue: ptr.To(false)},
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	runCtx, cancel := context.WithCancel(ctx)
	w.g.Expect(controllers.Setup(runCtx, mgr, controllers.Options{
		Sessions: vsphere.NewSessions(), Meter: w.meter,
		Workload:            &workload.Clusters{Secrets: mgr.GetAPIReader(), Timeout: 2 * time.Second},
		ControllerNamespace: controllerNamespace, UserAgent: "berth-test",
		SkipNameValidation: true, WatchFilter: w.filter, NodeAntiAffinity: w.antiAffinity,
	})).To(Succeed())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(runCtx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("manager: %v", err)
		}
		w.stop, w.kill = func() {}, func() {}
	}
	w.kill = func() {
		dead.Store(true)
		cancel()
		<-done
		w.stop, w.kill = func() {}, func() {}
	}
}

// guests play the guests: what a powered-on virtual machine was given by its VSphereVM, its tools report.
func (w *world) guests() {
	guestCtx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reported := map[string]bool{}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-guestCtx.Done():
				return
			case <-tick.C:
			}
			for _, vm := range w.vcenter.World().VMs {
				if vm.Template || vm.Power != "poweredOn" || reported[vm.Ref] {
					continue
				}
				object := &infrav1.VSphereVM{}
				if err := k8s.Get(guestCtx, client.ObjectKey{Namespace: w.ns, Name: vm.Name}, object); err != nil {
					continue
				}
				if w.mute[vm.Name] {
					continue
				}
				guest := vcenter.Guest{HostName: object.Annotations[infrav1.SlotHostnameAnnotation], ToolsRunning: true}
				for i, nic := range vm.NICs {
					var addresses []string
					for _, a := range object.Spec.Network.Devices[i].IPAddrs {
						addresses = append(addresses, strings.Split(a, "/")[0])
					}
					addresses = append(addresses, claimed(object, i)...)
					if len(addresses) == 0 {
						addresses = []string{fmt.Sprintf("192.0.2.%d", len(reported)+1)}
					}
					guest.NICs = append(guest.NICs, vcenter.GuestNIC{MAC: nic.MAC, Network: nic.Network, Addresses: addresses})
				}
				if err := w.vcenter.ReportGuest(vm.Ref, guest); err == nil {
					reported[vm.Ref] = true
				}
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// withCluster creates Cluster, Secret and VSphereCluster, as Cluster API's core would leave them.
func (w *world) withCluster(change ...func(*infrav1.VSphereCluster)) {
	w.t.Helper()
	w.secret(vcenter.DefaultPassword)
	w.cluster = &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo"},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereCluster", Name: "demo"},
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: "demo"},
		},
	}
	w.g.Expect(k8s.Create(ctx, w.cluster)).To(Succeed())
	w.infra = &infrav1.VSphereCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: "demo", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo", UID: w.cluster.UID}},
		},
		Spec: infrav1.VSphereClusterSpec{
			Server: w.vcenter.Address(), Thumbprint: w.vcenter.Thumbprint(),
			ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "127.64.1.10", Port: 6443},
			IdentityRef:          &infrav1.VSphereIdentityReference{Kind: infrav1.SecretKind, Name: "demo-vcenter"},
		},
	}
	for _, c := range change {
		c(w.infra)
	}
	w.g.Expect(k8s.Create(ctx, w.infra)).To(Succeed())
}

// provisioned waits for the VSphereCluster and plays core's part: it tells the Cluster.
func (w *world) provisioned() {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		g.Expect(ptr.Deref(w.infra.Status.Initialization.Provisioned, false)).To(BeTrue(), "%+v", w.infra.Status.Conditions)
	}).Should(Succeed())
	w.clusterStatus(func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
}

func (w *world) clusterStatus(change func(*clusterv1.Cluster)) {
	w.t.Helper()
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(w.cluster), w.cluster); err != nil {
			return err
		}
		change(w.cluster)
		return k8s.Status().Update(ctx, w.cluster)
	}).Should(Succeed())
}

func (w *world) secret(password string) {
	w.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-vcenter"},
		StringData: map[string]string{infrav1.SecretUsernameKey: vcenter.DefaultUsername, infrav1.SecretPasswordKey: password},
	}
	existing := &corev1.Secret{}
	if k8s.Get(ctx, client.ObjectKeyFromObject(secret), existing) == nil {
		existing.StringData = secret.StringData
		w.g.Expect(k8s.Update(ctx, existing)).To(Succeed())
		return
	}
	w.g.Expect(k8s.Create(ctx, secret)).To(Succeed())
}

// withPool creates a pool of workers with the slots <namespace>-w-1 and so on: Nodes have no namespace, so their names must
// differ between tests.
func (w *world) withPool(slots int, change ...func(*infrav1.VSphereMachineConfigPool)) *infrav1.VSphereMachineConfigPool {
	w.t.Helper()
	pool := &infrav1.VSphereMachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-worker"},
		Spec: infrav1.VSphereMachineConfigPoolSpec{
			ClusterRef: corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo"},
			Datacenter: "dc-a",
		},
	}
	for i := 1; i <= slots; i++ {
		pool.Spec.Configs = append(pool.Spec.Configs, w.slot(i))
	}
	for _, c := range change {
		c(pool)
	}
	w.g.Expect(k8s.Create(ctx, pool)).To(Succeed())
	return pool
}

func (w *world) slot(i int) infrav1.VSphereMachineConfig {
	return infrav1.VSphereMachineConfig{
		Hostname: fmt.Sprintf("%s-w-%d", w.ns, i),
		Network: &infrav1.MachineConfigNetwork{Primary: infrav1.MachineConfigNetworkDevice{
			NetworkName: "pg-node", IP: fmt.Sprintf("127.64.1.%d/24", 30+i), Gateway: "127.64.1.1",
		}},
		PersistentDisks: []infrav1.PersistentDisk{{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", FSFormat: infrav1.Ext4}},
		EphemeralDisks:  []infrav1.EphemeralDisk{{Name: "containerd", SizeGiB: 20, MountPath: "/var/lib/containerd", FSFormat: infrav1.Ext4}},
	}
}

// withMachine creates what a MachineSet would: Machine, bootstrap Secret and VSphereMachine. Without a pool it uses DHCP.
func (w *world) withMachine(name, pool string, change ...func(*infrav1.VSphereMachine)) *infrav1.VSphereMachine {
	w.t.Helper()
	set := w.machineSet()
	w.g.Expect(k8s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"}},
		StringData: map[string]string{"value": "#cloud-config\nwrite_files: []\n", "format": "cloud-config"},
	})).To(Succeed())
	labels := map[string]string{clusterv1.ClusterNameLabel: "demo"}
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "demo",
			FailureDomain:     w.failureDomain,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachine", Name: name},
		},
	}
	w.g.Expect(k8s.Create(ctx, m)).To(Succeed())
	vm := &infrav1.VSphereMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))},
		},
		Spec: infrav1.VSphereMachineSpec{VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
			Template: "os-v136-3", CloneMode: infrav1.FullClone, Datacenter: "dc-a", Folder: "k8s", ResourcePool: "k8s", Datastore: "ds-shared-a",
			NumCPUs: 2, MemoryMiB: 2048,
			Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node"}}},
		}},
	}
	if pool != "" {
		vm.Spec.MachineConfigPoolRef = &corev1.ObjectReference{Kind: "VSphereMachineConfigPool", Name: pool}
	} else {
		vm.Spec.Network.Devices[0].DHCP4 = true
	}
	for _, c := range change {
		c(vm)
	}
	w.g.Expect(k8s.Create(ctx, vm)).To(Succeed())
	return vm
}

// machineSet is the MachineSet of the MachineDeployment demo-md-0, which itself need not exist.
func (w *world) machineSet() *clusterv1.MachineSet {
	w.t.Helper()
	set := &clusterv1.MachineSet{}
	key := client.ObjectKey{Namespace: w.ns, Name: "demo-md-0-x"}
	if k8s.Get(ctx, key, set) == nil {
		return set
	}
	set = &clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: "demo-md-0-x", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment", Name: "demo-md-0", UID: "1e2e5a5e-0000-4000-8000-000000000001", Controller: ptr.To(true),
			}},
		},
		Spec: clusterv1.MachineSetSpec{
			ClusterName: "demo",
			Replicas:    ptr.To[int32](0),
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"set": "demo-md-0-x"}},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"set": "demo-md-0-x"}},
				Spec: clusterv1.MachineSpec{
					ClusterName:       "demo",
					Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachineTemplate", Name: "none"},
				},
			},
		},
	}
	w.g.Expect(k8s.Create(ctx, set)).To(Succeed())
	return set
}

func (w *world) machineOf(m *infrav1.VSphereMachine) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
}
