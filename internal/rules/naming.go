package rules

import (
	"fmt"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxVMName is where names of virtual machines are cut.
const maxVMName = validation.DNS1123LabelMaxLength

// VMName makes the name of a virtual machine from a naming template and the name of its machine. An empty template means the
// machine's name. The result is cut at 63 characters, and must be a name that Kubernetes accepts for an object.
func VMName(naming, machine string) (string, error) {
	if naming == "" {
		return cut(machine), nil
	}
	// A template is parsed anew for every name: a shared one would hand out names of other machines.
	t, err := template.New("name").Funcs(template.FuncMap{"trimSuffix": trimSuffix, "trunc": trunc}).Option("missingkey=error").Parse(naming)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, map[string]any{"machine": map[string]any{"name": machine}}); err != nil {
		return "", err
	}
	name := cut(b.String())
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("makes %q of machine %q: %s", name, machine, inWordsOnly(problems))
	}
	return name, nil
}

func cut(name string) string {
	if len(name) <= maxVMName {
		return name
	}
	return strings.TrimRight(name[:maxVMName], "-.")
}

func trimSuffix(suffix, s string) string { return strings.TrimSuffix(s, suffix) }

// trunc keeps the first n bytes, or the last ones if n is negative.
func trunc(n int, s string) string {
	switch {
	case n >= 0 && len(s) > n:
		return s[:n]
	case n < 0 && len(s) > -n:
		return s[len(s)+n:]
	}
	return s
}
