package node

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// patchFile is kubeadm's name pattern: target, suffix that sorts, patch type, extension.
var patchFile = regexp.MustCompile(`^([a-z-]+?)([^a-z+.-][^+.]*)?(?:\+(strategic|merge|json))?\.(yaml|json)$`)

var patchTargets = []string{etcdName, apiServerName, controllerName, schedulerName, "kubeletconfiguration", "corednsdeployment"}

// patch applies the patches for one target, in the order of their file names, as kubeadm does for --patches. schema is the
// target's Go type for strategic merging; nil merges as JSON (a kubelet configuration has no lists with merge keys that a
// patch could mean).
func (d guestDisk) patch(p *patches, target string, document []byte, schema any) ([]byte, error) {
	if p == nil || p.Directory == "" {
		return document, nil
	}
	if !d.exists(p.Directory) {
		return nil, fmt.Errorf("could not list patch files for path %q: no such directory", p.Directory)
	}
	names, err := d.list(p.Directory)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	data, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		parts := patchFile.FindStringSubmatch(name)
		if parts == nil || !slices.Contains(patchTargets, parts[1]) || parts[1] != target {
			continue
		}
		raw, err := d.read(path.Join(p.Directory, name))
		if err != nil {
			return nil, err
		}
		change, err := yaml.YAMLToJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("could not parse patch file %q: %w", name, err)
		}
		switch {
		case parts[3] == "json":
			var ops jsonpatch.Patch
			if ops, err = jsonpatch.DecodePatch(change); err == nil {
				data, err = ops.Apply(data)
			}
		case parts[3] == "merge" || schema == nil:
			data, err = jsonpatch.MergePatch(data, change)
		default:
			data, err = strategicpatch.StrategicMergePatch(data, change, schema)
		}
		if err != nil {
			return nil, fmt.Errorf("could not apply the patch %q to target %q: %w", name, target, err)
		}
	}
	return yaml.JSONToYAML(data)
}
