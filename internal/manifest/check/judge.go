package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// order in which kinds are applied, so that each object finds what it refers to. Kinds that are not named come last.
var order = []string{
	"Namespace", "Secret", "ConfigMap", "VSphereClusterIdentity", "VSphereFailureDomain", "VSphereDeploymentZone",
	"VSphereCluster", "Cluster", "VSphereMachineConfigPool", "VSphereMachineTemplate", "KubeadmConfigTemplate",
	rules.KindKubeadmControlPlane, rules.KindMachineDeployment,
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// judge applies one object after the other and asks the rules about each.
func (s *set) judge(ctx context.Context) error {
	sorted := slices.Clone(s.objects)
	slices.SortStableFunc(sorted, func(a, b *object) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
	world := admission.World{Reader: s}
	for _, o := range sorted {
		if s.index[o.key] != o {
			continue // a second declaration
		}
		if err := o.readable(); err != nil {
			if len(o.wrong) == 0 {
				o.at(Error, "", err.Error())
			}
			s.absent[o.key] = true
			continue
		}
		verdict, err := s.verdict(ctx, world, o)
		if err != nil {
			return fmt.Errorf("checking %s: %w", o.key, err)
		}
		o.take(verdict)
		o.applied = true
	}
	return nil
}

// readable reports why an object cannot be given the type that rules read.
func (o *object) readable() error {
	switch o.Kind {
	case rules.KindKubeadmControlPlane, rules.KindMachineDeployment:
		_, err := rules.ConsumerOf(o.data)
		return err
	}
	typed, err := scheme.New(o.kind.GVK)
	if err != nil {
		return nil // no rule reads it
	}
	obj, ok := typed.(client.Object)
	if !ok {
		return nil
	}
	return o.into(obj)
}

// verdict asks the rules for the kind of an object.
func (s *set) verdict(ctx context.Context, w admission.World, o *object) (rules.Verdict, error) {
	switch o.Kind {
	case rules.KindKubeadmControlPlane, rules.KindMachineDeployment:
		return s.consumer(ctx, w, o)
	case "VSphereMachineConfigPool":
		return judged(o, nil, func(old, pool *v1beta1.VSphereMachineConfigPool) (rules.Verdict, error) {
			return w.VSphereMachineConfigPool(ctx, old, pool)
		})
	case "VSphereMachineTemplate":
		return judged(o, func(t *v1beta1.VSphereMachineTemplate) { rules.DefaultVSphereMachine(&t.Spec.Template.Spec) },
			func(old, t *v1beta1.VSphereMachineTemplate) (rules.Verdict, error) {
				return w.VSphereMachineTemplate(ctx, old, t, false)
			})
	case "VSphereCluster":
		return judged(o, nil, func(old, c *v1beta1.VSphereCluster) (rules.Verdict, error) { return w.VSphereCluster(ctx, old, c) })
	case "VSphereMachine":
		return judged(o, func(m *v1beta1.VSphereMachine) { rules.DefaultVSphereMachine(&m.Spec) }, alone(rules.VSphereMachine))
	case "VSphereVM":
		return judged(o, func(vm *v1beta1.VSphereVM) { rules.DefaultVSphereVM(&vm.Spec) }, alone(rules.VSphereVM))
	case "VSphereFailureDomain":
		return judged(o, nil, alone(rules.VSphereFailureDomain))
	case "VSphereClusterTemplate":
		return judged(o, nil, alone(rules.VSphereClusterTemplate))
	}
	return rules.Verdict{}, nil
}

func (s *set) consumer(ctx context.Context, w admission.World, o *object) (rules.Verdict, error) {
	c, err := rules.ConsumerOf(o.data)
	if err != nil {
		return rules.Verdict{}, err
	}
	var old *rules.Consumer
	if o.old != nil {
		if old, err = rules.ConsumerOf(o.old); err != nil {
			return rules.Verdict{}, err
		}
	}
	if !rules.UsesVSphere(c) {
		return rules.Verdict{}, nil
	}
	return w.Consumer(ctx, old, c)
}

// judged gives an object and its predecessor the type of a kind, with defaults for new ones, and asks.
func judged[T any, P interface {
	*T
	client.Object
}](o *object, fill func(P), ask func(old, obj P) (rules.Verdict, error)) (rules.Verdict, error) {
	obj := P(new(T))
	if err := o.into(obj); err != nil {
		return rules.Verdict{}, err
	}
	if o.old == nil {
		if fill != nil {
			fill(obj)
		}
		return ask(nil, obj)
	}
	old := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.old.Object, old); err != nil {
		return rules.Verdict{}, err
	}
	return ask(old, obj)
}

func alone[P client.Object](rule func(old, obj P) rules.Verdict) func(old, obj P) (rules.Verdict, error) {
	return func(old, obj P) (rules.Verdict, error) { return rule(old, obj), nil }
}

// defaults are those that Cluster API's webhooks fill in before the schema is looked at.
func defaults(obj *unstructured.Unstructured) {
	if obj.GetKind() != rules.KindMachineDeployment {
		return
	}
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	if spec["selector"] == nil {
		spec["selector"] = map[string]any{}
	}
}
