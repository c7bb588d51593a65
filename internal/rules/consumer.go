package rules

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kinds that own machines.
const (
	KindKubeadmControlPlane = "KubeadmControlPlane"
	KindMachineDeployment   = "MachineDeployment"
)

// Consumer is an owner of machines, a KubeadmControlPlane or a MachineDeployment, without regard to the version it is written
// in. Paths are those of that version, so that messages point at what the user wrote.
type Consumer struct {
	Group, Kind, Namespace, Name string
	// Cluster that it belongs to, "" if it does not say so.
	Cluster  string
	Deleting bool

	// TemplateGroup, TemplateKind and TemplateName are the machine template that it names.
	TemplateGroup, TemplateKind, TemplateName string
	// TemplateNamespace that an older version lets a reference name, "" for its own.
	TemplateNamespace string
	// FailureDomain that it names for its machines, "" if none.
	FailureDomain string
	// Replicas, nil if unset.
	Replicas *int32
	// OnDelete: machines are replaced only when somebody deletes them.
	OnDelete bool
	// MaxSurge and MaxUnavailable of its rolling update, nil if unset.
	MaxSurge, MaxUnavailable *intstr.IntOrString

	Paths ConsumerPaths

	spec any
}

// ConsumerPaths are the fields that rules talk about.
type ConsumerPaths struct {
	Cluster, Template, Replicas, MaxSurge, MaxUnavailable, FailureDomain *field.Path
}

// String names the consumer in messages.
func (c *Consumer) String() string { return fmt.Sprintf("%s %s/%s", c.Kind, c.Namespace, c.Name) }

// Same reports whether it is the object of these coordinates. Versions make no difference.
func (c *Consumer) Same(apiVersion, kind, namespace, name string) bool {
	group, _, found := strings.Cut(apiVersion, "/")
	if apiVersion != "" && found && group != c.Group {
		return false
	}
	return c.Kind == kind && c.Namespace == namespace && c.Name == name
}

// ConsumerOf reads a KubeadmControlPlane or MachineDeployment of any served version. An error means that the object does not
// have the form of its kind.
func ConsumerOf(obj *unstructured.Unstructured) (*Consumer, error) {
	gvk := obj.GroupVersionKind()
	old := gvk.Version == "v1beta1"
	spec := field.NewPath("spec")
	c := &Consumer{
		Group: gvk.Group, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Cluster: obj.GetLabels()["cluster.x-k8s.io/cluster-name"], Deleting: obj.GetDeletionTimestamp() != nil,
		spec: obj.Object["spec"],
	}
	c.Paths.Replicas = spec.Child("replicas")
	c.Paths.Cluster = field.NewPath("metadata", "labels").Key("cluster.x-k8s.io/cluster-name")

	strategy := spec.Child("rollout", "strategy")
	switch {
	case gvk.Kind == KindMachineDeployment:
		c.Paths.Template = spec.Child("template", "spec", "infrastructureRef")
		c.Paths.Cluster = spec.Child("clusterName")
		c.Paths.FailureDomain = spec.Child("template", "spec", "failureDomain")
		if old {
			strategy = spec.Child("strategy")
		}
		if name, _, _ := unstructured.NestedString(obj.Object, "spec", "clusterName"); name != "" {
			c.Cluster = name
		}
	case gvk.Kind == KindKubeadmControlPlane && old:
		c.Paths.Template = spec.Child("machineTemplate", "infrastructureRef")
		strategy = spec.Child("rolloutStrategy")
	case gvk.Kind == KindKubeadmControlPlane:
		c.Paths.Template = spec.Child("machineTemplate", "spec", "infrastructureRef")
	default:
		return nil, fmt.Errorf("%s owns no machines that these rules know", gvk)
	}
	c.Paths.MaxSurge = strategy.Child("rollingUpdate", "maxSurge")
	c.Paths.MaxUnavailable = strategy.Child("rollingUpdate", "maxUnavailable")
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind == "Cluster" && strings.HasPrefix(ref.APIVersion, clusterGroup+"/") {
			c.Cluster = ref.Name
		}
	}
	return c, c.read(obj.Object, strategy)
}

