package check

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/schema"
	"github.com/berth-dev/berth/internal/rules"
)

// key of an object; versions make no difference.
type key struct {
	kschema.GroupKind
	Namespace, Name string
}

func (k key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// object is a document of a known kind.
type object struct {
	key
	document *manifest.Document
	kind     *schema.Kind
	// data is what the server would store: defaults filled in, fields of the wrong form taken out.
	data *unstructured.Unstructured
	// old is what the cluster has, nil if the object is new.
	old *unstructured.Unstructured

	problems []Problem
	// wrong are the fields that do not have the form of the kind.
	wrong []wrongField
	// applied: objects that come later can see it.
	applied bool
}

// wrongField is a field that has been told of already.
type wrongField struct {
	path string
	// gone: its value says nothing, so nothing at it or below can be judged.
	gone bool
	// problem is its index in problems, -1 if there is none.
	problem int
}

// at says something about a field.
func (o *object) at(severity, path, message string) {
	o.problems = append(o.problems, Problem{
		Severity: severity, File: o.document.File, Line: o.document.Line(path),
		APIVersion: o.kind.GVK.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Field: path, Message: message,
	})
}

func (o *object) fieldError(err *field.Error) {
	o.at(Error, fieldOf(err), err.ErrorBody())
}

// fieldOf is the path of an error; "<nil>" is how the library calls the whole object.
func fieldOf(err *field.Error) string {
	if err.Field == "<nil>" {
		return ""
	}
	return strings.TrimPrefix(err.Field, ".")
}

// add takes in a document and judges it on its own.
func (s *set) add(ctx context.Context, d *manifest.Document) error {
	tell := func(path, message string) {
		p := Problem{Severity: Error, File: d.File, Line: d.Line(path), Field: path, Message: message}
		p.Kind, _ = d.Object["kind"].(string)
		p.APIVersion, _ = d.Object["apiVersion"].(string)
		p.Name, _, _ = unstructured.NestedString(d.Object, "metadata", "name")
		p.Namespace, _, _ = unstructured.NestedString(d.Object, "metadata", "namespace")
		s.report.Problems = append(s.report.Problems, p)
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if value, ok := d.Object[name].(string); !ok || value == "" {
			tell(name, "must be set: without apiVersion and kind nobody knows what this object is")
			return nil
		}
	}
	if strings.Count(d.Object["apiVersion"].(string), "/") > 1 {
		tell("apiVersion", "must be a group and a version, such as infrastructure.cluster.x-k8s.io/v1beta1")
		return nil
	}
	gvk := kschema.FromAPIVersionAndKind(d.Object["apiVersion"].(string), d.Object["kind"].(string))
	kind, err := schema.Lookup(gvk)
	var version *schema.VersionError
	var misspelt *schema.MisspeltError
	switch {
	case errors.Is(err, schema.ErrUnknown):
		s.report.Summary.Ignored++
		return nil
	case errors.As(err, &version):
		tell("apiVersion", err.Error())
		s.present(gvk.GroupKind(), d)
		return nil
	case errors.As(err, &misspelt):
		if misspelt.Group != "" {
			tell("apiVersion", err.Error())
			s.present(kschema.GroupKind{Group: misspelt.Group, Kind: gvk.Kind}, d)
		} else {
			tell("kind", err.Error())
			s.present(kschema.GroupKind{Group: gvk.Group, Kind: misspelt.Kind}, d)
		}
		return nil
	case err != nil:
		return err
	}
	s.report.Summary.Checked++
	o := &object{key: key{GroupKind: gvk.GroupKind()}, document: d, kind: kind}
	o.Name, _, _ = unstructured.NestedString(d.Object, "metadata", "name")
	if kind.Namespaced {
		o.Namespace, _, _ = unstructured.NestedString(d.Object, "metadata", "namespace")
		if o.Namespace == "" {
			o.Namespace = s.options.Namespace
		}
	}
	s.objects = append(s.objects, o)
	o.spelling()
	o.data = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.Object)}
	kind.Prune(o.data.Object)
	if _, ok := o.data.Object["metadata"].(map[string]any); !ok {
		o.at(Error, "metadata", "must be a mapping with a name")
		return nil
	}
	o.data.SetNamespace(o.Namespace)
	if first, twice := s.index[o.key]; twice && o.Name != "" {
		o.at(Error, "metadata.name", fmt.Sprintf("%s is declared twice, first at %s:%d; remove one of them, or give it another name", o.key, first.document.File, first.document.Line("")))
		return nil
	}
	s.index[o.key] = o
	if s.options.Server != nil {
		if err := s.merge(ctx, o); err != nil {
			return err
		}
	}
	o.form()
	return nil
}

// present remembers an object that cannot be read, so that nobody is told that it does not exist.
func (s *set) present(gk kschema.GroupKind, d *manifest.Document) {
	name, _, _ := unstructured.NestedString(d.Object, "metadata", "name")
	namespace, _, _ := unstructured.NestedString(d.Object, "metadata", "namespace")
	if namespace == "" {
		namespace = s.options.Namespace
	}
	s.absent[key{gk, namespace, name}] = true
	s.absent[key{gk, "", name}] = true
}

