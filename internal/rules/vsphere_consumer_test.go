package rules_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// The four forms in which owners of machines come, all of them as they should be.
const (
	oldDeployment = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: md, namespace: ns}
spec:
  clusterName: demo
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    spec:
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: v1}
`
	newDeployment = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: ns}
spec:
  clusterName: demo
  replicas: 2
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
  template:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: v1}
`
	oldControlPlane = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: cp, namespace: ns, labels: {cluster.x-k8s.io/cluster-name: demo}}
spec:
  replicas: 3
  rolloutStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}
  machineTemplate:
    infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: v1}
`
	newControlPlane = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: ns, labels: {cluster.x-k8s.io/cluster-name: demo}}
spec:
  replicas: 3
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: v1}
`
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return obj
}

func consumer(t *testing.T, obj *unstructured.Unstructured) *rules.Consumer {
	t.Helper()
	c, err := rules.ConsumerOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newTemplate(name, pool string) *v1beta1.VSphereMachineTemplate {
	t := &v1beta1.VSphereMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	t.Spec.Template.Spec.Template = "image"
	t.Spec.Template.Spec.CloneMode = v1beta1.FullClone
	t.Spec.Template.Spec.NumCPUs, t.Spec.Template.Spec.MemoryMiB = 4, 8192
	t.Spec.Template.Spec.Network.Devices = []v1beta1.NetworkDeviceSpec{{NetworkName: "pg-node"}}
	if pool != "" {
		t.Spec.Template.Spec.MachineConfigPoolRef = &corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "VSphereMachineConfigPool", Name: pool}
	}
	return t
}

// complete is a world in which everything is there.
func complete() rules.VSphereConsumerWorld {
	pool := newPool()
	pool.Spec.Configs = append(pool.Spec.Configs, newSlot("w-3", "192.0.2.33/24"))
	return rules.VSphereConsumerWorld{Template: newTemplate("v1", "workers"), Pool: pool}
}

