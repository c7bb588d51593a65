package rules

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// vSphereTemplateKind is the kind of template that makes an owner of machines ours.
const vSphereTemplateKind = "VSphereMachineTemplate"

// poolKind is the kind of pool that templates and machines name.
const poolKind = "VSphereMachineConfigPool"

// minControlPlanes of a control plane that gets its places from a pool.
const minControlPlanes = 3

// VSphereConsumerWorld is what the rules for an owner of machines look at beside it.
type VSphereConsumerWorld struct {
	// Paused: its Cluster is paused.
	Paused bool
	// Template that it names, nil if it does not exist.
	Template *v1beta1.VSphereMachineTemplate
	// Pool that the template names, nil if there is none.
	Pool *v1beta1.VSphereMachineConfigPool
	// Others in the namespace that own machines of ours, the object itself not among them.
	Others []VSphereUser
	// Placements are the failure domains that its machines may go to: the one it names, or all that a control plane may use.
	Placements []VSpherePlacement
}

// UsesVSphere reports whether the machines of a consumer are ours, by kind and group: a name alone once matched other
// providers.
func UsesVSphere(c *Consumer) bool {
	return c.TemplateKind == vSphereTemplateKind && c.TemplateGroup == v1beta1.GroupVersion.Group
}

// PoolKey of the pool that a machine or a template in a namespace names; ok is false if it names none.
func PoolKey(ref *corev1.ObjectReference, namespace string) (key struct{ Namespace, Name string }, ok bool) {
	if ref == nil || ref.Name == "" {
		return key, false
	}
	key.Namespace, key.Name = cmp.Or(ref.Namespace, namespace), ref.Name
	return key, true
}

// VSphereConsumer judges a new KubeadmControlPlane or MachineDeployment (old is nil) or a changed one.
func VSphereConsumer(old, c *Consumer, w VSphereConsumerWorld) Verdict {
	var v Verdict
	if c.Deleting || c.SameSpec(old) || !UsesVSphere(c) {
		return v
	}
	if c.TemplateNamespace != "" && c.TemplateNamespace != c.Namespace {
		v.refuse(field.Invalid(c.Paths.Template.Child("namespace"), c.TemplateNamespace, fmt.Sprintf("must be %s: all objects of a cluster live in one namespace; leave it out", c.Namespace)))
		return v
	}
	if w.Template == nil {
		v.reference(w.Paused, missingTemplate(c))
		return v
	}
	v.Merge(consumerPlacements(old, c, w))
	key, ok := PoolKey(w.Template.Spec.Template.Spec.MachineConfigPoolRef, c.Namespace)
	if !ok {
		return v // without a pool these are ordinary machines
	}
	if w.Pool == nil {
		v.reference(w.Paused, field.Invalid(c.Paths.Template.Child("name"), c.TemplateName, fmt.Sprintf(
			"referenced machine config pool does not exist: %s/%s; create it first, or use a template that names another", key.Namespace, key.Name)))
	} else {
		v.Merge(consumerPool(c, w.Pool))
	}
	for i := range w.Others {
		o := &w.Others[i]
		if o.Deleting || o.Template == nil || o.Kind == c.Kind && o.Name == c.Name {
			continue
		}
		if w.Pool != nil && boundTo(w.Pool, &o.Consumer) {
			continue // said already: the pool is bound to it
		}
		if other, ok := PoolKey(o.Template.Spec.Template.Spec.MachineConfigPoolRef, o.Namespace); ok && other == key {
			v.refuse(field.Forbidden(c.Paths.Template.Child("name"), fmt.Sprintf(
				"machine config pool %s/%s is already referenced by %s (template %s); a pool serves one owner of machines, make a pool and a template of its own for %s",
				key.Namespace, key.Name, o, o.TemplateName, c)))
		}
	}
	v.Errors = append(v.Errors, NoSurge(c)...)
	v.Errors = append(v.Errors, enoughControlPlanes(c)...)
	return v
}

// VSphereScale judges a new number of replicas of a KubeadmControlPlane or MachineDeployment that comes through the subresource
// scale, on its own: c is the owner with that number, and what else may be wrong with it is not at issue. A MachineDeployment is
// never refused, because autoscalers work through this door.
func VSphereScale(c *Consumer, w VSphereConsumerWorld) Verdict {
	var v Verdict
	if c.Deleting || !UsesVSphere(c) {
		return v
	}
	if w.Template == nil {
		if c.Kind == KindKubeadmControlPlane {
			v.reference(w.Paused, missingTemplate(c)) // whether it uses a pool cannot be known, and the quorum is at stake
		}
		return v
	}
	if _, ok := PoolKey(w.Template.Spec.Template.Spec.MachineConfigPoolRef, c.Namespace); !ok {
		return v
	}
	if w.Pool != nil {
		v.Merge(enoughSlots(c, w.Pool))
	}
	v.Errors = append(v.Errors, enoughControlPlanes(c)...)
	return v
}

func missingTemplate(c *Consumer) *field.Error {
	return field.Invalid(c.Paths.Template.Child("name"), c.TemplateName, fmt.Sprintf(
		"referenced VSphereMachineTemplate does not exist: %s/%s; create it first, or correct the name", c.Namespace, c.TemplateName))
}

// enoughControlPlanes checks that a control plane on a pool keeps its quorum in a roll.
func enoughControlPlanes(c *Consumer) field.ErrorList {
	if c.Kind != KindKubeadmControlPlane || c.Replicas != nil && *c.Replicas >= minControlPlanes {
		return nil
	}
	value := "unset"
	if c.Replicas != nil {
		value = fmt.Sprint(*c.Replicas)
	}
	return field.ErrorList{field.Invalid(c.Paths.Replicas, value, fmt.Sprintf("a control plane on a pool must have at least %d replicas: with maxSurge 0 fewer lose their quorum in every roll; set %d", minControlPlanes, minControlPlanes))}
}

