package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/rules"
	"github.com/berth-dev/berth/internal/slot"
)

// Cluster modules keep the machines of one control plane or MachineDeployment on different hosts of a compute cluster. They are
// behind the feature gate NodeAntiAffinity (VS-V49).

// modulesSince is the first vCenter with cluster modules.
const modulesSince = 7

// moduleOwner is a control plane or MachineDeployment that should have a module.
type moduleOwner struct {
	name         string
	controlPlane bool
	// server, datacenter and pool say where its machines go.
	server, datacenter, pool string
	// spread: its machines go to several compute clusters, which no module spans.
	spread bool
	// unplaced: it exists and cannot be placed now. It gets no new module and keeps the one it has: what its machines join before
	// their first start, they never join again.
	unplaced bool
}

func (o moduleOwner) String() string {
	if o.controlPlane {
		return "KubeadmControlPlane " + o.name
	}
	return "MachineDeployment " + o.name
}

// syncModules gives every owner of machines its module and takes away those of owners that are gone. What goes wrong is said in a
// condition and keeps no cluster from being ready.
func (r *clusterReconciler) syncModules(ctx context.Context, infra, stored *infrav1.VSphereCluster, cluster *clusterv1.Cluster) error {
	if !r.nodeAntiAffinity || infra.Spec.DisableClusterModule && len(infra.Spec.ClusterModules) == 0 {
		return nil
	}
	refuse := func(reason, message string) error {
		setCondition(infra, infrav1.ClusterModulesAvailableCondition, metav1.ConditionFalse, reason, message)
		return nil
	}
	session, err := r.access.session(ctx, infra, "", "", "")
	if err != nil {
		return refuse(infrav1.ClusterModuleSetupFailedReason, err.Error())
	}
	if reason, message := modulesIn(session.Version()); reason != "" {
		return refuse(reason, message)
	}
	var owners []moduleOwner
	if !infra.Spec.DisableClusterModule {
		if owners, err = r.moduleOwners(ctx, infra, cluster); err != nil {
			return err
		}
	}
	there, err := session.Modules(ctx)
	if err != nil {
		return refuse(infrav1.ClusterModuleSetupFailedReason, err.Error())
	}
	var problems []string
	for _, o := range owners {
		if o.unplaced || o.spread || o.server != "" && o.server != infra.Spec.Server {
			continue
		}
		if err := r.ensureModule(ctx, session, infra, stored, o, there); err != nil {
			var e *machine.Error
			if !errors.As(err, &e) {
				return err
			}
			problems = append(problems, fmt.Sprintf("%s: %v", o, err))
		}
	}
	if err := r.dropModules(ctx, session, infra, stored, owners); err != nil {
		problems = append(problems, err.Error())
	}
	if len(problems) > 0 {
		return refuse(infrav1.ClusterModuleSetupFailedReason, strings.Join(problems, "; "))
	}
	setCondition(infra, infrav1.ClusterModulesAvailableCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	return nil
}

// modulesIn says why a vCenter of this version has no modules. The version comes from the server: it may be anything (VS-V50).
func modulesIn(version string) (reason, message string) {
	if version == "" {
		return infrav1.MissingVCenterVersionReason, "vCenter does not tell its version, so it is not known whether it has cluster modules"
	}
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case err != nil:
		return infrav1.MissingVCenterVersionReason, fmt.Sprintf("vCenter tells the version %q, which is none, so it is not known whether it has cluster modules", version)
	case major < modulesSince:
		return infrav1.VCenterVersionIncompatibleReason, fmt.Sprintf("vCenter %s has no cluster modules, they came with version %d: update it, or set spec.disableClusterModule", version, modulesSince)
	}
	return "", ""
}

