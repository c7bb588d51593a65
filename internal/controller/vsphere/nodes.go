package vsphere

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/slot"
	"github.com/berth-dev/berth/internal/workload"
)

// nodes asks workload clusters about the Node of a slot's host name and removes a stale one. A new guest would register into
// the old Node object, keep its provider ID and never become ready; or Cluster API would delete the Node by name after the new
// guest has joined (VS-A26).
type nodes struct {
	workload *workload.Clusters
	recorder events.EventRecorder
}

// retryNode bounds the wait where no event announces that a workload cluster answers again.
const retryNode = 10 * time.Second

// clear asks for the Node called name and deletes it unless it has the provider ID wanted ("" for none).
func (n *nodes) clear(ctx context.Context, cluster *clusterv1.Cluster, name, wanted string, controlPlane bool) (slot.NodeFact, error) {
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() {
		return slot.NodeIrrelevant, nil
	}
	if !ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false) {
		// No API server has ever answered for this cluster, so no kubelet can have registered.
		return slot.NodeGone, nil
	}
	key := client.ObjectKeyFromObject(cluster)
	node, err := n.workload.Node(ctx, key, name)
	switch {
	case err != nil && controlPlane && !answered(err):
		// The endpoint leads to every control plane that is left. If none answers, holding this one back heals nothing.
		ctrl.LoggerFrom(ctx).Info("No control plane can be asked for a stale Node", "node", name, "error", err.Error())
		return slot.NodeUnaskable, nil
	case err != nil:
		return slot.NodeUnknown, err
	case node == nil || wanted != "" && node.ProviderID == wanted:
		return slot.NodeGone, nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting a stale Node", "node", name, "uid", node.UID, "providerID", node.ProviderID, "wanted", wanted)
	if err := n.workload.DeleteNode(ctx, key, *node); err != nil {
		return slot.NodeUnknown, err
	}
	publish(n.recorder, cluster, []machine.Event{{
		Reason:  infrav1.EventStaleNodeDeleted,
		Message: fmt.Sprintf("Deleted stale Node %s (provider ID %q): its virtual machine is gone and its name is needed", name, node.ProviderID),
	}})
	if node, err = n.workload.Node(ctx, key, name); err == nil && node == nil {
		return slot.NodeGone, nil
	}
	return slot.NodeStale, err
}

// answered: a control plane works and refuses to tell, which is not the same as none being there.
func answered(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err)
}

// beforePowerOn is the last check before a guest starts: from then on the name is its own.
func (n *nodes) beforePowerOn(ctx context.Context, cluster *clusterv1.Cluster, name string, server *machine.Server, controlPlane bool) machine.Result {
	fact, err := n.clear(ctx, cluster, name, providerID(server.HardwareID), controlPlane)
	switch fact {
	case slot.NodeStale:
		return machine.Result{
			Outcome: machine.Wait, Reason: infrav1.WaitingForStaleNodeReason, After: time.Second, Err: err,
			Message: fmt.Sprintf("Node %s of a former virtual machine is being deleted", name),
		}
	case slot.NodeUnknown:
		return machine.Result{
			Outcome: machine.Wait, Reason: infrav1.WaitingForStaleNodeReason, After: retryNode, Err: err,
			Message: fmt.Sprintf("cannot tell whether a stale Node %s exists: %v", name, err),
		}
	default:
		return machine.Result{Outcome: machine.Done}
	}
}
