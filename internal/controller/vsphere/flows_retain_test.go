package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// remove deletes a machine as Cluster API does, and waits.
func (w *world) remove(m *infrav1.VSphereMachine) {
	w.t.Helper()
	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
}

// removeCluster deletes the Cluster with everything in it, as Cluster API's core does.
func (w *world) removeCluster(machines ...*infrav1.VSphereMachine) {
	w.t.Helper()
	w.g.Expect(k8s.Delete(ctx, w.cluster)).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, w.infra)).To(Succeed())
	for _, m := range machines {
		w.remove(m)
	}
	w.gone(w.infra)
}

func annotate(o client.Object) client.Object {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[infrav1.RetainDisksAnnotation] = "true"
	o.SetAnnotations(annotations)
	return o
}

// wish annotates an object of the API server.
func (w *world) wish(o client.Object) {
	w.t.Helper()
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return k8s.Update(ctx, annotate(o))
	}).Should(Succeed())
}

func (w *world) unwish(o client.Object) {
	w.t.Helper()
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		annotations := o.GetAnnotations()
		delete(annotations, infrav1.RetainDisksAnnotation)
		o.SetAnnotations(annotations)
		return k8s.Update(ctx, o)
	}).Should(Succeed())
}

// Decision D19, VS-D54, VS-D56: whether pool or Cluster is deleted, with the annotation on either of them the disks stay, and
// later objects of the same names get them; without it they are gone, and later objects begin anew.
func TestWhatDeletionKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		onPool, onCluster, deleteCluster, kept bool
	}{
		"pool deleted":                            {},
		"pool deleted, annotated":                 {onPool: true, kept: true},
		"pool deleted, its Cluster annotated":     {onCluster: true, kept: true},
		"Cluster deleted":                         {deleteCluster: true},
		"Cluster deleted, annotated":              {onCluster: true, deleteCluster: true, kept: true},
		"Cluster deleted, its pool annotated":     {onPool: true, deleteCluster: true, kept: true},
		"Cluster deleted, both of them annotated": {onPool: true, onCluster: true, deleteCluster: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.withCluster()
			w.start()
			w.provisioned()
			pool := w.withPool(2)
			m := w.withMachine("m1", "demo-worker")
			w.ready(m)
			before := w.diskStatus(w.slotOf(m))
			for o, on := range map[client.Object]bool{pool: c.onPool, w.cluster: c.onCluster} {
				if on {
					w.wish(o)
				}
			}
			if c.onCluster {
				// As everything that is watched, the wish arrives a moment later. A real Cluster stays until its pools are gone.
				w.g.Eventually(func() map[string]string { return w.pool().Annotations }).Should(HaveKey(infrav1.RetainDisksAnnotation))
			}
			if c.deleteCluster {
				w.removeCluster(m)
			} else {
				w.remove(m)
				w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
			}
			w.gone(pool)
			if !c.kept {
				w.g.Expect(w.disk(before.VolumePath)).To(BeNil(), "the disk goes with its pool")
				w.g.Expect(w.events("VSphereMachineConfigPool", infrav1.EventPersistentDisksToBeDeleted)).To(ContainElement(ContainSubstring(before.VolumePath)), "announced")
			} else {
				w.g.Expect(normal(w.disk(before.VolumePath).UUID)).To(Equal(normal(before.DiskUUID)))
				w.g.Expect(w.disk(before.VolumePath).AttachedTo).To(BeEmpty())
			}

			if c.deleteCluster {
				w.withCluster()
				w.provisioned()
			}
			w.withPool(2)
			second := w.withMachine("m2", "demo-worker")
			w.ready(second)
			if c.deleteCluster || !c.onCluster {
				w.g.Expect(w.pool().Annotations).NotTo(HaveKey(infrav1.RetainDisksAnnotation), "that was a wish of the earlier ones")
			}
			after := w.diskStatus(before.Hostname)
			w.g.Expect(after.VolumePath).To(Equal(before.VolumePath), "the path has no UID in it (decision D17)")
			if c.kept {
				w.g.Expect(normal(after.DiskUUID)).To(Equal(normal(before.DiskUUID)), "the same disk")
			} else {
				w.g.Expect(normal(after.DiskUUID)).NotTo(Equal(normal(before.DiskUUID)), "a new disk")
			}
		})
	}
}

