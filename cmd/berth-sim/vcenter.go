package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

func vcenterCommand() *cobra.Command {
	var options vcenter.Options
	cmd := &cobra.Command{
		Use:   "vcenter",
		Short: "Run a simulated vCenter",
		Long: `Run a simulated vCenter: the vSphere API over TLS on --listen, the side channel for guests and tests on --admin.

The world is kept in memory and ends with the process. The certificate and the datastores' files are kept in --state-dir,
so that the thumbprint outlives a restart.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			server, err := vcenter.Start(options)
			if err != nil {
				return err
			}
			defer server.Close()
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "serving: api=https://%s admin=%s thumbprint=%s\n",
				server.Address(), server.Admin().URL, server.Thumbprint())
			<-cmd.Context().Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Listen, "listen", "127.0.0.1:8443", "loopback address of the vSphere API (https)")
	flags.StringVar(&options.Admin, "admin", "127.0.0.1:8444", "loopback address of the side channel (http)")
	flags.StringVar(&options.Dir, "state-dir", "", "directory of the certificate and the datastores' files")
	flags.StringVar(&options.DisksDir, "disks-dir", "", "directory of the disks' contents (default STATE-DIR/disks)")
	flags.StringVar(&options.Username, "username", vcenter.DefaultUsername, "name of the only account")
	flags.StringVar(&options.Password, "password", vcenter.DefaultPassword, "its password")
	flags.DurationVar(&options.RoundTrip, "round-trip", 0, "time added to every request")
	flags.DurationVar(&options.CloneTime, "clone-time", 0, "how long a clone takes")
	flags.DurationVar(&options.ShutdownTime, "shutdown-time", time.Second, "how long a guest takes to shut down when asked")
	flags.DurationVar(&options.SessionIdle, "session-idle", 0, "how long a session may be idle (default 30m, negative means for ever)")
	flags.IntVar(&options.MaxSessions, "max-sessions", 0, "refuse logins when so many sessions are open, 0 means no limit")
	flags.IntVar(&options.Lockout.Failures, "lockout", 0, "lock the account after so many failed logins in three minutes, 0 means never")
	options.Lockout.Window, options.Lockout.Duration = 3*time.Minute, 5*time.Minute
	_ = cmd.MarkFlagRequired("state-dir")
	return cmd
}
