package vsphere

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// delete runs one pass towards absence. It needs no Cluster, no Machine and no bootstrap Secret, only the way to vCenter.
func (r *machineReconciler) delete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	if s.mark() == "" {
		// Without a mark nothing was ever asked of vCenter or of a pool.
		return ctrl.Result{}, r.letGo(ctx, s)
	}
	r.alarm.set(s.mark(), client.ObjectKeyFromObject(s.machine))

	life, _, _, err := r.life(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	life.Guards = nil
	if key, pooled := s.poolKey(); pooled {
		life.Places = r.pools.writer(key)
	}
	if err := r.recall(ctx, s, life); err != nil {
		return ctrl.Result{}, err
	}
	var after time.Duration
	if life.Platform == nil && life.Notes.Intended {
		guard, pause, err := r.platform(ctx, s, life)
		if err != nil {
			return ctrl.Result{}, err
		}
		if guard != nil {
			life.Guards, after = []machine.Guard{*guard}, pause
		}
	}
	if s.vm != nil && s.vm.DeletionTimestamp.IsZero() {
		if err := r.client.Delete(ctx, s.vm.DeepCopy(), client.Preconditions{UID: &s.vm.UID}); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("deleting VSphereVM %s: %w", s.vm.Name, err)
		}
		// The journal writes with the version it has read: read the one that the deletion made.
		vm := &infrav1.VSphereVM{}
		if err := r.reader.Get(ctx, client.ObjectKeyFromObject(s.vm), vm); err != nil {
			return ctrl.Result{}, fmt.Errorf("reading VSphereVM %s: %w", s.vm.Name, err)
		}
		r.latest.wrote(vm)
		s.vm = vm
		life.Journal.(*journal).vm = vm
	}
	life.Platform = leaving(life.Platform, life.Journal.(*journal))
	report := r.engine.Delete(ctx, life)
	s.vm = life.Journal.(*journal).vm
	r.publish(s.machine, report.Events)
	if report.Outcome == machine.Done {
		return ctrl.Result{}, r.letGo(ctx, s)
	}
	if report.Unchanged {
		return r.result(ctx, report)
	}
	setMachineStatus(s, report, true)
	r.warn(s, report)
	if err := r.patchStatus(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if after > 0 {
		report.After = after
	}
	return r.result(ctx, report)
}

// recall notes, for a machine whose VSphereVM is missing, that a virtual machine may exist all the same: it had one once, it has a
// slot that was not given back, or it was about to ask for one without a slot. The VSphereVM may have been removed by force; then
// its absence proves nothing, and the virtual machine is looked for by its mark. Unless the machine was complete once, a clone may
// still run: nothing is believed absent before none does, and not in the first moments of the deletion.
func (r *machineReconciler) recall(ctx context.Context, s *scope, life *machine.Life) error {
	if s.vm != nil {
		return nil
	}
	complete := s.machine.Spec.ProviderID != nil
	had := complete || s.machine.Annotations[infrav1.RequestedAnnotation] != ""
	if key, pooled := s.poolKey(); pooled {
		slot, err := r.pools.slotOf(ctx, key, string(s.mark()))
		if err != nil {
			return err
		}
		if slot != nil && slot.VacatedTime != nil {
			return nil // it was proven gone before that was written
		}
		had = had || slot != nil
	}
	if !had {
		return nil
	}
	life.Notes.Intended, life.Notes.CreateEnded = true, complete
	if !complete {
		life.Notes.AbsentSince = &life.DeletedAt
	}
	life.Notes.Identity.Name, life.Notes.Identity.Location = s.machine.Name, s.machine.Spec.Datacenter
	if id := s.machine.Spec.ProviderID; id != nil {
		life.Notes.Identity.HardwareID = strings.TrimPrefix(*id, providerID(""))
	}
	return nil
}

// request notes on a machine without a pool that a virtual machine is about to be asked for.
func (r *machineReconciler) request(ctx context.Context, s *scope) error {
	if _, pooled := s.poolKey(); pooled || s.vm != nil || s.machine.Annotations[infrav1.RequestedAnnotation] != "" {
		return nil
	}
	before := s.machine.DeepCopy()
	setAnnotation(s.machine, infrav1.RequestedAnnotation, "true")
	if err := r.patch(ctx, s, before); err != nil {
		return fmt.Errorf("noting that a virtual machine is asked for: %w", err)
	}
	return nil
}

// letGo takes the finalizers off: the virtual machine is proven gone and the place given back. The VSphereVM goes first, so
// that it is never left without its machine.
func (r *machineReconciler) letGo(ctx context.Context, s *scope) error {
	// A failure domain's pools are in the VSphereVM alone. Where that is gone, only the claims tell.
	if name, err := vmName(s.machine); err == nil && (s.vm == nil || claimsAddresses(s.vm)) {
		if err := releaseClaims(ctx, r.client, r.reader, s.machine.Namespace, s.clusterName(), name); err != nil {
			return err
		}
	}
	if s.vm != nil {
		if err := removeFinalizer(ctx, r.client, s.vm, infrav1.VMFinalizer); err != nil {
			return err
		}
		r.latest.released(s.vm)
		if s.vm.DeletionTimestamp.IsZero() {
			if err := r.client.Delete(ctx, s.vm); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting VSphereVM %s: %w", s.vm.Name, err)
			}
		}
	}
	if err := removeFinalizer(ctx, r.client, s.machine, infrav1.MachineFinalizer); err != nil {
		return err
	}
	r.latest.released(s.machine)
	r.alarm.forget(s.mark())
	r.versions.forget(s.mark())
	return nil
}

