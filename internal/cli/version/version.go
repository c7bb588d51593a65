// Package version is the verb that says which Berth this is.
package version

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/output"
	"github.com/berth-dev/berth/internal/tools"
	"github.com/berth-dev/berth/internal/version"
)

type info struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"`
}

// New is the command.
func New() *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of Berth",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := info{
				Version: version.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kubernetes: tools.KubernetesVersion,
			}
			return format.Print(cmd.OutOrStdout(), i, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "berth %s (%s, %s; local clusters run Kubernetes %s)\n", i.Version, i.Go, i.Platform, i.Kubernetes)
				return err
			})
		},
	}
	format.AddFlag(cmd.Flags())
	return cmd
}
