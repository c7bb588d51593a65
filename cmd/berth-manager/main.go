// Command berth-manager runs Berth's controllers and webhooks. --providers picks the platforms.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	vspherecontroller "github.com/berth-dev/berth/internal/controller/vsphere"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	berthwebhook "github.com/berth-dev/berth/internal/webhook"
	"github.com/berth-dev/berth/internal/workload"
)

const userAgent = "berth-manager"

func main() {
	o := newOptions()
	fs := pflag.CommandLine
	o.addTo(fs)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.AddGoFlagSet(flag.CommandLine)
	pflag.Parse()

	if err := o.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "berth-manager:", err)
		os.Exit(2)
	}
	if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
		fmt.Fprintln(os.Stderr, "berth-manager: log flags:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())

	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		klog.Background().Error(err, "Manager ended")
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func run(ctx context.Context, o *options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	tlsOptions, metrics, err := flags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return fmt.Errorf("diagnostics flags: %w", err)
	}
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	restConfig.QPS, restConfig.Burst, restConfig.UserAgent = o.qps, o.burst, userAgent
	restConfig.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API server warning"))

	cacheOptions := cache.Options{SyncPeriod: &o.syncPeriod, DefaultTransform: cache.TransformStripManagedFields()}
	if o.namespace != "" {
		cacheOptions.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			CacheSyncTimeout: 5 * time.Minute,
			// In controller-runtime v0.24.1 the priority queue can hold its lock while it waits for a worker that has already
			// gone: a manager told to stop would then not end before its grace period of 30 s does.
			UsePriorityQueue: ptr.To(false),
		},
		Cache: cacheOptions,
		// Secrets are read one by one, when needed: a cache of them would hold every credential of the management cluster.
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "berth-manager.infrastructure.cluster.x-k8s.io",
		LeaderElectionResourceLock:    resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		HealthProbeBindAddress:        o.healthAddr,
		PprofBindAddress:              o.profilerAddr,
		Metrics:                       *metrics,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: o.webhookHost, Port: o.webhookPort, CertDir: o.webhookCertDir, TLSOpts: tlsOptions,
		}),
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if o.webhookPort != 0 {
		if err := berthwebhook.Setup(mgr); err != nil {
			return fmt.Errorf("registering webhooks: %w", err)
		}
		if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
			return err
		}
	} else if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	for _, provider := range o.providers {
		switch provider {
		case "vsphere":
			if err := setupVSphere(ctx, mgr, o); err != nil {
				return fmt.Errorf("setting up the vSphere provider: %w", err)
			}
		}
	}
	klog.Background().Info("Starting manager", "providers", o.providers)
	return mgr.Start(ctx)
}

func setupVSphere(ctx context.Context, mgr manager.Manager, o *options) error {
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     mgr.GetAPIReader(),
		WatchFilterValue: o.watchFilter,
		Client:           clustercache.ClientOptions{UserAgent: userAgent},
	}, controller.Options{MaxConcurrentReconciles: o.clusterCacheConcurrency})
	if err != nil {
		return fmt.Errorf("setting up the cache of workload clusters: %w", err)
	}
	meter := &vsphere.Meter{}
	if err := vspherecontroller.RegisterMetrics(metrics.Registry, meter, mgr.GetClient()); err != nil {
		return err
	}
	return vspherecontroller.Setup(ctx, mgr, vspherecontroller.Options{
		Sessions:            vsphere.NewSessions(),
		Meter:               meter,
		Workload:            &workload.Clusters{Cache: clusters, Secrets: mgr.GetAPIReader()},
		WatchFilter:         o.watchFilter,
		ControllerNamespace: o.controllerNamespace(),
		UserAgent:           userAgent,
		NodeAntiAffinity:    o.gates.Enabled(nodeAntiAffinity),
		Concurrency: vspherecontroller.Concurrency{
			Cluster: o.clusterConcurrency, Machine: o.machineConcurrency, VM: o.vmConcurrency,
			Pool: o.poolConcurrency, Zone: o.zoneConcurrency,
		},
	})
}

// controllerNamespace is where this program runs, and where Secrets of VSphereClusterIdentities are looked for.
func (o *options) controllerNamespace() string {
	for _, ns := range []string{o.podNS, os.Getenv("POD_NAMESPACE")} {
		if ns != "" {
			return ns
		}
	}
	return "capv-system"
}
