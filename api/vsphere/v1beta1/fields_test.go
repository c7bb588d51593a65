package v1beta1_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// crdDir holds the generated CustomResourceDefinitions.
const crdDir = "../../../config/crd/bases"

// fieldTable is what users of the published CRDs rely on: one line for each kind, printer column and field.
const fieldTable = "testdata/fields.tsv"

// column of the field table.
const (
	colGroupVersion = iota
	colKind
	colPath
	colType
	colRequired
	colConstraints
)

// field of a schema: its type with format ("integer:int32") and what it accepts.
type schemaField struct {
	Type        string
	Required    bool
	Constraints map[string]string
}

// deviation is a place where the CRDs differ from the field table on purpose. It names what differs and why.
type deviation struct {
	// Kinds it applies to; empty means all.
	Kinds []string
	// Path of the field.
	Path string
	// Differs lists what may differ: "missing", "type", "required" or the name of a constraint.
	Differs []string
	Why     string
}

var pool = []string{"VSphereMachineConfigPool"}

// conditionForm is the reason for everything about status.conditions.
const conditionForm = "conditions have the form of Kubernetes (metav1.Condition), as the v1beta2 contract wants"

// stricterPool is the reason for everything about the spec of a pool.
const stricterPool = "the later form of the pool is stricter here (V1)"

var deviations = []deviation{
	{Path: "status.conditions", Differs: []string{"mapKeys", "listType", "maxItems"}, Why: conditionForm},
	{Path: "status.conditions[].severity", Differs: []string{"missing"}, Why: conditionForm},
	{Path: "status.conditions[].message", Differs: []string{"required", "minLength", "maxLength"}, Why: conditionForm},
	{Path: "status.conditions[].reason", Differs: []string{"required", "maxLength", "pattern"}, Why: conditionForm},
	{Path: "status.conditions[].status", Differs: []string{"enum"}, Why: conditionForm},
	{Path: "status.conditions[].type", Differs: []string{"minLength", "maxLength", "pattern"}, Why: conditionForm},

	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains", Differs: []string{"type", "mapKeys", "listType"}, Why: "failure domains are a list in the v1beta2 contract"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}", Differs: []string{"missing"}, Why: "the list's elements replace it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.attributes", Differs: []string{"missing"}, Why: "the list's elements have it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.attributes{}", Differs: []string{"missing"}, Why: "the list's elements have it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.controlPlane", Differs: []string{"missing"}, Why: "the list's elements have it"},

	{Kinds: pool, Path: "spec.configs", Differs: []string{"minItems"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].network", Differs: []string{"required"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks", Differs: []string{"maxItems"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].fsFormat", Differs: []string{"enum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].name", Differs: []string{"minLength", "maxLength", "pattern"}, Why: "the name becomes a file name and a link in the guest"},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].sizeGiB", Differs: []string{"minimum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].unitNumber", Differs: []string{"enum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.releaseDelayHours", Differs: []string{"minimum"}, Why: "a negative grace period means nothing"},
	{Kinds: pool, Path: "status.configStatuses", Differs: []string{"mapKeys", "listType"}, Why: "one entry for each host name"},
}

func allowed(kind, path, what string) bool {
	return slices.ContainsFunc(deviations, func(d deviation) bool {
		return d.Path == path && slices.Contains(d.Differs, what) && (len(d.Kinds) == 0 || slices.Contains(d.Kinds, kind))
	})
}

