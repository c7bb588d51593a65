package tools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Build makes sure that every tool of the groups is in the cache, and reports each one on out with the time it took. root is
// a clone of the repository. Several processes may build at once: one works, the others wait for it.
func Build(ctx context.Context, root string, groups []string, out io.Writer) error {
	for _, t := range All {
		for _, g := range groups {
			if t.Group != g {
				continue
			}
			if err := build(ctx, root, t, out); err != nil {
				return fmt.Errorf("building %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

func build(ctx context.Context, root string, t Tool, out io.Writer) error {
	dir, err := familyDir(t.Family)
	if err != nil {
		return err
	}
	module := filepath.Join(root, "hack", "tools", t.Family)
	if err := sameModule(module, t.Family); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := Path(t.Name); err != nil {
		if err := compile(ctx, module, dir, t, out); err != nil {
			return err
		}
	}
	if t.Family == "cluster-api" {
		return copyCAPIConfig(ctx, module, dir)
	}
	return nil
}

func compile(ctx context.Context, module, dir string, t Tool, out io.Writer) error {
	fmt.Fprintf(out, "building %s from source ...\n", t.Name)
	start := time.Now()
	// Build beside the target and rename, so that an interrupted build never leaves half a program under the real name.
	partial := filepath.Join(dir, "."+t.Name)
	edited, err := applyEdits(ctx, module, dir, t.Family)
	if err != nil {
		return err
	}
	args := append([]string{"build"}, edited...)
	args = append(args, "-ldflags", strings.TrimSpace("-s -w "+t.LDFlags), "-o", partial, t.Package)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(msg))
	}
	if err := os.Rename(partial, filepath.Join(dir, t.Name)); err != nil {
		return err
	}
	fmt.Fprintf(out, "built %s in %s\n", t.Name, time.Since(start).Round(time.Second))
	return nil
}

// sameModule refuses to build when the pinned module and the copy in this package differ: the result would be kept under the
// wrong key.
func sameModule(module, family string) error {
	pinned, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return err
	}
	embedded, err := modules.ReadFile("modules/" + family + ".mod")
	if err != nil {
		return err
	}
	if !bytes.Equal(pinned, embedded) {
		return fmt.Errorf("internal/tools/modules/%s.mod differs from hack/tools/%s/go.mod; run `make generate`", family, family)
	}
	return nil
}

// copyCAPIConfig keeps the manifests of the Cluster API managers beside the programs, as the module has them.
func copyCAPIConfig(ctx context.Context, module, dir string) error {
	target := filepath.Join(dir, "config")
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	found, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("finding the module of Cluster API: %w", err)
	}
	src := strings.TrimSpace(string(found))
	partial := filepath.Join(dir, ".config")
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	for name, from := range map[string]string{"core": "core/config", "bootstrap": "bootstrap/kubeadm/config", "controlplane": "controlplane/kubeadm/config"} {
		for _, part := range []string{"crd/bases", "webhook", "rbac"} {
			if err := copyTree(filepath.Join(src, from, part), filepath.Join(partial, name, part)); err != nil {
				return err
			}
		}
	}
	return os.Rename(partial, target)
}

// copyTree copies files only, without the read-only mode bits of a module cache.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
