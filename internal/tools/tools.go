// Package tools knows the programs that Berth builds from source to work locally: which module pins each of them, where the
// build goes, and how to find it again. It imports nothing but the standard library, so that it builds in a second.
//
// A result lives in a directory named after the content of the module that pins it; a changed version is another directory,
// and all clones of the repository share what is there. BERTH_TOOLS_DIR overrides the place.
package tools

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Tool is one program built from a pinned module.
type Tool struct {
	// Name of the executable.
	Name string
	// Family is the directory below hack/tools whose go.mod pins the version.
	Family string
	// Package is the main package.
	Package string
	// LDFlags are passed to the linker beside -s -w.
	LDFlags string
	// Group says who needs it: "cluster" (a local management cluster), "move" (a test of clusterctl move), "generate" or "lint".
	Group string
}

// Groups of tools.
const (
	GroupCluster  = "cluster"
	GroupMove     = "move"
	GroupGenerate = "generate"
	GroupLint     = "lint"
)

// KubernetesVersion is what the API servers built here call themselves; Cluster API's managers refuse a server that says
// v0.0.0, which is what a build from a module says on its own.
const KubernetesVersion = "v1.36.3"

const kubernetesFlags = "-X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// All lists every tool, in the order in which they are built.
var All = []Tool{
	{Name: "etcd", Family: "etcd", Package: "go.etcd.io/etcd/server/v3", Group: GroupCluster},
	{Name: "kube-apiserver", Family: "kubernetes", Package: "k8s.io/kubernetes/cmd/kube-apiserver", LDFlags: kubernetesFlags, Group: GroupCluster},
	{Name: "kube-controller-manager", Family: "kubernetes", Package: "k8s.io/kubernetes/cmd/kube-controller-manager", LDFlags: kubernetesFlags, Group: GroupCluster},
	{Name: "kubectl", Family: "kubernetes", Package: "k8s.io/kubernetes/cmd/kubectl", LDFlags: kubernetesFlags, Group: GroupCluster},
	{Name: "capi-core", Family: "cluster-api", Package: "sigs.k8s.io/cluster-api/core", Group: GroupCluster},
	{Name: "capi-kubeadm-bootstrap", Family: "cluster-api", Package: "sigs.k8s.io/cluster-api/bootstrap/kubeadm", Group: GroupCluster},
	{Name: "capi-kubeadm-control-plane", Family: "cluster-api", Package: "sigs.k8s.io/cluster-api/controlplane/kubeadm", Group: GroupCluster},
	{Name: "clusterctl", Family: "clusterctl", Package: "sigs.k8s.io/cluster-api/cmd/clusterctl", LDFlags: "-X sigs.k8s.io/cluster-api/version.gitVersion=v1.14.2", Group: GroupMove},
	{Name: "controller-gen", Family: "generate", Package: "sigs.k8s.io/controller-tools/cmd/controller-gen", Group: GroupGenerate},
	{Name: "kustomize", Family: "generate", Package: "sigs.k8s.io/kustomize/kustomize/v5", Group: GroupGenerate},
	{Name: "golangci-lint", Family: "lint", Package: "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", Group: GroupLint},
	{Name: "gofumpt", Family: "lint", Package: "mvdan.cc/gofumpt", Group: GroupLint},
}

// ErrNotBuilt is returned for a tool that the cache does not hold.
var ErrNotBuilt = errors.New("not built yet; run `make tools` in a clone of Berth")

// modules are the files whose content names the cache directory of a family. They are copies that `go generate` keeps equal to
// hack/tools/*/go.mod, because an installed program has no clone to look at.
//
//go:embed modules/*.mod
var modules embed.FS

// Dir is the root of the cache: BERTH_TOOLS_DIR, or berth/tools in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv("BERTH_TOOLS_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache directory for tools (set BERTH_TOOLS_DIR to choose one): %w", err)
	}
	return filepath.Join(cache, "berth", "tools"), nil
}

// Path is the executable of a tool. The error wraps ErrNotBuilt if it is not in the cache.
func Path(name string) (string, error) {
	i := slices.IndexFunc(All, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return "", fmt.Errorf("no tool is called %q", name)
	}
	dir, err := familyDir(All[i].Family)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", name, ErrNotBuilt)
	}
	return path, nil
}

// CAPIConfig is a directory with the manifests of the Cluster API managers as released: core, bootstrap and controlplane, each
// with crd/bases, webhook and rbac.
func CAPIConfig() (string, error) {
	dir, err := familyDir("cluster-api")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "config")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("manifests of Cluster API: %w", ErrNotBuilt)
	}
	return path, nil
}

// familyDir is where the programs of one pinned module go.
func familyDir(family string) (string, error) {
	root, err := Dir()
	if err != nil {
		return "", err
	}
	mod, err := modules.ReadFile("modules/" + family + ".mod")
	if err != nil {
		return "", fmt.Errorf("reading the pinned module of %s: %w", family, err)
	}
	sum := sha256.New()
	sum.Write(mod)
	for _, t := range All {
		if t.Family == family {
			fmt.Fprintln(sum, t.Name, t.Package, t.LDFlags)
		}
	}
	for _, e := range edits {
		if e.Family == family {
			fmt.Fprintln(sum, e)
		}
	}
	return filepath.Join(root, family+"-"+hex.EncodeToString(sum.Sum(nil))[:12]), nil
}
