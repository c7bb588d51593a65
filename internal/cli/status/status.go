// Package status is the verb that shows what runs.
package status

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/cli/output"
	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/sim/guest"
)

// New is the command.
func New(dir *string) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the processes and machines of an environment",
		Long: `Show every process of an environment and the machines of its clusters.

Ends with 0 if everything is ready, 3 if something is missing, 4 if there is no environment and 5 if the world is lost.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := local.Open(*dir)
			if err != nil {
				return err
			}
			s, err := e.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := format.Print(cmd.OutOrStdout(), s, func(w io.Writer) error { return table(w, s) }); err != nil {
				return err
			}
			switch s.State {
			case local.StateReady:
				return nil
			case local.StateLost:
				return exit.With(exit.WorldLost, errors.New(s.Message))
			default:
				return exit.With(exit.NotReady, errors.New(s.Message))
			}
		},
	}
	format.AddFlag(cmd.Flags())
	return cmd
}

func table(w io.Writer, s local.Status) error {
	fmt.Fprintf(w, "%s environment in %s, addresses %s: %s\n\n", s.Provider, s.Dir, s.Addresses, s.State)
	rows := make([][]string, 0, len(s.Processes))
	for _, p := range s.Processes {
		row := []string{p.Name, p.State, "", "", p.Title, p.Message}
		if p.PID != 0 {
			row[2] = strconv.Itoa(p.PID)
		}
		if p.Since != nil {
			row[3] = time.Since(*p.Since).Round(time.Second).String()
		}
		rows = append(rows, row)
	}
	if err := output.Columns(w, []string{"PROCESS", "STATE", "PID", "AGE", "WHAT IT IS", "MESSAGE"}, rows); err != nil {
		return err
	}
	if len(s.Machines) > 0 {
		fmt.Fprintln(w)
		if err := Machines(w, s.Machines); err != nil {
			return err
		}
	}
	return failedGuests(w, s)
}

// failedGuests shows the guests on which something went wrong, and where to read what.
func failedGuests(w io.Writer, s local.Status) error {
	var rows [][]string
	for _, g := range s.Guests {
		if g.Phase == guest.PhaseFailed {
			rows = append(rows, []string{cmp.Or(g.HostName, g.VM), g.VM, g.Message})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return output.Columns(w, []string{"FAILED GUEST", "VM", "MESSAGE (berth guest console NAME says more)"}, rows)
}

// Machines writes a table of machines.
func Machines(w io.Writer, machines []local.Machine) error {
	rows := make([][]string, 0, len(machines))
	for _, m := range machines {
		ready := "no"
		if m.Ready {
			ready = "yes"
		}
		rows = append(rows, []string{
			m.Namespace, m.Cluster, m.Name, m.Role, m.Phase, ready, m.Slot, m.Address, m.Node, m.Version, m.Waiting,
		})
	}
	return output.Columns(w, []string{
		"NAMESPACE", "CLUSTER", "MACHINE", "ROLE", "PHASE", "READY", "SLOT", "ADDRESS", "NODE", "VERSION", "WAITS FOR",
	}, rows)
}
