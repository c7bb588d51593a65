package vsphere_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// moved are the kinds that a move takes along, owners first.
var moved = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Secret"),
	clusterv1.GroupVersion.WithKind("Cluster"),
	infrav1.GroupVersion.WithKind("VSphereCluster"),
	infrav1.GroupVersion.WithKind("VSphereMachineConfigPool"),
	clusterv1.GroupVersion.WithKind("MachineSet"),
	clusterv1.GroupVersion.WithKind("Machine"),
	infrav1.GroupVersion.WithKind("VSphereMachine"),
	infrav1.GroupVersion.WithKind("VSphereVM"),
}

// move does to the cluster what `clusterctl move` does: it pauses, copies every object without its status, deletes the
// originals without regard to finalizers, dependents first, creates the copies with new UIDs and unpauses. The API server is the
// same one. A copy is never made while an object asks to wait for it.
func (w *world) move() {
	w.t.Helper()
	w.pause(true)
	w.g.Eventually(func(g Gomega) {
		for _, gvk := range moved {
			for _, o := range w.list(g, gvk) {
				g.Expect(o.GetAnnotations()).NotTo(HaveKey("clusterctl.cluster.x-k8s.io/block-move"), "%s %s", gvk.Kind, o.GetName())
			}
		}
	}).Should(Succeed())
	copies := map[string][]unstructured.Unstructured{}
	for _, gvk := range moved {
		copies[gvk.Kind] = w.list(w.g, gvk)
	}
	for i := range moved {
		for _, o := range copies[moved[len(moved)-1-i].Kind] {
			// clusterctl's mark takes the place of all other annotations.
			w.g.Expect(k8s.Patch(ctx, o.DeepCopy(), client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op": "add", "path": "/metadata/annotations", "value": {"`+infrav1.DeleteForMoveAnnotation+`": ""}}]`)))).To(Succeed())
			w.g.Expect(k8s.Delete(ctx, o.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
			w.g.Eventually(func() error {
				gone := o.DeepCopy()
				// The garbage collector of a real cluster takes the finalizer "orphan" off.
				_ = k8s.Patch(ctx, gone, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`)))
				return k8s.Get(ctx, client.ObjectKeyFromObject(gone), gone)
			}).ShouldNot(Succeed())
		}
	}
	uids := map[types.UID]types.UID{}
	for _, gvk := range moved {
		for _, o := range copies[gvk.Kind] {
			was := o.GetUID()
			for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			unstructured.RemoveNestedField(o.Object, "status")
			owners := o.GetOwnerReferences()
			for i := range owners {
				if uid, known := uids[owners[i].UID]; known {
					owners[i].UID = uid
				}
			}
			o.SetOwnerReferences(owners)
			w.g.Expect(k8s.Create(ctx, &o)).To(Succeed())
			w.g.Expect(o.GetUID()).NotTo(Equal(was))
			uids[was] = o.GetUID()
		}
	}
	for _, o := range []client.Object{w.cluster, w.infra} {
		w.g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	}
	w.pause(false)
	w.provisioned()
}

func (w *world) pause(on bool) {
	w.t.Helper()
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(w.cluster), w.cluster); err != nil {
			return err
		}
		w.cluster.Spec.Paused = ptr.To(on)
		return k8s.Update(ctx, w.cluster)
	}).Should(Succeed())
}

func (w *world) list(g Gomega, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	g.Expect(k8s.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
	return list.Items
}

// Promise 5, decisions D16, D17: after a move, every machine is known again in its place with its disks, and vCenter is asked to
// make nothing. A slot that somebody waits to leave is not given away, and one that is released has its data still.
func TestMoveFindsEverythingAgain(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(4)
	var machines []*infrav1.VSphereMachine
	for _, name := range []string{"m1", "m2", "m3", "m4"} {
		m := w.withMachine(name, "demo-worker")
		w.ready(m)
		machines = append(machines, m)
	}
	released, vacating := machines[2], machines[3]
	leftBehind := w.diskStatus(w.slotOf(released))
	w.g.Expect(k8s.Delete(ctx, released)).To(Succeed())
	w.gone(released)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(released))).To(Succeed())
	w.g.Eventually(func() infrav1.ConfigState { return w.slotStatus(w.slotOf(released)).State }).Should(Equal(infrav1.ConfigStateReleased))
	w.g.Expect(k8s.Delete(ctx, vacating)).To(Succeed())
	w.gone(vacating)

	before, effects, world := w.pool(), w.effects(), w.vcenter.World()
	w.move()
	for _, m := range machines[:2] {
		mark, slot := m.Annotations[infrav1.MarkAnnotation], w.slotOf(m)
		w.ready(m)
		w.g.Expect(m.Annotations).To(HaveKeyWithValue(infrav1.MarkAnnotation, mark))
		w.g.Expect(string(m.UID)).NotTo(Equal(mark), "the object is another one")
		w.g.Expect(w.slotOf(m)).To(Equal(slot))
	}
	w.g.Eventually(func(g Gomega) {
		after := w.pool()
		g.Expect(after.Status.Allocated).To(BeNumerically(">=", 2))
		for i, old := range before.Status.ConfigStatuses[:2] {
			now := after.Status.ConfigStatuses[i]
			g.Expect(now.Hostname).To(Equal(old.Hostname))
			g.Expect(now.State).To(Equal(infrav1.ConfigStateInUse))
			g.Expect(now.Mark).To(Equal(old.Mark))
			g.Expect(now.MachineRef.Name).To(Equal(old.MachineRef.Name))
		}
		for _, old := range before.Status.PersistentDiskStatuses {
			g.Expect(after.Status.PersistentDiskStatuses).To(ContainElement(And(
				HaveField("Hostname", old.Hostname), HaveField("Name", old.Name), HaveField("VolumePath", old.VolumePath),
				HaveField("DiskUUID", old.DiskUUID), HaveField("Phase", old.Phase),
			)), "%+v", after.Status.PersistentDiskStatuses)
		}
	}).Should(Succeed())
	w.g.Expect(w.effects()).To(Equal(effects), "nothing is made, changed or deleted")
	w.g.Expect(refs(w.vcenter.World())).To(Equal(refs(world)))

	// Somebody new gets the released place, and its data.
	next := w.withMachine("m5", "demo-worker")
	w.ready(next)
	w.g.Expect(w.slotOf(next)).To(Equal(leftBehind.Hostname))
	w.g.Expect(w.diskStatus(leftBehind.Hostname).VolumePath).To(Equal(leftBehind.VolumePath))
	w.g.Expect(normal(w.diskStatus(leftBehind.Hostname).DiskUUID)).To(Equal(normal(leftBehind.DiskUUID)))
}

// refs are the virtual machines that exist and whether they run.
func refs(world *vcenter.World) map[string]string {
	all := map[string]string{}
	for _, vm := range world.VMs {
		all[vm.Ref] = vm.Power
	}
	return all
}

// Decision D16: while a clone is under way the VSphereVM holds up a move; once it is known what became of the clone, the move
// goes on and the virtual machine is not made twice.
func TestMoveWaitsForTheClone(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(1)
	w.g.Expect(w.vcenter.Admin().Inject(ctx, vcenter.Fault{Kind: vcenter.FaultDelay, Method: "CloneVM_Task", Delay: soon, Count: 1})).To(Succeed())
	m := w.withMachine("m1", "demo-worker")
	w.g.Eventually(func(g Gomega) {
		vms := w.list(g, infrav1.GroupVersion.WithKind("VSphereVM"))
		g.Expect(vms).To(HaveLen(1))
		g.Expect(vms[0].GetAnnotations()).To(HaveKey("clusterctl.cluster.x-k8s.io/block-move"))
	}).Should(Succeed())
	w.move()
	w.ready(m)
	w.g.Expect(w.vms()).To(Equal(1))
	w.g.Expect(w.effects()["CloneVM_Task"]).To(BeEquivalentTo(1))
	w.g.Expect(w.vm("m1").InstanceUUID).To(Equal(m.Annotations[infrav1.MarkAnnotation]))
}

// A management cluster that a cluster was moved away from does not stay logged in for it.
func TestNobodyStaysLoggedInForAMovedCluster(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.g.Expect(w.sessions()).To(Equal(1))
	w.pause(true)
	w.g.Expect(k8s.Patch(ctx, w.infra, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/metadata/annotations", "value": {"`+infrav1.DeleteForMoveAnnotation+`": ""}}]`)))).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, w.infra)).To(Succeed())
	w.g.Expect(k8s.Patch(ctx, w.infra, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`)))).To(Succeed())
	w.gone(w.infra)
	w.g.Eventually(w.sessions).Should(BeZero())
}
