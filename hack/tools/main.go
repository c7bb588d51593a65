// Command tools builds the programs that Berth needs to work locally, from source, into the user's cache directory.
//
//	go run ./hack/tools [cluster] [move] [generate] [lint]   build these groups (default: cluster)
//	go run ./hack/tools -path NAME                    print where a program is
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/berth-dev/berth/internal/tools"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run() error {
	path := flag.String("path", "", "print where the program of this `name` is")
	flag.Parse()
	if *path != "" {
		found, err := tools.Path(*path)
		if err != nil {
			return err
		}
		fmt.Println(found)
		return nil
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "hack", "tools")); err != nil {
		return fmt.Errorf("run this in the root of a clone: %w", err)
	}
	groups := flag.Args()
	if len(groups) == 0 {
		groups = []string{tools.GroupCluster}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return tools.Build(ctx, root, groups, os.Stderr)
}