// enoughSlots warns about machines that a pool has no place for.
func enoughSlots(c *Consumer, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	if c.Replicas != nil && int(*c.Replicas) > len(pool.Spec.Configs) {
		v.warn(c.Paths.Replicas, "%d replicas, but machine config pool %s/%s has %d slots: the other machines wait until slots are added", *c.Replicas, pool.Namespace, pool.Name, len(pool.Spec.Configs))
	}
	return v
}

// boundTo reports whether a pool serves an owner of machines.
func boundTo(pool *v1beta1.VSphereMachineConfigPool, c *Consumer) bool {
	r := pool.Status.ConsumerRef
	return r != nil && c.Same(r.APIVersion, r.Kind, cmp.Or(r.Namespace, pool.Namespace), r.Name)
}

// consumerPool checks an owner of machines against the pool that it would get.
func consumerPool(c *Consumer, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	at := c.Paths.Template.Child("name")
	if r := pool.Status.ConsumerRef; r != nil && !boundTo(pool, c) {
		v.refuse(field.Forbidden(at, fmt.Sprintf("machine config pool %s/%s is bound to %s %s/%s; use a template with a pool of its own for %s",
			pool.Namespace, pool.Name, r.Kind, cmp.Or(r.Namespace, pool.Namespace), r.Name, c)))
	}
	if c.Cluster != "" && pool.Spec.ClusterRef.Name != "" && c.Cluster != pool.Spec.ClusterRef.Name {
		v.refuse(field.Invalid(at, c.TemplateName, fmt.Sprintf("machine config pool %s/%s of this template belongs to Cluster %s, and %s to Cluster %s; use a template with a pool of that Cluster",
			pool.Namespace, pool.Name, pool.Spec.ClusterRef.Name, c, c.Cluster)))
	}
	v.Merge(enoughSlots(c, pool))
	if c.Kind == KindKubeadmControlPlane {
		v.Merge(etcdOfPredecessor(at, pool))
	}
	return v
}

// etcdPath is where a control plane keeps its share of the cluster's state.
const etcdPath = "/var/lib/etcd"

// etcdOfPredecessor warns about a disk that hands the data of one etcd member on to the next.
func etcdOfPredecessor(at *field.Path, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	for i := range pool.Spec.Configs {
		for _, d := range pool.Spec.Configs[i].PersistentDisks {
			if SamePath(d.MountPath, etcdPath) && (d.WipeFilesystem == nil || !*d.WipeFilesystem) {
				v.warn(at, "persistent disk %q of slot %s of pool %s/%s keeps %s for the next machine, whose etcd does not start on the data of another member; set its wipeFilesystem to true, or declare it in ephemeralDisks", d.Name, pool.Spec.Configs[i].Hostname, pool.Namespace, pool.Name, etcdPath)
				return v
			}
		}
	}
	return v
}

// poolUsers checks a pool against the owners of machines that use it.
func poolUsers(pool *v1beta1.VSphereMachineConfigPool, w VSpherePoolWorld) Verdict {
	var v Verdict
	configs := field.NewPath("spec", "configs")
	for i := range w.Users {
		u := &w.Users[i]
		if u.Deleting || u.Template == nil {
			continue
		}
		if key, ok := PoolKey(u.Template.Spec.Template.Spec.MachineConfigPoolRef, u.Template.Namespace); !ok || key.Name != pool.Name || key.Namespace != pool.Namespace {
			continue
		}
		if u.Cluster != "" && pool.Spec.ClusterRef.Name != "" && u.Cluster != pool.Spec.ClusterRef.Name {
			v.refuse(field.Invalid(field.NewPath("spec", "clusterRef", "name"), pool.Spec.ClusterRef.Name, fmt.Sprintf("%s of Cluster %s uses this pool through template %s; both must belong to the same Cluster, correct one of them", &u.Consumer, u.Cluster, u.Template.Name)))
		}
		if u.Replicas != nil && int(*u.Replicas) > len(pool.Spec.Configs) {
			v.warn(configs, "%s wants %d replicas, and the pool has %d slots: the other machines wait until slots are added", &u.Consumer, *u.Replicas, len(pool.Spec.Configs))
		}
		if detail := nicMismatch(pool, u.Template); detail != "" {
			v.warn(configs, "%s, which %s uses: machines cannot be replaced until a template with as many devices as the slots have interfaces is in use", detail, &u.Consumer)
		}
		for _, p := range u.Placements {
			for _, text := range p.quarrels(u.Template, pool) {
				v.warn(configs, "%s (%s goes there)", text, &u.Consumer)
			}
			if text := p.deserted(pool); text != "" {
				v.warn(configs, "%s (%s goes there)", text, &u.Consumer)
			}
		}
		if u.Kind == KindKubeadmControlPlane {
			v.Merge(etcdOfPredecessor(configs, pool))
		}
		clashing := map[string]bool{}
		for j := range pool.Spec.Configs {
			for _, d := range slotDisks(configs.Index(j), &pool.Spec.Configs[j]) {
				if hasDataDisk(u.Template, d.Name) && !clashing[d.Name] {
					clashing[d.Name] = true
					v.refuse(field.Invalid(d.Path.Child("name"), d.Name, fmt.Sprintf("is the name of a disk in dataDisks of template %s, which %s uses; disks of one machine need different names", u.Template.Name, &u.Consumer)))
				}
			}
		}
	}
	return v
}
