package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/rules"
	"github.com/berth-dev/berth/internal/slot"
)

// Admission refuses what it sees. What came before it, or while the webhooks were off, is judged here by the same rules, so that
// people read the same sentence in a condition, and vCenter is not asked for what cannot be right.

// members is what the rules say about the slots of a pool.
type members struct {
	// invalid and duplicate are sentences for the pool's conditions; reason goes with the latter.
	invalid, duplicate []string
	reason             string
	// slots that must not be given to a machine, by host name, each with the first sentence about it.
	slots map[string]string
}

// judgeMembers asks the rules about a pool beside others of its namespace. endpoint is the host of the control plane endpoint, "" if
// it is not known.
func judgeMembers(p *infrav1.VSphereMachineConfigPool, others []infrav1.VSphereMachineConfigPool, endpoint string) members {
	verdict := rules.VSphereMachineConfigPool(nil, p, rules.VSpherePoolWorld{
		Cluster: &rules.Cluster{Namespace: p.Namespace, Name: p.Spec.ClusterRef.Name, Endpoint: endpoint},
		Pools:   others,
	})
	var m members
	used := usedSlots(p)
	for _, err := range verdict.Errors {
		switch {
		case err.Type == field.ErrorTypeDuplicate && strings.HasSuffix(err.Field, ".hostname"):
			m.reason = infrav1.DuplicateHostnameReason
			m.duplicate = append(m.duplicate, err.Error())
		case err.Type == field.ErrorTypeDuplicate && (strings.HasSuffix(err.Field, ".ip") || strings.HasSuffix(err.Field, ".ipv6")):
			if m.reason == "" {
				m.reason = infrav1.DuplicateIPAddressReason
			}
			m.duplicate = append(m.duplicate, err.Error())
		default:
			m.invalid = append(m.invalid, err.Error())
		}
		for i := range p.Spec.Configs {
			path := fmt.Sprintf("spec.configs[%d]", i)
			if err.Field != path && !strings.HasPrefix(err.Field, path+".") {
				continue
			}
			if tolerable(err, path) && slices.Contains(used, p.Spec.Configs[i].Hostname) {
				continue
			}
			if m.slots == nil {
				m.slots = map[string]string{}
			}
			if _, known := m.slots[p.Spec.Configs[i].Hostname]; !known {
				m.slots[p.Spec.Configs[i].Hostname] = err.Error()
			}
		}
	}
	return m
}

// usedSlots are the slots that machines have, or that keep data for one. What can no longer be edited there is only reported (D12):
// a machine was built that way before, and the next one must get its data.
func usedSlots(p *infrav1.VSphereMachineConfigPool) []string {
	var out []string
	for _, s := range p.Status.ConfigStatuses {
		if s.State == infrav1.ConfigStateInUse || s.State == infrav1.ConfigStateReleased {
			out = append(out, s.Hostname)
		}
	}
	return out
}

// tolerable: what is wrong with the name or a disk of a slot and did not keep a machine from being built.
func tolerable(err *field.Error, slot string) bool {
	if err.Type != field.ErrorTypeInvalid {
		return false
	}
	for _, part := range []string{".hostname", ".persistentDisks[", ".ephemeralDisks["} {
		if strings.HasPrefix(err.Field, slot+part) {
			return true
		}
	}
	return false
}

// judgement is remembered for as long as nothing that it looked at has changed: a pool is loaded for every claim.
type judgement struct {
	of      string
	members members
}

// judge asks about a pool as it is now.
func (p *pools) judge(ctx context.Context, item *infrav1.VSphereMachineConfigPool) (members, error) {
	list := &infrav1.VSphereMachineConfigPoolList{}
	if err := p.client.List(ctx, list, client.InNamespace(item.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return members{}, fmt.Errorf("listing pools: %w", err)
	}
	endpoint, err := p.endpoint(ctx, item)
	if err != nil {
		return members{}, err
	}
	var of strings.Builder
	fmt.Fprintf(&of, "%s %d %s %s", item.UID, item.Generation, endpoint, usedSlots(item))
	for i := range list.Items {
		if list.Items[i].Name != item.Name {
			fmt.Fprintf(&of, " %s %d", list.Items[i].UID, list.Items[i].Generation)
		}
	}
	key := client.ObjectKeyFromObject(item)
	p.mu.Lock()
	known, ok := p.judged[key]
	p.mu.Unlock()
	if ok && known.of == of.String() {
		return known.members, nil
	}
	found := judgement{of: of.String(), members: judgeMembers(item, list.Items, endpoint)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.judged == nil {
		p.judged = map[types.NamespacedName]judgement{}
	}
	p.judged[key] = found
	return found.members, nil
}

// endpoint is the host of the control plane endpoint of a pool's cluster, "" if it is not known.
func (p *pools) endpoint(ctx context.Context, item *infrav1.VSphereMachineConfigPool) (string, error) {
	cluster := &clusterv1.Cluster{}
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: item.Namespace, Name: item.Spec.ClusterRef.Name}, cluster); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	infra, err := findVSphereCluster(ctx, p.client, item.Namespace, cluster.Name, cluster)
	if infra == nil || err != nil {
		return cluster.Spec.ControlPlaneEndpoint.Host, err
	}
	return infra.Spec.ControlPlaneEndpoint.Host, nil
}

// refused is the guard of a machine that admission would not have let in, nil if there is nothing against it. What has a virtual
// machine already is not judged again.
func refused(s *scope) *machine.Guard {
	if s.vm != nil {
		return nil
	}
	verdict := rules.VSphereMachine(nil, s.machine)
	if !verdict.Refused() {
		return nil
	}
	return &machine.Guard{Reason: infrav1.CloningFailedReason, Message: sentences(verdict.Errors)}
}

func sentences(errs field.ErrorList) string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = err.Error()
	}
	return strings.Join(out, "; ")
}

// ownersFault is what the rules say about the rollout settings of the owner of a machine that finds no slot, "" if nothing: a surge in
// a full pool waits for ever, and the pool is not to blame.
func (r *machineReconciler) ownersFault(ctx context.Context, consumer *slot.Consumer) string {
	if consumer == nil {
		return ""
	}
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion(consumer.APIVersion)
	owner.SetKind(consumer.Kind)
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: consumer.Namespace, Name: consumer.Name}, owner); err != nil {
		return "" // the machine waits as it is, this is only to say more
	}
	c, err := rules.ConsumerOf(owner)
	if err != nil {
		return ""
	}
	if errs := rules.NoSurge(c); len(errs) > 0 {
		return fmt.Sprintf("%s: %s", c, sentences(errs))
	}
	return ""
}