func TestVSphereConsumer(t *testing.T) {
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				panic(err)
			}
		}
	}
	unset := func(path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, path...) }
	}
	none := func(*unstructured.Unstructured) {}
	oldSurge := []string{"spec", "strategy", "rollingUpdate", "maxSurge"}
	newSurge := []string{"spec", "rollout", "strategy", "rollingUpdate", "maxSurge"}
	newUnavailable := []string{"spec", "rollout", "strategy", "rollingUpdate", "maxUnavailable"}
	world := func(edit func(*rules.VSphereConsumerWorld)) rules.VSphereConsumerWorld {
		w := complete()
		edit(&w)
		return w
	}
	other := rules.VSphereUser{Consumer: rules.Consumer{Kind: rules.KindMachineDeployment, Namespace: "ns", Name: "other", TemplateName: "v7"}, Template: newTemplate("v7", "workers")}
	const template = "spec.template.spec.infrastructureRef.name"

	for _, c := range []struct {
		id, name, text string
		edit           func(*unstructured.Unstructured)
		world          rules.VSphereConsumerWorld
		want           expectation
	}{
		{"VS-R8", "MachineDeployment, v1beta1", oldDeployment, none, complete(), accepted},
		{"VS-R8", "MachineDeployment, v1beta2", newDeployment, none, complete(), accepted},
		{"VS-R9", "KubeadmControlPlane, v1beta1", oldControlPlane, none, complete(), accepted},
		{"VS-R9", "KubeadmControlPlane, v1beta2", newControlPlane, none, complete(), accepted},

		{"VS-W30", "template missing", newDeployment, none, rules.VSphereConsumerWorld{}, refused(field.ErrorTypeInvalid, template, "referenced VSphereMachineTemplate does not exist: ns/v1")},
		{"decision D18", "template missing, Cluster paused", newDeployment, none, rules.VSphereConsumerWorld{Paused: true}, warned("does not exist")},
		{"VS-W31", "template without a pool", newDeployment, set(int64(1), newSurge...), rules.VSphereConsumerWorld{Template: newTemplate("v1", "")}, accepted},
		{"VS-W32", "pool missing", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) { w.Pool = nil }), refused(field.ErrorTypeInvalid, template, "referenced machine config pool does not exist: ns/workers")},
		{"VS-W33", "pool bound to another", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) {
			w.Pool.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "MachineDeployment", Namespace: "ns", Name: "other"}
		}), refused(field.ErrorTypeForbidden, template, "machine config pool ns/workers is bound to MachineDeployment ns/other")},
		{"decision V6", "pool bound to the same one in another version", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) {
			w.Pool.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "MachineDeployment", Namespace: "ns", Name: "md"}
		}), accepted},
		{"VS-R56", "a template of another namespace, v1beta1", oldDeployment, set("elsewhere", "spec", "template", "spec", "infrastructureRef", "namespace"), complete(), refused(field.ErrorTypeInvalid, "spec.template.spec.infrastructureRef.namespace", "must be ns")},
		{"VS-R56", "a template of its own namespace, v1beta1", oldDeployment, set("ns", "spec", "template", "spec", "infrastructureRef", "namespace"), complete(), accepted},
		{"VS-R57", "etcd's data for the next member", newControlPlane, none, world(func(w *rules.VSphereConsumerWorld) {
			w.Pool.Spec.Configs[1].PersistentDisks[0].MountPath = "/var/lib/etcd/"
		}), warned(`"var-cpaas" of slot w-2 of pool ns/workers keeps /var/lib/etcd for the next machine`)},
		{"VS-R57", "etcd's disk is emptied", newControlPlane, none, world(func(w *rules.VSphereConsumerWorld) {
			d := &w.Pool.Spec.Configs[1].PersistentDisks[0]
			d.MountPath, d.WipeFilesystem = "/var/lib/etcd", ptr.To(true)
		}), accepted},
		{"VS-R57", "workers have no etcd", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) {
			w.Pool.Spec.Configs[1].PersistentDisks[0].MountPath = "/var/lib/etcd"
		}), accepted},
		{"VS-R2", "two owners on one pool", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) { w.Others = []rules.VSphereUser{other} }), refused(field.ErrorTypeForbidden, template, "already referenced by MachineDeployment ns/other")},
		{"VS-W34", "the other one is being deleted", newDeployment, none, world(func(w *rules.VSphereConsumerWorld) {
			leaving := other
			leaving.Deleting = true
			w.Others = []rules.VSphereUser{leaving}
		}), accepted},
		{"decision V3", "pool of another cluster", newDeployment, set("stage", "spec", "clusterName"), complete(), refused(field.ErrorTypeInvalid, template, "belongs to Cluster demo")},
		{"VS-W34", "machines of another provider", newDeployment, func(o *unstructured.Unstructured) {
			set("other.example", "spec", "template", "spec", "infrastructureRef", "apiGroup")(o)
			set(int64(1), newSurge...)(o)
		}, rules.VSphereConsumerWorld{}, accepted},

		{"VS-R5", "surge of 1, v1beta1", oldDeployment, set(int64(1), oldSurge...), complete(), refused(field.ErrorTypeInvalid, "spec.strategy.rollingUpdate.maxSurge", "maxSurge must be 0")},
		{"VS-R6", "no surge named, v1beta1", oldDeployment, unset("spec", "strategy"), complete(), refused(field.ErrorTypeInvalid, "spec.strategy.rollingUpdate.maxSurge", "which means 1")},
		{"VS-R7", "OnDelete", oldDeployment, set(map[string]any{"type": "OnDelete"}, "spec", "strategy"), complete(), accepted},
		{"VS-W37", "surge as a percentage", newDeployment, set("0%", newSurge...), complete(), refused(field.ErrorTypeInvalid, "spec.rollout.strategy.rollingUpdate.maxSurge", "not as a percentage")},
		{"VS-W38", "nothing may be unavailable", newDeployment, set(int64(0), newUnavailable...), complete(), refused(field.ErrorTypeInvalid, "spec.rollout.strategy.rollingUpdate.maxUnavailable", "at least 1")},
		{"VS-W38", "maxUnavailable missing", newDeployment, unset(newUnavailable...), complete(), refused(field.ErrorTypeInvalid, "spec.rollout.strategy.rollingUpdate.maxUnavailable", "at least 1")},
		{"VS-W38", "0% may be unavailable", newDeployment, set("0%", newUnavailable...), complete(), refused(field.ErrorTypeInvalid, "spec.rollout.strategy.rollingUpdate.maxUnavailable", "0 of 2")},
		{"decision D5", "a percentage that is less than one machine", newDeployment, set("49%", newUnavailable...), complete(), refused(field.ErrorTypeInvalid, "spec.rollout.strategy.rollingUpdate.maxUnavailable", "0 of 2 replicas, rounded down")},
		{"decision D5", "a percentage that is one machine", newDeployment, set("50%", newUnavailable...), complete(), accepted},
		{"VS-W39", "more replicas than slots", newDeployment, set(int64(4), "spec", "replicas"), complete(), warned("has 3 slots")},

		{"VS-W35", "control plane with surge", oldControlPlane, set(int64(1), "spec", "rolloutStrategy", "rollingUpdate", "maxSurge"), complete(), refused(field.ErrorTypeInvalid, "spec.rolloutStrategy.rollingUpdate.maxSurge", "maxSurge must be 0")},
		{"VS-R10", "control plane of one", oldControlPlane, set(int64(1), "spec", "replicas"), complete(), refused(field.ErrorTypeInvalid, "spec.replicas", "must have at least 3 replicas")},
		{"VS-W36", "control plane without a number", newControlPlane, unset("spec", "replicas"), complete(), refused(field.ErrorTypeInvalid, "spec.replicas", "must have at least 3 replicas")},
		{"decision D6", "control plane of three", newControlPlane, none, complete(), accepted},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			obj := object(t, c.text)
			c.edit(obj)
			c.want.check(t, rules.VSphereConsumer(nil, consumer(t, obj), c.world))
		})
	}

	t.Run("VS-W28 an unchanged spec is not judged again", func(t *testing.T) {
		before, after := object(t, newDeployment), object(t, newDeployment)
		set(int64(1), newSurge...)(before)
		set(int64(1), newSurge...)(after)
		after.SetLabels(map[string]string{"a": "b"})
		accepted.check(t, rules.VSphereConsumer(consumer(t, before), consumer(t, after), rules.VSphereConsumerWorld{}))
	})
	t.Run("VS-R37 pointing back to the previous template is judged like any other change", func(t *testing.T) {
		before, after := object(t, newDeployment), object(t, newDeployment)
		set("v2", "spec", "template", "spec", "infrastructureRef", "name")(before)
		accepted.check(t, rules.VSphereConsumer(consumer(t, before), consumer(t, after), complete()))
	})
	t.Run("what is being deleted is let go", func(t *testing.T) {
		obj := object(t, newDeployment)
		now := metav1.Now()
		obj.SetDeletionTimestamp(&now)
		accepted.check(t, rules.VSphereConsumer(nil, consumer(t, obj), rules.VSphereConsumerWorld{}))
	})
	t.Run("other kinds are no owners of machines", func(t *testing.T) {
		_, err := rules.ConsumerOf(object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("owns no machines")))
	})
}

