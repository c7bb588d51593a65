// Package published holds generated CRDs to what users already have in their manifests: a table with one line for each kind,
// printer column and field. Fields may be added; none is removed, renamed or changes its type, and every other difference is
// listed with its reason. The tests of each API package call it.
package published

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Deviation is a place where the CRDs differ from the table on purpose.
type Deviation struct {
	// Kinds it applies to; empty means all.
	Kinds []string
	// Path of the field.
	Path string
	// Differs lists what may differ: "missing", "type", "required" or the name of a constraint.
	Differs []string
	// Why it differs.
	Why string
}

// ConditionForm are the deviations that every kind with conditions has: they have the form of Kubernetes (metav1.Condition), as
// the v1beta2 contract of Cluster API wants.
func ConditionForm() []Deviation {
	const why = "conditions have the form of Kubernetes (metav1.Condition), as the v1beta2 contract wants"
	return []Deviation{
		{Path: "status.conditions", Differs: []string{"mapKeys", "listType", "maxItems"}, Why: why},
		{Path: "status.conditions[].severity", Differs: []string{"missing"}, Why: why},
		{Path: "status.conditions[].message", Differs: []string{"required", "minLength", "maxLength"}, Why: why},
		{Path: "status.conditions[].reason", Differs: []string{"required", "maxLength", "pattern"}, Why: why},
		{Path: "status.conditions[].status", Differs: []string{"enum"}, Why: why},
		{Path: "status.conditions[].type", Differs: []string{"minLength", "maxLength", "pattern"}, Why: why},
	}
}

// CRD is a generated definition with the fields of its only version.
type CRD struct {
	apiextensionsv1.CustomResourceDefinition
	// Version served and stored.
	Version apiextensionsv1.CustomResourceDefinitionVersion
	// Fields by path, in the notation of the table: "spec.configs[].hostname".
	Fields map[string]Field
}

// Field of a schema.
type Field struct {
	// Type with its format, such as "integer:int32".
	Type     string
	Required bool
	// Constraints by name.
	Constraints map[string]string
}

// Load reads the CRDs of a directory whose kinds begin with prefix.
func Load(t *testing.T, dir, prefix string) map[string]CRD {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in %s (run `make generate`): %v", dir, err)
	}
	out := map[string]CRD{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		loaded := CRD{Fields: map[string]Field{}}
		if err := yaml.UnmarshalStrict(data, &loaded.CustomResourceDefinition); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.HasPrefix(loaded.Spec.Names.Kind, prefix) {
			continue
		}
		loaded.Version = loaded.Spec.Versions[0]
		schema := loaded.Version.Schema.OpenAPIV3Schema
		for name, sub := range schema.Properties {
			if name == "spec" || name == "status" {
				collect(loaded.Fields, name, sub, slices.Contains(schema.Required, name))
			}
		}
		out[loaded.Spec.Names.Kind] = loaded
	}
	if len(out) == 0 {
		t.Fatalf("no CRD of a kind %s... in %s", prefix, dir)
	}
	return out
}

