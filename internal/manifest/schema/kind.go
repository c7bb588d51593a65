package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Kind is a kind in one version.
type Kind struct {
	GVK        schema.GroupVersionKind
	Namespaced bool
	// Versions are all that are served.
	Versions []string

	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Compiling a schema takes a moment, so it is done once for each kind that is met.
var (
	kinds   = map[schema.GroupVersionKind]*Kind{}
	kindsMu sync.Mutex
)

func compiled(gvk schema.GroupVersionKind, d Definition, v Version) (*Kind, error) {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	if k, ok := kinds[gvk]; ok {
		return k, nil
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema, &internal, nil); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", gvk, err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", gvk, err)
	}
	k := &Kind{GVK: gvk, Namespaced: d.Namespaced, Versions: versionsOf(d), structural: structural}
	if k.validator, _, err = validation.NewSchemaValidator(&internal); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", gvk, err)
	}
	k.rules = cel.NewValidator(structural, true, celconfig.PerCallLimit)
	kinds[gvk] = k
	return k, nil
}

// Unknown is a field that a kind does not have.
type Unknown struct {
	// Path of the field, and of what holds it: "" for the object itself.
	Path, Parent string
	Name         string
	// Known are the names of the fields that there are in its place.
	Known []string
}

// Prune removes the fields that the kind does not have, as an API server does, and returns them.
func (k *Kind) Prune(obj map[string]any) []Unknown {
	delete(obj, "status")
	found := pruning.PruneWithOptions(obj, k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var out []Unknown
	for _, path := range found {
		out = append(out, k.unknown(path))
	}
	_, _, meta, err := objectmeta.GetObjectMetaWithOptions(obj, objectmeta.ObjectMetaOptions{DropMalformedFields: true, ReturnUnknownFieldPaths: true})
	if err != nil {
		return out // malformed metadata is Check's business
	}
	slices.Sort(meta)
	for _, path := range slices.Compact(meta) {
		u := Unknown{Path: path, Known: jsonNames(reflect.TypeFor[metav1.ObjectMeta]())}
		u.Parent, u.Name = splitLast(path)
		if u.Parent == "metadata" {
			if m, ok := obj["metadata"].(map[string]any); ok {
				delete(m, u.Name)
			}
		} else {
			u.Known = nil
		}
		out = append(out, u)
	}
	return out
}

func (k *Kind) unknown(path string) Unknown {
	u := Unknown{Path: path}
	u.Parent, u.Name = splitLast(path)
	if at := k.at(u.Parent); at != nil {
		for name := range at.Properties {
			u.Known = append(u.Known, name)
		}
		slices.Sort(u.Known)
	}
	return u
}

// Has reports whether the kind has a field of this name under a parent.
func (k *Kind) Has(parent, name string) bool {
	at := k.at(parent)
	if at == nil {
		return false
	}
	_, ok := at.Properties[name]
	return ok
}

// at is the schema of a path such as spec.configs[0].network.
func (k *Kind) at(path string) *structuralschema.Structural {
	s := k.structural
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if s == nil {
			return nil
		}
		if p, ok := s.Properties[step]; ok {
			s = &p
			continue
		}
		switch {
		case s.Items != nil:
			s = s.Items
		case s.AdditionalProperties != nil:
			s = s.AdditionalProperties.Structural
		default:
			return nil
		}
	}
	return s
}

func splitLast(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

func jsonNames(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Default fills in what the schema says of fields that are left out; null counts as left out where the schema does not allow it.
func (k *Kind) Default(obj map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, k.structural)
	defaulting.Default(obj, k.structural)
}

// Check judges an object by its schema, after defaults. old is the object that it replaces, nil if it is new: what was wrong
// before and has not been touched is not refused, as on a server.
func (k *Kind) Check(obj, old map[string]any) field.ErrorList {
	errs := k.metadata(obj)
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, k.validator)...)
	} else {
		correlated := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: k.structural})
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, k.validator, validation.WithRatcheting(correlated))...)
	}
	errs = append(errs, objectmeta.Validate(nil, obj, k.structural, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, k.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, obj)...)
	}
	if k.rules != nil && !blocks(errs) {
		var before any
		var options []cel.Option
		if old != nil {
			before = old
			options = append(options, cel.WithRatcheting(common.NewCorrelatedObject(obj, old, &model.Structural{Structural: k.structural})))
		}
		found, _ := k.rules.Validate(context.Background(), nil, k.structural, obj, before, celconfig.RuntimeCELCostBudget, options...)
		errs = append(errs, found...)
	}
	for _, err := range errs {
		tidy(err)
		if given, ok := at(obj, err.Field); ok && err.Type == field.ErrorTypeTypeInvalid {
			err.BadValue = given // the libraries give its type instead
		}
	}
	return errs
}

// step of a field's path: a name, or an index in brackets.
var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// at is the scalar at a field's path.
func at(obj any, path string) (any, bool) {
	for _, s := range step.FindAllString(path, -1) {
		switch parent := obj.(type) {
		case map[string]any:
			obj = parent[s]
		case []any:
			i, err := strconv.Atoi(strings.Trim(s, "[]"))
			if err != nil || i >= len(parent) {
				return nil, false
			}
			obj = parent[i]
		default:
			return nil, false
		}
	}
	switch obj.(type) {
	case nil, map[string]any, []any:
		return nil, false
	}
	return obj, true
}

// metadata checks names, labels and annotations.
func (k *Kind) metadata(obj map[string]any) field.ErrorList {
	path := field.NewPath("metadata")
	given, _ := obj["metadata"].(map[string]any)
	var errs field.ErrorList
	text := func(path *field.Path, value any) {
		if _, ok := value.(string); !ok && value != nil {
			errs = append(errs, field.TypeInvalid(path, value, "must be a string; write it in quotes"))
		}
	}
	for _, name := range []string{"name", "generateName", "namespace"} {
		text(path.Child(name), given[name])
	}
	for _, name := range []string{"labels", "annotations"} {
		if values, ok := given[name].(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(values)) {
				text(path.Child(name).Key(key), values[key])
			}
		} else if given[name] != nil {
			errs = append(errs, field.TypeInvalid(path.Child(name), "", "must be a mapping of names to strings"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	var meta metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(given, &meta); err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	if meta.Name == "" && meta.GenerateName == "" {
		return field.ErrorList{field.Required(path.Child("name"), "an object needs a name")}
	}
	return apivalidation.ValidateObjectMeta(&meta, k.Namespaced, apivalidation.NameIsDNSSubdomain, path)
}

// blocks reports whether rules in CEL cannot be asked any more.
func blocks(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	})
}

// expression is what the libraries add to a sentence about a name.
var expression = regexp.MustCompile(`, regex used for validation is '[^']*'`)

// tidy removes what the libraries say twice: the path is in front already.
func tidy(err *field.Error) {
	err.Detail = strings.TrimPrefix(err.Detail, err.Field+" in body ")
	err.Detail = expression.ReplaceAllString(err.Detail, "")
	if strings.HasPrefix(err.Detail, "must be of type byte") {
		err.Detail = "must be written in base64; plain text goes into stringData of a Secret, or data of a ConfigMap"
	}
	if value, ok := err.BadValue.(map[string]any); ok {
		if short, e := json.Marshal(value); e == nil {
			err.BadValue = string(short)
		}
	}
	if err.Type == field.ErrorTypeTypeInvalid {
		err.Detail = strings.TrimSuffix(err.Detail, fmt.Sprintf(": %q", err.BadValue))
	}
	if err.Type == field.ErrorTypeRequired && err.Detail == "" {
		err.Detail = "must be set"
	}
}
