package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/sim/guest"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/tools"
)

func guestsCommand() *cobra.Command {
	var (
		options guest.Options
		health  string
	)
	cmd := &cobra.Command{
		Use:   "guests",
		Short: "Run the guests of a simulated vCenter's virtual machines",
		Long: `Run the guests of a simulated vCenter's virtual machines, the endpoints of their clusters and a simulated cloud provider.

Asked to end, it cuts the power of all guests. Killed, it leaves their processes running, and its successor takes them over.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !options.Light {
				for name, path := range map[string]*string{
					"etcd": &options.Binaries.Etcd, "kube-apiserver": &options.Binaries.APIServer,
					"kube-controller-manager": &options.Binaries.ControllerManager,
				} {
					found, err := tools.Path(name)
					if err != nil {
						return err
					}
					*path = found
				}
			}
			options.Log = logr.FromSlogHandler(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if health != "" {
				stop, err := serveHealth(health)
				if err != nil {
					return err
				}
				defer stop()
			}
			if err := guest.Run(cmd.Context(), options); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.VCenter, "vcenter", "", "URL of the simulated vCenter's API, https://ADDRESS:PORT/sdk")
	flags.StringVar(&options.Admin, "admin", "", "URL of its side channel, http://ADDRESS:PORT")
	flags.StringVar(&options.Username, "username", vcenter.DefaultUsername, "name of the account")
	flags.StringVar(&options.Password, "password", vcenter.DefaultPassword, "its password")
	flags.StringVar(&options.StateDir, "state-dir", "", "directory of the disks' contents (disks/) and of the guests (guests/)")
	flags.StringVar(&health, "health-addr", "", "loopback address on which /healthz answers; empty serves none")
	flags.DurationVar(&options.Patience, "patience", 5*time.Second, "how long a guest waits for a disk that is not there")
	flags.BoolVar(&options.Light, "light", false, "only boot and report addresses: no disks, no user data, no Kubernetes")
	flags.DurationVar(&options.LightDelay, "light-delay", 0, "how long a light guest takes to report")
	for _, name := range []string{"vcenter", "admin", "state-dir"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

// serveHealth answers /healthz as long as the guests run.
func serveHealth(address string) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