// TestPublishedFields holds every published field to its name, its type and what it accepts; decision V1 names the stricter
// pool, decision D13 the other form of conditions and failure domains, decision D15 the leftovers.
func TestPublishedFields(t *testing.T) {
	crds := loadCRDs(t)
	used := map[string]bool{}
	differs := func(kind, path, what, text string) {
		if allowed(kind, path, what) {
			used[path+" "+what] = true
			return
		}
		t.Errorf("%s: %s: %s", kind, path, text)
	}

	for _, row := range publishedRows(t) {
		kind, path := row[colKind], row[colPath]
		crd, ok := crds[kind]
		if !ok {
			t.Errorf("no CRD for kind %s", kind)
			continue
		}
		if strings.HasPrefix(path, "#") {
			continue
		}
		got, ok := crd.fields[path]
		if !ok {
			differs(kind, path, "missing", "is published but not in the CRD")
			continue
		}
		if got.Type != row[colType] {
			differs(kind, path, "type", fmt.Sprintf("is %s, published as %s", got.Type, row[colType]))
		}
		if want := row[colRequired] == "required"; got.Required != want {
			differs(kind, path, "required", fmt.Sprintf("required is %t, published as %t", got.Required, want))
		}
		want := parseConstraints(t, row[colConstraints])
		for _, name := range constraintNames(got.Constraints, want) {
			if got.Constraints[name] != want[name] {
				differs(kind, path, name, fmt.Sprintf("%s is %q, published as %q", name, got.Constraints[name], want[name]))
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

// TestPublishedResources holds scope, plural, subresources and printer columns of every kind.
func TestPublishedResources(t *testing.T) {
	crds := loadCRDs(t)
	for _, row := range publishedRows(t) {
		crd, ok := crds[row[colKind]]
		if !ok {
			continue // reported by TestPublishedFields
		}
		switch row[colPath] {
		case "#":
			status := ""
			if crd.version.Subresources != nil && crd.version.Subresources.Status != nil {
				status = "status"
			}
			got := fmt.Sprintf("scope=%s plural=%s short= served=%s storage=%s subresources=%s", crd.spec.Scope, crd.spec.Names.Plural,
				titled(crd.version.Served), titled(crd.version.Storage), status)
			if got != row[colType] {
				t.Errorf("%s: %s, published as %s", row[colKind], got, row[colType])
			}
		case "#column":
			want := apiextensionsv1.CustomResourceColumnDefinition{Name: row[colType], Type: row[colRequired], JSONPath: row[colConstraints]}
			if !slices.ContainsFunc(crd.version.AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool {
				return c.Name == want.Name && c.Type == want.Type && c.JSONPath == want.JSONPath
			}) {
				t.Errorf("%s: published column %s (%s) is missing", row[colKind], want.Name, want.JSONPath)
			}
		}
	}
}

// TestContract holds what Cluster API itself asks of the CRDs: both contract labels, the category, the computed name.
func TestContract(t *testing.T) {
	for kind, crd := range loadCRDs(t) {
		for _, label := range []string{"cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"} {
			if crd.labels[label] != "v1beta1" {
				t.Errorf("%s: label %s is %q, want v1beta1", kind, label, crd.labels[label])
			}
		}
		if !slices.Contains(crd.spec.Names.Categories, "cluster-api") {
			t.Errorf("%s: not in the category cluster-api", kind)
		}
		if want := crd.spec.Names.Plural + "." + crd.spec.Group; crd.name != want {
			t.Errorf("%s: the CRD is called %s, want %s", kind, crd.name, want)
		}
		if len(crd.spec.Names.ShortNames) == 0 {
			t.Errorf("%s: no short name", kind)
		}
	}

	for kind, fields := range map[string][]string{
		"VSphereCluster":         {"spec.controlPlaneEndpoint.host", "spec.controlPlaneEndpoint.port", "status.initialization.provisioned", "status.failureDomains[].name"},
		"VSphereMachine":         {"spec.providerID", "status.initialization.provisioned", "status.addresses[].type", "status.failureDomain"},
		"VSphereMachineTemplate": {"spec.template.metadata", "spec.template.spec"},
	} {
		for _, path := range fields {
			if _, ok := loadCRDs(t)[kind].fields[path]; !ok {
				t.Errorf("%s: the v1beta2 contract wants %s", kind, path)
			}
		}
	}
}

// TestPoolShape holds the fields of a pool that are younger than the field table.
func TestPoolShape(t *testing.T) {
	fields := loadCRDs(t)["VSphereMachineConfigPool"].fields
	for path, typ := range map[string]string{
		"spec.configs[].ephemeralDisks[].name":           "string",
		"spec.configs[].ephemeralDisks[].sizeGiB":        "integer:int32",
		"spec.configs[].ephemeralDisks[].datastore":      "string",
		"spec.configs[].ephemeralDisks[].storagePolicy":  "string",
		"spec.configs[].ephemeralDisks[].mountPath":      "string",
		"spec.configs[].ephemeralDisks[].mountOptions[]": "string",
		"spec.configs[].ephemeralDisks[].fsFormat":       "string",
		"status.total":     "integer:int32",
		"status.available": "integer:int32",
		"status.allocated": "integer:int32",
		"status.persistentDiskStatuses[].hostname":           "string",
		"status.persistentDiskStatuses[].name":               "string",
		"status.persistentDiskStatuses[].volumePath":         "string",
		"status.persistentDiskStatuses[].diskUUID":           "string",
		"status.persistentDiskStatuses[].unitNumber":         "integer:int32",
		"status.persistentDiskStatuses[].phase":              "string",
		"status.persistentDiskStatuses[].ownerMachineUID":    "string",
		"status.persistentDiskStatuses[].ownerMachineName":   "string",
		"status.persistentDiskStatuses[].taskRef":            "string",
		"status.persistentDiskStatuses[].retryAfter":         "string:date-time",
		"status.persistentDiskStatuses[].lastError":          "string",
		"status.persistentDiskStatuses[].lastTransitionTime": "string:date-time",
		"status.ephemeralDiskStatuses[].hostname":            "string",
		"status.ephemeralDiskStatuses[].name":                "string",
		"status.ephemeralDiskStatuses[].unitNumber":          "integer:int32",
		"status.v1beta2.conditions":                          "array",
	} {
		if got, ok := fields[path]; !ok {
			t.Errorf("%s is missing", path)
		} else if got.Type != typ {
			t.Errorf("%s is %s, want %s", path, got.Type, typ)
		}
	}
	for _, absent := range []string{"wipeFilesystem", "volumePath", "diskUUID", "unitNumber"} {
		if _, ok := fields["spec.configs[].ephemeralDisks[]."+absent]; ok {
			t.Errorf("an ephemeral disk has no %s", absent)
		}
	}
}

type loadedCRD struct {
	name    string
	labels  map[string]string
	spec    apiextensionsv1.CustomResourceDefinitionSpec
	version apiextensionsv1.CustomResourceDefinitionVersion
	fields  map[string]schemaField
}

func loadCRDs(t *testing.T) map[string]loadedCRD {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crdDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in %s (run `make generate`): %v", crdDir, err)
	}
	out := map[string]loadedCRD{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.HasPrefix(crd.Spec.Names.Kind, "VSphere") {
			continue
		}
		loaded := loadedCRD{name: crd.Name, labels: crd.Labels, spec: crd.Spec, version: crd.Spec.Versions[0], fields: map[string]schemaField{}}
		for name, schema := range loaded.version.Schema.OpenAPIV3Schema.Properties {
			if name == "spec" || name == "status" {
				collect(loaded.fields, name, schema, false)
			}
		}
		out[crd.Spec.Names.Kind] = loaded
	}
	return out
}

// collect writes a schema and everything below it in the notation of the field table.
func collect(into map[string]schemaField, path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	f := schemaField{Type: s.Type, Required: required, Constraints: constraintsOf(s)}
	if s.Format != "" {
		f.Type += ":" + s.Format
	}
	into[path] = f
	for name, sub := range s.Properties {
		collect(into, path+"."+name, sub, slices.Contains(s.Required, name))
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := path + "[]"
		collect(into, items, *s.Items.Schema, false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		collect(into, path+"{}", *s.AdditionalProperties.Schema, false)
	}
}

func constraintsOf(s apiextensionsv1.JSONSchemaProps) map[string]string {
	out := map[string]string{}
	number := func(name string, v *int64) {
		if v != nil {
			out[name] = fmt.Sprint(*v)
		}
	}
	number("minLength", s.MinLength)
	number("maxLength", s.MaxLength)
	number("minItems", s.MinItems)
	number("maxItems", s.MaxItems)
	if s.Minimum != nil {
		out["minimum"] = fmt.Sprint(*s.Minimum)
	}
	if s.Maximum != nil {
		out["maximum"] = fmt.Sprint(*s.Maximum)
	}
	if s.Pattern != "" {
		out["pattern"] = s.Pattern
	}
	if len(s.Enum) > 0 {
		values := make([]string, 0, len(s.Enum))
		for _, v := range s.Enum {
			values = append(values, string(v.Raw))
		}
		slices.Sort(values)
		out["enum"] = strings.Join(values, " ")
	}
	if s.Default != nil {
		out["default"] = string(s.Default.Raw)
	}
	if s.XListType != nil {
		out["listType"] = *s.XListType
	}
	if len(s.XListMapKeys) > 0 {
		out["mapKeys"] = strings.Join(s.XListMapKeys, ",")
	}
	return out
}

func publishedRows(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile(fieldTable)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")[1:]
	rows := make([][]string, 0, len(lines))
	for i, line := range lines {
		row := strings.Split(line, "\t")
		for len(row) <= colConstraints {
			row = append(row, "")
		}
		if row[colGroupVersion] != "infrastructure.cluster.x-k8s.io/v1beta1" {
			t.Fatalf("%s:%d: unexpected group and version %q", fieldTable, i+2, row[colGroupVersion])
		}
		rows = append(rows, row)
	}
	return rows
}

var constraintPattern = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\S+)`)

func parseConstraints(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range constraintPattern.FindAllStringSubmatch(text, -1) {
		name, value := m[1], m[2]
		switch name {
		case "pattern":
			var pattern string
			if err := json.Unmarshal([]byte(value), &pattern); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			out[name] = pattern
		case "enum":
			var values []json.RawMessage
			if err := json.Unmarshal([]byte(value), &values); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			words := make([]string, 0, len(values))
			for _, v := range values {
				words = append(words, string(v))
			}
			slices.Sort(words)
			out[name] = strings.Join(words, " ")
		default:
			out[name] = value
		}
	}
	return out
}

func constraintNames(a, b map[string]string) []string {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// titled is how the field table writes a boolean.
func titled(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
