package published

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// row of a table. In the rows "#" and "#column" the columns after the path have a meaning of their own.
type row struct{ kind, path, typ, required, constraints string }

func rows(t *testing.T, table string) []row {
	t.Helper()
	data, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	const columns = 6
	var out []row
	for i, line := range strings.Split(strings.TrimRight(string(data), "\n"), "\n")[1:] {
		cells := strings.Split(line, "\t")
		for len(cells) < columns {
			cells = append(cells, "")
		}
		if cells[0] != "infrastructure.cluster.x-k8s.io/v1beta1" {
			t.Fatalf("%s:%d: unexpected group and version %q", table, i+2, cells[0])
		}
		out = append(out, row{kind: cells[1], path: cells[2], typ: cells[3], required: cells[4], constraints: cells[5]})
	}
	return out
}

// collect writes a schema and everything below it in the notation of the table.
func collect(into map[string]Field, path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	f := Field{Type: s.Type, Required: required, Constraints: constraintsOf(s)}
	if s.Format != "" {
		f.Type += ":" + s.Format
	}
	into[path] = f
	for name, sub := range s.Properties {
		collect(into, path+"."+name, sub, slices.Contains(s.Required, name))
	}
	if s.Items != nil && s.Items.Schema != nil {
		collect(into, path+"[]", *s.Items.Schema, false)
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

var constraint = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\S+)`)

func parseConstraints(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range constraint.FindAllStringSubmatch(text, -1) {
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

// titled is how the table writes a boolean.
func titled(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
