package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/internal/sim/hcs"
)

func hcsCommand() *cobra.Command {
	var (
		options hcs.Options
		base    string
		job     time.Duration
	)
	cmd := &cobra.Command{
		Use:   "hcs",
		Short: "Run a simulated Huawei Cloud Stack",
		Long: `Run a simulated Huawei Cloud Stack: the REST API of all services on --listen, the side channel for guests and tests on --admin.

A service is the first element of a path (http://ADDRESS/ecs/v1/...) or the first label of the host. Every request must be
signed with the access key. The world is kept in memory and ends with the process.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			network, err := netip.ParseAddr(base)
			if err != nil {
				return fmt.Errorf("--network %q is not an address: %w", base, err)
			}
			options.Inventory = hcs.InventoryAt(network)
			options.JobTimes = map[string]time.Duration{}
			for _, kind := range hcs.JobTypes() {
				options.JobTimes[kind] = job
			}
			options.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			server, err := hcs.Start(options)
			if err != nil {
				return err
			}
			defer server.Close()
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "serving: api=%s admin=http://%s\n", server.URL(), server.AdminAddress())
			<-cmd.Context().Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Listen, "listen", "127.0.0.1:8445", "loopback address of the API")
	flags.StringVar(&options.Admin, "admin", "127.0.0.1:8446", "loopback address of the side channel (http)")
	flags.BoolVar(&options.TLS, "tls", false, "serve https with a certificate of its own, kept in --state-dir")
	flags.StringVar(&options.Dir, "state-dir", "", "directory of the certificate")
	flags.StringVar(&options.DisksDir, "disks-dir", "", "directory of the volumes' contents (default STATE-DIR/disks)")
	flags.StringVar(&options.AccessKey, "access-key", hcs.DefaultAccessKey, "access key of the only account")
	flags.StringVar(&options.SecretKey, "secret-key", hcs.DefaultSecretKey, "its secret key")
	flags.StringVar(&options.ProjectID, "project", hcs.DefaultProjectID, "ID of the only resource space")
	flags.StringVar(&base, "network", "127.64.0.0", "the subnets are in the /16 of this loopback address")
	flags.DurationVar(&options.RoundTrip, "round-trip", 0, "time added to every request")
	flags.DurationVar(&job, "job-time", 0, "how long a job takes")
	flags.IntVar(&options.Lag, "lag", 0, "how many reads still show what was before a job changed it")
	flags.IntVar(&options.Hosts, "hosts", 0, "number of physical hosts (default 3)")
	flags.BoolVar(&options.ShuffleDevices, "shuffle-devices", false, "give data volumes names in another order than they were asked for")
	flags.BoolVar(&options.SCSI, "scsi", false, "call devices sd instead of vd")
	_ = cmd.MarkFlagRequired("state-dir")
	return cmd
}
