//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// keepCluster: with the annotation on the Cluster its disks stay, and the same manifests bring the same data back (decision
// D19, VS-D54, VS-D56).
func keepCluster(t *testing.T, w *world) {
	g := NewWithT(t)
	workersBefore, _ := w.places(t.Context(), g, workerPool)
	before, _ := w.places(t.Context(), g, controlPlanePool)
	for host, p := range workersBefore {
		before[host] = p
	}
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/kept", "kept for "+host)
	}
	w.kubectl(t, "-n", namespace, "annotate", "cluster", cluster, infrav1.RetainDisksAnnotation+"=true")
	w.kubectl(t, "-n", namespace, "delete", "cluster", cluster, "--wait=false")
	await(t, "the Cluster, its pools and its machines are gone", func(ctx context.Context, g Gomega) {
		err := w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster}, &clusterv1.Cluster{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the Cluster is gone: %v", err)
		g.Expect(w.pools(ctx, g)).To(BeEmpty())
		g.Expect(w.vsphereMachines(ctx, g)).To(BeEmpty())
	})
	w.exist(t, before)

	w.applyAll(t)
	await(t, "the cluster is back in its places", func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, controlPlanePool, 3)
		w.settled(ctx, g, workerPool, 3)
	})
	for _, pool := range []string{controlPlanePool, workerPool} {
		after, _ := w.places(t.Context(), g, pool)
		for host, p := range after {
			g.Expect(p).To(Equal(before[host]), "the place of %s, with its VMDKs and their UUIDs", host)
			g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/kept")).To(Equal("kept for " + host))
		}
	}
	g.Expect(w.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=PersistentDiskAdopted", "-o", "name")).NotTo(BeEmpty())
}

// keepPool: the same for one pool, which is deleted without its cluster (VS-D52 to VS-D54).
func keepPool(t *testing.T, w *world) {
	g := NewWithT(t)
	before, _ := w.places(t.Context(), g, workerPool)
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/kept", "kept for "+host)
	}
	w.refused(t, []string{"cannot delete pool", "still in use"}, "-n", namespace, "delete", "vspheremachineconfigpool", workerPool)
	w.kubectl(t, "-n", namespace, "annotate", "vspheremachineconfigpool", workerPool, infrav1.RetainDisksAnnotation+"=true")
	w.deleteWorkers(t)
	w.kubectl(t, "-n", namespace, "delete", "vspheremachineconfigpool", workerPool)
	w.exist(t, before)
	w.workersAgain(t)
	after, _ := w.places(t.Context(), g, workerPool)
	g.Expect(after).To(Equal(before), "VMDKs and UUIDs of the pool that was deleted")
	for host := range after {
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/kept")).To(Equal("kept for " + host))
	}
}

// losePool: without the annotation the disks go with the pool, announced, and a pool of the same name begins anew.
func losePool(t *testing.T, w *world) {
	g := NewWithT(t)
	before, _ := w.places(t.Context(), g, workerPool)
	// A pool that adopted disks does not remember that they were kept once.
	g.Expect(w.pools(t.Context(), g)[workerPool].Annotations).NotTo(HaveKey(infrav1.RetainDisksAnnotation))
	w.deleteWorkers(t)
	w.kubectl(t, "-n", namespace, "delete", "vspheremachineconfigpool", workerPool)
	events := w.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=PersistentDisksToBeDeleted")
	world, err := w.cloud.World(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for host, p := range before {
		for name, disk := range p.Persistent {
			path, _, _ := strings.Cut(disk, ".vmdk ")
			g.Expect(events).To(ContainSubstring(path), "disk %s of %s is announced before it is deleted", name, host)
			for _, d := range world.Disks {
				g.Expect(d.Path).NotTo(HavePrefix(path), "disk %s of %s is deleted", name, host)
			}
		}
	}
	w.workersAgain(t)
	after, _ := w.places(t.Context(), g, workerPool)
	for host, p := range after {
		for name, disk := range p.Persistent {
			g.Expect(disk).NotTo(Equal(before[host].Persistent[name]), "disk %s of %s is a new one", name, host)
		}
		_, err := w.run(t.Context(), w.tool("berth"), "guest", "cat", host, "/var/cpaas/kept", "--state-dir", w.env.Dir)
		g.Expect(err).To(HaveOccurred(), "the new disk of %s is empty", host)
	}
}

// deleteWorkers deletes the MachineDeployment and waits for its machines.
func (w *world) deleteWorkers(t *testing.T) {
	t.Helper()
	w.keepTemplate(t)
	w.kubectl(t, "-n", namespace, "delete", "machinedeployment", workers)
	await(t, "no worker holds a slot", func(ctx context.Context, g Gomega) {
		for _, s := range w.pools(ctx, g)[workerPool].Status.ConfigStatuses {
			g.Expect(s.State).NotTo(Equal(infrav1.ConfigStateInUse), "slot %s", s.Hostname)
		}
	})
}

// workersAgain applies the workers' pool and MachineDeployment as they are in their files.
func (w *world) workersAgain(t *testing.T) {
	t.Helper()
	w.kubectl(t, "apply", "-f", w.manifest(workerPoolFile))
	w.kubectl(t, "apply", "-f", w.manifest(workersFile))
	await(t, "3 workers run", func(ctx context.Context, g Gomega) { w.settled(ctx, g, workerPool, 3) })
}

// exist expects the VMDKs of places in vCenter, attached to nothing.
func (w *world) exist(t *testing.T, places map[string]place) {
	t.Helper()
	g := NewWithT(t)
	world, err := w.cloud.World(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for host, p := range places {
		for name, disk := range p.Persistent {
			g.Expect(slices.ContainsFunc(world.Disks, func(d vcenter.Disk) bool {
				return strings.HasPrefix(disk, d.Path+" ") && len(d.AttachedTo) == 0
			})).To(BeTrue(), "disk %s of %s: %s", name, host, disk)
		}
	}
}
