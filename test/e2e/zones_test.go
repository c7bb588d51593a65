//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// zonePools are the pools of the example with failure domains and how many machines each has.
var zonePools = map[string]int{controlPlanePool: 3, workerPool + "-a": 2, workerPool + "-b": 2}

// inZoneB are the workers of the second zone.
var inZoneB = group{workerPool + "-b", "17-vspheremachineconfigpool-worker-b.yaml", cluster + "-md-1", workerTemplate + "-b"}

// createInZones: the control plane spreads over the zones as its pool has slots there, and each zone has its own workers with
// their own pool (VS-R2, VS-R44, VS-V47).
func createInZones(t *testing.T, w *world) {
	w.applyAll(t)
	w.inZones(t)
}

// inZones expects every machine of the example in the zone, datacenter and datastore of its slot.
func (w *world) inZones(t *testing.T) {
	t.Helper()
	await(t, "all machines run in the zones of their slots", func(ctx context.Context, g Gomega) {
		world, err := w.cloud.World(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		perZone := map[string]int{}
		for pool, replicas := range zonePools {
			w.settled(ctx, g, pool, replicas)
			places, tenants := w.places(ctx, g, pool)
			for _, slot := range w.pools(ctx, g)[pool].Spec.Configs {
				zone := strings.TrimPrefix(slot.Datacenter, "dc-")
				machine := w.machineOf(ctx, g, tenants[slot.Hostname].Machine)
				g.Expect(machine.Spec.FailureDomain).To(HavePrefix(cluster+"-"+zone), "zone of the machine in slot %s", slot.Hostname)
				perZone[pool+" "+zone]++
				for name, disk := range places[slot.Hostname].Persistent {
					g.Expect(disk).To(HavePrefix("[ds-shared-"+zone+"] "), "datastore of disk %s of %s", name, slot.Hostname)
				}
				found := false
				for _, vm := range world.VMs {
					if vm.Name != tenants[slot.Hostname].Machine {
						continue
					}
					found = true
					g.Expect(vm.Datacenter).To(Equal(slot.Datacenter), "datacenter of %s", vm.Name)
					g.Expect(vm.Path).To(HavePrefix("/"+slot.Datacenter+"/vm/k8s/"), "folder of %s", vm.Name)
					g.Expect(vm.Directory).To(HavePrefix("[ds-shared-"+zone+"] "), "datastore of %s", vm.Name)
					g.Expect(vm.Host).To(HavePrefix("cl-"+zone+"-"), "host of %s", vm.Name)
				}
				g.Expect(found).To(BeTrue(), "a virtual machine for slot %s", slot.Hostname)
			}
		}
		g.Expect(perZone).To(Equal(map[string]int{
			controlPlanePool + " a": 2, controlPlanePool + " b": 1, workerPool + "-a a": 2, workerPool + "-b b": 2,
		}))
	})
}

// rollOverZones: every replaced control plane has to come back in the zone in which its place is.
func rollOverZones(t *testing.T, w *world) {
	before, tenants := w.places(t.Context(), NewWithT(t), controlPlanePool)
	w.export(t, "vspheremachinetemplate", w.templateOf(t, controlPlane), controlTemplate+"-v2", "control-plane-v2.yaml", func(o *unstructured.Unstructured) {
		set(t, o, int64(12288), "spec.template.spec.memoryMiB")
	})
	w.useControlPlane(t, oldVersion, controlTemplate+"-v2")
	w.replaced(t, controlPlanePool, before, tenants)
	w.inZones(t)
}

// changeInterfacesInZone: with failure domains, the third of the three places that agree is a new failure domain, because one
// that exists cannot be changed (VS-R49, VS-R50).
func changeInterfacesInZone(t *testing.T, w *world) {
	w.refused(t, []string{"a failure domain cannot be modified"},
		"patch", "vspherefailuredomain", cluster+"-b", "--type=merge", `-p={"spec": {"topology": {"networks": ["pg-node", "pg-stor"]}}}`)
	w.copyCluster(t, "vspherefailuredomain", cluster+"-b", cluster+"-b-stor", "failure-domain-stor.yaml", func(o *unstructured.Unstructured) {
		g := NewWithT(t)
		g.Expect(unstructured.SetNestedStringSlice(o.Object, []string{"pg-node", "pg-stor"}, "spec", "topology", "networks")).To(Succeed())
	})
	w.copyCluster(t, "vspheredeploymentzone", cluster+"-b", cluster+"-b-stor", "zone-stor.yaml", func(o *unstructured.Unstructured) {
		set(t, o, cluster+"-b-stor", "spec.failureDomain")
		set(t, o, false, "spec.controlPlane")
	})
	w.addInterface(t, inZoneB, "two", cluster+"-b-stor")
	w.takeInterface(t, inZoneB, "one", cluster+"-b")
	w.inZones(t)
}
