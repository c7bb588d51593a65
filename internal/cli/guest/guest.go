// Package guest is the verb that looks into the simulated guests of an environment: their file systems, their consoles.
package guest

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/output"
	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/sim/guest"
)

// New is the command.
func New(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Look into the simulated guests: files, raw disks, consoles",
		Long: `Look into the simulated guests. NODE is a guest's host name, or the name of its virtual machine.

Paths are those inside the guest. A raw disk is a path below /dev/disk/by-capv: cat prints what has been written to it, write
overwrites its beginning.`,
		Example: `  berth guest ls demo-worker-1 /var/cpaas
  echo keep me | berth guest write demo-worker-1 /var/cpaas/marker
  berth guest cat demo-worker-1 /var/cpaas/marker`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	open := func() (*guest.Files, error) {
		e, err := local.Open(*dir)
		if err != nil {
			return nil, err
		}
		return e.Guests()
	}
	cmd.AddCommand(cat(open), write(open), ls(open), console(open), list(open))
	return cmd
}

type opener func() (*guest.Files, error)

func cat(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "cat NODE PATH",
		Short: "Print a file of a guest",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := open()
			if err != nil {
				return err
			}
			return files.Cat(args[0], args[1], cmd.OutOrStdout())
		},
	}
}

func write(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "write NODE PATH",
		Short: "Replace a file of a guest by what is read from standard input",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := open()
			if err != nil {
				return err
			}
			return files.Write(args[0], args[1], cmd.InOrStdin())
		},
	}
}

func ls(open opener) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "ls NODE [PATH]",
		Short: "List a directory of a guest, and what is mounted there",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := open()
			if err != nil {
				return err
			}
			path := "/"
			if len(args) > 1 {
				path = args[1]
			}
			entries, err := files.List(args[0], path)
			if err != nil {
				return err
			}
			return format.Print(cmd.OutOrStdout(), entries, func(w io.Writer) error { return listing(w, entries) })
		},
	}
	format.AddFlag(cmd.Flags())
	return cmd
}

func listing(w io.Writer, entries []guest.Entry) error {
	rows := make([][]string, 0, len(entries))
	for _, e := range entries {
		name := e.Name
		if e.Target != "" {
			name += " -> " + e.Target
		}
		modified := ""
		if !e.Modified.IsZero() {
			modified = e.Modified.Format("2006-01-02 15:04:05")
		}
		rows = append(rows, []string{e.Mode.String(), strconv.FormatInt(e.Size, 10), modified, name, e.Mounted})
	}
	return output.Columns(w, []string{"MODE", "SIZE", "MODIFIED", "NAME", "MOUNTED DISK"}, rows)
}

func console(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "console NODE",
		Short: "Print what a guest has written on its console",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := open()
			if err != nil {
				return err
			}
			path, err := files.Console(args[0])
			if err != nil {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(cmd.OutOrStdout(), f)
			return err
		},
	}
}

func list(open opener) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the guests and how they are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := open()
			if err != nil {
				return err
			}
			guests, err := files.Guests()
			if err != nil {
				return err
			}
			return format.Print(cmd.OutOrStdout(), guests, func(w io.Writer) error {
				rows := make([][]string, 0, len(guests))
				for _, g := range guests {
					rows = append(rows, []string{g.HostName, string(g.Phase), strings.Join(g.Addresses, ","), g.VM, g.Message})
				}
				return output.Columns(w, []string{"NAME", "PHASE", "ADDRESSES", "VM", "MESSAGE"}, rows)
			})
		},
	}
	format.AddFlag(cmd.Flags())
	return cmd
}
