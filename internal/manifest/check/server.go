package check

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// merge makes of an object what kubectl apply would make of it: the cluster's object with the changes of the manifest. What somebody
// else has set, and the manifest does not name, stays.
func (s *set) merge(ctx context.Context, o *object) error {
	if o.Group == "" || o.Name == "" {
		return nil // no rule looks at the state of these
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.kind.GVK)
	err := s.options.Server.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not know %s in version %s: is this the right cluster, and is Berth installed in it? (%w)", o.Kind, o.kind.GVK.GroupVersion(), err)
	case err != nil:
		return fmt.Errorf("reading %s from the cluster: %w", o.key, err)
	}
	merged, err := apply(live, o.data)
	if err != nil {
		return fmt.Errorf("merging %s with what is in the cluster: %w", o.key, err)
	}
	o.old, o.data = live, merged
	return nil
}

// apply is what kubectl apply sends for kinds that it has no types of: a merge of what was applied last, the manifest, and what is there.
func apply(live, manifest *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current, err := json.Marshal(live.Object)
	if err != nil {
		return nil, err
	}
	modified, err := json.Marshal(manifest.Object)
	if err != nil {
		return nil, err
	}
	var last []byte
	if text, ok := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; ok {
		last = []byte(text)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, modified, current)
	if err != nil {
		return nil, err
	}
	result, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(result)
}
