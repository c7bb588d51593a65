package admission

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// The owners of machines, in the version that Cluster API stores.
var (
	MachineDeployments   = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: rules.KindMachineDeployment}
	KubeadmControlPlanes = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: rules.KindKubeadmControlPlane}
	consumerKinds        = []schema.GroupVersionKind{MachineDeployments, KubeadmControlPlanes}
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinedeployments;machines,verbs=get;list
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get;list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusters;vspheremachines;vspheremachineconfigpools;vspheremachinetemplates;vspheredeploymentzones;vspherefailuredomains,verbs=get;list

// World gathers what the rules look at beside the object under examination.
type World struct{ Reader client.Reader }

func (w World) pool(ctx context.Context, pool *v1beta1.VSphereMachineConfigPool) (rules.VSpherePoolWorld, error) {
	var seen rules.VSpherePoolWorld
	var pools v1beta1.VSphereMachineConfigPoolList
	if err := w.Reader.List(ctx, &pools, client.InNamespace(pool.Namespace)); err != nil {
		return seen, fmt.Errorf("listing pools: %w", err)
	}
	seen.Pools = pools.Items
	var err error
	if seen.Cluster, err = w.cluster(ctx, pool.Namespace, pool.Spec.ClusterRef.Name); err != nil {
		return seen, err
	}
	if seen.Users, err = w.users(ctx, pool.Namespace); err != nil {
		return seen, err
	}
	for i := range seen.Users {
		u := &seen.Users[i]
		if u.Template == nil {
			continue
		}
		if key, ok := rules.PoolKey(u.Template.Spec.Template.Spec.MachineConfigPoolRef, u.Namespace); !ok || client.ObjectKey(key) != client.ObjectKeyFromObject(pool) {
			continue
		}
		if u.Placements, err = w.placements(ctx, &u.Consumer); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// cluster reads a Cluster, nil if it does not exist.
func (w World) cluster(ctx context.Context, namespace, name string) (*rules.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	var c clusterv1.Cluster
	if err := w.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c); err != nil {
		return nil, absent(err, "reading Cluster %s/%s", namespace, name)
	}
	out := &rules.Cluster{Namespace: namespace, Name: name, Endpoint: c.Spec.ControlPlaneEndpoint.Host}
	out.Paused = c.Spec.Paused != nil && *c.Spec.Paused
	if out.Endpoint == "" {
		infra, err := w.infrastructure(ctx, &c)
		if err != nil {
			return nil, err
		}
		if infra != nil {
			out.Endpoint = infra.Spec.ControlPlaneEndpoint.Host
		}
	}
	return out, nil
}

// users are the owners of machines in a namespace whose templates are ours.
func (w World) users(ctx context.Context, namespace string) ([]rules.VSphereUser, error) {
	var templates v1beta1.VSphereMachineTemplateList
	if err := w.Reader.List(ctx, &templates, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing machine templates: %w", err)
	}
	byName := map[string]*v1beta1.VSphereMachineTemplate{}
	for i := range templates.Items {
		byName[templates.Items[i].Name] = &templates.Items[i]
	}
	var users []rules.VSphereUser
	for _, gvk := range consumerKinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := w.Reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing objects of kind %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			c, err := rules.ConsumerOf(&list.Items[i])
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", gvk.Kind, list.Items[i].GetName(), err)
			}
			if rules.UsesVSphere(c) {
				users = append(users, rules.VSphereUser{Consumer: *c, Template: byName[c.TemplateName]})
			}
		}
	}
	return users, nil
}

func (w World) template(ctx context.Context, t *v1beta1.VSphereMachineTemplate, topologyDryRun bool) (rules.VSphereTemplateWorld, error) {
	seen := rules.VSphereTemplateWorld{TopologyDryRun: topologyDryRun}
	var err error
	seen.Pool, err = w.poolNamed(ctx, t)
	return seen, err
}