// ensureModule finds or makes the module of an owner. Modules have no names, so none can be asked for again: its UUID is written down
// at once, and lost only if we die in between. An empty module is then left in vCenter (docs/vsphere.md says so); to take an empty
// one for ours would be a guess, as other programs make modules, too.
func (r *clusterReconciler) ensureModule(ctx context.Context, session *vsphere.Session, infra, stored *infrav1.VSphereCluster, o moduleOwner, there map[string]string) error {
	where, err := session.ClusterOf(ctx, o.datacenter, o.pool)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(infra.Spec.ClusterModules, func(m infrav1.ClusterModule) bool {
		return m.TargetObjectName == o.name && m.ControlPlane == o.controlPlane
	})
	if i >= 0 && there[infra.Spec.ClusterModules[i].ModuleUUID] == where.Ref {
		return nil
	}
	id, err := session.CreateModule(ctx, where.Ref)
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Made a cluster module", "owner", o.String(), "module", id, "computeCluster", where.Path)
	next := slices.Clone(infra.Spec.ClusterModules)
	old := ""
	if i >= 0 {
		old = next[i].ModuleUUID
		next[i].ModuleUUID = id
	} else {
		next = append(next, infrav1.ClusterModule{ControlPlane: o.controlPlane, TargetObjectName: o.name, ModuleUUID: id})
	}
	if err := r.writeModules(ctx, infra, stored, next); err != nil {
		return errors.Join(err, session.DeleteModule(ctx, id))
	}
	if old != "" {
		return session.DeleteModule(ctx, old) // its owner has moved to another compute cluster, or it was removed by hand
	}
	return nil
}

// dropModules deletes the modules of owners that are gone.
func (r *clusterReconciler) dropModules(ctx context.Context, session *vsphere.Session, infra, stored *infrav1.VSphereCluster, owners []moduleOwner) error {
	var keep []infrav1.ClusterModule
	var errs []error
	for _, m := range infra.Spec.ClusterModules {
		wanted := slices.ContainsFunc(owners, func(o moduleOwner) bool {
			return o.name == m.TargetObjectName && o.controlPlane == m.ControlPlane && !o.spread
		})
		if !wanted {
			err := session.DeleteModule(ctx, m.ModuleUUID)
			if err == nil {
				continue
			}
			errs = append(errs, err)
		}
		keep = append(keep, m)
	}
	if len(keep) != len(infra.Spec.ClusterModules) {
		errs = append(errs, r.writeModules(ctx, infra, stored, keep))
	}
	return errors.Join(errs...)
}

// writeModules records the modules in the spec, where the published API has them.
func (r *clusterReconciler) writeModules(ctx context.Context, infra, stored *infrav1.VSphereCluster, modules []infrav1.ClusterModule) error {
	next := stored.DeepCopy()
	next.Spec.ClusterModules = modules
	if err := r.client.Patch(ctx, next, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("recording the cluster modules of VSphereCluster %s: %w", client.ObjectKeyFromObject(infra), err)
	}
	r.latest.wrote(next)
	infra.Spec.ClusterModules = modules
	infra.ObjectMeta, stored.ObjectMeta = *next.ObjectMeta.DeepCopy(), *next.ObjectMeta.DeepCopy()
	stored.Spec = *next.Spec.DeepCopy()
	return nil
}

