//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// flow is one thing that the owner of a cluster does.
type flow struct {
	name string
	run  func(*testing.T, *world)
}

// TestJourney is the whole life of a cluster in the words of the manual, undisturbed. Its workers live by four kinds of objects alone
// (VS-R1).
func TestJourney(t *testing.T) {
	flows := []flow{
		{"create", create},
		{"roll workers to a new template", rollWorkers},
		{"roll to a template that never boots, and back", failAndRollBack},
		{"scale out, slot first", scaleOutSlotFirst},
		{"scale out, replicas first", scaleOutReplicasFirst},
		{"scale in", scaleIn},
		{"upgrade control planes", upgradeControlPlanes},
		{"upgrade workers", upgradeWorkers},
		{"delete the cluster", deleteCluster},
	}
	flavours := []string{"v1beta1"}
	if *full {
		flavours = append(flavours, "v1beta2")
		flows = []flow{
			{"create", create},
			{"roll workers to a new template", rollWorkers},
			{"roll to a template that never boots, and back", failAndRollBack},
			{"roll control planes to a new template", rollControlPlanes},
			{"restore an upgrade that cannot start", restoreUnstartedUpgrade},
			{"roll control planes to a template that never boots, and back", pointControlPlanesBack},
			{"scale out, slot first", scaleOutSlotFirst},
			{"scale out, replicas first", scaleOutReplicasFirst},
			{"scale in", scaleIn},
			{"roll to a new bootstrap template", rollBootstrap},
			{"upgrade control planes", upgradeControlPlanes},
			{"upgrade workers", upgradeWorkers},
			{"delete the cluster", deleteCluster},
		}
	}
	for _, flavour := range flavours {
		t.Run(flavour, func(t *testing.T) { travel(t, newWorld(t, flavour), flows, nil) })
	}
}

// travel runs flows one after the other; the first that fails ends the journey. disturb, if any, happens during each flow.
func travel(t *testing.T, w *world, flows []flow, disturb func(*testing.T, flow) (stop func())) {
	for _, f := range flows {
		ok := t.Run(f.name, func(t *testing.T) {
			begin := time.Now()
			if disturb != nil {
				defer disturb(t, f)()
			}
			f.run(t, w)
			NewWithT(t).Expect(w.watch.Breaches()).To(BeEmpty(), "the promises hold")
			t.Logf("took %s", time.Since(begin).Round(time.Second))
		})
		if !ok {
			t.FailNow()
		}
	}
	breaches, err := w.watch.Stop(t.Context())
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(breaches).To(BeEmpty(), "the promises held to the end")
}

func create(t *testing.T, w *world) {
	w.applyAll(t)
	await(t, "3 control planes and 3 workers run in their places", func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, controlPlanePool, 3)
		w.settled(ctx, g, workerPool, 3)
	})
	out := w.kubectl(t, "-n", namespace, "get", "machinedeployment,machine,vspheremachine,vspherevm")
	t.Logf("\n%s", out)
}

