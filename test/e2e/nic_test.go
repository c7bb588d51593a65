//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

func createWithTwoInterfaces(t *testing.T, w *world) {
	create(t, w)
	w.interfaces(t, controlPlanePool, "pg-node", "pg-stor")
	w.interfaces(t, workerPool, "pg-node", "pg-stor")
}

// group is a set of workers: a pool, the file it is kept in, the MachineDeployment, and what names of its templates begin with.
type group struct{ pool, file, owner, templates string }

var firstGroup = group{workerPool, workerPoolFile, workers, workerTemplate}

// addInterface: VS-R41, VS-R42, VS-R49. Slots first, then a template, then the reference; what runs is not touched before its turn.
// zone names where the machines go from then on, if they are in one.
func (w *world) addInterface(t *testing.T, of group, suffix, zone string) {
	t.Helper()
	w.changeInterfaces(t, of, suffix, zone, []string{"pg-node", "pg-stor"}, func(g Gomega, slot map[string]any) {
		ip, _, err := unstructured.NestedString(slot, "network", "primary", "ip")
		g.Expect(err).NotTo(HaveOccurred())
		_, last, _ := strings.Cut(ip, fmt.Sprintf("127.%d.1.", int(w.env.Range)))
		second := map[string]any{"networkName": "pg-stor", "ip": fmt.Sprintf("127.%d.2.%s", int(w.env.Range), last)}
		g.Expect(unstructured.SetNestedSlice(slot, []any{second}, "network", "additional")).To(Succeed())
	})
}

// takeInterface: VS-R50.
func (w *world) takeInterface(t *testing.T, of group, suffix, zone string) {
	t.Helper()
	w.changeInterfaces(t, of, suffix, zone, []string{"pg-node"}, func(_ Gomega, slot map[string]any) {
		unstructured.RemoveNestedField(slot, "network", "additional")
	})
}

// changeInterfaces is the manual's procedure.
func (w *world) changeInterfaces(t *testing.T, of group, suffix, zone string, networks []string, change func(g Gomega, slot map[string]any)) {
	t.Helper()
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, of.pool)
	untouched := w.hardware(t)
	var devices []any
	for _, n := range networks {
		devices = append(devices, map[string]any{"networkName": n})
	}
	file, template := of.templates+"-"+suffix+".yaml", of.templates+"-"+suffix
	w.copy(t, "vspheremachinetemplate", w.templateOf(t, of.owner), template, file, func(o *unstructured.Unstructured) {
		NewWithT(t).Expect(unstructured.SetNestedSlice(o.Object, devices, "spec", "template", "spec", "network", "devices")).To(Succeed())
	})
	// A template before its slots has as many devices as no slot has (decision V4).
	w.refused(t, []string{"spec.template.spec.network.devices", "network interface(s)"}, "apply", "-f", w.manifest(file))

	w.edit(t, of.file, func(pool *unstructured.Unstructured) {
		g := NewWithT(t)
		configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
		g.Expect(err).NotTo(HaveOccurred())
		for _, c := range configs {
			change(g, c.(map[string]any))
		}
		g.Expect(unstructured.SetNestedSlice(pool.Object, configs, "spec", "configs")).To(Succeed())
	})
	w.warned(t, []string{"network interface(s)"}, "apply", "-f", w.manifest(of.file))
	w.kubectl(t, "apply", "-f", w.manifest(file))
	g.Expect(w.hardware(t)).To(Equal(untouched), "no virtual machine is edited")

	where := ""
	if zone != "" {
		where = `"failureDomain": "` + zone + `", `
	}
	w.patch(t, "machinedeployment", of.owner, `{"spec": {"template": {"spec": {`+where+`"infrastructureRef": {"name": "`+template+`"}}}}}`)
	w.replaced(t, of.pool, before, tenants)
	w.interfaces(t, of.pool, networks...)
}

// hardware is what of each virtual machine only a replacement may change: its networks and disks.
func (w *world) hardware(t *testing.T) map[string]string {
	t.Helper()
	world, err := w.cloud.World(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	all := map[string]string{}
	for _, vm := range world.VMs {
		if vm.Template {
			continue
		}
		var parts []string
		for _, n := range vm.NICs {
			parts = append(parts, n.Network+" "+n.MAC)
		}
		for _, d := range vm.Disks {
			parts = append(parts, d.Path+" "+d.UUID)
		}
		all[vm.Name] = strings.Join(parts, ", ")
	}
	return all
}

// interfaces expects virtual machines with exactly these networks, in this order, and each interface's planned address on the
// VSphereVM and the Machine; the Node has the primary one.
func (w *world) interfaces(t *testing.T, pool string, networks ...string) {
	t.Helper()
	await(t, fmt.Sprintf("the machines of %s have the addresses of %v", pool, networks), func(ctx context.Context, g Gomega) {
		planned := map[string][]string{}
		for _, c := range w.pools(ctx, g)[pool].Spec.Configs {
			bare, _, _ := strings.Cut(c.Network.Primary.IP, "/")
			planned[c.Hostname] = []string{bare}
			for _, a := range c.Network.Additional {
				bare, _, _ := strings.Cut(a.IP, "/")
				planned[c.Hostname] = append(planned[c.Hostname], bare)
			}
		}
		world, err := w.cloud.World(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		nodes := w.nodes(ctx, g)
		_, tenants := w.places(ctx, g, pool)
		for host, tn := range tenants {
			g.Expect(planned[host]).To(HaveLen(len(networks)))
			vm := &infrav1.VSphereVM{}
			g.Expect(w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: tn.Machine}, vm)).To(Succeed())
			g.Expect(vm.Status.Addresses).To(ConsistOf(planned[host]), "status.addresses of VSphereVM %s", vm.Name)
			// The kubelet is told to use the primary address, so that a second interface does not change the Node.
			g.Expect(internalIPs(nodes[host])).To(Equal(planned[host][:1]), "address of Node %s", host)
			var machine []string
			for _, a := range w.machineOf(ctx, g, tn.Machine).Status.Addresses {
				machine = append(machine, a.Address)
			}
			g.Expect(machine).To(ContainElements(planned[host]), "addresses of the Machine in slot %s", host)
			for _, v := range world.VMs {
				if v.Name != tn.Machine {
					continue
				}
				var has []string
				for _, n := range v.NICs {
					has = append(has, n.Network)
				}
				g.Expect(has).To(Equal(networks), "networks of %s in vCenter", v.Name)
			}
		}
	})
}
