// Package down is the verb that stops an environment, and removes it if asked.
package down

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/progress"
	"github.com/berth-dev/berth/internal/local"
)

// New is the command.
func New(dir *string) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop an environment; --purge removes it",
		Long: `Stop every process of an environment, those of its guests included.

The simulated vCenter keeps its world in memory, so stopping ends that world: "berth up" refuses afterwards instead of
pretending. Without --purge the state directory stays for a look at logs, manifests and disks; with it everything is removed
and "berth up" starts anew.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := local.Open(*dir)
			if purge && errors.Is(err, local.ErrNoEnvironment) {
				fmt.Fprintln(cmd.OutOrStdout(), "Nothing to remove:", err)
				return nil
			}
			if err != nil {
				return err
			}
			reporter := progress.New(cmd.ErrOrStderr())
			if purge {
				err = e.Purge(cmd.Context(), reporter)
			} else {
				err = e.Stop(cmd.Context(), reporter)
			}
			reporter.Close()
			switch {
			case err != nil:
				return err
			case purge:
				fmt.Fprintf(cmd.OutOrStdout(), "Removed the environment in %s\n", e.Dir)
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "Stopped the environment in %s; its logs and files are still there.\n", e.Dir)
				if lost, err := e.WorldLost(); err != nil || lost {
					fmt.Fprintf(cmd.OutOrStdout(), "Its world ended with the simulated vCenter. `%s` removes the rest, then `%s` makes a new one.\n",
						e.Command("down --purge"), e.Command("up"))
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the state directory and give the address range back")
	return cmd
}
