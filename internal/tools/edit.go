package tools

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Edit is a change to one file of a dependency before a family is compiled. It is for what no flag of the program can say.
type Edit struct {
	Family string
	Module string
	File   string
	// Old must occur exactly once in the file, so that an upgrade that moves the code fails the build and not the user.
	Old, New string
}

// WebhookHostVariable is the environment variable in which the Cluster API managers built here look for the address of their
// webhook servers.
const WebhookHostVariable = "BERTH_WEBHOOK_HOST"

// edits lists all changes. The managers of Cluster API have a flag for the port of their webhook server and none for its
// address, and so would listen on every interface of the machine, and two environments would want the same port.
var edits = []Edit{{
	Family: "cluster-api",
	Module: "sigs.k8s.io/controller-runtime",
	File:   "pkg/webhook/server.go",
	Old:    "func (o *Options) setDefaults() {\n",
	New:    "func (o *Options) setDefaults() {\n\tif o.Host == \"\" {\n\t\to.Host = os.Getenv(\"" + WebhookHostVariable + "\")\n\t}\n",
}}

// applyEdits prepares the sources of a family and returns the arguments for `go build` that make it use them. The module
// cache itself is not touched: the edited module is a copy that a go.mod beside it points to.
func applyEdits(ctx context.Context, module, dir, family string) ([]string, error) {
	var args []string
	for _, e := range edits {
		if e.Family != family {
			continue
		}
		if args != nil {
			return nil, fmt.Errorf("family %s has several edits; only one is supported", family)
		}
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", e.Module)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		found, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("finding module %s: %w", e.Module, err)
		}
		src := filepath.Join(dir, ".src")
		if err := os.RemoveAll(src); err != nil {
			return nil, err
		}
		copied := filepath.Join(src, filepath.Base(e.Module))
		if err := copyTree(strings.TrimSpace(string(found)), copied); err != nil {
			return nil, fmt.Errorf("copying module %s: %w", e.Module, err)
		}
		if err := e.apply(copied); err != nil {
			return nil, err
		}
		modfile := filepath.Join(src, "go.mod")
		mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err != nil {
			return nil, err
		}
		mod = append(mod, "\nreplace "+e.Module+" => "+strconv.Quote(copied)+"\n"...)
		if err := os.WriteFile(modfile, mod, 0o644); err != nil {
			return nil, err
		}
		sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(src, "go.sum"), sums, 0o644); err != nil {
			return nil, err
		}
		args = []string{"-modfile=" + modfile}
	}
	return args, nil
}

func (e Edit) apply(root string) error {
	path := filepath.Join(root, filepath.FromSlash(e.File))
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("editing module %s: %w", e.Module, err)
	}
	if n := bytes.Count(text, []byte(e.Old)); n != 1 {
		return fmt.Errorf("editing module %s: the text to change occurs %d times in %s, want once", e.Module, n, e.File)
	}
	return os.WriteFile(path, bytes.Replace(text, []byte(e.Old), []byte(e.New), 1), 0o644)
}