func removeFinalizer(ctx context.Context, c client.Client, obj client.Object, finalizer string) error {
	before := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(obj, finalizer) {
		return nil
	}
	if err := c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer from %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vsphereclusters,verbs=get;list;watch

// orphanReconciler cleans up VSphereVMs whose VSphereMachine is gone, for example because its finalizer was removed by hand.
// It does nothing else: while the VSphereMachine lives, its reconciler is the only one to touch the VSphereVM.
type orphanReconciler struct {
	*machineReconciler
	recorder events.EventRecorder
	alarm    *alarm
}

// Reconcile implements reconcile.Reconciler.
func (r *orphanReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm := &infrav1.VSphereVM{}
	if err := r.client.Get(ctx, req.NamespacedName, vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	mark := machine.Mark(vm.Annotations[infrav1.MarkAnnotation])
	if mark == "" || !controllerutil.ContainsFinalizer(vm, infrav1.VMFinalizer) {
		return ctrl.Result{}, nil
	}
	if r.ownerShows(ctx, vm, mark) {
		return ctrl.Result{}, nil
	}
	// The decision to destroy is made on fresh reads only. The object itself comes first: most that get here have just been let
	// go, and to list all machines for each of them would cost the square of their number.
	if err := r.reader.Get(ctx, req.NamespacedName, vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if vm.Annotations[infrav1.MarkAnnotation] != string(mark) || !controllerutil.ContainsFinalizer(vm, infrav1.VMFinalizer) {
		return ctrl.Result{}, nil // what comes after it wakes us anew
	}
	alive, err := r.machineAlive(ctx, vm.Namespace, mark)
	if err != nil || alive {
		return ctrl.Result{}, err
	}
	stand := &infrav1.VSphereMachine{}
	stand.Namespace, stand.Name, stand.Labels = vm.Namespace, vm.Name, vm.Labels
	stand.Annotations = map[string]string{infrav1.MarkAnnotation: string(mark)}
	s := &scope{machine: stand, stored: stand, vm: vm}
	if s.infra, err = findVSphereCluster(ctx, r.client, vm.Namespace, s.clusterName(), nil); err != nil {
		return ctrl.Result{}, err
	}
	if setPaused(vm.DeepCopy(), nil) {
		return ctrl.Result{}, nil
	}
	pool, err := r.pools.holding(ctx, vm.Namespace, s.clusterName(), string(mark))
	if err != nil {
		return ctrl.Result{}, err
	}
	if vm.DeletionTimestamp.IsZero() {
		ctrl.LoggerFrom(ctx).Info("Deleting an orphaned VSphereVM: its VSphereMachine is gone")
		return ctrl.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, vm))
	}
	r.alarm.set(mark, req.NamespacedName)
	life := &machine.Life{
		Mark: mark, Name: req.String(), Notes: notesOf(vm, mark), PowerOff: powerOff(s), DeletedAt: vm.DeletionTimestamp.Time,
		Journal: &journal{client: r.client, latest: r.latest, machine: stand, vm: vm},
	}
	life.Request.Holder = s.holder()
	if pool != nil {
		life.Places = r.pools.writer(*pool)
	}
	guard, after, err := r.platform(ctx, s, life)
	if err != nil {
		return ctrl.Result{}, err
	}
	if guard != nil {
		life.Guards = []machine.Guard{*guard}
	}
	life.Platform = leaving(life.Platform, life.Journal.(*journal))
	report := r.engine.Delete(ctx, life)
	s.vm = life.Journal.(*journal).vm
	publish(r.recorder, s.vm, report.Events)
	if report.Outcome == machine.Done {
		if claimsAddresses(s.vm) {
			if err := releaseClaims(ctx, r.client, r.reader, vm.Namespace, s.clusterName(), vm.Name); err != nil {
				return ctrl.Result{}, err
			}
		}
		r.alarm.forget(mark)
		return ctrl.Result{}, removeFinalizer(ctx, r.client, s.vm, infrav1.VMFinalizer)
	}
	if after > 0 {
		report.After = after
	}
	return r.result(ctx, report)
}

// ownerShows says whether the cache has the VSphereMachine that owns a VSphereVM and carries the mark.
func (r *machineReconciler) ownerShows(ctx context.Context, vm *infrav1.VSphereVM, mark machine.Mark) bool {
	for _, ref := range vm.OwnerReferences {
		if ref.Kind != "VSphereMachine" {
			continue
		}
		owner := &infrav1.VSphereMachine{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: ref.Name}, owner)
		if err == nil && owner.Annotations[infrav1.MarkAnnotation] == string(mark) {
			return true
		}
	}
	return false
}

// machineAlive says whether any VSphereMachine of the namespace carries the mark, by a live read.
func (r *machineReconciler) machineAlive(ctx context.Context, namespace string, mark machine.Mark) (bool, error) {
	list := &infrav1.VSphereMachineList{}
	if err := r.reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing VSphereMachines: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Annotations[infrav1.MarkAnnotation] == string(mark) {
			return true, nil
		}
	}
	return false, nil
}
