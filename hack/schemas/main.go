// Command schemas writes internal/manifest/schema/capi: the schemas of Cluster API's kinds as the module in go.mod ships them, without
// what only people read, so that the command line can check manifests as strictly as an API server.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/internal/manifest/schema"
)

// sources are directories of the module, and which files of them.
var sources = []string{
	"core/config/crd/bases/cluster.x-k8s.io_*.yaml",
	"core/config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesets.yaml",
	"bootstrap/kubeadm/config/crd/bases/*.yaml",
	"controlplane/kubeadm/config/crd/bases/*.yaml",
}

const target = "internal/manifest/schema/capi"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return fmt.Errorf("finding the module of Cluster API: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(target, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, pattern := range sources {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("nothing matches %s: %w", pattern, err)
		}
		for _, file := range files {
			if err := write(file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

func write(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	compact, err := json.Marshal(schema.Compact(&crd))
	if err != nil {
		return err
	}
	// One line per version keeps differences readable enough.
	compact = bytes.ReplaceAll(compact, []byte(`{"name":"v`), []byte("\n{\"name\":\"v"))
	name := strings.TrimSuffix(filepath.Base(file), ".yaml") + ".json"
	return os.WriteFile(filepath.Join(target, name), append(compact, '\n'), 0o644)
}