// rollWorkers types what the manual says, word for word: VS-R25, VS-R30, VS-R31, VS-R34, VS-R36, VS-R38.
func rollWorkers(t *testing.T, w *world) {
	const marker, raw = "/var/cpaas/marker", "/dev/disk/by-capv/app-data"
	before, tenants := w.places(t.Context(), NewWithT(t), workerPool)
	for host := range before {
		w.writeInGuest(t, host, marker, "data of "+host)
		w.writeInGuest(t, host, raw, "raw bytes of "+host)
	}
	w.export(t, "vspheremachinetemplate", workerTemplate, workerTemplate+"-v2", "new-worker-template.yaml", func(o *unstructured.Unstructured) {
		set(t, o, int64(6), "spec.template.spec.numCPUs")
		set(t, o, int64(12288), "spec.template.spec.memoryMiB")
		set(t, o, "os-v136-3-b", "spec.template.spec.template")
	})
	progress := w.follow(t, "kubectl -n "+namespace+" get machinedeployment "+workers+" -w")
	w.useWorkerTemplate(t, workerTemplate+"-v2")
	w.shell(t, "kubectl -n "+namespace+" get machine")
	w.replaced(t, workerPool, before, tenants)
	NewWithT(t).Expect(strings.Count(progress(), "\n")).To(BeNumerically(">", len(before)), "kubectl get -w shows every step")
	w.verify(t)
	for host := range before {
		g := NewWithT(t)
		g.Expect(w.berth(t, "guest", "cat", host, marker)).To(Equal("data of "+host), "the file system on %s", host)
		g.Expect(w.berth(t, "guest", "cat", host, raw)).To(HavePrefix("raw bytes of "+host), "the raw disk on %s", host)
	}
	world, err := w.cloud.World(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	_, tenants = w.places(t.Context(), NewWithT(t), workerPool)
	for _, tn := range tenants {
		for _, vm := range world.VMs {
			if vm.UUID == strings.TrimPrefix(tn.ProviderID, "vsphere://") {
				NewWithT(t).Expect([]int32{vm.NumCPUs, vm.MemoryMiB}).To(Equal([]int32{6, 12288}), "size of %s", vm.Name)
			}
		}
	}
}

// verify types the manual's commands that show whether workers are as they should be: every kind is listed, each machine with its
// slot and address, and every Node is Ready with its planned address.
func (w *world) verify(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	out := w.shell(t, "kubectl -n "+namespace+" get machinedeployment,machine,vspheremachine,vspherevm")
	w.shell(t, "berth kubeconfig --state-dir "+w.env.Dir+" --cluster "+cluster+" > "+cluster+".kubeconfig")
	nodes := w.shell(t, "kubectl --kubeconfig="+cluster+".kubeconfig get nodes -o wide")
	places, tenants := w.places(t.Context(), g, workerPool)
	for host, tn := range tenants {
		for _, kind := range []string{"machine.cluster.x-k8s.io", "vspheremachine.infrastructure.cluster.x-k8s.io", "vspherevm.infrastructure.cluster.x-k8s.io"} {
			g.Expect(out).To(MatchRegexp(`(?m)^%s/%s .*\b%s\b`, kind, tn.Machine, host), "a line with the slot of %s", tn.Machine)
		}
		g.Expect(nodes).To(MatchRegexp(`(?m)^%s +Ready .* %s `, host, places[host].Address))
	}
	pools := w.shell(t, "kubectl -n "+namespace+" get vspheremachineconfigpool")
	g.Expect(pools).To(MatchRegexp(`(?m)^%s +%d +0 +%d +True `, workerPool, len(places), len(places)), "total, available, allocated (VS-R54)")
}

// replaced waits until every place of a pool has another tenant and everything else is as it was.
func (w *world) replaced(t *testing.T, pool string, before map[string]place, tenants map[string]tenant) {
	t.Helper()
	await(t, fmt.Sprintf("every machine of %s is replaced", pool), func(ctx context.Context, g Gomega) {
		_, now := w.places(ctx, g, pool)
		for host, old := range tenants {
			g.Expect(now).To(HaveKey(host))
			g.Expect(now[host].Machine).NotTo(Equal(old.Machine), "machine in slot %s", host)
		}
		w.settled(ctx, g, pool, len(before))
	})
	g := NewWithT(t)
	after, now := w.places(t.Context(), g, pool)
	g.Expect(after).To(Equal(before), "names, addresses, VMDK paths and UUIDs stay")
	for host := range tenants {
		g.Expect(now[host].ProviderID).NotTo(Equal(tenants[host].ProviderID), "the virtual machine of %s is another one", host)
		for name, uuid := range tenants[host].Ephemeral {
			g.Expect(now[host].Ephemeral).To(HaveKey(name))
			g.Expect(now[host].Ephemeral[name]).NotTo(Equal(uuid), "ephemeral disk %s of %s is new", name, host)
		}
	}
}

// rollControlPlanes: VS-R35.
func rollControlPlanes(t *testing.T, w *world) {
	before, tenants := w.places(t.Context(), NewWithT(t), controlPlanePool)
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
	}
	w.export(t, "vspheremachinetemplate", controlTemplate, controlTemplate+"-v2", "new-control-plane-template.yaml", func(o *unstructured.Unstructured) {
		set(t, o, int64(12288), "spec.template.spec.memoryMiB")
	})
	// The manual's path of the reference is that of the older version, so kubectl has to be told to speak it.
	w.patch(t, "kubeadmcontrolplane.v1beta1.controlplane.cluster.x-k8s.io", controlPlane, `{"spec": {"machineTemplate": {"infrastructureRef": {"name": "`+controlTemplate+`-v2"}}}}`)
	w.replaced(t, controlPlanePool, before, tenants)
	for host := range before {
		NewWithT(t).Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
	}
}

