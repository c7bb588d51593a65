// Package webhook is the thin layer between the API server and the rules: it decodes, gathers what the rules want to look at,
// asks package rules, and answers. It decides nothing.
//
// config/webhook/manifests.yaml says what is sent here. Its match conditions keep everything away that rules have no say in:
// updates that leave the spec alone (so a finalizer, a label or a status never waits for us), objects being deleted, and
// KubeadmControlPlanes and MachineDeployments of other providers. Those two kinds are matched in both served versions of Cluster
// API and judged in the version that the user wrote, so that field paths in messages are the user's.
package webhook

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// Setup registers all webhooks with the manager's webhook server. The manager's scheme must know this project's kinds and those
// of Cluster API's core.
func Setup(mgr ctrl.Manager) error {
	// Live reads: manifests are often applied one right after the other, and a cache that lags behind would refuse them.
	w := judge.World{Reader: mgr.GetAPIReader()}
	for _, register := range []func(ctrl.Manager, judge.World) error{
		setupPool, setupMachines, setupInventory, setupConsumers,
	} {
		if err := register(mgr, w); err != nil {
			return err
		}
	}
	return nil
}

// validator asks the rules about objects of one kind. A nil remove allows every deletion.
type validator[T client.Object] struct {
	judge  func(ctx context.Context, old, obj T) (rules.Verdict, error)
	remove func(ctx context.Context, obj T) (rules.Verdict, error)
}

var _ admission.Validator[*v1beta1.VSphereVM] = &validator[*v1beta1.VSphereVM]{}

// ValidateCreate implements admission.Validator.
func (v *validator[T]) ValidateCreate(ctx context.Context, obj T) (admission.Warnings, error) {
	var none T
	verdict, err := v.judge(ctx, none, obj)
	return answer(obj, verdict, err)
}

// ValidateUpdate implements admission.Validator.
func (v *validator[T]) ValidateUpdate(ctx context.Context, old, obj T) (admission.Warnings, error) {
	verdict, err := v.judge(ctx, old, obj)
	return answer(obj, verdict, err)
}

// ValidateDelete implements admission.Validator.
func (v *validator[T]) ValidateDelete(ctx context.Context, obj T) (admission.Warnings, error) {
	if v.remove == nil {
		return nil, nil
	}
	verdict, err := v.remove(ctx, obj)
	return answer(obj, verdict, err)
}

// answer turns a verdict into what the API server is told. If the world could not be looked at, the answer is no: what must not
// happen might.
func answer(obj client.Object, verdict rules.Verdict, err error) (admission.Warnings, error) {
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("cannot check %s/%s against what is there, try again: %w", obj.GetNamespace(), obj.GetName(), err))
	}
	if verdict.Refused() {
		return verdict.Warnings, apierrors.NewInvalid(groupKind(obj), obj.GetName(), verdict.Errors)
	}
	return verdict.Warnings, nil
}

// groupKind of an object, which a typed object does not carry.
func groupKind(obj client.Object) schema.GroupKind {
	if gk := obj.GetObjectKind().GroupVersionKind().GroupKind(); gk.Kind != "" {
		return gk
	}
	return schema.GroupKind{Group: v1beta1.GroupVersion.Group, Kind: reflect.TypeOf(obj).Elem().Name()}
}

// defaulter fills in what an object leaves open.
type defaulter[T client.Object] func(T)

var _ admission.Defaulter[*v1beta1.VSphereVM] = defaulter[*v1beta1.VSphereVM](nil)

// Default implements admission.Defaulter.
func (d defaulter[T]) Default(_ context.Context, obj T) error {
	d(obj)
	return nil
}

// alone adapts rules that look at nothing but the object.
func alone[T client.Object](judge func(old, obj T) rules.Verdict) func(context.Context, T, T) (rules.Verdict, error) {
	return func(_ context.Context, old, obj T) (rules.Verdict, error) { return judge(old, obj), nil }
}
