package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		if o.Kind == "VSphereCluster" && o.old == nil {
			s.offer(o)
		}
	}
	for _, o := range sorted {
		if !o.applied {
			continue
		}
		if err := s.follow(ctx, o); err != nil {
			return err
		}
		o.clusterAPI()
		o.notNew()
	}
	s.platform()
	return nil
}

// offer gives a new VSphereCluster the failure domains that its controller will report: those of the zones that it selects.
func (s *set) offer(o *object) {
	var c v1beta1.VSphereCluster
	if o.into(&c) != nil || c.Spec.FailureDomainSelector == nil {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(c.Spec.FailureDomainSelector)
	if err != nil {
		o.at(Error, "spec.failureDomainSelector", err.Error())
		return
	}
	var domains []any
	for _, z := range s.objects {
		var zone v1beta1.VSphereDeploymentZone
		if z.GroupKind != zoneGK || !z.applied || z.into(&zone) != nil {
			continue
		}
		if selector.Matches(labels.Set(zone.Labels)) && zone.Spec.Server == c.Spec.Server {
			domains = append(domains, map[string]any{"name": zone.Name, "controlPlane": zone.Spec.ControlPlane == nil || *zone.Spec.ControlPlane})
		}
	}
	o.data.Object["status"] = map[string]any{"failureDomains": domains}
}

// readable reports why an object cannot be given the type that rules read.
func (o *object) readable() error {
	switch o.Kind {
	case rules.KindKubeadmControlPlane, rules.KindMachineDeployment:
		_, err := rules.ConsumerOf(o.data)
		return err
	}
	if !scheme.Recognizes(o.kind.GVK) {
		return nil // no rule reads it
	}
	typed, err := scheme.New(o.kind.GVK)
	if err != nil {
		return err
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
	seen, err := w.LookAround(ctx, c)
	if err != nil {
		return rules.Verdict{}, err
	}
	if seen.Placements, err = s.known(ctx, seen.Placements); err != nil {
		return rules.Verdict{}, err
	}
	// What is missing is heard as a warning, to be told in this command's way: decisions D2 and D18.
	paused := seen.Paused
	seen.Paused = true
	verdict := rules.VSphereConsumer(old, c, seen)
	var warnings []string
	for _, text := range verdict.Warnings {
		path, message := splitWarning(text)
		missing, isMissing := strings.CutSuffix(message, rules.WhilePaused)
		switch {
		case isMissing:
			s.consumerMisses(o, c, seen.Template != nil, paused, path, missing)
		case s.options.Server == nil && strings.Contains(message, rules.NoMachine):
			// Decision D8: no order of edits needs this, all is new.
			verdict.Errors = append(verdict.Errors, &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: message})
		default:
			warnings = append(warnings, text)
		}
	}
	verdict.Warnings = warnings
	return verdict, nil
}

// known leaves out the zones whose absence, or whose failure domain's, is told where it is referred to.
func (s *set) known(ctx context.Context, placements []rules.VSpherePlacement) ([]rules.VSpherePlacement, error) {
	var out []rules.VSpherePlacement
	for _, p := range placements {
		if p.Domain == nil {
			zone := key{zoneGK, "", p.Zone}
			there, err := s.exists(ctx, zone)
			if err != nil {
				return nil, err
			}
			if !there || s.index[zone] != nil || s.absent[zone] {
				continue
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// consumerMisses tells that an owner of machines has no template, or that the template has no pool; text is what admission says.
func (s *set) consumerMisses(o *object, c *rules.Consumer, hasTemplate, paused bool, path, text string) {
	template := key{templateGK, c.Namespace, c.TemplateName}
	if s.absent[template] || hasTemplate && s.index[template] != nil {
		return // told at the template
	}
	severity := Error
	if paused || s.options.Partial {
		severity = Warning
	}
	if s.options.Server == nil {
		text = s.missing(template, severity)
	}
	o.at(severity, path, text)
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
