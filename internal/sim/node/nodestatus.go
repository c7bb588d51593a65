package node

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

const (
	taintUninitialized   = "node.cloudprovider.kubernetes.io/uninitialized"
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
	annotationAttach     = "volumes.kubernetes.io/controller-managed-attach-detach"
	leaseDuration        = int32(40)
	leaseInterval        = 10 * time.Second
	statusInterval       = 10 * time.Second
	statusReportInterval = 5 * time.Minute
)

// initialNode is the Node as the kubelet first writes it.
func (k *kubelet) initialNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        k.name,
		Labels:      k.defaultLabels(),
		Annotations: map[string]string{annotationAttach: "true"},
	}}
	for key, value := range k.flags.nodeLabels {
		n.Labels[key] = value
	}
	n.Spec.Taints = append(n.Spec.Taints, k.flags.taints...)
	n.Spec.ProviderID = k.flags.providerID
	if k.flags.externalCloud {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	k.setStatus(n)
	return n
}

func (k *kubelet) defaultLabels() map[string]string {
	return map[string]string{
		corev1.LabelHostname: k.name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// reconcileExisting brings labels and status of a Node that this kubelet did not create up to date, nothing else.
func (k *kubelet) reconcileExisting(ctx context.Context, client kubernetes.Interface, existing *corev1.Node) error {
	labels := map[string]string{}
	for _, set := range []map[string]string{k.defaultLabels(), k.flags.nodeLabels} {
		for key, value := range set {
			if existing.Labels[key] != value {
				labels[key] = value
			}
		}
	}
	if len(labels) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, k.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return k.patchStatus(ctx, client, existing)
}

// setStatus writes what the kubelet knows into a Node.
func (k *kubelet) setStatus(n *corev1.Node) {
	k.setAddresses(n)
	hw := k.c.Hardware
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(hw.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(hw.MemoryMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(hw.DiskGiB<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(k.conf.MaxPods, resource.DecimalSI),
	}
	n.Status.Capacity, n.Status.Allocatable = capacity, capacity.DeepCopy()
	machineID := strings.ToLower(strings.ReplaceAll(k.c.ProductUUID, "-", ""))
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: machineID, SystemUUID: strings.ToLower(k.c.ProductUUID), BootID: n.Status.NodeInfo.BootID,
		KernelVersion: orElse(k.c.KernelVersion, "6.6.0"), OSImage: orElse(k.c.OSImage, "Simulated Linux"),
		ContainerRuntimeVersion: "containerd://2.1.0", KubeletVersion: k.version,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.conf.Port)
	now := metav1.Now()
	set := func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			if c.Type != t {
				continue
			}
			if c.Status != status {
				c.LastTransitionTime = now
			}
			c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, reason, message, now
			return
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: t, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	set(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	set(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
}

// setAddresses follows the kubelet: with an external cloud provider it leaves addresses to the provider unless --node-ip
// names them, and never touches those that are there.
func (k *kubelet) setAddresses(n *corev1.Node) {
	ips := k.flags.nodeIPs
	if k.flags.externalCloud {
		if len(ips) > 0 {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[annotationProvidedIP] = ips[0].String()
		}
		if len(n.Status.Addresses) > 0 || len(ips) == 0 || ips[0].IsUnspecified() {
			return
		}
	}
	if len(ips) == 0 || ips[0].IsUnspecified() {
		ips = k.c.Addresses[:min(1, len(k.c.Addresses))]
	}
	n.Status.Addresses = nil
	for _, a := range ips {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.name})
}

// patchStatus writes the status where it differs from the given Node. Heartbeats alone are written every few minutes: the
// lease is the sign of life.
func (k *kubelet) patchStatus(ctx context.Context, client kubernetes.Interface, old *corev1.Node) error {
	next := old.DeepCopy()
	k.setStatus(next)
	if settled(old, next) {
		return nil
	}
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	after, err := json.Marshal(next)
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return fmt.Errorf("computing the status patch: %w", err)
	}
	if !equality.Semantic.DeepEqual(old.Status.Addresses, next.Status.Addresses) {
		if patch, err = replaceAddresses(patch, next.Status.Addresses); err != nil {
			return err
		}
	}
	if old.Annotations[annotationProvidedIP] != next.Annotations[annotationProvidedIP] {
		meta, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationProvidedIP: next.Annotations[annotationProvidedIP]}}})
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, old.Name, types.MergePatchType, meta, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, old.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// replaceAddresses makes a status patch replace the address list: merged by type, as the API would, addresses of a former life
// would stay.
func replaceAddresses(patch []byte, addresses []corev1.NodeAddress) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(patch, &m); err != nil {
		return nil, err
	}
	list := []any{map[string]string{"$patch": "replace"}}
	for _, a := range addresses {
		list = append(list, a)
	}
	status := child(m, "status")
	status["addresses"] = list
	delete(status, "$setElementOrder/addresses")
	return json.Marshal(m)
}

// settled: nothing but heartbeat times differs, and they are fresh enough.
func settled(old, next *corev1.Node) bool {
	o, n := old.Status.DeepCopy(), next.Status.DeepCopy()
	var oldest time.Time
	for _, s := range []*corev1.NodeStatus{o, n} {
		for i := range s.Conditions {
			c := &s.Conditions[i]
			if s == o && c.Type == corev1.NodeReady {
				oldest = c.LastHeartbeatTime.Time
			}
			c.LastHeartbeatTime = metav1.Time{}
		}
	}
	return time.Since(oldest) < statusReportInterval && equality.Semantic.DeepEqual(o, n) &&
		old.Annotations[annotationProvidedIP] == next.Annotations[annotationProvidedIP]
}

// renewLease keeps the node's lease: after 40 s without one the cluster calls the node's state unknown.
func (k *kubelet) renewLease(ctx context.Context, client kubernetes.Interface, node *corev1.Node) {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var current *coordinationv1.Lease
	for {
		wait := leaseInterval
		err := func() error {
			now, duration := metav1.NowMicro(), leaseDuration
			if current == nil {
				l, err := leases.Get(ctx, k.name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					current, err = leases.Create(ctx, &coordinationv1.Lease{
						ObjectMeta: metav1.ObjectMeta{Name: k.name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
						Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.name, LeaseDurationSeconds: &duration, RenewTime: &now},
					}, metav1.CreateOptions{})
					return err
				}
				if err != nil {
					return err
				}
				current = l
			}
			next := current.DeepCopy()
			next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &k.name, &duration, &now
			updated, err := leases.Update(ctx, next, metav1.UpdateOptions{})
			if err == nil {
				current = updated
			}
			return err
		}()
		if err != nil {
			current, wait = nil, time.Second
			if !apierrors.IsNotFound(err) && ctx.Err() == nil {
				k.complain("failed to renew the node lease", err)
			}
		}
		if !pause(ctx, wait) {
			return
		}
	}
}
