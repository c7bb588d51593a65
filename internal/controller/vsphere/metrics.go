package vsphere

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/platform/vsphere"
)

// RegisterMetrics publishes what a meter counts, and the slots and disks of all pools that reader sees (VS-P12). Logins are calls
// of the method Login.
func RegisterMetrics(registry prometheus.Registerer, meter *vsphere.Meter, reader client.Reader) error {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "berth", Subsystem: "vcenter", Name: "call_duration_seconds",
		Help:    "Round trips to vCenter by method and outcome.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"method", "outcome"})
	tasks := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "berth", Subsystem: "vcenter", Name: "task_duration_seconds",
		Help:    "Tasks of vCenter that Berth started, by kind and outcome.",
		Buckets: []float64{.1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800},
	}, []string{"kind", "outcome"})
	connections := prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "berth", Subsystem: "vcenter", Name: "connections_total", Help: "TLS connections opened to vCenters.",
	})
	for _, collector := range []prometheus.Collector{calls, tasks, connections, poolMetrics{reader}} {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	meter.OnCall = func(method string, took time.Duration, err error) {
		calls.WithLabelValues(method, outcome(err != nil)).Observe(took.Seconds())
	}
	meter.OnTask = func(kind string, took time.Duration, failed bool) {
		tasks.WithLabelValues(kind, outcome(failed)).Observe(took.Seconds())
	}
	meter.OnConnection = connections.Inc
	return nil
}

func outcome(failed bool) string {
	if failed {
		return "error"
	}
	return "ok"
}

var (
	slotsMetric = prometheus.NewDesc("berth_vsphere_slots", "Slots of a pool by state; a slot is reclaimed while its state is Reclaiming.",
		[]string{"namespace", "pool", "state"}, nil)
	disksMetric = prometheus.NewDesc("berth_vsphere_persistent_disks", "Persistent disks of a pool by phase.",
		[]string{"namespace", "pool", "phase"}, nil)
)

// poolMetrics counts slots and disks when somebody asks.
type poolMetrics struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (m poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- slotsMetric
	ch <- disksMetric
}

// metricsTimeout bounds one answer; the pools come from the cache.
const metricsTimeout = 10 * time.Second

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	pools := &infrav1.VSphereMachineConfigPoolList{}
	if err := m.reader.List(ctx, pools); err != nil {
		ch <- prometheus.NewInvalidMetric(slotsMetric, err)
		return
	}
	gauge := func(desc *prometheus.Desc, pool client.Object, counts map[string]int) {
		for word, n := range counts {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), pool.GetNamespace(), pool.GetName(), word)
		}
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		gauge(slotsMetric, pool, slotsByState(pool))
		phases := map[string]int{}
		for _, d := range pool.Status.PersistentDiskStatuses {
			phases[string(d.Phase)]++
		}
		gauge(disksMetric, pool, phases)
	}
}

// slotsByState counts the declared slots of a pool in the words of their life, which are more than the published ones.
func slotsByState(pool *infrav1.VSphereMachineConfigPool) map[string]int {
	words := map[string]string{}
	for _, s := range pool.Status.ConfigStatuses {
		word := string(s.State)
		switch {
		case s.Quarantine != "":
			word = "Quarantined"
		case s.Reclaiming:
			word = "Reclaiming"
		case s.VacatedTime != nil && s.State == infrav1.ConfigStateInUse:
			word = "Vacating"
		}
		words[s.Hostname] = word
	}
	counts := map[string]int{}
	for _, c := range pool.Spec.Configs {
		word, known := words[c.Hostname]
		if !known {
			word = string(infrav1.ConfigStateAvailable)
		}
		counts[word]++
	}
	return counts
}
