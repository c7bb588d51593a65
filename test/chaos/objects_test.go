package chaos

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// patience bounds every wait. Nothing takes nearly that long on an idle machine: where the manager would wait for minutes, time
// jumps.
const patience = 2 * time.Minute

// until waits for something and says what it still lacks if it does not come. It looks when something has happened, a moment
// later, and once a second.
func (w *world) until(reached func() string) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	moves, looked, again := int64(-1), time.Time{}, false
	lacks := ""
	for {
		now := w.moves.Load()
		if now != moves || again && time.Since(looked) > 150*time.Millisecond || time.Since(looked) > time.Second {
			again = now != moves
			moves, looked = now, time.Now()
			if lacks = reached(); lacks == "" {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %s", patience, lacks)
		}
		<-tick.C
	}
}

func (w *world) create(objects ...client.Object) error {
	for _, obj := range objects {
		obj.SetNamespace(w.ns)
		if err := k8s.Create(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) get(name string, obj client.Object) error {
	return k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, obj)
}

// withCluster creates a Cluster whose workload cluster can be asked: the API server of the test plays it.
func (w *world) withCluster() error {
	if err := w.create(
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "demo-vcenter"},
			StringData: map[string]string{infrav1.SecretUsernameKey: vcenter.DefaultUsername, infrav1.SecretPasswordKey: vcenter.DefaultPassword},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "demo-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"}},
			Type:       clusterv1.ClusterSecretType,
			Data:       map[string][]byte{"value": kubeconfig},
		},
	); err != nil {
		return err
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Finalizers: []string{"chaos.test/core"}},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereCluster", Name: "demo"},
			ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: "demo"},
		},
	}
	if err := w.create(cluster); err != nil {
		return err
	}
	return w.create(&infrav1.VSphereCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: "demo", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo", UID: cluster.UID}},
		},
		Spec: infrav1.VSphereClusterSpec{
			Server: w.proxy.Address(), Thumbprint: w.proxy.Thumbprint(),
			ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "127.64.1.10", Port: 6443},
			IdentityRef:          &infrav1.VSphereIdentityReference{Kind: infrav1.SecretKind, Name: "demo-vcenter"},
		},
	})
}

// provisioned waits for the VSphereCluster and tells the Cluster, as Cluster API does.
func (w *world) provisioned() error {
	return w.until(func() string {
		infra := &infrav1.VSphereCluster{}
		if err := w.get("demo", infra); err != nil {
			return err.Error()
		}
		if !ptr.Deref(infra.Status.Initialization.Provisioned, false) {
			return fmt.Sprintf("VSphereCluster is not provisioned: %s", said(infra))
		}
		cluster := &clusterv1.Cluster{}
		if err := w.get("demo", cluster); err != nil {
			return err.Error()
		}
		cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{
			InfrastructureProvisioned: ptr.To(true), ControlPlaneInitialized: ptr.To(true),
		}
		if err := k8s.Status().Update(ctx, cluster); err != nil {
			return err.Error()
		}
		return ""
	})
}

// withPool creates the pool with so many slots. Nodes have no namespace, so the host names carry it.
func (w *world) withPool(slots int, change ...func(*infrav1.VSphereMachineConfigPool)) error {
	pool := &infrav1.VSphereMachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		Spec: infrav1.VSphereMachineConfigPoolSpec{
			ClusterRef:        corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo"},
			Datacenter:        "dc-a",
			ReleaseDelayHours: ptr.To(1),
		},
	}
	for i := 1; i <= slots; i++ {
		pool.Spec.Configs = append(pool.Spec.Configs, infrav1.VSphereMachineConfig{
			Hostname: w.host(i),
			Network: &infrav1.MachineConfigNetwork{Primary: infrav1.MachineConfigNetworkDevice{
				NetworkName: "pg-node", IP: fmt.Sprintf("127.64.1.%d/24", 30+i), Gateway: "127.64.1.1",
			}},
			PersistentDisks: []infrav1.PersistentDisk{
				{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", FSFormat: infrav1.Ext4},
				{Name: "data", SizeGiB: 5, MountPath: "/data", FSFormat: infrav1.XFS},
			},
			EphemeralDisks: []infrav1.EphemeralDisk{{Name: "containerd", SizeGiB: 20, MountPath: "/var/lib/containerd", FSFormat: infrav1.Ext4}},
		})
	}
	for _, c := range change {
		c(pool)
	}
	return w.create(pool)
}

func (w *world) host(i int) string { return fmt.Sprintf("%s-w-%d", w.ns, i) }

func retaining(p *infrav1.VSphereMachineConfigPool) {
	p.Annotations = map[string]string{infrav1.RetainDisksAnnotation: "true"}
}

