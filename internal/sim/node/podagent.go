package node

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// podAgent watches the kubelet's own Node and the pods bound to it: it runs what is bound, finishes what is deleted, and
// keeps the mirror pods.
type podAgent struct {
	k      *kubelet
	client kubernetes.Interface
	uid    types.UID // of the Node that was registered
	node   atomic.Pointer[corev1.Node]
	pods   cache.Store
	queue  workqueue.TypedRateLimitingInterface[string]

	factories []informers.SharedInformerFactory
	synced    []cache.InformerSynced
}

// nodeKey is the queue's key for the Node's own status; pod keys have a slash.
const nodeKey = "node"

func newPodAgent(k *kubelet, client kubernetes.Interface, node *corev1.Node) *podAgent {
	a := &podAgent{k: k, client: client, uid: node.UID, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second))}
	a.node.Store(node)
	byName := func(field string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, k.name).String()
		}))
	}
	podFactory, nodeFactory := byName("spec.nodeName"), byName("metadata.name")
	podInformer, nodeInformer := podFactory.Core().V1().Pods().Informer(), nodeFactory.Core().V1().Nodes().Informer()
	a.pods = podInformer.GetStore()
	_ = podInformer.SetWatchErrorHandlerWithContext(quietly)
	_ = nodeInformer.SetWatchErrorHandlerWithContext(quietly)
	a.factories = []informers.SharedInformerFactory{podFactory, nodeFactory}
	a.synced = []cache.InformerSynced{podInformer.HasSynced, nodeInformer.HasSynced}
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			a.queue.Add(key)
		}
	}
	_, _ = podInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	seen := func(obj any) {
		// A Node that was deleted and made anew by others is not the one that this kubelet registered.
		if n, ok := obj.(*corev1.Node); ok && n.UID == a.uid {
			a.node.Store(n)
			a.queue.Add(nodeKey)
		}
	}
	_, _ = nodeInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }})
	return a
}

func (a *podAgent) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.queue.ShutDown)
	defer stop()
	for _, f := range a.factories {
		f.Start(ctx.Done())
		defer f.Shutdown()
	}
	a.k.static.listen(func(name string) { a.queue.Add(a.mirrorKey(name)) })
	defer a.k.static.listen(nil)
	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		return
	}
	for _, w := range a.k.static.list() {
		a.queue.Add(a.mirrorKey(w.pod.Name))
	}
	a.queue.Add(nodeKey)
	for a.next(ctx) {
	}
}

func (a *podAgent) mirrorKey(static string) string {
	ns := metav1.NamespaceSystem
	if w := a.k.static.named(static); w != nil {
		ns = w.pod.Namespace
	}
	return ns + "/" + static + "-" + a.k.name
}

func (a *podAgent) next(ctx context.Context) bool {
	key, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(key)
	var err error
	if key == nodeKey {
		err = a.k.patchStatus(ctx, a.client, a.node.Load())
		a.queue.AddAfter(nodeKey, statusInterval)
	} else {
		err = a.sync(ctx, key)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		a.queue.Forget(key)
	case ctx.Err() == nil:
		a.k.complain("syncing "+key, err)
		a.queue.AddRateLimited(key)
	}
	return true
}

func (a *podAgent) sync(ctx context.Context, key string) error {
	obj, exists, err := a.pods.GetByKey(key)
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	if exists {
		pod = obj.(*corev1.Pod)
	}
	namespace, name, _ := strings.Cut(key, "/")
	static := a.k.static.named(strings.TrimSuffix(name, "-"+a.k.name))
	if static != nil && static.pod.Namespace != namespace {
		static = nil
	}
	_, isMirror := annotation(pod, "kubernetes.io/config.mirror")
	switch {
	case static != nil && (pod == nil || isMirror):
		return a.syncMirror(ctx, pod, static)
	case pod == nil:
		return nil
	case isMirror || pod.DeletionTimestamp != nil:
		// A mirror whose manifest is gone, or a pod whose containers have been stopped.
		return a.remove(ctx, pod)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return a.start(ctx, pod)
	}
	return nil
}