// scaleOutSlotFirst: VS-R18, VS-R19.
func scaleOutSlotFirst(t *testing.T, w *world) {
	w.addSlot(t, 4)
	w.setReplicas(t, 4)
	w.kubectl(t, "apply", "-f", w.manifest(workerPoolFile))
	w.keepTemplate(t)
	w.kubectl(t, "apply", "-f", w.manifest(workersFile))
	await(t, "4 workers run", func(ctx context.Context, g Gomega) { w.settled(ctx, g, workerPool, 4) })
}

// keepTemplate writes the reference in use into the archived manifest: applying it replaces the whole spec (VS-R26).
func (w *world) keepTemplate(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	md := &clusterv1.MachineDeployment{}
	g.Expect(w.kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: workers}, md)).To(Succeed())
	w.edit(t, workersFile, func(o *unstructured.Unstructured) {
		set(t, o, md.Spec.Template.Spec.InfrastructureRef.Name, "spec.template.spec.infrastructureRef.name")
	})
}

// scaleOutReplicasFirst: VS-R18, VS-R20, VS-R53.
func scaleOutReplicasFirst(t *testing.T, w *world) {
	w.setReplicas(t, 5)
	w.kubectl(t, "apply", "-f", w.manifest(workersFile))
	await(t, "the surplus machine says that no slot is free", func(ctx context.Context, g Gomega) {
		list := &infrav1.VSphereMachineList{}
		g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		waiting := 0
		for _, m := range list.Items {
			if c := meta.FindStatusCondition(m.Status.Conditions, "MachineConfigPoolReady"); c != nil && c.Status == metav1.ConditionFalse {
				g.Expect(c.Reason).To(Equal("NoAvailableSlots"))
				g.Expect(c.Message).To(ContainSubstring(workerPool))
				waiting++
			}
		}
		g.Expect(waiting).To(Equal(1))
	})
	w.addSlot(t, 5)
	w.kubectl(t, "apply", "-f", w.manifest(workerPoolFile))
	await(t, "5 workers run", func(ctx context.Context, g Gomega) { w.settled(ctx, g, workerPool, 5) })
}

// scaleIn: a slot that loses its machine is Released and keeps its disks (VS-R28).
func scaleIn(t *testing.T, w *world) {
	w.kubectl(t, "-n", namespace, "scale", "machinedeployment", workers, "--replicas=3")
	await(t, "3 workers run and 2 slots are released with their disks", func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, workerPool, 3)
		pool := w.pools(ctx, g)[workerPool]
		released := map[string]bool{}
		for _, s := range pool.Status.ConfigStatuses {
			if s.State == infrav1.ConfigStateReleased {
				released[s.Hostname] = true
			}
		}
		g.Expect(released).To(HaveLen(2))
		kept := 0
		for _, d := range pool.Status.PersistentDiskStatuses {
			if released[d.Hostname] {
				g.Expect(d.Phase).To(Equal(infrav1.DiskPhaseAvailable), "disk %s of %s", d.Name, d.Hostname)
				kept++
			}
		}
		g.Expect(kept).To(Equal(4), "two disks in each of two slots")
		g.Expect(w.nodes(ctx, g)).To(HaveLen(6))
	})
}

// failAndRollBack: VS-R37, VS-R55.
func failAndRollBack(t *testing.T, w *world) {
	g := NewWithT(t)
	md := &clusterv1.MachineDeployment{}
	g.Expect(w.kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: workers}, md)).To(Succeed())
	good := md.Spec.Template.Spec.InfrastructureRef.Name
	before, tenants := w.places(t.Context(), g, workerPool)

	w.export(t, "vspheremachinetemplate", good, workerTemplate+"-bad", "bad-worker-template.yaml", func(o *unstructured.Unstructured) {
		set(t, o, "os-no-boot", "spec.template.spec.template")
	})
	w.useWorkerTemplate(t, workerTemplate+"-bad")
	var stuck string
	await(t, "the roll stops at its first machine and says why", func(ctx context.Context, g Gomega) {
		list := &infrav1.VSphereMachineList{}
		g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		stuck = ""
		for _, m := range list.Items {
			if m.Spec.Template != "os-no-boot" {
				continue
			}
			c := meta.FindStatusCondition(m.Status.Conditions, "Ready")
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Message).To(ContainSubstring("address"), "the cause is that no address is reported")
			vm := &infrav1.VSphereVM{}
			g.Expect(w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: m.Name}, vm)).To(Succeed())
			g.Expect(vm.Status.Addresses).To(BeEmpty(), "no stale address (VS-R55)")
			stuck = m.Name
		}
		g.Expect(stuck).NotTo(BeEmpty())
	})
	_, now := w.places(t.Context(), g, workerPool)
	untouched := 0
	for host, tn := range tenants {
		if now[host].Machine == tn.Machine {
			untouched++
		}
	}
	g.Expect(untouched).To(Equal(len(tenants)-1), "only one machine was given up for the bad template")

	w.useWorkerTemplate(t, good)
	await(t, "the workers are back on the previous template", func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, workerPool, len(before))
		list := &infrav1.VSphereMachineList{}
		g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, m := range list.Items {
			g.Expect(m.Spec.Template).NotTo(Equal("os-no-boot"), "machine %s", m.Name)
		}
	})
}

