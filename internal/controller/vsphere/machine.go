package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
)

// machineReconciler drives the life of VSphereMachines: it builds a machine.Life from API objects, lets the engine carry it as
// far as it goes in one pass, and says in status where that is.
type machineReconciler struct {
	client   client.Client
	reader   client.Reader // live
	latest   *latest
	engine   *machine.Engine
	access   *access
	pools    *pools
	nodes    *nodes
	alarm    *alarm
	queue    *queue
	recorder events.EventRecorder
	versions versions
}

// scope is what one pass knows of a machine and its surroundings. During deletion everything but the machine may be nil.
type scope struct {
	machine *infrav1.VSphereMachine
	// stored is the machine as the API server has it; patches are made against it.
	stored  *infrav1.VSphereMachine
	owner   *clusterv1.Machine
	cluster *clusterv1.Cluster
	infra   *infrav1.VSphereCluster
	vm      *infrav1.VSphereVM
	place   *placement
	// module is the cluster module that the virtual machine joins, "" for none.
	module string
}

func (s *scope) mark() machine.Mark {
	return machine.Mark(s.machine.Annotations[infrav1.MarkAnnotation])
}

// clusterName works without a Cluster: the label is ours since the first pass.
func (s *scope) clusterName() string {
	switch {
	case s.cluster != nil:
		return s.cluster.Name
	case s.owner != nil:
		return s.owner.Spec.ClusterName
	default:
		return s.machine.Labels[clusterv1.ClusterNameLabel]
	}
}

// poolKey of the machine; ok is false when it names none.
func (s *scope) poolKey() (key types.NamespacedName, ok bool) {
	ref := s.machine.Spec.MachineConfigPoolRef
	if ref == nil {
		return key, false
	}
	return types.NamespacedName{Namespace: s.machine.Namespace, Name: ref.Name}, true
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachines;vspherevms,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachines/status;vspherevms/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachines/finalizers;vspherevms/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=vspheremachinetemplates,verbs=get;list;watch

// Reconcile implements reconcile.Reconciler.
func (r *machineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &infrav1.VSphereMachine{}
	if err := r.latest.get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if setPaused(s.machine, s.cluster) {
		return ctrl.Result{}, r.patchStatus(ctx, s)
	}
	if !m.DeletionTimestamp.IsZero() {
		return r.delete(ctx, s)
	}
	if s.owner == nil {
		if s.machine.Spec.ProviderID != nil {
			// It runs, and its Machine has gone without it: nothing about the virtual machine has changed. Whoever removes Machines
			// removes it too, or gives it a new one.
			return ctrl.Result{}, r.patchStatus(ctx, s)
		}
		setMachineStatus(s, machine.Report{Result: machine.Result{
			Outcome: machine.Wait, Reason: infrav1.WaitingForOwnerMachineReason,
			Message: "no Machine owns this object yet; Cluster API sets the owner reference",
		}}, true)
		return ctrl.Result{}, r.patchStatus(ctx, s)
	}
	if err := r.adopt(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return r.create(ctx, s)
}

// scope reads what surrounds a machine. What is missing stays nil: deletion must work without it, creation asks for it.
func (r *machineReconciler) scope(ctx context.Context, m *infrav1.VSphereMachine) (*scope, error) {
	s := &scope{machine: m, stored: m.DeepCopy()}
	var err error
	if s.owner, err = r.ownerOf(ctx, m); err != nil {
		return nil, err
	}
	if name := s.clusterName(); name != "" {
		cluster := &clusterv1.Cluster{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, cluster)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
		} else if err == nil {
			s.cluster = cluster
		}
		if s.infra, err = findVSphereCluster(ctx, r.client, m.Namespace, name, s.cluster); err != nil {
			return nil, err
		}
	}
	return s, r.findVM(ctx, s)
}

// ownerOf reads the Machine that owns a machine, nil if there is none. One that is named and not in the cache may just have been
// created: only the server knows.
func (r *machineReconciler) ownerOf(ctx context.Context, m *infrav1.VSphereMachine) (*clusterv1.Machine, error) {
	i := slices.IndexFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Machine" && strings.HasPrefix(ref.APIVersion, clusterv1.GroupVersion.Group+"/")
	})
	if i < 0 {
		return nil, nil
	}
	owner, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: m.Namespace, Name: m.OwnerReferences[i].Name}
	err := r.latest.get(ctx, key, owner)
	if apierrors.IsNotFound(err) {
		err = r.reader.Get(ctx, key, owner)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the owner Machine %s: %w", key, err)
	}
	return owner, nil
}