func (c *Consumer) read(obj map[string]any, strategy *field.Path) error {
	ref, _, err := unstructured.NestedMap(obj, fieldsOf(c.Paths.Template)...)
	if err != nil {
		return err
	}
	c.TemplateKind, _ = ref["kind"].(string)
	c.TemplateName, _ = ref["name"].(string)
	c.TemplateNamespace, _ = ref["namespace"].(string)
	c.TemplateGroup, _ = ref["apiGroup"].(string)
	if apiVersion, _ := ref["apiVersion"].(string); apiVersion != "" {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return err
		}
		c.TemplateGroup = gv.Group
	}
	if c.Paths.FailureDomain != nil {
		if c.FailureDomain, _, err = unstructured.NestedString(obj, fieldsOf(c.Paths.FailureDomain)...); err != nil {
			return err
		}
	}
	replicas, found, err := unstructured.NestedInt64(obj, "spec", "replicas")
	if err != nil {
		return err
	}
	if found {
		n := int32(replicas)
		c.Replicas = &n
	}
	kind, _, err := unstructured.NestedString(obj, append(fieldsOf(strategy), "type")...)
	if err != nil {
		return err
	}
	c.OnDelete = kind == "OnDelete"
	if c.MaxSurge, err = intOrString(obj, c.Paths.MaxSurge); err != nil {
		return err
	}
	c.MaxUnavailable, err = intOrString(obj, c.Paths.MaxUnavailable)
	return err
}

// fieldsOf turns a path without indices into the names it is made of.
func fieldsOf(path *field.Path) []string { return strings.Split(path.String(), ".") }

func intOrString(obj map[string]any, path *field.Path) (*intstr.IntOrString, error) {
	value, found, err := unstructured.NestedFieldNoCopy(obj, fieldsOf(path)...)
	if err != nil || !found || value == nil {
		return nil, err
	}
	var out intstr.IntOrString
	switch v := value.(type) {
	case int64:
		out = intstr.FromInt32(int32(v))
	case string:
		out = intstr.FromString(v)
	default:
		return nil, fmt.Errorf("%s is %v, neither a number nor a string", path, value)
	}
	return &out, nil
}

// SameSpec reports whether nothing that rules look at can have changed. A nil consumer is never the same.
func (c *Consumer) SameSpec(o *Consumer) bool { return o != nil && reflect.DeepEqual(c.spec, o.spec) }

// NoSurge checks that a roll works in places that exist once: it removes a machine before it makes the next.
func NoSurge(c *Consumer) field.ErrorList {
	if c.OnDelete {
		return nil
	}
	var errs field.ErrorList
	const why = "a full pool has no slot for one machine more and the roll would stand still"
	switch {
	case c.MaxSurge == nil:
		errs = append(errs, field.Invalid(c.Paths.MaxSurge, "", "is not set, which means 1; maxSurge must be 0 for machines of a pool, "+why))
	case c.MaxSurge.Type == intstr.String:
		errs = append(errs, field.Invalid(c.Paths.MaxSurge, c.MaxSurge.StrVal, "maxSurge must be 0, as a number and not as a percentage, for machines of a pool: "+why))
	case c.MaxSurge.IntVal != 0:
		errs = append(errs, field.Invalid(c.Paths.MaxSurge, c.MaxSurge.IntVal, "maxSurge must be 0 for machines of a pool: "+why))
	}
	if c.Kind != KindMachineDeployment {
		return errs // a control plane has no maxUnavailable
	}

	replicas := 1
	if c.Replicas != nil && *c.Replicas > 1 {
		replicas = int(*c.Replicas)
	}
	const hint = "maxUnavailable must be at least 1 together with maxSurge 0, or nothing can ever be replaced; set it to 1"
	if c.MaxUnavailable == nil {
		return append(errs, field.Invalid(c.Paths.MaxUnavailable, "", "is not set, which means 0; "+hint))
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(c.MaxUnavailable, replicas, false)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(c.Paths.MaxUnavailable, c.MaxUnavailable.String(), "must be a number or a percentage: "+err.Error()))
	case n < 1 && c.MaxUnavailable.Type == intstr.String:
		errs = append(errs, field.Invalid(c.Paths.MaxUnavailable, c.MaxUnavailable.String(), fmt.Sprintf("is %d of %d replicas, rounded down; %s", n, replicas, hint)))
	case n < 1:
		errs = append(errs, field.Invalid(c.Paths.MaxUnavailable, c.MaxUnavailable.String(), hint))
	}
	return errs
}
