// Package cli is the command line of berth: one package per verb below this one.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/cli/down"
	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/cli/guest"
	"github.com/berth-dev/berth/internal/cli/kubeconfig"
	"github.com/berth-dev/berth/internal/cli/status"
	"github.com/berth-dev/berth/internal/cli/up"
	"github.com/berth-dev/berth/internal/cli/validate"
	"github.com/berth-dev/berth/internal/cli/version"
)

const long = `Run a whole world of Berth on this machine and look into it: a real management cluster with Cluster API and Berth,
a simulated vCenter with simulated guests, and a cluster of three control planes and three workers in it.

Everything listens on loopback only, needs no root, and lives in one state directory.

berth validate needs none of that: it checks manifests for any cluster.

` + exit.Help

// New is the command with all verbs.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "Run a whole world of Berth on this machine and look into it",
		Long:          long,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var dir string
	root.PersistentFlags().StringVar(&dir, "state-dir", "", "directory of the environment (default $XDG_STATE_HOME/berth/default)")
	root.AddCommand(up.New(&dir), down.New(&dir), status.New(&dir), kubeconfig.New(&dir), guest.New(&dir), validate.New(), version.New())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err) })
	for _, verb := range root.Commands() {
		verb.Args = usage(verb.Args)
		for _, sub := range verb.Commands() {
			sub.Args = usage(sub.Args)
		}
	}
	return root
}

// usage gives a check of arguments the exit code of a wrong command line.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		return nil
	}
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return exit.With(exit.Usage, err)
		}
		return nil
	}
}

// Main runs a command line and returns the exit code.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Client libraries log what is reported here anyway, in their own words.
	klog.SetLogger(logr.Discard())
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	root := New()
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "kubectl-berth" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl berth"}
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}
	code := exit.Code(err)
	if ctx.Err() != nil && code == exit.Failed {
		code = exit.Interrupted
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(errs, "berth: "+text)
	}
	var coded *exit.Error
	if errors.As(err, &coded) && coded.Code == exit.Usage && !coded.Known || strings.HasPrefix(err.Error(), "unknown command") {
		fmt.Fprintf(errs, "Run `%s --help` to see how it is used.\n", cmd.CommandPath())
		code = exit.Usage
	}
	return code
}