// findVM reads the machine's VSphereVM. One of the same name that belongs to somebody else is left for Intend to report.
func (r *machineReconciler) findVM(ctx context.Context, s *scope) error {
	name, err := vmName(s.machine)
	if err != nil {
		// Intend says it to the user; there is no VSphereVM under a name that cannot be made.
		return nil //nolint:nilerr // see above
	}
	vm := &infrav1.VSphereVM{}
	if err := r.latest.get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: name}, vm); err != nil {
		return client.IgnoreNotFound(err)
	}
	if mark := s.mark(); mark != "" && vm.Annotations[infrav1.MarkAnnotation] == string(mark) {
		s.vm = vm
	}
	return nil
}

// findVSphereCluster finds the VSphereCluster of a Cluster that may be gone already; nil if there is none.
func findVSphereCluster(ctx context.Context, c client.Reader, namespace, clusterName string, cluster *clusterv1.Cluster) (*infrav1.VSphereCluster, error) {
	if cluster != nil && cluster.Spec.InfrastructureRef.IsDefined() {
		infra := &infrav1.VSphereCluster{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Spec.InfrastructureRef.Name}, infra)
		if err == nil {
			return infra, nil
		}
		return nil, client.IgnoreNotFound(err)
	}
	list := &infrav1.VSphereClusterList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing VSphereClusters: %w", err)
	}
	for i := range list.Items {
		infra := &list.Items[i]
		if infra.Labels[clusterv1.ClusterNameLabel] == clusterName {
			return infra, nil
		}
		for _, ref := range infra.OwnerReferences {
			if ref.Kind == "Cluster" && ref.Name == clusterName {
				return infra, nil
			}
		}
	}
	return nil, nil
}

// adopt writes finalizer, mark and label in one patch, before anything happens outside the API server.
func (r *machineReconciler) adopt(ctx context.Context, s *scope) error {
	m := s.machine
	before := m.DeepCopy()
	changed := controllerutil.AddFinalizer(m, infrav1.MachineFinalizer)
	if m.Annotations[infrav1.MarkAnnotation] == "" {
		setAnnotation(m, infrav1.MarkAnnotation, string(m.UID))
		changed = true
	}
	if m.Labels[clusterv1.ClusterNameLabel] == "" {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[clusterv1.ClusterNameLabel] = s.clusterName()
		changed = true
	}
	if !changed {
		return nil
	}
	if err := r.patch(ctx, s, before); err != nil {
		return fmt.Errorf("adding finalizer and mark: %w", err)
	}
	return r.findVM(ctx, s)
}

