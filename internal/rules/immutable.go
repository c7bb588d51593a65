package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// difference between two values of one type: the place that a person would point at, and what stands there.
type difference struct {
	path          *field.Path
	before, after string
}

func (d difference) String() string {
	return fmt.Sprintf("cannot change from %s to %s", d.before, d.after)
}

// differences between two structs, at most one for each of their fields.
func differences(path *field.Path, before, after any) []difference {
	return structDifferences(path, reflect.ValueOf(before), reflect.ValueOf(after))
}

func structDifferences(path *field.Path, a, b reflect.Value) []difference {
	var out []difference
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.Anonymous {
			out = append(out, structDifferences(path, a.Field(i), b.Field(i))...)
			continue
		}
		if d, differs := firstDifference(path.Child(jsonName(f)), a.Field(i), b.Field(i)); differs {
			out = append(out, d)
		}
	}
	return out
}

// firstDifference goes as deep as both values have the same form. An empty list and an absent one are the same.
func firstDifference(path *field.Path, a, b reflect.Value) (difference, bool) {
	if equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		return difference{}, false
	}
	switch a.Kind() {
	case reflect.Pointer:
		if !a.IsNil() && !b.IsNil() {
			return firstDifference(path, a.Elem(), b.Elem())
		}
	case reflect.Struct:
		if inside := structDifferences(path, a, b); len(inside) > 0 {
			return inside[0], true
		}
	case reflect.Slice:
		for i := 0; a.Len() == b.Len() && i < a.Len(); i++ {
			if d, differs := firstDifference(path.Index(i), a.Index(i), b.Index(i)); differs {
				return d, true
			}
		}
	}
	return difference{path: path, before: inWords(a), after: inWords(b)}, true
}

// inWords is a value as the user wrote it, cut where it gets long.
func inWords(v reflect.Value) string {
	const most = 120
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		return "nothing"
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	if len(text) > most {
		return strings.ToValidUTF8(string(text[:most]), "") + "..."
	}
	return string(text)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
