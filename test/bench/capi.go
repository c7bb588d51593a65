package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

const (
	namespace   = "bench"
	clusterName = "bench"
	poolName    = "bench-worker"
	template    = "bench-worker"
	secretName  = "bench-vcenter"
	deployment  = "bench-md-0"
	// parallel is how many requests are made at the same time, as by a busy MachineSet controller.
	parallel = 10
	// slotsPerNetwork keeps the last octet of a slot's address valid.
	slotsPerNetwork = 250
	maxMachines     = 200 * slotsPerNetwork
)

// clusterAPI plays the part of Cluster API's managers: it makes the objects they would make, in their order, and reacts to the
// machines as they would.
type clusterAPI struct {
	*world
	count int
	// slots in each of pools; machine i uses pool i modulo pools. atOnce is how many requests are made at the same time.
	slots, pools, atOnce int

	cluster *clusterv1.Cluster
	set     *clusterv1.MachineSet
	owners  []*clusterv1.Machine

	mu sync.Mutex
	// times of events by the machine's name.
	created, ready, asked, gone map[string]time.Time
	changed                     chan struct{}
}

func newClusterAPI(w *world, count int) *clusterAPI {
	return &clusterAPI{
		world: w, count: count, slots: count, pools: 1, atOnce: parallel, changed: make(chan struct{}, 1),
		created: map[string]time.Time{}, ready: map[string]time.Time{}, asked: map[string]time.Time{}, gone: map[string]time.Time{},
	}
}

func machineName(i int) string { return fmt.Sprintf("%s-%04d", deployment, i) }
func hostName(i int) string    { return fmt.Sprintf("bench-%04d", i) }

// poolOf names the pool of a machine.
func (c *clusterAPI) poolOf(i int) string {
	if i%c.pools == 0 {
		return poolName
	}
	return fmt.Sprintf("%s-%d", poolName, i%c.pools)
}

// watch notes when machines become ready and when they are gone, from the API server's own word.
func (c *clusterAPI) watch(ctx context.Context) error {
	go func() { _ = c.cache.Start(ctx) }()
	informer, err := c.cache.GetInformer(ctx, &infrav1.VSphereMachine{})
	if err != nil {
		return fmt.Errorf("watching VSphereMachines: %w", err)
	}
	look := func(obj any) {
		if m, ok := obj.(*infrav1.VSphereMachine); ok && isReady(m) {
			c.note(c.ready, m.Name)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, obj any) { look(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if m, ok := obj.(*infrav1.VSphereMachine); ok {
				c.note(c.gone, m.Name)
			}
		},
	})
	return err
}

// isReady is what Cluster API waits for.
func isReady(m *infrav1.VSphereMachine) bool {
	return m.DeletionTimestamp.IsZero() && m.Spec.ProviderID != nil && ptr.Deref(m.Status.Initialization.Provisioned, false) &&
		conditions.IsTrue(m, infrav1.ReadyCondition)
}

func (c *clusterAPI) note(times map[string]time.Time, name string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := times[name]; known {
		return
	}
	times[name] = now
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// all waits until an event was noted for every machine.
func (c *clusterAPI) all(ctx context.Context, times map[string]time.Time, what string) error {
	for {
		c.mu.Lock()
		have := len(times)
		c.mu.Unlock()
		if have >= c.count {
			return nil
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d machines are %s: %w", have, c.count, what, context.Cause(ctx))
		}
	}
}

// surroundings makes everything that is there before the machines, and waits until the infrastructure is provisioned.
func (c *clusterAPI) surroundings(ctx context.Context) error {
	kubeconfig, err := os.ReadFile(c.env.Kubeconfig())
	if err != nil {
		return err
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: clusterName}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	endpoint := fmt.Sprintf("127.%d.1.10", int(c.env.Range))
	c.cluster = &clusterv1.Cluster{ObjectMeta: meta(clusterName), Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: endpoint, Port: 6443},
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereCluster", Name: clusterName},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: clusterName},
	}}
	if err := c.create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{ObjectMeta: meta(secretName), StringData: map[string]string{
			infrav1.SecretUsernameKey: vcenter.DefaultUsername, infrav1.SecretPasswordKey: vcenter.DefaultPassword,
		}},
		// The questions about Nodes go to the management cluster, which has none.
		&corev1.Secret{ObjectMeta: meta(clusterName + "-kubeconfig"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig}},
		c.cluster,
	); err != nil {
		return err
	}
	infra := &infrav1.VSphereCluster{ObjectMeta: meta(clusterName), Spec: infrav1.VSphereClusterSpec{
		Server:               c.env.VCenterServer(),
		ControlPlaneEndpoint: infrav1.APIEndpoint{Host: endpoint, Port: 6443},
		IdentityRef:          &infrav1.VSphereIdentityReference{Kind: infrav1.SecretKind, Name: secretName},
	}}
	infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: clusterName, UID: c.cluster.UID}}
	machineTemplate := &infrav1.VSphereMachineTemplate{ObjectMeta: meta(template)}
	machineTemplate.Spec.Template.Spec = c.machineSpec(0)
	if err := c.create(ctx, infra, machineTemplate); err != nil {
		return err
	}
	for n := range c.pools {
		if err := c.create(ctx, c.pool(meta(c.poolOf(n)), n*c.slots)); err != nil {
			return err
		}
	}
	if err := until(ctx, 100*time.Millisecond, "the VSphereCluster is provisioned", func(ctx context.Context) (bool, error) {
		err := c.kube.Get(ctx, client.ObjectKeyFromObject(infra), infra)
		return err == nil && ptr.Deref(infra.Status.Initialization.Provisioned, false), err
	}); err != nil {
		return err
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.kube.Get(ctx, client.ObjectKeyFromObject(c.cluster), c.cluster); err != nil {
			return err
		}
		c.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		c.cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		return c.kube.Status().Update(ctx, c.cluster)
	}); err != nil {
		return fmt.Errorf("telling the Cluster that its infrastructure is provisioned: %w", err)
	}
	return c.owned(ctx, labels, meta)
}

