package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/cluster-api/util/flags"
)

// providers are those this program can run.
var providers = []string{"vsphere"}

// options are the flags of berth-manager, named as Cluster API's own managers name theirs.
type options struct {
	providers []string

	namespace   string
	watchFilter string
	podNS       string

	leaderElect   bool
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration

	webhookHost    string
	webhookPort    int
	webhookCertDir string
	healthAddr     string
	profilerAddr   string
	diagnostics    flags.ManagerOptions

	syncPeriod time.Duration
	qps        float32
	burst      int

	clusterConcurrency, machineConcurrency, vmConcurrency     int
	poolConcurrency, zoneConcurrency, clusterCacheConcurrency int

	gates featuregate.MutableFeatureGate
	logs  *logs.Options
}

// nodeAntiAffinity keeps the machines of one control plane or MachineDeployment on different hosts by vSphere's cluster modules.
const nodeAntiAffinity featuregate.Feature = "NodeAntiAffinity"

func newOptions() *options {
	gates := featuregate.NewFeatureGate()
	utilruntime.Must(gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		nodeAntiAffinity: {Default: false, PreRelease: featuregate.Alpha},
	}))
	return &options{gates: gates, logs: logs.NewOptions()}
}

func (o *options) addTo(fs *pflag.FlagSet) {
	logsv1.AddFlags(o.logs, fs)

	fs.StringSliceVar(&o.providers, "providers", providers, "Providers to run, separated by commas: "+strings.Join(providers, ", ")+".")

	o.gates.AddFlag(fs)
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch. Empty watches all namespaces.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", "Reconcile only objects whose label cluster.x-k8s.io/watch-filter has this value. Empty reconciles all.")
	fs.StringVar(&o.podNS, "controller-namespace", "", "Namespace of the Secrets that VSphereClusterIdentities name. Empty takes POD_NAMESPACE, else capv-system.")

	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Run only while holding the leader lease. Needed with more than one replica.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long others wait before they take over a lease that is not renewed.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long the leader tries to renew its lease before it stops.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "Pause between two tries to take or renew the lease.")

	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address the webhook server listens on. Empty listens on all.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port of the webhook server; 0 runs no webhooks.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/", "Directory with tls.crt and tls.key of the webhook server.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of the health endpoints /healthz and /readyz.")
	fs.StringVar(&o.profilerAddr, "profiler-address", "", "Address of the pprof endpoint, for example localhost:6060. Empty serves none.")
	flags.AddManagerOptions(fs, &o.diagnostics)

	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute, "How often every object is looked at without an event.")
	fs.Float32Var(&o.qps, "kube-api-qps", 200, "Requests per second to the management cluster's API server.")
	fs.IntVar(&o.burst, "kube-api-burst", 400, "Requests in one burst to the management cluster's API server.")

	fs.IntVar(&o.clusterConcurrency, "vspherecluster-concurrency", 50, "VSphereClusters reconciled at the same time.")
	fs.IntVar(&o.machineConcurrency, "vspheremachine-concurrency", 100, "VSphereMachines reconciled at the same time.")
	fs.IntVar(&o.vmConcurrency, "vspherevm-concurrency", 10, "Orphaned VSphereVMs cleaned up at the same time.")
	fs.IntVar(&o.poolConcurrency, "vspheremachineconfigpool-concurrency", 20, "VSphereMachineConfigPools reconciled at the same time.")
	fs.IntVar(&o.zoneConcurrency, "vspheredeploymentzone-concurrency", 10, "VSphereDeploymentZones and VSphereClusterIdentities reconciled at the same time.")
	fs.IntVar(&o.clusterCacheConcurrency, "clustercache-concurrency", 100, "Workload clusters connected to at the same time.")
}

func (o *options) validate() error {
	var errs []error
	if len(o.providers) == 0 {
		errs = append(errs, errors.New("--providers is empty: name at least one of "+strings.Join(providers, ", ")))
	}
	for _, p := range o.providers {
		if !slices.Contains(providers, p) {
			errs = append(errs, fmt.Errorf("--providers: %q is unknown; known are %s", p, strings.Join(providers, ", ")))
		}
	}
	if o.leaderElect && (o.retryPeriod >= o.renewDeadline || o.renewDeadline >= o.leaseDuration) {
		errs = append(errs, fmt.Errorf("leader election needs retry period < renew deadline < lease duration, not %s, %s, %s",
			o.retryPeriod, o.renewDeadline, o.leaseDuration))
	}
	if o.syncPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--sync-period must be positive, not %s", o.syncPeriod))
	}
	return errors.Join(errs...)
}