// poolNamed is the pool that a template names, nil if there is none.
func (w World) poolNamed(ctx context.Context, t *v1beta1.VSphereMachineTemplate) (*v1beta1.VSphereMachineConfigPool, error) {
	key, ok := rules.PoolKey(t.Spec.Template.Spec.MachineConfigPoolRef, t.Namespace)
	if !ok {
		return nil, nil
	}
	var pool v1beta1.VSphereMachineConfigPool
	if err := w.Reader.Get(ctx, client.ObjectKey(key), &pool); err != nil {
		return nil, absent(err, "reading pool %s/%s", key.Namespace, key.Name)
	}
	return &pool, nil
}

// LookAround is what the rules for an owner of machines look at beside it.
func (w World) LookAround(ctx context.Context, c *rules.Consumer) (rules.VSphereConsumerWorld, error) {
	seen, err := w.Places(ctx, c)
	if err != nil || seen.Template == nil {
		return seen, err
	}
	if seen.Template.Spec.Template.Spec.MachineConfigPoolRef != nil {
		if seen.Others, err = w.users(ctx, c.Namespace); err != nil {
			return seen, err
		}
	}
	seen.Placements, err = w.placements(ctx, c)
	return seen, err
}

// Places is the part of an owner's world that says where its machines find a place.
func (w World) Places(ctx context.Context, c *rules.Consumer) (rules.VSphereConsumerWorld, error) {
	var seen rules.VSphereConsumerWorld
	cluster, err := w.cluster(ctx, c.Namespace, c.Cluster)
	if err != nil {
		return seen, err
	}
	seen.Paused = cluster != nil && cluster.Paused

	var t v1beta1.VSphereMachineTemplate
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.TemplateName}
	if err := w.Reader.Get(ctx, key, &t); err != nil {
		return seen, absent(err, "reading VSphereMachineTemplate %s", key)
	}
	seen.Template = &t
	seen.Pool, err = w.poolNamed(ctx, &t)
	return seen, err
}

// Scaled reads the owner of machines whose subresource scale is written, nil if it does not exist, with the replicas it would get.
func (w World) Scaled(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey, replicas int32) (*unstructured.Unstructured, *rules.Consumer, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	if err := w.Reader.Get(ctx, key, obj); err != nil {
		return nil, nil, absent(err, "reading %s %s", gvk.Kind, key)
	}
	c, err := rules.ConsumerOf(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", gvk.Kind, key, err)
	}
	c.Replicas = &replicas
	return obj, c, nil
}

// poolsOf lists the pools of the Cluster that owns a VSphereCluster. Before it is owned, the Cluster of the same name counts.
func (w World) poolsOf(ctx context.Context, c *v1beta1.VSphereCluster) ([]v1beta1.VSphereMachineConfigPool, error) {
	name := cmp.Or(c.Labels[clusterv1.ClusterNameLabel], c.Name)
	for _, ref := range c.OwnerReferences {
		if ref.Kind == "Cluster" {
			name = ref.Name
		}
	}
	var pools v1beta1.VSphereMachineConfigPoolList
	if err := w.Reader.List(ctx, &pools, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	var own []v1beta1.VSphereMachineConfigPool
	for _, p := range pools.Items {
		if p.Spec.ClusterRef.Name == name {
			own = append(own, p)
		}
	}
	return own, nil
}

// owner is the VSphereMachine of a VSphereVM, nil if it is gone.
func (w World) owner(ctx context.Context, vm *v1beta1.VSphereVM) (*v1beta1.VSphereMachine, error) {
	for _, ref := range vm.OwnerReferences {
		if ref.Kind != "VSphereMachine" {
			continue
		}
		var m v1beta1.VSphereMachine
		if err := w.Reader.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: ref.Name}, &m); err != nil {
			return nil, absent(err, "reading VSphereMachine %s/%s", vm.Namespace, ref.Name)
		}
		if m.UID == ref.UID {
			return &m, nil
		}
	}
	return nil, nil
}

// absent passes an error on unless it says that something is not there.
func absent(err error, doing string, args ...any) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf(doing+": %w", append(args, err)...)
}