// moduleOwners lists the control plane and the MachineDeployments of a cluster.
func (r *clusterReconciler) moduleOwners(ctx context.Context, infra *infrav1.VSphereCluster, cluster *clusterv1.Cluster) ([]moduleOwner, error) {
	var out []moduleOwner
	controlPlane, err := r.controlPlane(ctx, infra.Namespace, cluster)
	if err != nil {
		return nil, err
	}
	if controlPlane != nil && controlPlane.GetDeletionTimestamp().IsZero() {
		o := moduleOwner{name: controlPlane.GetName(), controlPlane: true, spread: infra.Spec.FailureDomainSelector != nil}
		if consumer, err := rules.ConsumerOf(controlPlane); err != nil || !rules.UsesVSphere(consumer) {
			o.unplaced = true
		} else if err := r.place(ctx, infra.Namespace, consumer.TemplateName, "", &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	list := &clusterv1.MachineDeploymentList{}
	if err := r.client.List(ctx, list, client.InNamespace(infra.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	for i := range list.Items {
		md := &list.Items[i]
		spec := md.Spec.Template.Spec
		if md.Spec.ClusterName != cluster.Name || !md.DeletionTimestamp.IsZero() {
			continue
		}
		o := moduleOwner{name: md.Name}
		if ref := spec.InfrastructureRef; ref.Kind != "VSphereMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
			o.unplaced = true
		} else if err := r.place(ctx, infra.Namespace, ref.Name, spec.FailureDomain, &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// place fills in where an owner's machines go: the zone's word before the template's. The owner is unplaced while either is
// missing: people delete and create templates anew, and a restore brings objects in any order.
func (r *clusterReconciler) place(ctx context.Context, namespace, template, zoneName string, o *moduleOwner) error {
	missing := func(err error) error {
		o.unplaced = true
		return client.IgnoreNotFound(err)
	}
	t := &infrav1.VSphereMachineTemplate{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: template}, t); err != nil {
		return missing(err)
	}
	spec := t.Spec.Template.Spec.VirtualMachineCloneSpec
	if zoneName != "" {
		zone, domain := &infrav1.VSphereDeploymentZone{}, &infrav1.VSphereFailureDomain{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: zoneName}, zone); err != nil {
			return missing(err)
		}
		if err := r.client.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, domain); err != nil {
			return missing(err)
		}
		mergePlacement(&spec, newPlacement(*zone, *domain))
	}
	o.server, o.datacenter, o.pool = spec.Server, spec.Datacenter, spec.ResourcePool
	return nil
}

// releaseModules deletes all modules of a cluster that goes.
func (r *clusterReconciler) releaseModules(ctx context.Context, infra, stored *infrav1.VSphereCluster) error {
	if len(infra.Spec.ClusterModules) == 0 {
		return nil
	}
	session, err := r.access.session(ctx, infra, "", "", "")
	if err == nil {
		err = r.dropModules(ctx, session, infra, stored, nil)
	}
	if err != nil {
		// An empty module hurts nobody, a cluster that cannot be deleted does.
		ctrl.LoggerFrom(ctx).Info("Cluster modules may be left in vCenter", "modules", infra.Spec.ClusterModules, "error", err.Error())
	}
	return nil
}

// ofDeployment wakes the VSphereCluster whose MachineDeployment has come or gone.
func (r *clusterReconciler) ofDeployment(ctx context.Context, obj client.Object) []reconcile.Request {
	name := obj.(*clusterv1.MachineDeployment).Spec.ClusterName
	return r.where(ctx, obj.GetNamespace(), func(c *infrav1.VSphereCluster) bool {
		return ownerClusterName(c) == name || c.Labels[clusterv1.ClusterNameLabel] == name
	})
}

// findModule notes which module a machine's virtual machine joins.
func (r *machineReconciler) findModule(ctx context.Context, s *scope) error {
	if s.infra == nil || len(s.infra.Spec.ClusterModules) == 0 || s.infra.Spec.DisableClusterModule || s.owner == nil {
		return nil
	}
	consumer, err := r.consumer(ctx, s)
	if err == nil {
		s.module = moduleOf(s.infra, consumer)
	}
	return err
}

func moduleOf(infra *infrav1.VSphereCluster, consumer *slot.Consumer) string {
	if consumer == nil {
		return ""
	}
	for _, m := range infra.Spec.ClusterModules {
		if m.TargetObjectName == consumer.Name && m.ControlPlane == (consumer.Kind == rules.KindKubeadmControlPlane) {
			return m.ModuleUUID
		}
	}
	return ""
}

// leaver is a session that takes a virtual machine out of its module right before it is destroyed, when it is off and nothing is in
// the way any more: one that stays runs on, and needs its module. A module is no reason to keep one.
type leaver struct {
	*vsphere.Session
	journal *journal
}

// leaving makes the platform of a deletion leave the module. Anything but a session, such as none, stays as it is.
func leaving(platform machine.Platform, j *journal) machine.Platform {
	if session, ok := platform.(*vsphere.Session); ok && session != nil {
		return leaver{session, j}
	}
	return platform
}

// Destroy implements machine.Platform.
func (l leaver) Destroy(ctx context.Context, server *machine.Server) (machine.Operation, error) {
	vm := l.journal.vm
	if vm != nil && ptr.Deref(vm.Status.ModuleUUID, "") != "" && vm.Status.VMRef != "" {
		module := *vm.Status.ModuleUUID
		if err := l.LeaveModule(ctx, module, vm.Status.VMRef); err != nil {
			ctrl.LoggerFrom(ctx).Info("Cannot take the virtual machine out of its cluster module", "module", module, "error", err.Error())
		} else {
			l.journal.left = true
		}
	}
	return l.Session.Destroy(ctx, server)
}

// controlPlane reads the KubeadmControlPlane of a cluster, nil if there is none (yet).
func (r *clusterReconciler) controlPlane(ctx context.Context, namespace string, cluster *clusterv1.Cluster) (*unstructured.Unstructured, error) {
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != rules.KindKubeadmControlPlane {
		return nil, nil
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(controlPlanes)
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, out); err != nil {
		if unknownKind(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading KubeadmControlPlane %s: %w", ref.Name, err)
	}
	return out, nil
}