// TestVSpherePoolAndItsUsers: what the owners of machines ask of a pool, when the pool comes second.
func TestVSpherePoolAndItsUsers(t *testing.T) {
	user := func(edit func(*rules.VSphereUser)) rules.VSpherePoolWorld {
		u := rules.VSphereUser{Consumer: *consumer(t, object(t, newDeployment)), Template: newTemplate("v1", "workers")}
		edit(&u)
		return rules.VSpherePoolWorld{Users: []rules.VSphereUser{u}}
	}
	for _, c := range []struct {
		id, name string
		world    rules.VSpherePoolWorld
		want     expectation
	}{
		{"VS-R18", "as many slots as replicas", user(func(*rules.VSphereUser) {}), accepted},
		{"decision D7", "fewer slots than replicas", user(func(u *rules.VSphereUser) { *u.Replicas = 5 }), warned("wants 5 replicas, and the pool has 2 slots")},
		{"decision V3", "another cluster", user(func(u *rules.VSphereUser) { u.Cluster = "stage" }), refused(field.ErrorTypeInvalid, "spec.clusterRef.name", "Cluster stage")},
		{"decision V4", "a template with more devices", user(func(u *rules.VSphereUser) {
			u.Template.Spec.Template.Spec.Network.Devices = append(u.Template.Spec.Template.Spec.Network.Devices, v1beta1.NetworkDeviceSpec{NetworkName: "pg-stor"})
		}), warned("has 1 network interface(s), template v1 has 2 device(s)")},
		{"decision D8", "a template with a disk of the same name", user(func(u *rules.VSphereUser) {
			u.Template.Spec.Template.Spec.DataDisks = []v1beta1.VSphereDisk{{Name: "app-data", SizeGiB: 1}}
		}), refused(field.ErrorTypeInvalid, "spec.configs[0].persistentDisks[1].name", "dataDisks of template v1")},
		{"VS-R57", "etcd's data for the next member", user(func(u *rules.VSphereUser) {
			u.Kind = rules.KindKubeadmControlPlane
		}), accepted},
		{"decision V4", "a template of another pool", user(func(u *rules.VSphereUser) {
			u.Template.Spec.Template.Spec.MachineConfigPoolRef.Name = "elsewhere"
			u.Template.Spec.Template.Spec.Network.Devices = nil
		}), accepted},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			c.want.check(t, rules.VSphereMachineConfigPool(nil, newPool(), c.world))
		})
	}
}