// Fields holds every published field to its name, its type and what it accepts.
func Fields(t *testing.T, crds map[string]CRD, table string, deviations []Deviation) {
	t.Helper()
	used := map[string]bool{}
	differs := func(kind, path, what, text string) {
		if slices.ContainsFunc(deviations, func(d Deviation) bool {
			return d.Path == path && slices.Contains(d.Differs, what) && (len(d.Kinds) == 0 || slices.Contains(d.Kinds, kind))
		}) {
			used[path+" "+what] = true
			return
		}
		t.Errorf("%s: %s: %s", kind, path, text)
	}
	for _, row := range rows(t, table) {
		crd, ok := crds[row.kind]
		if !ok {
			t.Errorf("no CRD for kind %s", row.kind)
			continue
		}
		if strings.HasPrefix(row.path, "#") {
			continue
		}
		got, ok := crd.Fields[row.path]
		if !ok {
			differs(row.kind, row.path, "missing", "is published but not in the CRD")
			continue
		}
		if got.Type != row.typ {
			differs(row.kind, row.path, "type", fmt.Sprintf("is %s, published as %s", got.Type, row.typ))
		}
		if want := row.required == "required"; got.Required != want {
			differs(row.kind, row.path, "required", fmt.Sprintf("required is %t, published as %t", got.Required, want))
		}
		want := parseConstraints(t, row.constraints)
		names := slices.Sorted(maps.Keys(got.Constraints))
		names = append(names, slices.Sorted(maps.Keys(want))...)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if got.Constraints[name] != want[name] {
				differs(row.kind, row.path, name, fmt.Sprintf("%s is %q, published as %q", name, got.Constraints[name], want[name]))
			}
		}
	}
	for _, d := range deviations {
		for _, what := range d.Differs {
			if !used[d.Path+" "+what] {
				t.Errorf("the deviation %q of %s is listed but does not exist; remove it", what, d.Path)
			}
		}
	}
}

// Resources holds scope, plural, published short names, subresources and printer columns of every kind. Short names may be
// added.
func Resources(t *testing.T, crds map[string]CRD, table string) {
	t.Helper()
	for _, row := range rows(t, table) {
		crd, ok := crds[row.kind]
		if !ok {
			continue // reported by Fields
		}
		switch row.path {
		case "#":
			status := ""
			if crd.Version.Subresources != nil && crd.Version.Subresources.Status != nil {
				status = "status"
			}
			short := ""
			for _, name := range crd.Spec.Names.ShortNames {
				if strings.Contains(row.typ, " short="+name+" ") {
					short = name
				}
			}
			got := fmt.Sprintf("scope=%s plural=%s short=%s served=%s storage=%s subresources=%s", crd.Spec.Scope, crd.Spec.Names.Plural,
				short, titled(crd.Version.Served), titled(crd.Version.Storage), status)
			if got != row.typ {
				t.Errorf("%s: %s, published as %s", row.kind, got, row.typ)
			}
		case "#column":
			want := apiextensionsv1.CustomResourceColumnDefinition{Name: row.typ, Type: row.required, JSONPath: row.constraints}
			if !slices.ContainsFunc(crd.Version.AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool {
				return c.Name == want.Name && c.Type == want.Type && samePath(c.JSONPath, want.JSONPath)
			}) {
				t.Errorf("%s: published column %s (%s) is missing", row.kind, want.Name, want.JSONPath)
			}
		}
	}
}

// samePath compares JSON paths; a key may be written with a dot or in brackets.
func samePath(a, b string) bool {
	plain := strings.NewReplacer("['", ".", "']", "")
	return plain.Replace(a) == plain.Replace(b)
}

// Contract holds what Cluster API itself asks of every CRD: both contract labels, the category, the computed name. fields lists
// by kind what its v1beta2 contract wants.
func Contract(t *testing.T, crds map[string]CRD, fields map[string][]string) {
	t.Helper()
	for kind, crd := range crds {
		for _, label := range []string{"cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"} {
			if crd.Labels[label] != "v1beta1" {
				t.Errorf("%s: label %s is %q, want v1beta1", kind, label, crd.Labels[label])
			}
		}
		if !slices.Contains(crd.Spec.Names.Categories, "cluster-api") {
			t.Errorf("%s: not in the category cluster-api", kind)
		}
		if want := crd.Spec.Names.Plural + "." + crd.Spec.Group; crd.Name != want {
			t.Errorf("%s: the CRD is called %s, want %s", kind, crd.Name, want)
		}
		if len(crd.Spec.Names.ShortNames) == 0 {
			t.Errorf("%s: no short name", kind)
		}
	}
	for kind, paths := range fields {
		for _, path := range paths {
			if _, ok := crds[kind].Fields[path]; !ok {
				t.Errorf("%s: the v1beta2 contract wants %s", kind, path)
			}
		}
	}
}