func annotation(pod *corev1.Pod, key string) (string, bool) {
	if pod == nil {
		return "", false
	}
	v, ok := pod.Annotations[key]
	return v, ok
}

func (a *podAgent) remove(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	return a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// syncMirror creates the mirror pod, replaces one that someone deleted or that mirrors an older manifest, and keeps its status.
func (a *podAgent) syncMirror(ctx context.Context, pod *corev1.Pod, w *podWorker) error {
	node := a.node.Load()
	if pod != nil {
		hash, _ := annotation(pod, "kubernetes.io/config.mirror")
		owned := len(pod.OwnerReferences) == 1 && pod.OwnerReferences[0].UID == node.UID
		if hash != w.hash || pod.DeletionTimestamp != nil || !owned {
			return a.remove(ctx, pod) // its deletion event brings the new one
		}
	} else {
		created, err := a.client.CoreV1().Pods(w.pod.Namespace).Create(ctx, w.mirror(node), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return err // an older one that the cache does not show yet
		}
		if err != nil {
			return err
		}
		pod = created
	}
	st := w.snapshot()
	return a.writeStatus(ctx, pod, st.ready, st.running, []corev1.ContainerStatus{st.containerStatus(pod.Spec.Containers[0], pod.UID)})
}

// start runs a pod: the simulated runtime has every image and starts at once.
func (a *podAgent) start(ctx context.Context, pod *corev1.Pod) error {
	st := podState{running: true, ready: true, started: time.Now()}
	var statuses []corev1.ContainerStatus
	for _, ctr := range pod.Spec.Containers {
		statuses = append(statuses, st.containerStatus(ctr, pod.UID))
	}
	return a.writeStatus(ctx, pod, true, true, statuses)
}

func (a *podAgent) writeStatus(ctx context.Context, pod *corev1.Pod, ready, running bool, containers []corev1.ContainerStatus) error {
	next := pod.DeepCopy()
	s := &next.Status
	s.Phase = corev1.PodPending
	if running || pod.Status.Phase == corev1.PodRunning {
		s.Phase = corev1.PodRunning
	}
	if s.StartTime == nil {
		now := metav1.Now()
		s.StartTime = &now
	}
	if len(a.k.c.Addresses) > 0 {
		s.HostIP = a.k.c.Addresses[0].String()
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
		s.PodIP = s.HostIP
		if !pod.Spec.HostNetwork {
			s.PodIP = a.podIP(pod)
		}
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	s.ContainerStatuses = containers
	set := func(t corev1.PodConditionType, ok bool) {
		status := corev1.ConditionFalse
		if ok {
			status = corev1.ConditionTrue
		}
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type == t {
				if c.Status != status {
					c.Status, c.LastTransitionTime = status, metav1.Now()
				}
				return
			}
		}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: status, LastTransitionTime: metav1.Now()})
	}
	set(corev1.PodReadyToStartContainers, true)
	set(corev1.PodInitialized, true)
	set(corev1.ContainersReady, ready)
	set(corev1.PodReady, ready)
	set(corev1.PodScheduled, true)
	if equality.Semantic.DeepEqual(pod.Status, next.Status) {
		return nil
	}
	_, err := a.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}

// podIP is an address of the node's pod range, the same for the pod's life. Nothing listens there.
func (a *podAgent) podIP(pod *corev1.Pod) string {
	prefix, err := netip.ParsePrefix(a.node.Load().Spec.PodCIDR)
	if err != nil || !prefix.Addr().Is4() {
		prefix = netip.MustParsePrefix("10.244.0.0/16")
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod.UID))
	base := binary.BigEndian.Uint32(prefix.Masked().Addr().AsSlice())
	size := uint32(1) << (32 - prefix.Bits())
	if size < 4 {
		return prefix.Addr().String()
	}
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], base+2+h.Sum32()%(size-3))
	return netip.AddrFrom4(ip).String()
}
