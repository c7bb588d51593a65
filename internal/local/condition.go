package local

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var getOptions = metav1.GetOptions{}

// condition is the part of a condition that people read.
type condition struct{ status, reason, message string }

// conditionOf finds a condition of any kind of object; the zero value if it has none of that type.
func conditionOf(object *unstructured.Unstructured, kind string) condition {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		fields, ok := c.(map[string]any)
		if !ok || fields["type"] != kind {
			continue
		}
		text := func(key string) string {
			s, _ := fields[key].(string)
			return s
		}
		return condition{status: text("status"), reason: text("reason"), message: text("message")}
	}
	return condition{}
}

func conditionStatus(object *unstructured.Unstructured, kind string) string {
	return conditionOf(object, kind).status
}