// withMachine creates what a MachineSet would.
func (w *world) withMachine(name string) error {
	set, err := w.machineSet()
	if err != nil {
		return err
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: "demo"}
	owner := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "demo",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachine", Name: name},
		},
	}
	if err := w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		StringData: map[string]string{"value": "#cloud-config\nwrite_files: []\n", "format": "cloud-config"},
	}, owner); err != nil {
		return err
	}
	return w.create(&infrav1.VSphereMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, clusterv1.GroupVersion.WithKind("Machine"))},
		},
		Spec: infrav1.VSphereMachineSpec{
			VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
				Template: "os-v136-3", CloneMode: infrav1.FullClone, Datacenter: "dc-a", Folder: "k8s", ResourcePool: "k8s", Datastore: "ds-shared-a",
				NumCPUs: 2, MemoryMiB: 2048,
				Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node"}}},
			},
			MachineConfigPoolRef: &corev1.ObjectReference{Kind: "VSphereMachineConfigPool", Name: "workers"},
		},
	})
}

// machineSet is the MachineSet of the MachineDeployment demo-md-0, which itself need not exist.
func (w *world) machineSet() (*clusterv1.MachineSet, error) {
	set := &clusterv1.MachineSet{}
	if w.get("demo-md-0-x", set) == nil {
		return set, nil
	}
	labels := map[string]string{"set": "demo-md-0-x"}
	set = &clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "demo-md-0-x", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment", Name: "demo-md-0", UID: "1e2e5a5e-0000-4000-8000-000000000001", Controller: ptr.To(true),
			}},
		},
		Spec: clusterv1.MachineSetSpec{
			ClusterName: "demo", Replicas: ptr.To[int32](0), Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
				Spec: clusterv1.MachineSpec{
					ClusterName: "demo", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachineTemplate", Name: "none"},
				},
			},
		},
	}
	return set, w.create(set)
}

// The lacks: "" when something is as it should be, else what is not yet.

// ready: the machine runs in its place with its disks.
func (w *world) ready(name string) func() string {
	return func() string {
		m := &infrav1.VSphereMachine{}
		if err := w.get(name, m); err != nil {
			return err.Error()
		}
		if !m.Status.Ready || !ptr.Deref(m.Status.Initialization.Provisioned, false) || m.Spec.ProviderID == nil || !conditions.IsTrue(m, infrav1.ReadyCondition) {
			return fmt.Sprintf("%s is not ready: %s", name, said(m))
		}
		pool := &infrav1.VSphereMachineConfigPool{}
		if err := w.get("workers", pool); err != nil {
			return err.Error()
		}
		host := ""
		for _, s := range pool.Status.ConfigStatuses {
			if s.Mark == m.Annotations[infrav1.MarkAnnotation] && s.State == infrav1.ConfigStateInUse {
				host = s.Hostname
			}
		}
		if host == "" {
			return fmt.Sprintf("%s is ready and has no slot on record: %+v", name, pool.Status.ConfigStatuses)
		}
		disks := 0
		for _, d := range pool.Status.PersistentDiskStatuses {
			if d.Hostname != host {
				continue
			}
			if d.Phase != infrav1.DiskPhaseAttached || d.DiskUUID == "" {
				return fmt.Sprintf("disk %s of %s is %s", d.Name, host, d.Phase)
			}
			disks++
		}
		if disks != 2 {
			return fmt.Sprintf("%d disks on record for %s, wanted 2", disks, host)
		}
		if err := w.others.remember(m); err != nil {
			return err.Error()
		}
		return ""
	}
}

// left: the Machine is gone, the slot is nobody's, its disks are kept by themselves.
func (w *world) left(name string) func() string {
	return func() string {
		if lacks := w.gone(name, &clusterv1.Machine{})(); lacks != "" {
			return lacks
		}
		pool := &infrav1.VSphereMachineConfigPool{}
		if err := w.get("workers", pool); err != nil {
			return err.Error()
		}
		for _, s := range pool.Status.ConfigStatuses {
			if s.CAPIMachineName == name && s.State == infrav1.ConfigStateInUse {
				return fmt.Sprintf("slot %s is still in use by %s", s.Hostname, name)
			}
		}
		for _, d := range pool.Status.PersistentDiskStatuses {
			if d.Phase == infrav1.DiskPhaseAttached && d.OwnerMachineName == name {
				return fmt.Sprintf("disk %s of %s is on record as attached to %s", d.Name, d.Hostname, name)
			}
		}
		return ""
	}
}

func (w *world) gone(name string, obj client.Object) func() string {
	return func() string {
		err := w.get(name, obj)
		switch {
		case err == nil:
			text := fmt.Sprintf("%T %s still exists", obj, name)
			if c, ok := obj.(conditions.Getter); ok {
				text += ": " + said(c)
			}
			return text
		case client.IgnoreNotFound(err) != nil:
			return err.Error()
		default:
			return ""
		}
	}
}

// said is what an object says about itself.
func said(obj conditions.Getter) string {
	text := ""
	for _, c := range obj.GetConditions() {
		if c.Status != metav1.ConditionTrue {
			text += fmt.Sprintf("%s=%s %s %s; ", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}

func all(lacks ...func() string) func() string {
	return func() string {
		for _, l := range lacks {
			if text := l(); text != "" {
				return text
			}
		}
		return ""
	}
}
