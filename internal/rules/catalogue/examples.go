package catalogue

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// Short names for what examples edit.
type (
	pool     = v1beta1.VSphereMachineConfigPool
	slot     = v1beta1.VSphereMachineConfig
	nic      = v1beta1.MachineConfigNetworkDevice
	disk     = v1beta1.PersistentDisk
	template = v1beta1.VSphereMachineTemplate
	spec     = v1beta1.VSphereMachineSpec
	judge    = func() rules.Verdict
)

const namespace = "cpaas-system"

// newPool is a pool as it should be: two slots, demo-worker-1 and demo-worker-2.
func newPool() *pool {
	return &pool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo-worker"},
		Spec: v1beta1.VSphereMachineConfigPoolSpec{
			ClusterRef: corev1.ObjectReference{Kind: "Cluster", Name: "demo"},
			Datacenter: "dc-a",
			Configs:    []slot{newSlot("demo-worker-1", "192.0.2.31/24"), newSlot("demo-worker-2", "192.0.2.32/24")},
		},
	}
}

func newSlot(name, ip string) slot {
	return slot{
		Hostname: name,
		Network:  &v1beta1.MachineConfigNetwork{Primary: nic{NetworkName: "pg-node", IP: ip, Gateway: "192.0.2.1", DNS: []string{"192.0.2.53"}}},
		PersistentDisks: []disk{
			{Name: "var-cpaas", SizeGiB: 100, MountPath: "/var/cpaas", FSFormat: v1beta1.Ext4},
			{Name: "app-data", SizeGiB: 50},
		},
		EphemeralDisks: []v1beta1.EphemeralDisk{{Name: "var-lib-kubelet", SizeGiB: 50, MountPath: "/var/lib/kubelet", FSFormat: v1beta1.Ext4}},
	}
}

func newTemplate() *template {
	t := &template{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo-worker"}}
	t.Spec.Template.Spec.Template = "node-image"
	t.Spec.Template.Spec.CloneMode = v1beta1.FullClone
	t.Spec.Template.Spec.NumCPUs, t.Spec.Template.Spec.MemoryMiB, t.Spec.Template.Spec.DiskGiB = 8, 16384, 80
	t.Spec.Template.Spec.Network.Devices = []v1beta1.NetworkDeviceSpec{{NetworkName: "pg-node"}}
	t.Spec.Template.Spec.MachineConfigPoolRef = &corev1.ObjectReference{Kind: "VSphereMachineConfigPool", Name: "demo-worker"}
	return t
}

// created judges a new pool.
func created(edit func(*pool)) judge { return createdIn(rules.VSpherePoolWorld{}, edit) }

func createdIn(w rules.VSpherePoolWorld, edit func(*pool)) judge {
	return func() rules.Verdict {
		p := newPool()
		edit(p)
		return rules.VSphereMachineConfigPool(nil, p, w)
	}
}

// The parts of the first slot that examples edit.

func withSlot(edit func(*slot)) func(*pool) { return func(p *pool) { edit(&p.Spec.Configs[0]) } }

func withNIC(edit func(*nic)) func(*pool) {
	return withSlot(func(s *slot) { edit(&s.Network.Primary) })
}

func withDisk(edit func(*disk)) func(*pool) {
	return withSlot(func(s *slot) { edit(&s.PersistentDisks[0]) })
}

func withRawDisk(edit func(*disk)) func(*pool) {
	return withSlot(func(s *slot) { edit(&s.PersistentDisks[1]) })
}

func mounted(path string) func(*pool) { return withDisk(func(d *disk) { d.MountPath = path }) }

// inState is a pool whose first slot has a machine, or had one.
func inState(state v1beta1.ConfigState) *pool {
	p := newPool()
	p.Status.ConfigStatuses = []v1beta1.VSphereMachineConfigStatus{
		{Hostname: "demo-worker-1", State: state, MachineRef: &corev1.ObjectReference{Kind: "VSphereMachine", Name: "demo-worker-x7k2p"}},
		{Hostname: "demo-worker-2", State: v1beta1.ConfigStateAvailable},
	}
	return p
}

// edited judges a changed pool whose first slot is InUse.
func edited(edit func(*pool)) judge { return editedFrom(inState(v1beta1.ConfigStateInUse), edit) }

func editedFrom(old *pool, edit func(*pool)) judge {
	return func() rules.Verdict {
		p := old.DeepCopy()
		edit(p)
		return rules.VSphereMachineConfigPool(old, p, rules.VSpherePoolWorld{})
	}
}

// Owners of machines, as they should be.
const (
	deployment = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: demo-worker, namespace: cpaas-system}
spec:
  clusterName: demo
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    spec:
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: demo-worker}
`
	controlPlane = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: demo-control-plane, namespace: cpaas-system, labels: {cluster.x-k8s.io/cluster-name: demo}}
spec:
  replicas: 3
  rolloutStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}
  machineTemplate:
    infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: demo-worker}
`
)

