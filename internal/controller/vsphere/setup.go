package vsphere

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/workload"
)

// Options of the vSphere provider's reconcilers.
type Options struct {
	// Sessions with vCenters. Setup closes them (logs out) when the manager ends.
	Sessions *vsphere.Sessions
	// Meter counts calls to vCenter; nil counts nothing.
	Meter *vsphere.Meter
	// Workload reaches workload clusters.
	Workload *workload.Clusters
	// WatchFilter restricts everything to objects with this value of the label cluster.x-k8s.io/watch-filter.
	WatchFilter string
	// ControllerNamespace holds the Secrets of VSphereClusterIdentities.
	ControllerNamespace string
	// UserAgent names the program in vCenter's session list.
	UserAgent string
	Concurrency
	// Now is the clock of lives and pools, time.Now if nil: tests let hours pass.
	Now func() time.Time
	// NodeAntiAffinity keeps the machines of one owner on different hosts by cluster modules.
	NodeAntiAffinity bool
	// SkipNameValidation lets several managers of one process use the same controller names, for tests.
	SkipNameValidation bool
}

// Concurrency is how many objects of a kind are reconciled at the same time; 0 takes the published defaults (VS-V52).
type Concurrency struct {
	Cluster, Machine, VM, Pool, Zone int
}

func (c Concurrency) withDefaults() Concurrency {
	for field, value := range map[*int]int{&c.Cluster: 50, &c.Machine: 100, &c.VM: 10, &c.Pool: 20, &c.Zone: 10} {
		if *field <= 0 {
			*field = value
		}
	}
	return c
}

// logoutTimeout bounds the farewell to all vCenters at the end.
const logoutTimeout = 10 * time.Second

// Setup adds the reconcilers of the vSphere provider to a manager.
func Setup(ctx context.Context, mgr manager.Manager, o Options) error {
	o.Concurrency = o.Concurrency.withDefaults()
	if err := ipamv1.AddToScheme(mgr.GetScheme()); err != nil {
		return err
	}
	c, live := mgr.GetClient(), mgr.GetAPIReader()
	seen := newLatest(c, live)
	recorder := mgr.GetEventRecorder("berth-vsphere")

	a := &access{
		client: c, reader: live, metadata: mgr.GetCache(), sessions: o.Sessions, meter: o.Meter,
		namespace: o.ControllerNamespace, userAgent: o.UserAgent,
	}
	n := &nodes{workload: o.Workload, recorder: recorder}
	machines := newAlarm(func(key types.NamespacedName) client.Object { return &infrav1.VSphereMachine{ObjectMeta: meta(key)} })
	orphans := newAlarm(func(key types.NamespacedName) client.Object { return &infrav1.VSphereVM{ObjectMeta: meta(key)} })
	q := newQueue()
	p := &pools{
		client: c, reader: live, access: a, nodes: n, queue: q, recorder: recorder,
		machines: machines.events, changed: make(chan event.GenericEvent, 1024), now: o.Now,
	}
	engine := &machine.Engine{Now: o.Now}
	machineR := &machineReconciler{
		client: c, reader: live, latest: seen, engine: engine, access: a, pools: p, nodes: n, alarm: machines, queue: q, recorder: recorder,
	}
	for name, setup := range map[string]func() error{
		"indexes": func() error { return setupIndexes(ctx, mgr) },
		"VSphereCluster": func() error {
			return (&clusterReconciler{c, live, seen, a, recorder, o.NodeAntiAffinity}).setup(mgr, o)
		},
		"VSphereMachine":         func() error { return machineR.setup(mgr, o) },
		"VSphereVM":              func() error { return (&orphanReconciler{machineR, recorder, orphans}).setup(mgr, o) },
		"pool":                   func() error { return (&poolReconciler{pools: p, latest: seen}).setup(mgr, o) },
		"VSphereClusterIdentity": func() error { return (&identityReconciler{c, live, o.ControllerNamespace}).setup(mgr, o) },
		"VSphereDeploymentZone":  func() error { return (&zoneReconciler{client: c, reader: live, access: a}).setup(mgr, o) },
		"sessions":               func() error { return mgr.Add(listener(o.Sessions, machines, orphans, p)) },
	} {
		if err := setup(); err != nil {
			return fmt.Errorf("setting up %s: %w", name, err)
		}
	}
	return nil
}

// listener passes on what vCenters report until the manager ends, and logs out then.
func listener(sessions *vsphere.Sessions, alarms ...ringer) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		for done := false; !done; {
			select {
			case <-ctx.Done():
				done = true
			case mark, open := <-sessions.Changes():
				if !open {
					done = true
					break
				}
				for _, a := range alarms {
					a.ring(ctx, mark)
				}
			}
		}
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTimeout)
		defer cancel()
		return sessions.Close(farewell)
	})
}

// backOff spaces the retries of an object that fails without saying when to come back: never hot, never longer than five
// minutes.
func backOff(concurrency int, o Options) controller.Options {
	options := controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](250*time.Millisecond, 5*time.Minute),
	}
	if o.SkipNameValidation {
		options.SkipNameValidation = &o.SkipNameValidation
	}
	return options
}

func setupIndexes(ctx context.Context, mgr ctrl.Manager) error {
	// Read by every pass of a worker: have it with the first list, not when the first machine asks.
	if _, err := mgr.GetCache().GetInformer(ctx, machineSetMetadata()); err != nil {
		return err
	}
	return mgr.GetFieldIndexer().IndexField(ctx, &infrav1.VSphereMachine{}, poolField, func(obj client.Object) []string {
		if ref := obj.(*infrav1.VSphereMachine).Spec.MachineConfigPoolRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	})
}
