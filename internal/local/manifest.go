package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// parse reads the documents of a YAML text.
func parse(text []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		object := &unstructured.Unstructured{}
		if err == nil && len(raw.Raw) > 0 {
			// Unlike encoding/json, it keeps whole numbers whole.
			err = utiljson.Unmarshal(raw.Raw, &object.Object)
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// parseDir reads the documents of all YAML files directly in a directory, in the order of the file names. Files that only
// direct kustomize are left out.
func parseDir(files fs.FS, dir string) ([]*unstructured.Unstructured, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || path.Ext(name) != ".yaml" || name == "kustomization.yaml" || name == "kustomizeconfig.yaml" {
			continue
		}
		text, err := fs.ReadFile(files, path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		objects, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, name), err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

// component is a set of manifests as they are released, and what the installation on this machine changes in them. It does
// for one machine what kustomize and cert-manager do in a cluster.
type component struct {
	// provider is the value of the label cluster.x-k8s.io/provider.
	provider string
	// prefix is put before the names of roles, bindings, accounts and webhook configurations, which are the same in all components.
	prefix    string
	namespace string
	// contract labels go on every CustomResourceDefinition; those that a definition brings itself stay.
	contract map[string]string
	// aggregate is the label by which other providers add rights to the manager's role; empty if there is no such role.
	aggregate string
	// webhooks is where the component's webhook server listens, https://address:port.
	webhooks string
	caBundle []byte
}

const (
	kindDefinition      = "CustomResourceDefinition"
	kindMutating        = "MutatingWebhookConfiguration"
	kindValidating      = "ValidatingWebhookConfiguration"
	kindRole            = "Role"
	kindClusterRole     = "ClusterRole"
	kindBinding         = "RoleBinding"
	kindClusterBinding  = "ClusterRoleBinding"
	kindAccount         = "ServiceAccount"
	kindNamespace       = "Namespace"
	managerRole         = "manager-role"
	aggregatedRole      = "aggregated-manager-role"
	managerRoleBinding  = "manager-rolebinding"
	providerLabel       = "cluster.x-k8s.io/provider"
	managerAccountName  = "manager"
	conversionPath      = "/convert"
	webhookReviewedWith = "v1"
)

// account is the user name of the component's manager.
func (c component) account() string {
	return fmt.Sprintf("system:serviceaccount:%s:%s%s", c.namespace, c.prefix, managerAccountName)
}

func (c component) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace}
}

func (c component) namespaceObject() *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kindNamespace}}
	object.SetName(c.namespace)
	object.SetLabels(map[string]string{providerLabel: c.provider})
	return object
}

// install adapts objects in place and returns them. Kinds it does not know are an error: to leave something out silently
// would be found much later.
func (c component) install(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[providerLabel] = c.provider
		object.SetLabels(labels)
		var err error
		switch object.GetKind() {
		case kindDefinition:
			err = c.definition(object)
		case kindMutating, kindValidating:
			object.SetName(c.prefix + object.GetName())
			err = c.admission(object)
		case kindAccount, kindRole:
			c.rename(object)
			object.SetNamespace(c.namespace)
		case kindClusterRole:
			if c.aggregate != "" && object.GetName() == managerRole {
				labels[c.aggregate] = "true"
				object.SetLabels(labels)
			}
			c.rename(object)
		case kindBinding:
			object.SetNamespace(c.namespace)
			err = c.binding(object)
		case kindClusterBinding:
			err = c.binding(object)
		default:
			err = fmt.Errorf("no way to install a %s on one machine is known", object.GetKind())
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return objects, nil
}

func (c component) rename(object *unstructured.Unstructured) {
	object.SetName(c.prefix + object.GetName())
}

func (c component) binding(object *unstructured.Unstructured) error {
	role, _, err := unstructured.NestedString(object.Object, "roleRef", "name")
	if err != nil {
		return err
	}
	if c.aggregate != "" && object.GetName() == managerRoleBinding {
		role = aggregatedRole
	}
	if err := unstructured.SetNestedField(object.Object, c.prefix+role, "roleRef", "name"); err != nil {
		return err
	}
	c.rename(object)
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil {
		return err
	}
	for i := range subjects {
		subject, ok := subjects[i].(map[string]any)
		if !ok || subject["kind"] != kindAccount {
			return errors.New("a subject is not a ServiceAccount")
		}
		subject["name"] = fmt.Sprintf("%s%s", c.prefix, subject["name"])
		subject["namespace"] = c.namespace
	}
	return unstructured.SetNestedSlice(object.Object, subjects, "subjects")
}

// definition adds what a CustomResourceDefinition as generated lacks: the labels by which Cluster API finds the versions of
// its contract, and who converts between versions.
func (c component) definition(object *unstructured.Unstructured) error {
	labels := object.GetLabels()
	for key, value := range c.contract {
		if _, own := labels[key]; !own {
			labels[key] = value
		}
	}
	object.SetLabels(labels)
	versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
	if err != nil {
		return err
	}
	if len(versions) < 2 {
		return nil
	}
	return unstructured.SetNestedMap(object.Object, map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"conversionReviewVersions": []any{webhookReviewedWith},
			"clientConfig":             c.clientConfig(conversionPath),
		},
	}, "spec", "conversion")
}

// admission points every webhook of a configuration at the process on this machine.
func (c component) admission(object *unstructured.Unstructured) error {
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range webhooks {
		webhook, ok := webhooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("webhooks[%d] is not an object", i)
		}
		target, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return fmt.Errorf("webhooks[%d] names no path of a service: %w", i, errors.Join(err))
		}
		webhook["clientConfig"] = c.clientConfig(target)
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}

func (c component) clientConfig(path string) map[string]any {
	return map[string]any{"url": c.webhooks + path, "caBundle": encode(c.caBundle)}
}

// ofKinds keeps the objects of some kinds.
func ofKinds(objects []*unstructured.Unstructured, kinds ...string) []*unstructured.Unstructured {
	var kept []*unstructured.Unstructured
	for _, object := range objects {
		if slices.Contains(kinds, object.GetKind()) {
			kept = append(kept, object)
		}
	}
	return kept
}