// parsed is an owner of machines with one field set to a value, or removed if that is nil.
func parsed(text string, value any, path ...string) *rules.Consumer {
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = obj.UnmarshalJSON(data)
	}
	if err == nil && len(path) > 0 {
		unstructured.RemoveNestedField(obj.Object, path...)
		if value != nil {
			err = unstructured.SetNestedField(obj.Object, value, path...)
		}
	}
	if err != nil {
		panic(err) // an example that is none
	}
	c, err := rules.ConsumerOf(obj)
	if err != nil {
		panic(err)
	}
	return c
}

// complete is the world of an owner in which everything is there.
func complete() rules.VSphereConsumerWorld {
	p := newPool()
	p.Spec.Configs = append(p.Spec.Configs, newSlot("demo-worker-3", "192.0.2.33/24"))
	return rules.VSphereConsumerWorld{Template: newTemplate(), Pool: p}
}

// owned judges a new owner of machines with one field changed.
func owned(text string, value any, path ...string) judge {
	return ownedIn(func(*rules.VSphereConsumerWorld) {}, text, value, path...)
}

func ownedIn(edit func(*rules.VSphereConsumerWorld), text string, value any, path ...string) judge {
	return func() rules.Verdict {
		w := complete()
		edit(&w)
		return rules.VSphereConsumer(nil, parsed(text, value, path...), w)
	}
}

// user is an owner of machines beside a pool.
func user(text string, edit func(*rules.VSphereUser)) rules.VSphereUser {
	u := rules.VSphereUser{Consumer: *parsed(text, nil), Template: newTemplate()}
	edit(&u)
	return u
}

// usedBy judges a new pool with an owner of machines beside it.
func usedBy(text string, edit func(*rules.VSphereUser)) judge {
	return createdIn(rules.VSpherePoolWorld{Users: []rules.VSphereUser{user(text, edit)}}, func(*pool) {})
}

// domain is a failure domain that machines may go to.
func domain(datacenter string, networks ...string) rules.VSpherePlacement {
	d := &v1beta1.VSphereFailureDomain{ObjectMeta: metav1.ObjectMeta{Name: "fd-a"}}
	d.Spec.Topology = v1beta1.Topology{Datacenter: datacenter, Networks: networks}
	return rules.VSpherePlacement{Zone: "zone-a", Domain: d}
}

// templated judges a new template beside its pool.
func templated(edit func(*spec)) judge {
	return func() rules.Verdict {
		t := newTemplate()
		edit(&t.Spec.Template.Spec)
		w := rules.VSphereTemplateWorld{Pool: newPool()}
		if ref := t.Spec.Template.Spec.MachineConfigPoolRef; ref == nil || ref.Name != w.Pool.Name {
			w.Pool = nil
		}
		return rules.VSphereMachineTemplate(nil, t, w)
	}
}
