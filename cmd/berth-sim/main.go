// Command berth-sim runs the simulated cloud of a local environment: a vCenter and the guests of its virtual machines, or a
// Huawei Cloud Stack.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "berth-sim",
		Short:         "Run the simulated cloud of a local environment",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(vcenterCommand(), hcsCommand(), guestsCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "berth-sim:", err)
		os.Exit(1)
	}
}
