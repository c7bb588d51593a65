// Package admission asks the rules about an object: it gathers what they want to look at beside it and knows which of them apply
// to which kind. Webhooks and the command line both ask here, the ones about an API server, the other about a set of files, so
// that they cannot disagree. It decides nothing.
package admission

import (
	"context"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// Every method judges one change: old is what is there, nil if the object is new. An error means that the world could not be
// looked at.

// VSphereMachineConfigPool judges a pool.
func (w World) VSphereMachineConfigPool(ctx context.Context, old, pool *v1beta1.VSphereMachineConfigPool) (rules.Verdict, error) {
	seen, err := w.pool(ctx, pool)
	if err != nil {
		return rules.Verdict{}, err
	}
	return rules.VSphereMachineConfigPool(old, pool, seen), nil
}

// VSphereMachineTemplate judges a template. A dry run of a managed topology must see what a change would do.
func (w World) VSphereMachineTemplate(ctx context.Context, old, t *v1beta1.VSphereMachineTemplate, topologyDryRun bool) (rules.Verdict, error) {
	seen, err := w.template(ctx, t, topologyDryRun)
	if err != nil {
		return rules.Verdict{}, err
	}
	return rules.VSphereMachineTemplate(old, t, seen), nil
}

// VSphereCluster judges a cluster.
func (w World) VSphereCluster(ctx context.Context, old, c *v1beta1.VSphereCluster) (rules.Verdict, error) {
	pools, err := w.poolsOf(ctx, c)
	if err != nil {
		return rules.Verdict{}, err
	}
	return rules.VSphereCluster(old, c, pools), nil
}

// Consumer judges an owner of machines.
func (w World) Consumer(ctx context.Context, old, c *rules.Consumer) (rules.Verdict, error) {
	seen, err := w.LookAround(ctx, c)
	if err != nil {
		return rules.Verdict{}, err
	}
	return rules.VSphereConsumer(old, c, seen), nil
}

// VSphereVMDelete judges the deletion of a virtual machine object.
func (w World) VSphereVMDelete(ctx context.Context, vm *v1beta1.VSphereVM) (rules.Verdict, error) {
	owner, err := w.owner(ctx, vm)
	if err != nil {
		return rules.Verdict{}, err
	}
	return rules.VSphereVMDelete(vm, owner), nil
}
