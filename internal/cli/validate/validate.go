// Package validate is the verb that checks manifests before anybody applies them.
package validate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/cli/exit"
	"github.com/berth-dev/berth/internal/cli/output"
	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

// flags of the command.
type flags struct {
	files     []string
	recursive bool
	options   check.Options
	server    bool
	// kubeconfig and context say which cluster.
	kubeconfig, context string
	format              output.Format
}

// New is the command.
func New() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "validate -f FILE|DIR|- [-f ...]",
		Short: "Check manifests as admission would, all together, with file and line",
		Long: `Check manifests of clusters before they are applied: the kinds of Berth, those of Cluster API and its kubeadm providers in v1beta1 and
v1beta2, and the Secrets, ConfigMaps and Namespaces beside them. All documents are one set, in any order. Objects of other kinds are
not looked at; the summary counts them.

Each mistake is one line: file:line: Kind/name: field: message. Warnings say so behind the position. The summary goes to standard error.

Without --server every object is taken as new. With --server the objects of the cluster are the old ones, as for kubectl apply, and what
the files refer to may be there; nothing is written.

Ends with 0 if there is no error (warnings are fine), 1 if there is one, and 2 if the check could not be made.`,
		Example: `  berth validate -f clusters/demo/
  kustomize build overlays/prod | berth validate -f -
  berth validate -f 17-vspheremachineconfigpool-worker.yaml -f 30-workers-md-0.yaml --server`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringSliceVarP(&f.files, "filename", "f", nil, "file, directory, or - for standard input; can be given more than once")
	set.BoolVarP(&f.recursive, "recursive", "R", false, "look into the directories below those given with -f, too")
	set.BoolVar(&f.options.Partial, "partial", false, "the files are a part only: what they refer to and is not there is a warning")
	set.BoolVar(&f.options.Strict, "warnings-as-errors", false, "treat every warning as an error")
	set.StringVarP(&f.options.Namespace, "namespace", "n", "", "namespace of objects that do not name one (default: the context's with --server, else \"default\")")
	set.BoolVar(&f.server, "server", false, "check as an update of what is in the cluster; reads, never writes")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster for --server (default: $KUBECONFIG, ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "context of the kubeconfig for --server")
	f.format.AddFlag(set)
	return cmd
}

func (f *flags) run(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	if len(f.files) == 0 {
		return exit.With(exit.Usage, errors.New("say what to check with -f: a file, a directory, or - for standard input"))
	}
	if !f.server && (f.kubeconfig != "" || f.context != "") {
		return exit.With(exit.Usage, errors.New("--kubeconfig and --context say which cluster --server reads; add --server or leave them out"))
	}
	sources, err := manifest.Sources(f.files, f.recursive, in)
	if err != nil {
		return exit.Unchecked(err)
	}
	if f.server {
		if err := f.connect(); err != nil {
			return exit.Unchecked(err)
		}
	}
	report, err := check.Run(ctx, sources, f.options)
	if err != nil {
		return exit.Unchecked(err)
	}
	if err := f.format.Print(out, report, report.Write); err != nil {
		return exit.Unchecked(err)
	}
	fmt.Fprintln(errs, report.Summary)
	if !report.Summary.Valid {
		return exit.With(exit.Failed, errors.New("")) // all has been said
	}
	return nil
}

// connect makes the client for the cluster that the files are meant for.
func (f *flags) connect() error {
	loading := clientcmd.NewDefaultClientConfigLoadingRules()
	loading.ExplicitPath = f.kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loading, &clientcmd.ConfigOverrides{CurrentContext: f.context})
	rest, err := config.ClientConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster for --server: %w", err)
	}
	if f.options.Namespace == "" {
		if f.options.Namespace, _, err = config.Namespace(); err != nil {
			return fmt.Errorf("finding the namespace of the context: %w", err)
		}
	}
	rest.WarningHandler = restclient.NoWarnings{} // a deprecated version is the server's business
	f.options.Server, err = client.New(rest, client.Options{Scheme: check.Scheme()})
	if err != nil {
		return fmt.Errorf("reaching the cluster for --server: %w", err)
	}
	return nil
}
