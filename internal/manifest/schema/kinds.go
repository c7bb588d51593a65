package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/config"
)

// capi holds the kinds of Cluster API, core holds those of Kubernetes itself that belong to a cluster's manifests. hack/schemas
// writes the former from the module that go.mod names.
var (
	//go:embed capi/*.json
	capi embed.FS
	//go:embed core.yaml
	core []byte
)

// definitions are read once: all kinds, by group and kind.
var definitions = sync.OnceValues(func() (map[schema.GroupKind]Definition, error) {
	all := map[schema.GroupKind]Definition{}
	add := func(d Definition) { all[schema.GroupKind{Group: d.Group, Kind: d.Kind}] = d }

	var plain []Definition
	if err := yaml.UnmarshalStrict(core, &plain); err != nil {
		return nil, fmt.Errorf("kinds of Kubernetes: %w", err)
	}
	for _, d := range plain {
		add(d)
	}
	if err := eachFile(capi, "capi", func(text []byte) error {
		d, err := decode(text)
		add(d)
		return err
	}); err != nil {
		return nil, err
	}
	return all, eachFile(config.CRDs, "crd/bases", func(text []byte) error {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return err
		}
		add(Compact(&crd))
		return nil
	})
})

func eachFile(files fs.FS, dir string, do func([]byte) error) error {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err == nil {
			err = do(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

// Lookup finds a kind. Not found is ErrUnknown, ErrVersion or ErrMisspelt.
func Lookup(gvk schema.GroupVersionKind) (*Kind, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	d, found := all[gvk.GroupKind()]
	if !found {
		return nil, unknown(all, gvk)
	}
	i := slices.IndexFunc(d.Versions, func(v Version) bool { return v.Name == gvk.Version })
	if i < 0 {
		return nil, &VersionError{GVK: gvk, Served: versionsOf(d)}
	}
	return compiled(gvk, d, d.Versions[i])
}

// unknown says nothing of kinds that are not ours to know, unless the name looks like a slip of the pen.
func unknown(all map[schema.GroupKind]Definition, gvk schema.GroupVersionKind) error {
	var kinds []string
	for gk := range all {
		if gk.Group == gvk.Group {
			kinds = append(kinds, gk.Kind)
		}
	}
	// Other providers share the group, so a kind must be very near: AWSMachine is not a misspelt VSphereMachine.
	if near := Nearest(gvk.Kind, kinds); near != "" && distance(strings.ToLower(near), strings.ToLower(gvk.Kind)) <= 2 {
		return &MisspeltError{GVK: gvk, Kind: near}
	}
	// The right kind in a group that is spelt wrong.
	for gk := range all {
		if gk.Kind == gvk.Kind && gk.Group != "" && Nearest(gvk.Group, []string{gk.Group}) != "" {
			return &MisspeltError{GVK: gvk, Kind: gk.Kind, Group: gk.Group}
		}
	}
	return ErrUnknown
}

func versionsOf(d Definition) []string {
	var out []string
	for _, v := range d.Versions {
		out = append(out, v.Name)
	}
	return out
}

// ErrUnknown is returned for kinds that no check here is about.
var ErrUnknown = fmt.Errorf("not a kind of a cluster's manifests")

// VersionError is returned for a known kind in a version that is not served.
type VersionError struct {
	GVK    schema.GroupVersionKind
	Served []string
}

func (e *VersionError) Error() string {
	want := make([]string, len(e.Served))
	for i, v := range e.Served {
		want[i] = schema.GroupVersion{Group: e.GVK.Group, Version: v}.String()
	}
	return fmt.Sprintf("%s is not served in version %q; write %s", e.GVK.Kind, e.GVK.GroupVersion(), strings.Join(want, " or "))
}

// MisspeltError is returned for a kind that nobody serves and that looks like one that is served.
type MisspeltError struct {
	GVK schema.GroupVersionKind
	// Kind that may be meant.
	Kind string
	// Group that may be meant, if it is the group that is spelt wrong.
	Group string
}

func (e *MisspeltError) Error() string {
	if e.Group != "" {
		return fmt.Sprintf("no group is called %q; did you mean %q?", e.GVK.Group, e.Group)
	}
	return fmt.Sprintf("no kind of %s is called %q; did you mean %q?", e.GVK.GroupVersion(), e.GVK.Kind, e.Kind)
}
