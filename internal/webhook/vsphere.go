package webhook

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

func setupPool(mgr ctrl.Manager, w judge.World) error {
	mgr.GetWebhookServer().Register(pathPoolEarly, &admission.Webhook{Handler: &earlyPool{world: w}})
	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereMachineConfigPool{}).
		WithValidator(&validator[*v1beta1.VSphereMachineConfigPool]{
			judge: w.VSphereMachineConfigPool,
			remove: func(_ context.Context, pool *v1beta1.VSphereMachineConfigPool) (rules.Verdict, error) {
				return rules.VSphereMachineConfigPoolDelete(pool), nil
			},
		}).
		Complete()
}

func setupMachines(mgr ctrl.Manager, w judge.World) error {
	if err := ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereMachineTemplate{}).
		WithDefaulter(defaulter[*v1beta1.VSphereMachineTemplate](func(t *v1beta1.VSphereMachineTemplate) {
			rules.DefaultVSphereMachine(&t.Spec.Template.Spec)
		})).
		WithValidator(&validator[*v1beta1.VSphereMachineTemplate]{
			judge: func(ctx context.Context, old, t *v1beta1.VSphereMachineTemplate) (rules.Verdict, error) {
				return w.VSphereMachineTemplate(ctx, old, t, topologyDryRun(ctx, t))
			},
		}).
		Complete(); err != nil {
		return err
	}

	mgr.GetWebhookServer().Register(pathMachineDeleted, &admission.Webhook{Handler: &machineDeleted{world: w}})
	if err := ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereMachine{}).
		WithDefaulter(defaulter[*v1beta1.VSphereMachine](func(m *v1beta1.VSphereMachine) { rules.DefaultVSphereMachine(&m.Spec) })).
		WithValidator(&validator[*v1beta1.VSphereMachine]{judge: alone(rules.VSphereMachine)}).
		Complete(); err != nil {
		return err
	}

	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereVM{}).
		WithDefaulter(defaulter[*v1beta1.VSphereVM](func(vm *v1beta1.VSphereVM) { rules.DefaultVSphereVM(&vm.Spec) })).
		WithValidator(&validator[*v1beta1.VSphereVM]{
			judge:  alone(rules.VSphereVM),
			remove: w.VSphereVMDelete,
		}).
		Complete()
}

func setupInventory(mgr ctrl.Manager, w judge.World) error {
	if err := ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereCluster{}).
		WithValidator(&validator[*v1beta1.VSphereCluster]{judge: w.VSphereCluster}).
		Complete(); err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereClusterTemplate{}).
		WithValidator(&validator[*v1beta1.VSphereClusterTemplate]{judge: alone(rules.VSphereClusterTemplate)}).
		Complete(); err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereFailureDomain{}).
		WithValidator(&validator[*v1beta1.VSphereFailureDomain]{judge: alone(rules.VSphereFailureDomain)}).
		Complete(); err != nil {
		return err
	}
	return ctrl.NewWebhookManagedBy(mgr, &v1beta1.VSphereDeploymentZone{}).
		WithDefaulter(defaulter[*v1beta1.VSphereDeploymentZone](func(z *v1beta1.VSphereDeploymentZone) {
			rules.DefaultVSphereDeploymentZone(&z.Spec)
		})).
		Complete()
}

// topologyDryRun reports whether a managed topology tries out a change of a template.
func topologyDryRun(ctx context.Context, t *v1beta1.VSphereMachineTemplate) bool {
	req, err := admission.RequestFromContext(ctx)
	if err != nil || req.DryRun == nil || !*req.DryRun {
		return false
	}
	_, marked := t.Annotations[clusterv1.TopologyDryRunAnnotation]
	return marked
}