// spelling refuses fields that the kind does not have. A slip of the pen is taken as what was meant, so that the rest is judged rightly.
func (o *object) spelling() {
	told := map[string]bool{}
	for range 20 { // a misspelt field may hide others
		again := false
		for _, u := range o.kind.Prune(runtime.DeepCopyJSON(o.document.Object)) {
			if told[u.Path] {
				continue
			}
			told[u.Path] = true
			meant, elsewhere := schema.Nearest(u.Name, u.Known), o.elsewhere(u)
			switch {
			case elsewhere != "":
				o.wrong = append(o.wrong, wrongField{path: elsewhere, gone: true, problem: -1})
				o.at(Error, u.Path, fmt.Sprintf("unknown field; in %s it is %s", o.kind.GVK.GroupVersion(), elsewhere))
			case meant != "":
				o.at(Error, u.Path, fmt.Sprintf("unknown field; did you mean %q?", meant))
				again = o.document.Rename(u.Parent, u.Name, meant) || again
			case len(u.Known) > 0 && len(u.Known) <= 12:
				o.at(Error, u.Path, "unknown field; known here: "+strings.Join(u.Known, ", "))
			default:
				o.at(Error, u.Path, "unknown field")
			}
		}
		if !again {
			return
		}
	}
}

// moved are fields that one version of Cluster API's types has elsewhere than the other. Those of a reference and of machines' deletion
// stand in many places, so only the end of the path is given.
var moved = []struct {
	kind             string
	v1beta1, v1beta2 string
}{
	{rules.KindMachineDeployment, "spec.strategy", "spec.rollout.strategy"},
	{rules.KindMachineDeployment, "spec.rolloutAfter", "spec.rollout.after"},
	{rules.KindMachineDeployment, "spec.machineNamingStrategy", "spec.machineNaming"},
	{rules.KindKubeadmControlPlane, "spec.rolloutStrategy", "spec.rollout.strategy"},
	{rules.KindKubeadmControlPlane, "spec.rolloutAfter", "spec.rollout.after"},
	{rules.KindKubeadmControlPlane, "spec.rolloutBefore", "spec.rollout.before"},
	{rules.KindKubeadmControlPlane, "spec.remediationStrategy", "spec.remediation"},
	{rules.KindKubeadmControlPlane, "spec.machineNamingStrategy", "spec.machineNaming"},
	{rules.KindKubeadmControlPlane, "spec.machineTemplate.infrastructureRef", "spec.machineTemplate.spec.infrastructureRef"},
	{rules.KindKubeadmControlPlane, "spec.machineTemplate.nodeDrainTimeout", "spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds"},
	{rules.KindKubeadmControlPlane, "spec.machineTemplate.nodeDeletionTimeout", "spec.machineTemplate.spec.deletion.nodeDeletionTimeoutSeconds"},
	{rules.KindKubeadmControlPlane, "spec.machineTemplate.nodeVolumeDetachTimeout", "spec.machineTemplate.spec.deletion.nodeVolumeDetachTimeoutSeconds"},
	{"", "nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"},
	{"", "nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"},
	{"", "nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"},
	{"", "Ref.apiVersion", "Ref.apiGroup"},
}

// elsewhere says where a field of the other version of Cluster API's types is in this one, "" if it is not such a field.
func (o *object) elsewhere(u schema.Unknown) string {
	if len(o.kind.Versions) < 2 {
		return ""
	}
	for _, m := range moved {
		from, to := m.v1beta1, m.v1beta2
		if o.kind.GVK.Version == "v1beta1" {
			from, to = to, from
		}
		switch {
		case m.kind == o.Kind && u.Path == from:
			return to
		case m.kind != "":
		case strings.HasSuffix(u.Path, "."+from) || strings.HasPrefix(from, "Ref.") && strings.HasSuffix(u.Path, from):
			return strings.TrimSuffix(u.Path, from) + to
		}
	}
	return ""
}

// form judges an object by the schema of its kind.
func (o *object) form() {
	o.kind.Default(o.data.Object)
	defaults(o.data)
	var old map[string]any
	if o.old != nil {
		old = o.old.Object
	}
	for _, err := range o.kind.Check(o.data.Object, old) {
		path := fieldOf(err)
		if o.spoilt(path) {
			continue
		}
		if slices.ContainsFunc(o.wrong, func(w wrongField) bool { return w.problem >= 0 && w.path == path }) {
			continue // one sentence is enough
		}
		o.fieldError(err)
		o.wrong = append(o.wrong, wrongField{path: path, gone: err.Type == field.ErrorTypeTypeInvalid, problem: len(o.problems) - 1})
	}
	for _, w := range o.wrong {
		if w.gone && w.problem >= 0 {
			manifest.Remove(o.data.Object, w.path)
		}
	}
}

// spoilt reports whether nothing can be said about a field because it, or what it is in, has no usable value.
func (o *object) spoilt(path string) bool {
	return slices.ContainsFunc(o.wrong, func(w wrongField) bool { return w.gone && within(path, w.path) })
}

// within reports whether a path is another or below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// take adds the verdict of the rules.
func (o *object) take(v rules.Verdict) {
	for _, err := range v.Errors {
		o.rule(Error, fieldOf(err), err.ErrorBody())
	}
	for _, text := range v.Warnings {
		path, message := splitWarning(text)
		o.rule(Warning, path, message)
	}
}

func (o *object) rule(severity, path, message string) {
	if o.spoilt(path) {
		return
	}
	for i, w := range o.wrong {
		if w.problem < 0 {
			continue
		}
		if w.path == path && severity == Error {
			// The rule says it better than the schema. It has its say once.
			p := &o.problems[w.problem]
			if p.Message == message || !w.gone {
				p.Message = message
				o.wrong[i].gone = true
			}
			return
		}
		if within(path, w.path) {
			return // it follows
		}
	}
	o.at(severity, path, message)
}

var warningPath = regexp.MustCompile(`^((?:spec|metadata|status|data)[^ ]*?): `)

// splitWarning takes the field from the front of a warning, where rules put it.
func splitWarning(text string) (path, message string) {
	if m := warningPath.FindStringSubmatch(text); m != nil {
		return m[1], text[len(m[0]):]
	}
	return "", text
}