// rollBootstrap: VS-R39.
func rollBootstrap(t *testing.T, w *world) {
	g := NewWithT(t)
	_, tenants := w.places(t.Context(), g, workerPool)
	w.newBootstrap(t)
	w.patch(t, "machinedeployment", workers, `{"spec": {"template": {"spec": {"bootstrap": {"configRef": {"name": "`+workerBootstrap+`-v2"}}}}}}`)
	w.renewed(t, workerPool, tenants)
	places, _ := w.places(t.Context(), g, workerPool)
	for host := range places {
		g.Expect(w.berth(t, "guest", "cat", host, "/etc/motd")).To(Equal("second edition\n"))
	}
}

// renewed waits until a pool has as many machines as before, and all of them are new. Where there are released slots beside those in
// use, machines may change places.
func (w *world) renewed(t *testing.T, pool string, tenants map[string]tenant) {
	t.Helper()
	await(t, "every machine of "+pool+" is a new one", func(ctx context.Context, g Gomega) {
		_, now := w.places(ctx, g, pool)
		for _, tn := range now {
			for _, was := range tenants {
				g.Expect(tn.Machine).NotTo(Equal(was.Machine))
			}
		}
		w.settled(ctx, g, pool, len(tenants))
	})
}

// newBootstrap makes a second edition of the workers' bootstrap template.
func (w *world) newBootstrap(t *testing.T) {
	t.Helper()
	w.export(t, "kubeadmconfigtemplate", workerBootstrap, workerBootstrap+"-v2", "new-bootstrap-template.yaml", func(o *unstructured.Unstructured) {
		g := NewWithT(t)
		files, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "files")
		g.Expect(err).NotTo(HaveOccurred())
		files = append(files, map[string]any{"path": "/etc/motd", "permissions": "0644", "content": "second edition\n"})
		g.Expect(unstructured.SetNestedSlice(o.Object, files, "spec", "template", "spec", "files")).To(Succeed())
	})
}

// deleteCluster: nothing of the cluster is left, on either side, and nobody had to help (VS-D53, VS-D55, VS-D56, VS-R61).
func deleteCluster(t *testing.T, w *world) {
	w.kubectl(t, "-n", namespace, "delete", "cluster", cluster, "--wait=false")
	await(t, "no object of the cluster is left", func(ctx context.Context, g Gomega) {
		err := w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster}, &clusterv1.Cluster{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the Cluster is gone: %v", err)
		g.Expect(w.pools(ctx, g)).To(BeEmpty())
		vms := &infrav1.VSphereVMList{}
		g.Expect(w.kube.List(ctx, vms, client.InNamespace(namespace))).To(Succeed())
		g.Expect(vms.Items).To(BeEmpty())
	})
	g := NewWithT(t)
	world, err := w.cloud.World(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for _, vm := range world.VMs {
		g.Expect(vm.Template).To(BeTrue(), "virtual machine %s is left", vm.Path)
	}
	for _, d := range world.Disks {
		g.Expect(d.Path).NotTo(ContainSubstring(cluster+"-"), "a disk is left")
	}
	for _, f := range world.Files {
		g.Expect(f.Path).NotTo(ContainSubstring(cluster+"-"), "a file or directory is left")
	}
	// A manager that is killed cannot log out; vCenter ends its session when it has been idle for long enough.
	await(t, "the session is closed", func(ctx context.Context, g Gomega) {
		world, err := w.cloud.World(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		var open []string
		for _, s := range world.Sessions {
			if strings.Contains(s.UserAgent, "berth-manager") {
				open = append(open, s.Key)
			}
		}
		g.Expect(len(open)).To(BeNumerically("<=", int(w.kills.Load())), "open sessions: %v", open)
	})
}
