package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// systemPaths belong to the kernel or to the start of the machine; nothing is mounted at or below them.
var systemPaths = []string{"/proc", "/sys", "/dev", "/run", "/boot"}

// MountPath checks where a disk is to be mounted.
func MountPath(p *field.Path, value string) field.ErrorList {
	switch {
	case strings.ContainsFunc(value, unicode.IsControl):
		return field.ErrorList{field.Invalid(p, value, "must not contain tabs, line breaks or other control characters")}
	case !path.IsAbs(value):
		return field.ErrorList{field.Invalid(p, value, "must be an absolute path, starting with '/'")}
	case slices.ContainsFunc(strings.Split(value, "/"), func(s string) bool { return s == "." || s == ".." }):
		return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must not contain '.' or '..'; write %q", path.Clean(value)))}
	}
	clean := path.Clean(value)
	if clean == "/" {
		return field.ErrorList{field.Invalid(p, value, "must not be '/', the system disk has it; mount below it")}
	}
	for _, s := range systemPaths {
		if clean == s || strings.HasPrefix(clean, s+"/") {
			return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must not be at or below %s, which belongs to the operating system; choose a path such as /var/data", s))}
		}
	}
	return nil
}

// SamePath reports whether two mount paths are the same place, however they are written.
func SamePath(a, b string) bool { return cleanPath(a) == cleanPath(b) }

func cleanPath(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}