// owned makes MachineDeployment, MachineSet, and per machine the bootstrap Secret and the Machine.
func (c *clusterAPI) owned(ctx context.Context, labels map[string]string, meta func(string) metav1.ObjectMeta) error {
	machine := clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: labels}, Spec: clusterv1.MachineSpec{
		ClusterName:       clusterName,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachineTemplate", Name: template},
	}}
	selector := metav1.LabelSelector{MatchLabels: labels}
	md := &clusterv1.MachineDeployment{ObjectMeta: meta(deployment), Spec: clusterv1.MachineDeploymentSpec{
		ClusterName: clusterName, Replicas: ptr.To(int32(c.count)), Selector: selector, Template: machine,
	}}
	md.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		},
	}
	if err := c.create(ctx, md); err != nil {
		return err
	}
	c.set = &clusterv1.MachineSet{ObjectMeta: meta(deployment + "-set"), Spec: clusterv1.MachineSetSpec{
		ClusterName: clusterName, Replicas: ptr.To(int32(c.count)), Selector: selector, Template: machine,
	}}
	c.set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(md, clusterv1.GroupVersion.WithKind("MachineDeployment"))}
	if err := c.create(ctx, c.set); err != nil {
		return err
	}
	c.owners = make([]*clusterv1.Machine, c.count)
	return c.each(ctx, func(ctx context.Context, i int) error {
		name := machineName(i)
		owner := &clusterv1.Machine{ObjectMeta: meta(name), Spec: clusterv1.MachineSpec{
			ClusterName:       clusterName,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "VSphereMachine", Name: name},
		}}
		owner.Finalizers = []string{clusterv1.MachineFinalizer}
		owner.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.set, clusterv1.GroupVersion.WithKind("MachineSet"))}
		c.owners[i] = owner
		return c.create(ctx, &corev1.Secret{ObjectMeta: meta(name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
			"format": []byte("cloud-config"), "value": userData(),
		}}, owner)
	})
}

// pool declares its slots from the first on, each with two persistent and two ephemeral disks.
func (c *clusterAPI) pool(meta metav1.ObjectMeta, first int) *infrav1.VSphereMachineConfigPool {
	p := &infrav1.VSphereMachineConfigPool{ObjectMeta: meta}
	p.Spec.ClusterRef = corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Namespace: namespace, Name: clusterName}
	p.Spec.Datacenter = "dc-a"
	for i := first; i < first+c.slots; i++ {
		p.Spec.Configs = append(p.Spec.Configs, infrav1.VSphereMachineConfig{
			Hostname: hostName(i),
			Network: &infrav1.MachineConfigNetwork{Primary: infrav1.MachineConfigNetworkDevice{
				NetworkName: "pg-node",
				IP:          fmt.Sprintf("127.%d.%d.%d/16", int(c.env.Range), 10+i/slotsPerNetwork, 1+i%slotsPerNetwork),
				Gateway:     fmt.Sprintf("127.%d.1.1", int(c.env.Range)),
			}},
			PersistentDisks: []infrav1.PersistentDisk{
				{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", FSFormat: infrav1.Ext4}, {Name: "app-data", SizeGiB: 5},
			},
			EphemeralDisks: []infrav1.EphemeralDisk{
				{Name: "var-lib-kubelet", SizeGiB: 5, MountPath: "/var/lib/kubelet", FSFormat: infrav1.Ext4},
				{Name: "var-lib-containerd", SizeGiB: 10, MountPath: "/var/lib/containerd", FSFormat: infrav1.Ext4},
			},
		})
	}
	return p
}

