package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// HostName checks a host name: RFC 1123, lower case, labels of at most 63 characters, at most 253 in all.
func HostName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "a slot is known by its host name; set one such as \"worker-1\"")}
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, name, "use lower-case letters, digits and '-', in labels joined by '.': "+inWordsOnly(problems))}
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return field.ErrorList{field.Invalid(path, name, "is an address and not a name; write a name such as \"worker-1\", and the address into network.primary.ip")}
	}
	for _, label := range strings.Split(name, ".") {
		if problems := validation.IsDNS1123Label(label); len(problems) > 0 {
			return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("the label %q does not fit a host name, shorten or respell it: %s", label, inWordsOnly(problems)))}
		}
	}
	return nil
}

// inWordsOnly joins what Kubernetes says about a name, without the regular expressions.
func inWordsOnly(problems []string) string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i], _, _ = strings.Cut(p, " (e.g.")
	}
	return strings.Join(out, "; ")
}

// ShortName is the first label of a host name: what the node calls itself.
func ShortName(hostName string) string {
	short, _, _ := strings.Cut(hostName, ".")
	return short
}

// DiskName checks the name of a slot's disk, which becomes part of a file name and of a link in the guest.
func DiskName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "a disk is known by its name; set one such as \"var-data\"")}
	}
	problems := validation.IsDNS1123Subdomain(name)
	if len(name) > validation.DNS1123LabelMaxLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d characters", validation.DNS1123LabelMaxLength))
	}
	if len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, name, "use lower-case letters, digits, '-' and '.': "+inWordsOnly(problems))}
	}
	return nil
}

// groupOf is the API group of an apiVersion, the whole of it if that has no form.
func groupOf(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return apiVersion
	}
	return gv.Group
}
