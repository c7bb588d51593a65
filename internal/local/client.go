package local

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// fieldManager owns the fields that berth applies.
const fieldManager = "berth"

// Resources that are asked for by name here.
var (
	definitionResource     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	clusterRoleResource    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	secretResource         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	clusterResource        = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	machineResource        = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}
	vsphereMachineResource = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "vspheremachines"}
	vsphereVMResource      = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "vspherevms"}
)

// client speaks to one API server about objects of any kind.
type client struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newClient(config *rest.Config) (*client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	// Old versions are used here on purpose; what the server says about them is for people who write manifests.
	config.WarningHandler = rest.NoWarnings{}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &client{dynamic: dyn, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}, nil
}

// Config is how to reach the management cluster's API server as administrator.
func (e *Environment) Config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", e.Kubeconfig())
}

func (e *Environment) client() (*client, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	return newClient(config)
}

// of finds the endpoint for an object's kind.
func (c *client) of(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		// Its definition may be younger than what is remembered.
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}

// apply makes the server have these objects, by server-side apply, in any order.
func (c *client) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, object := range objects {
		group.Go(func() error { return c.applyOne(ctx, object) })
	}
	return group.Wait()
}

func (c *client) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	endpoint, err := c.of(object)
	if err == nil {
		_, err = endpoint.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// until watches one object until the condition holds. The condition gets nil while there is no such object.
func (c *client) until(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, holds func(*unstructured.Unstructured) bool) error {
	var endpoint dynamic.ResourceInterface = c.dynamic.Resource(resource)
	if namespace != "" {
		endpoint = c.dynamic.Resource(resource).Namespace(namespace)
	}
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	return await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		list, err := endpoint.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if holds(&list.Items[i]) {
				return nil
			}
		}
		// A watch that ends is begun again by await, from a new list.
		watching := options
		watching.ResourceVersion = list.GetResourceVersion()
		events, err := endpoint.Watch(ctx, watching)
		if err != nil {
			return err
		}
		defer events.Stop()
		for {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s %s is not there yet, or not as wanted", resource.Resource, name)
			case event, open := <-events.ResultChan():
				if !open {
					return fmt.Errorf("the watch of %s %s ended", resource.Resource, name)
				}
				if object, ok := event.Object.(*unstructured.Unstructured); ok && holds(object) {
					return nil
				}
			}
		}
	})
}

// refuses asks the server to create an object that a webhook must refuse, without storing anything. It answers nil once a
// webhook has refused it: then the configuration is in force, and the program behind it answers.
func (c *client) refuses(ctx context.Context, canary *unstructured.Unstructured) error {
	endpoint, err := c.of(canary)
	if err != nil {
		return err
	}
	_, err = endpoint.Create(ctx, canary, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
	switch {
	case err == nil:
		return fmt.Errorf("a wrong %s is not refused yet", canary.GetKind())
	case strings.Contains(err.Error(), "admission webhook") && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)):
		return nil
	default:
		return err
	}
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