// The Cluster's wish reaches its pools, is taken back with it, and never touches what a person wrote on a pool.
func TestClusterSpeaksForItsPools(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	w.wish(w.cluster)
	retain := func() string { return w.pool().Annotations[infrav1.RetainDisksAnnotation] }
	w.g.Eventually(retain).Should(Equal("cluster"))
	w.wish(w.pool())
	w.g.Expect(retain()).To(Equal("true"))
	w.unwish(w.cluster)
	w.g.Consistently(retain, soon).Should(Equal("true"))
	w.unwish(w.pool())
	w.wish(w.cluster)
	w.g.Eventually(retain).Should(Equal("cluster"))
	w.unwish(w.cluster)
	w.g.Eventually(retain).Should(BeEmpty())
}

// VS-R27: what was kept for one pool is not for another, even if its slots are equal to the last letter.
func TestKeptDisksAreForTheirPoolOnly(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	pool := w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) { annotate(p) })
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	before := w.diskStatus(w.slotOf(m))
	w.remove(m)
	w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
	w.gone(pool)

	w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) { p.Name = "demo-other" })
	second := w.withMachine("m2", "demo-other")
	w.ready(second)
	w.g.Expect(w.disk(before.VolumePath).AttachedTo).To(BeEmpty(), "nobody takes it")
	for path, uuid := range w.attachedTo(w.vm("m2")) {
		w.g.Expect(path).NotTo(Equal(before.VolumePath))
		w.g.Expect(uuid).NotTo(Equal(normal(before.DiskUUID)))
	}
}

// Decision D19: the annotation stops the grace period too; once it is gone, the period's end counts again (VS-D42).
func TestAnnotationStopsTheGracePeriod(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	pool := w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) {
		annotate(p)
		p.Spec.ReleaseDelayHours = ptr.To(0)
	})
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	before := w.diskStatus(w.slotOf(m))
	w.remove(m)
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(before.Hostname).State }).Should(Equal(infrav1.ConfigStateReleased))
	w.g.Consistently(func() any { return w.disk(before.VolumePath) }, soon).ShouldNot(BeNil())

	w.unwish(pool)
	w.g.Eventually(func() any { return w.disk(before.VolumePath) }).Should(BeNil())
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.slotStatus(before.Hostname).State).To(Equal(infrav1.ConfigStateAvailable))
		g.Expect(w.pool().Status.ConsumerRef).To(BeNil(), "nothing is left that belongs to anybody (VS-A5)")
	}).Should(Succeed())
}

// VS-R48: the grace period is for released slots; no value of it touches the disks of slots in use.
func TestGracePeriodSparesSlotsInUse(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	before := w.diskStatus(w.slotOf(m))
	w.g.Eventually(func() error {
		pool := w.pool()
		pool.Spec.ReleaseDelayHours = ptr.To(0)
		return k8s.Update(ctx, pool)
	}).Should(Succeed())
	w.g.Eventually(func(g Gomega) {
		pool := w.pool()
		g.Expect(pool.Status.Conditions).NotTo(BeEmpty())
		for _, c := range pool.Status.Conditions {
			if c.Type == infrav1.ReadyCondition {
				g.Expect(c.ObservedGeneration).To(Equal(pool.Generation), "the edit was looked at")
				g.Expect(c.Status).To(Equal(metav1.ConditionTrue))
			}
		}
	}).Should(Succeed())
	w.g.Expect(w.diskStatus(before.Hostname).Phase).To(Equal(infrav1.DiskPhaseAttached))
	w.g.Expect(w.attachedTo(w.vm("m1"))).To(HaveKeyWithValue(before.VolumePath, normal(before.DiskUUID)))
}
