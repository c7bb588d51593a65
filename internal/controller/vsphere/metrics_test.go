package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controllers "github.com/berth-dev/berth/internal/controller/vsphere"
)

// TestMetrics: calls, logins, tasks, slots and disks are counted (VS-P12).
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	w.g.Expect(controllers.RegisterMetrics(registry, w.meter, client.NewNamespacedClient(k8s, w.ns))).To(Succeed())
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(2)
	w.ready(w.withMachine("m1", "demo-worker"))

	// read gives the value of every series of a metric, by the value of one of its labels; histograms count.
	read := func(g Gomega, metric, label string) map[string]float64 {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		out := map[string]float64{}
		for _, family := range families {
			if family.GetName() != metric {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, pair := range m.GetLabel() {
					if pair.GetName() == label {
						out[pair.GetValue()] += m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
					}
				}
			}
		}
		return out
	}
	w.g.Eventually(func(g Gomega) {
		g.Expect(read(g, "berth_vsphere_slots", "state")).To(Equal(map[string]float64{"InUse": 1, "Available": 1}))
		g.Expect(read(g, "berth_vsphere_persistent_disks", "phase")).To(HaveKeyWithValue("Attached", BeNumerically(">=", 1)))
		g.Expect(read(g, "berth_vcenter_call_duration_seconds", "method")).To(And(HaveKey("Login"), HaveKey("CloneVM_Task")))
		g.Expect(read(g, "berth_vcenter_task_duration_seconds", "kind")).To(And(HaveKeyWithValue("Create", BeNumerically("==", 1)), HaveKeyWithValue("PowerOn", BeNumerically("==", 1))))
	}).Should(Succeed())
}
