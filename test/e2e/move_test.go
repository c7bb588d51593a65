//go:build e2e

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/local"
	"github.com/berth-dev/berth/internal/tools"
)

// inventory is the kind in which clusterctl keeps what it has installed. These management clusters were installed by hand: there
// is nothing of that kind, and clusterctl wants to read that.
const inventory = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: providers.clusterctl.cluster.x-k8s.io
spec:
  group: clusterctl.cluster.x-k8s.io
  names: {kind: Provider, listKind: ProviderList, plural: providers, singular: provider}
  scope: Namespaced
  versions:
  - name: v1alpha3
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// moveAway moves the cluster to a second management cluster with the real clusterctl, which leaves every status behind and gives
// every object another UID. The same machines are found in the same places with the same disks, and nothing is asked of vCenter
// that changes anything (promise 5, decisions D16, D17).
func moveAway(t *testing.T, w *world) {
	g := NewWithT(t)
	clusterctl, err := tools.Path("clusterctl")
	g.Expect(err).NotTo(HaveOccurred(), "`make e2e-full` builds it")
	target := w.secondManagement(t)
	pools := []string{controlPlanePool, workerPool}
	before, tenants := map[string]map[string]place{}, map[string]map[string]tenant{}
	for _, pool := range pools {
		before[pool], tenants[pool] = w.places(t.Context(), g, pool)
	}
	source := w.management
	uids := w.kubectl(t, "-n", namespace, "get", "vspheremachine", "-o", "jsonpath={.items[*].metadata.uid}")
	breaches, err := w.watch.Stop(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(breaches).To(BeEmpty())
	effects, hardware := w.effects(t), w.hardware(t)

	line := []string{"move", "--namespace", namespace, "--kubeconfig", source.Kubeconfig(), "--to-kubeconfig", target.Kubeconfig()}
	t.Logf("$ clusterctl %s", strings.Join(line, " "))
	out, err := w.run(t.Context(), clusterctl, line...)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(w.kubectl(t, "-n", namespace, "get", "cluster,machine,vspheremachine,vspherevm,vspheremachineconfigpool,vspherecluster", "-o", "name")).
		To(BeEmpty(), "nothing is left behind")

	w.manage(t, target)
	await(t, "all machines are known again in their places", func(ctx context.Context, g Gomega) {
		for _, pool := range pools {
			w.settled(ctx, g, pool, len(before[pool]))
			after, now := w.places(ctx, g, pool)
			g.Expect(after).To(Equal(before[pool]))
			for host, tn := range tenants[pool] {
				g.Expect(now[host].Machine).To(Equal(tn.Machine), "machine in slot %s", host)
				g.Expect(now[host].ProviderID).To(Equal(tn.ProviderID), "virtual machine in slot %s", host)
			}
		}
	})
	for _, uid := range strings.Fields(uids) {
		g.Expect(w.kubectl(t, "-n", namespace, "get", "vspheremachine", "-o", "jsonpath={.items[*].metadata.uid}")).NotTo(ContainSubstring(uid))
	}
	g.Expect(w.effects(t)).To(Equal(effects), "nothing is made, changed or deleted in vCenter")
	g.Expect(w.hardware(t)).To(Equal(hardware))
}

// replaceOne: what was found again is not only shown. A machine that is deleted comes back in its place with its data.
func replaceOne(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, workerPool)
	victim := cluster + "-worker-2"
	w.writeInGuest(t, victim, "/var/cpaas/marker", "data of "+victim)
	w.kubectl(t, "-n", namespace, "delete", "machine", w.machineOf(t.Context(), g, tenants[victim].Machine).Name)
	await(t, "another machine has its place", func(ctx context.Context, g Gomega) {
		_, now := w.places(ctx, g, workerPool)
		g.Expect(now).To(HaveKey(victim))
		g.Expect(now[victim].Machine).NotTo(Equal(tenants[victim].Machine))
		w.settled(ctx, g, workerPool, len(before))
	})
	after, _ := w.places(t.Context(), g, workerPool)
	g.Expect(after).To(Equal(before))
	g.Expect(w.berth(t, "guest", "cat", victim, "/var/cpaas/marker")).To(Equal("data of " + victim))
}

// secondManagement brings up another management cluster beside the same vCenter and the same guests, and prepares both for
// clusterctl as `clusterctl init` would have.
func (w *world) secondManagement(t *testing.T) *local.Environment {
	t.Helper()
	g := NewWithT(t)
	dir, err := os.MkdirTemp("", "berth-e2e-")
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	target, err := local.Up(ctx, local.Options{
		Dir: dir, Bare: true, Bin: w.bin, Progress: logging{t}, Without: []string{local.VCenterProcess, local.GuestsProcess},
	})
	if target != nil {
		w.others = append(w.others, target)
	}
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(w.manifest("inventory.yaml"), []byte(inventory), 0o600)).To(Succeed())
	for _, env := range []*local.Environment{w.management, target} {
		w.kubectl(t, "--kubeconfig", env.Kubeconfig(), "apply", "-f", w.manifest("inventory.yaml"))
		w.kubectl(t, "--kubeconfig", env.Kubeconfig(), "label", "crd", "-l", "cluster.x-k8s.io/provider", "clusterctl.cluster.x-k8s.io=")
	}
	return target
}

// effects counts the calls of managers that change something in vCenter. Guests change nothing.
func (w *world) effects(t *testing.T) map[string]int64 {
	t.Helper()
	counters, err := w.cloud.Counters(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	all := map[string]int64{}
	for _, call := range []string{
		"CloneVM_Task", "CreateVM_Task", "ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "ShutdownGuest", "Destroy_Task", "UnregisterVM",
		"CreateVirtualDisk_Task", "DeleteVirtualDisk_Task", "MoveVirtualDisk_Task", "CopyVirtualDisk_Task", "MakeDirectory", "DeleteDatastoreFile_Task",
	} {
		all[call] = counters.Calls[call]
	}
	return all
}
