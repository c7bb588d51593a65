// Command bench measures what the vSphere provider costs and how fast it is: calls to vCenter, writes to the management
// cluster, connections, time, CPU and memory per machine, for several numbers of machines and for a vCenter that answers at
// once and one that behaves like a real one. It prints the numbers beside what Berth aims at; docs/benchmark.md says how they
// are taken. Nothing is asserted: it fails only if machines do not come and go, or the simulated vCenter saw a violation.
//
// For each case it brings up an environment of its own (etcd, kube-apiserver, kube-controller-manager, berth-manager, the
// simulated vCenter and light guests), plays Cluster API's part itself, and removes the environment again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the flags.
type options struct {
	machines []int
	vcenters []cloud
	output   string
	from     string
	bin      string
	rest     time.Duration
	period   time.Duration
	timeout  time.Duration
	keep     bool
	claims   bool
	verbose  int
}

// cloud is how a simulated vCenter and its guests behave.
type cloud struct {
	Name string `json:"name"`
	// Text says it to people.
	Text string `json:"-"`
	// RoundTrip is added to every request, Clone is how long a clone takes, Boot how long a guest takes to report its address.
	RoundTrip time.Duration `json:"-"`
	Clone     time.Duration `json:"-"`
	Boot      time.Duration `json:"-"`
}

var clouds = []cloud{
	{Name: "instant", Text: "a vCenter that answers at once"},
	{
		Name: "realistic", Text: "a realistic vCenter: 20 ms round trip, 5 s clone, guest address after 10 s",
		RoundTrip: 20 * time.Millisecond, Clone: 5 * time.Second, Boot: 10 * time.Second,
	},
}

const usage = `Measure what the vSphere provider costs per machine, and print it beside its aims.

Usage: go run ./test/bench [flags]      (or make bench ARGS="...", which builds the programs first)

`

func parse(args []string) (options, error) {
	var (
		o                  options
		machines, vcenters string
		fs                 = flag.NewFlagSet("bench", flag.ContinueOnError)
	)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&machines, "machines", "20,100,300", "numbers of machines, separated by commas")
	fs.StringVar(&vcenters, "vcenter", "instant,realistic", "behaviours of the simulated vCenter, separated by commas")
	fs.StringVar(&o.output, "o", "table", "output: table or json")
	fs.StringVar(&o.from, "from", "", "print what an earlier run wrote with -o json into this file, and measure nothing")
	fs.StringVar(&o.bin, "bin", "", "directory of berth-manager and berth-sim (default bin/ of this repository)")
	fs.DurationVar(&o.rest, "rest", 10*time.Second, "how long to watch the machines at rest")
	fs.DurationVar(&o.period, "sync-period", 10*time.Second, "resync period of the manager while resyncs are measured")
	fs.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long one case may take")
	fs.BoolVar(&o.keep, "keep", false, "only stop an environment at its end, and keep its directory with the logs")
	fs.BoolVar(&o.claims, "claims", false, "measure only how 200 machines claim slots at once, in one pool and in ten")
	fs.IntVar(&o.verbose, "v", 0, "verbosity of the manager's log, to be read with -keep")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for text := range strings.SplitSeq(machines, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxMachines {
			return o, fmt.Errorf("-machines: %q is not a number from 1 to %d", text, maxMachines)
		}
		o.machines = append(o.machines, n)
	}
	for name := range strings.SplitSeq(vcenters, ",") {
		known := len(o.vcenters)
		for _, c := range clouds {
			if c.Name == strings.TrimSpace(name) {
				o.vcenters = append(o.vcenters, c)
			}
		}
		if len(o.vcenters) == known {
			return o, fmt.Errorf("-vcenter: %q is unknown; known are instant and realistic", name)
		}
	}
	if o.output != "table" && o.output != "json" {
		return o, fmt.Errorf("-o: %q is neither table nor json", o.output)
	}
	if o.period < time.Second {
		return o, fmt.Errorf("-sync-period: %s is too short to tell one resync from the next", o.period)
	}
	if o.bin == "" && o.from == "" {
		root, err := repository()
		if err != nil {
			return o, err
		}
		o.bin = filepath.Join(root, "bin")
	}
	return o, nil
}

// repository finds the root of the clone that this program is run in.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not in a clone of Berth: run it there, or name the directory of the programs with -bin")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all cases. What was measured is printed even if a later case fails.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	if o.from != "" {
		text, err := os.ReadFile(o.from)
		if err != nil {
			return err
		}
		var results []*result
		if err := json.Unmarshal(text, &results); err != nil {
			return fmt.Errorf("reading %s: %w", o.from, err)
		}
		return report(out, results)
	}
	if o.claims {
		return claims(ctx, o, out, progress)
	}
	var (
		results []*result
		errs    []error
	)
	for _, c := range o.vcenters {
		for _, n := range o.machines {
			if ctx.Err() != nil {
				break
			}
			r, err := measure(ctx, o, c, n, progress)
			if r != nil {
				results = append(results, r)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s vCenter, %d machines: %w", c.Name, n, err))
			}
		}
	}
	if len(results) == 0 {
		return errors.Join(errs...)
	}
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return errors.Join(append(errs, encoder.Encode(results))...)
	}
	return errors.Join(append(errs, report(out, results))...)
}
