package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// scheduler stands in for kube-scheduler: it binds pods to nodes by readiness, taints, node selectors and required node
// affinity, to the node with the fewest pods. It knows no resources, no volumes and no affinity between pods. Every control
// plane runs one; a binding that another made first is a conflict without consequence.
type scheduler struct {
	c      Config
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
}

const schedulingPause = 200 * time.Millisecond

// runScheduler works with the guest's kubeconfig for the scheduler until the context ends.
func runScheduler(ctx context.Context, c Config, kubeconfig string) {
	client, err := guestDisk{c.Files}.client(kubeconfig)
	if err != nil {
		c.say("kube-scheduler: %v", err)
		return
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &scheduler{c: c, client: client, pods: factory.Core().V1().Pods().Lister(), nodes: factory.Core().V1().Nodes().Lister()}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	on := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() }}
	for _, i := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()} {
		_, _ = i.AddEventHandler(on)
		_ = i.SetWatchErrorHandlerWithContext(quietly)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	for _, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		s.pass(ctx)
		if !pause(ctx, schedulingPause) {
			return
		}
	}
}

// quietly: a control plane that is coming up or going down is no news for the log of the program that runs the guests.
func quietly(context.Context, *cache.Reflector, error) {}

func (s *scheduler) pass(ctx context.Context) {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return
	}
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	load := map[string]int{}
	var pending []*corev1.Pod
	for _, p := range pods {
		switch {
		case p.Spec.NodeName != "":
			load[p.Spec.NodeName]++
		case p.DeletionTimestamp == nil && p.Spec.SchedulerName == corev1.DefaultSchedulerName && len(p.Spec.SchedulingGates) == 0:
			pending = append(pending, p)
		}
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pending {
		best, why := "", "no nodes available"
		for _, n := range nodes {
			if reason := fits(p, n); reason != "" {
				why = reason
				continue
			}
			if best == "" || load[n.Name] < load[best] {
				best = n.Name
			}
		}
		if best == "" {
			s.unschedulable(ctx, p, fmt.Sprintf("0/%d nodes are available: %s", len(nodes), why))
			continue
		}
		err := s.client.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: best},
		}, metav1.CreateOptions{})
		if err == nil {
			load[best]++
		} else if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.c.say("kube-scheduler: binding %s/%s: %v", p.Namespace, p.Name, err)
		}
	}
}

// unschedulable tells the pod's owner why it waits.
func (s *scheduler) unschedulable(ctx context.Context, p *corev1.Pod, message string) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message == message {
			return
		}
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":%s,"lastTransitionTime":%q}]}}`,
		strconv.Quote(message), time.Now().UTC().Format(time.RFC3339))
	_, _ = s.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// fits returns "" or why the pod cannot go to the node.
func fits(p *corev1.Pod, n *corev1.Node) string {
	if n.DeletionTimestamp != nil {
		return "node(s) are being deleted"
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if !slices.ContainsFunc(p.Spec.Tolerations, func(tol corev1.Toleration) bool { return tol.ToleratesTaint(klog.Background(), &t, false) }) {
			return fmt.Sprintf("node(s) had untolerated taint(s) {%s: %s}", t.Key, t.Value)
		}
	}
	if !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return matches(t, n) }) {
			return "node(s) didn't match Pod's node affinity/selector"
		}
	}
	return ""
}

func matches(term corev1.NodeSelectorTerm, n *corev1.Node) bool {
	one := func(value string, has bool, r corev1.NodeSelectorRequirement) bool {
		in := has && slices.Contains(r.Values, value)
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			return in
		case corev1.NodeSelectorOpNotIn:
			return !in
		case corev1.NodeSelectorOpExists:
			return has
		case corev1.NodeSelectorOpDoesNotExist:
			return !has
		}
		if !has || len(r.Values) != 1 {
			return false
		}
		left, err := strconv.ParseInt(value, 10, 64)
		right, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return left > right
		}
		return left < right
	}
	for _, r := range term.MatchExpressions {
		if value, has := n.Labels[r.Key]; !one(value, has, r) {
			return false
		}
	}
	for _, r := range term.MatchFields {
		if r.Key != "metadata.name" || !one(n.Name, true, r) {
			return false
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0
}
