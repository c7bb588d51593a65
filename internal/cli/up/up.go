// Package up is the verb that brings an environment up, and back.
package up

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/cli/output"
	"github.com/berth-dev/berth/internal/cli/progress"
	"github.com/berth-dev/berth/internal/cli/status"
	"github.com/berth-dev/berth/internal/local"
)

// New is the command.
func New(dir *string) *cobra.Command {
	options := local.Options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up an environment, or bring back what is missing of it",
		Long: `Bring up a management cluster, a simulated cloud and the example cluster, and return when all of it is ready.

Typed again, it starts what does not run any more and leaves the rest alone. The example's manifests are applied once; from
then on the cluster is yours to change. The simulated vCenter keeps its world in memory: once it has stopped, the environment
cannot be brought back, and "berth down --purge" makes room for a new one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Dir = *dir
			if err := options.Validate(); err != nil {
				return exit.With(exit.Usage, err)
			}
			begun := time.Now()
			reporter := progress.New(cmd.ErrOrStderr())
			options.Progress = reporter
			e, err := local.Up(cmd.Context(), options)
			reporter.Close()
			if err != nil {
				if e != nil && cmd.Context().Err() != nil {
					return exit.With(exit.Interrupted, fmt.Errorf("interrupted; what was started runs on: `%s` continues, `%s` stops it", e.Command("up"), e.Command("down")))
				}
				return err
			}
			machines, err := e.Machines(cmd.Context())
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), e, machines, time.Since(begun))
		},
	}
	cmd.Flags().StringVar(&options.Provider, "provider", local.Providers[0], "platform to simulate: "+strings.Join(local.Providers, ", "))
	cmd.Flags().StringVar(&options.Example, "example", "", "which example cluster: "+strings.Join(local.Examples(local.Providers[0]), ", ")+" (default "+local.DefaultExample+")")
	cmd.Flags().BoolVar(&options.Bare, "bare", false, "leave the example cluster out")
	cmd.Flags().StringSliceVar(&options.Without, "without", nil, "processes to leave out, for example "+local.ManagerProcess+" to run it in a debugger; logs/ has the command line it would get")
	return cmd
}

func report(w io.Writer, e *local.Environment, machines []local.Machine, took time.Duration) error {
	fmt.Fprintf(w, "\nReady after %s: everything listens in %s, state is in %s\n\n", took.Round(time.Second), e.Range, e.Dir)
	if len(machines) > 0 {
		if err := status.Machines(w, machines); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	rows := [][]string{
		{environment(e), "kubectl, berth and the management cluster in this shell"},
		{"kubectl get clusters,machines -A", "what Cluster API sees"},
	}
	if len(machines) == 0 {
		rows = append(rows, []string{"kubectl apply -f " + e.Manifests(), "bring up the example cluster"})
	} else {
		m := machines[len(machines)-1]
		rows = append(rows,
			[]string{"kubectl get vspheremachineconfigpools -n " + m.Namespace + " -o yaml", "the places: who holds which slot, and its disks"},
			[]string{"kubectl --kubeconfig $(" + e.Command("kubeconfig --cluster "+m.Cluster+" --path") + ") get nodes", "inside the cluster"},
		)
		if m.Node != "" {
			rows = append(rows, []string{e.Command("guest ls " + m.Node + " /"), "files inside a guest"})
		}
	}
	rows = append(rows,
		[]string{e.Command("status"), "what runs"},
		[]string{e.Command("down --purge"), "stop and remove all of it"},
	)
	return output.Columns(w, []string{"NEXT", ""}, rows)
}

// environment is the line that makes the lines below it work in a shell.
func environment(e *local.Environment) string {
	line := "export "
	if found, err := exec.LookPath("berth"); err != nil || filepath.Dir(found) != e.Bin {
		line += "PATH=" + e.Bin + ":$PATH "
	}
	return line + "KUBECONFIG=" + e.Kubeconfig()
}