func (c *clusterAPI) machineSpec(i int) infrav1.VSphereMachineSpec {
	return infrav1.VSphereMachineSpec{
		VirtualMachineCloneSpec: infrav1.VirtualMachineCloneSpec{
			Server: c.env.VCenterServer(), Template: "os-v136-3", CloneMode: infrav1.FullClone,
			Datacenter: "dc-a", Folder: "/dc-a/vm/k8s", ResourcePool: "/dc-a/host/cl-a/Resources/k8s", Datastore: "ds-shared-a",
			NumCPUs: 4, MemoryMiB: 8192, DiskGiB: 40,
			Network: infrav1.NetworkSpec{Devices: []infrav1.NetworkDeviceSpec{{NetworkName: "pg-node"}}},
		},
		MachineConfigPoolRef: &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereMachineConfigPool", Namespace: namespace, Name: c.poolOf(i)},
	}
}

// machines creates the VSphereMachines: from here on time counts.
func (c *clusterAPI) machines(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, i int) error {
		name := machineName(i)
		m := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.owners[i], clusterv1.GroupVersion.WithKind("Machine"))},
		}, Spec: c.machineSpec(i)}
		if err := c.create(ctx, m); err != nil {
			return err
		}
		c.note(c.created, name)
		return nil
	})
}

// remove deletes the machines: the Machine first, which its finalizer holds, then the VSphereMachine.
func (c *clusterAPI) remove(ctx context.Context) error {
	return c.each(ctx, func(ctx context.Context, i int) error {
		name := machineName(i)
		for _, obj := range []client.Object{c.owners[i], &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}} {
			if err := c.kube.Delete(ctx, obj); err != nil {
				return fmt.Errorf("deleting %T %s: %w", obj, name, err)
			}
		}
		c.note(c.asked, name)
		return nil
	})
}

// release lets each Machine go once its VSphereMachine is gone.
func (c *clusterAPI) release(ctx context.Context) error {
	done := map[int]bool{}
	for len(done) < c.count {
		var batch []int
		c.mu.Lock()
		for i := range c.count {
			if _, gone := c.gone[machineName(i)]; gone && !done[i] {
				batch = append(batch, i)
			}
		}
		c.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-c.changed:
				continue
			case <-ctx.Done():
				return fmt.Errorf("%d of %d machines are gone: %w", len(done), c.count, context.Cause(ctx))
			}
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for _, i := range batch {
			done[i] = true
			group.Go(func() error {
				owner := &clusterv1.Machine{}
				if err := c.kube.Get(ctx, client.ObjectKeyFromObject(c.owners[i]), owner); err != nil {
					return err
				}
				before := owner.DeepCopy()
				controllerutil.RemoveFinalizer(owner, clusterv1.MachineFinalizer)
				return c.kube.Patch(ctx, owner, client.MergeFrom(before))
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("letting Machines go: %w", err)
		}
	}
	return nil
}

// slotsFree says whether no slot of the pool belongs to a machine any more.
func (c *clusterAPI) slotsFree(ctx context.Context) (bool, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: poolName}, p); err != nil {
		return false, err
	}
	for _, s := range p.Status.ConfigStatuses {
		if s.State != infrav1.ConfigStateReleased && s.State != infrav1.ConfigStateAvailable {
			return false, fmt.Errorf("slot %s is %s", s.Hostname, s.State)
		}
	}
	return true, nil
}

// stuck describes the first few machines that are not ready, for whoever has to find out why.
func (c *clusterAPI) stuck(ctx context.Context) (lines []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	list := &infrav1.VSphereMachineList{}
	if err := c.kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return []string{err.Error()}
	}
	for i := range list.Items {
		m := &list.Items[i]
		if isReady(m) || len(lines) == 5 {
			continue
		}
		line := m.Name + ": no condition Ready yet"
		if cond := conditions.Get(m, infrav1.ReadyCondition); cond != nil {
			line = fmt.Sprintf("%s: %s: %s", m.Name, cond.Reason, cond.Message)
		}
		lines = append(lines, line)
	}
	return lines
}

func (c *clusterAPI) create(ctx context.Context, objects ...client.Object) error {
	for _, obj := range objects {
		if err := c.kube.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating %T %s: %w", obj, obj.GetName(), err)
		}
	}
	return nil
}

// each calls act for every machine, some at the same time.
func (c *clusterAPI) each(ctx context.Context, act func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.atOnce)
	for i := range c.count {
		group.Go(func() error { return act(ctx, i) })
	}
	return group.Wait()
}

// userData is as large as kubeadm's usually is; light guests do not read it.
func userData() []byte {
	text := "#cloud-config\nwrite_files:\n- path: /run/kubeadm/kubeadm-join-config.yaml\n  permissions: '0640'\n  content: |\n"
	for range 200 {
		text += "    # ...............................................................\n"
	}
	return []byte(text + "runcmd:\n- kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml\n")
}
