// Package kubeconfig is the verb that gives access to the management cluster and to the clusters it manages.
package kubeconfig

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/local"
)

// New is the command.
func New(dir *string) *cobra.Command {
	var (
		cluster, namespace string
		path               bool
	)
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the kubeconfig of the management cluster, or of a cluster it manages",
		Example: `  export KUBECONFIG=$(berth kubeconfig --path)
  berth kubeconfig --cluster demo > demo.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namespace != "" && cluster == "" {
				return exit.With(exit.Usage, fmt.Errorf("--namespace says where a cluster is; name it with --cluster"))
			}
			e, err := local.Open(*dir)
			if err != nil {
				return err
			}
			file := e.Kubeconfig()
			if cluster != "" {
				if file, err = e.ClusterKubeconfig(cmd.Context(), namespace, cluster); err != nil {
					return err
				}
			}
			if path {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "name of a cluster that the management cluster manages")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "its namespace, if clusters in several have that name")
	cmd.Flags().BoolVar(&path, "path", false, "print the path of a file with it instead of the content")
	return cmd
}
