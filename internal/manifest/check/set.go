package check

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// set is all objects of the input. It is a client.Reader that sees those that have been applied, over the cluster if there is one.
type set struct {
	options Options
	report  Report
	// objects in the order of the input.
	objects []*object
	index   map[key]*object
	// absent are objects of the input that could not be read.
	absent map[key]bool
}

var _ client.Reader = &set{}

// scheme knows the types that rules read.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// Scheme knows the types that a client for Options.Server must know.
func Scheme() *runtime.Scheme { return scheme }

// Get implements client.Reader.
func (s *set) Get(ctx context.Context, k client.ObjectKey, out client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(out, scheme)
	if err != nil {
		return err
	}
	if o := s.index[key{gvk.GroupKind(), k.Namespace, k.Name}]; o != nil && o.applied {
		return o.into(out)
	}
	if s.options.Server != nil {
		return s.options.Server.Get(ctx, k, out, options...)
	}
	return apierrors.NewNotFound(kschema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, k.Name)
}

// List implements client.Reader for lists of a namespace.
func (s *set) List(ctx context.Context, out client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(out, scheme)
	if err != nil {
		return err
	}
	gk := kschema.GroupKind{Group: gvk.Group, Kind: gvk.Kind[:len(gvk.Kind)-len("List")]}
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	if wanted.LabelSelector != nil || wanted.FieldSelector != nil {
		return fmt.Errorf("a set of manifests is listed by namespace only")
	}
	var items []runtime.Object
	if s.options.Server != nil {
		if err := s.options.Server.List(ctx, out, options...); err != nil {
			return err
		}
		there, err := meta.ExtractList(out)
		if err != nil {
			return err
		}
		for _, item := range there {
			accessor, err := meta.Accessor(item)
			if err != nil {
				return err
			}
			if o := s.index[key{gk, accessor.GetNamespace(), accessor.GetName()}]; o == nil || !o.applied {
				items = append(items, item)
			}
		}
	}
	for _, o := range s.objects {
		if !o.applied || o.GroupKind != gk || wanted.Namespace != "" && o.Namespace != wanted.Namespace {
			continue
		}
		item, err := o.asItem(out)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	return meta.SetList(out, items)
}

// asItem is the object in the type of a list's elements.
func (o *object) asItem(list client.ObjectList) (runtime.Object, error) {
	if _, ok := list.(*unstructured.UnstructuredList); ok {
		return o.data.DeepCopy(), nil
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	item, ok := reflect.New(reflect.TypeOf(pointer).Elem().Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T has elements that are not objects", list)
	}
	return item, o.into(item)
}

// into gives the object the type that a rule reads.
func (o *object) into(out client.Object) error {
	if u, ok := out.(*unstructured.Unstructured); ok {
		o.data.DeepCopyInto(u)
		return nil
	}
	data := o.data.Object
	if _, ok := out.(*clusterv1.Cluster); ok && o.kind.GVK.Version != clusterv1.GroupVersion.Version {
		data = clusterOf(data)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(data, out); err != nil {
		return fmt.Errorf("reading %s: %w", o.key, err)
	}
	return nil
}

// clusterOf is what rules look at in a Cluster of version v1beta1, in the form of v1beta2.
func clusterOf(old map[string]any) map[string]any {
	spec := map[string]any{}
	for _, name := range []string{"paused", "controlPlaneEndpoint"} {
		if value, found, _ := unstructured.NestedFieldCopy(old, "spec", name); found {
			spec[name] = value
		}
	}
	for _, name := range []string{"infrastructureRef", "controlPlaneRef"} {
		ref, found, _ := unstructured.NestedMap(old, "spec", name)
		if !found {
			continue
		}
		apiVersion, _ := ref["apiVersion"].(string)
		gv, _ := kschema.ParseGroupVersion(apiVersion)
		spec[name] = map[string]any{"apiGroup": gv.Group, "kind": ref["kind"], "name": ref["name"]}
	}
	return map[string]any{"metadata": old["metadata"], "spec": spec}
}