// create runs one pass towards ready.
func (r *machineReconciler) create(ctx context.Context, s *scope) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(s.machine)
	r.alarm.set(s.mark(), key)

	life, guarded, after, err := r.life(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if guarded && life.Notes.Ready {
		// A machine that runs is not unready because we cannot look at it: health checks would replace a good node. What is
		// in the way is on the VSphereCluster.
		return ctrl.Result{RequeueAfter: after}, r.patchStatus(ctx, s)
	}
	if !guarded {
		if err := r.request(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	poolKey, pooled := s.poolKey()
	tick := r.queue.tick(poolKey)
	report := r.engine.Create(ctx, life)
	s.vm = life.Journal.(*journal).vm
	r.publish(s.machine, report.Events)
	if report.Unchanged {
		return r.result(ctx, report)
	}
	report = placed(report, s.vm)
	if report.Ready {
		if err := r.setProviderID(ctx, s, report); err != nil {
			return ctrl.Result{}, err
		}
		// The generation has changed: say so now, or the next pass would need another write for it.
		setPaused(s.machine, s.cluster)
		r.warnOfVersion(s)
	}
	if report.Reason == machine.ReasonNoAvailableSlots {
		if why := r.ownersFault(ctx, life.Request.Consumer); why != "" {
			report.Message += ". " + why
		}
	}
	setMachineStatus(s, report, guarded)
	r.warn(s, report)
	if err := r.patchStatus(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.labelHost(ctx, s, report.Server); err != nil {
		return ctrl.Result{}, err
	}
	if pooled && !guarded && waitsForPool(report) && !r.queue.wait(poolKey, key, tick) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	if guarded {
		report.After = after
	}
	return r.result(ctx, report)
}

// result turns a report into what the queue does next. Waits end by events; After is the safety net.
func (r *machineReconciler) result(ctx context.Context, report machine.Report) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx).WithValues("phase", report.Phase, "reason", report.Reason)
	switch {
	case report.Outcome == machine.Done:
		return ctrl.Result{RequeueAfter: report.After}, nil
	case report.Err != nil && (apierrors.IsConflict(report.Err) || apierrors.IsNotFound(report.Err)):
		// Somebody wrote in between, or our read was old: the next pass starts from a fresh one.
		log.V(2).Info("Pass ended by a concurrent write", "error", report.Err.Error())
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	case report.Outcome == machine.Fail:
		log.Info("Pass failed", "message", report.Message, "error", errorText(report.Err), "retryAfter", report.After)
		if report.After > 0 {
			return ctrl.Result{RequeueAfter: report.After}, nil
		}
		if report.Err == nil {
			report.Err = fmt.Errorf("%s: %s", report.Reason, report.Message)
		}
		return ctrl.Result{}, report.Err
	default:
		log.V(2).Info("Waiting", "message", report.Message, "after", report.After)
		return ctrl.Result{RequeueAfter: report.After}, nil
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// waitsForPool says whether a change of the pool may end the wait.
func waitsForPool(report machine.Report) bool {
	if report.Outcome == machine.Done {
		return false
	}
	switch report.Reason {
	case machine.ReasonDisksProvisioning, machine.ReasonDiskStillAttached, machine.ReasonDiskError, machine.ReasonPlaceUnknown:
		return true
	}
	return report.Place == nil
}

// setProviderID writes what Cluster API reads after status says provisioned: it goes first.
func (r *machineReconciler) setProviderID(ctx context.Context, s *scope, report machine.Report) error {
	if s.vm == nil || s.vm.Spec.BiosUUID == "" {
		return fmt.Errorf("VSphereMachine %s/%s is ready without a BIOS UUID", s.machine.Namespace, s.machine.Name)
	}
	id := providerID(s.vm.Spec.BiosUUID)
	if s.machine.Spec.ProviderID != nil && *s.machine.Spec.ProviderID == id {
		return nil
	}
	before := s.machine.DeepCopy()
	s.machine.Spec.ProviderID = &id
	if report.Place != nil {
		setAnnotation(s.machine, infrav1.SlotHostnameAnnotation, report.Place.HostName)
	}
	if err := r.patch(ctx, s, before); err != nil {
		return fmt.Errorf("writing spec.providerID: %w", err)
	}
	return nil
}

// patch writes metadata and spec of the machine and keeps the status that this pass has made so far.
func (r *machineReconciler) patch(ctx context.Context, s *scope, before *infrav1.VSphereMachine) error {
	status := s.machine.Status.DeepCopy()
	if err := r.client.Patch(ctx, s.machine, client.MergeFrom(before)); err != nil {
		return err
	}
	r.latest.wrote(s.machine)
	s.stored = s.machine.DeepCopy()
	s.machine.Status = *status
	return nil
}

// holder identifies the machine to its pool.
func (s *scope) holder() slot.Holder {
	h := slot.Holder{Name: s.machine.Name, UID: string(s.machine.UID), Mark: string(s.mark())}
	if s.owner != nil {
		h.OwnerName, h.OwnerUID = s.owner.Name, string(s.owner.UID)
	}
	return h
}

func (r *machineReconciler) publish(m client.Object, list []machine.Event) {
	publish(r.recorder, m, list)
}
