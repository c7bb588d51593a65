package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
)

// poolField indexes VSphereMachines by the pool they name.
const poolField = "spec.machineConfigPoolRef.name"

// pools hands out the one writer of each pool. Machines and the pool reconciler share it: whoever wants to record something in
// a pool's status goes through it.
type pools struct {
	client   client.Client
	reader   client.Reader // live
	access   *access
	nodes    *nodes
	queue    *queue
	recorder events.EventRecorder

	// machines and changed wake VSphereMachines that wait for a pool, and the pool itself.
	machines, changed chan event.GenericEvent
	// now is the clock, nil for the real one.
	now func() time.Time

	mu      sync.Mutex
	writers map[types.NamespacedName]*pool.Writer
	uids    map[types.NamespacedName]types.UID
	judged  map[types.NamespacedName]judgement
	// young are the pools that this process saw first, and whose status has never been written.
	young map[types.UID]bool
}

// born notes that a pool is new: that it has no status does not mean that one was lost.
func (p *pools) born(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.young == nil {
		p.young = map[types.UID]bool{}
	}
	p.young[uid] = true
}

// grown notes that a pool's status was written.
func (p *pools) grown(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.young, uid)
}

// lost says whether a pool was in use before and has no status any more. Our finalizer is what remains of its former life; a
// process that died right after writing it is answered yes, which costs some looks and nothing else.
func (p *pools) lost(item *infrav1.VSphereMachineConfigPool) bool {
	if len(item.Status.ConfigStatuses) > 0 || !controllerutil.ContainsFinalizer(item, infrav1.MachineConfigPoolFinalizer) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.young[item.UID]
}

func (p *pools) writer(key types.NamespacedName) *pool.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.writers[key]; w != nil {
		return w
	}
	facts := &poolFacts{pools: p, key: key}
	w := pool.NewWriter(&poolStore{pools: p, key: key}, facts, facts.platform, pool.Options{
		Now:     p.now,
		Emit:    func(e machine.Event) { p.emit(key, e) },
		Changed: func() { p.wake(context.Background(), key) },
	})
	if p.writers == nil {
		p.writers = map[types.NamespacedName]*pool.Writer{}
	}
	p.writers[key] = w
	return w
}

// same makes sure that the writer serves this very pool and not a former one of the same name.
func (p *pools) same(key types.NamespacedName, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.uids[key]; ok && known != uid {
		delete(p.writers, key)
	}
	if p.uids == nil {
		p.uids = map[types.NamespacedName]types.UID{}
	}
	p.uids[key] = uid
}

// drop forgets the writer of a pool that is gone.
func (p *pools) drop(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.writers, key)
	delete(p.uids, key)
	delete(p.judged, key)
}

// wake tells everybody who waits for a pool that it has changed.
func (p *pools) wake(ctx context.Context, key types.NamespacedName) {
	for _, waiting := range p.queue.changed(key) {
		send(ctx, p.machines, &infrav1.VSphereMachine{ObjectMeta: meta(waiting)})
	}
	send(ctx, p.changed, &infrav1.VSphereMachineConfigPool{ObjectMeta: meta(key)})
}

func (p *pools) emit(key types.NamespacedName, e machine.Event) {
	object := &infrav1.VSphereMachineConfigPool{}
	if err := p.client.Get(context.Background(), key, object); err != nil {
		object.ObjectMeta = meta(key)
	}
	publish(p.recorder, object, []machine.Event{e})
}

// holding finds the pool whose record says that the machine with this mark has one of its slots (VS-A25); nil if none does.
func (p *pools) holding(ctx context.Context, namespace, cluster, mark string) (*types.NamespacedName, error) {
	list := &infrav1.VSphereMachineConfigPoolList{}
	if err := p.reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if cluster != "" && item.Spec.ClusterRef.Name != cluster {
			continue
		}
		for _, c := range item.Status.ConfigStatuses {
			if c.Mark == mark && c.State == infrav1.ConfigStateInUse {
				key := client.ObjectKeyFromObject(item)
				return &key, nil
			}
		}
	}
	return nil, nil
}

// slotOf is the record of the slot in use by the machine with this mark, read live; nil if it has none in this pool.
func (p *pools) slotOf(ctx context.Context, key types.NamespacedName, mark string) (*infrav1.VSphereMachineConfigStatus, error) {
	item := &infrav1.VSphereMachineConfigPool{}
	if err := p.reader.Get(ctx, key, item); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading pool %s: %w", key, err)
	}
	for i := range item.Status.ConfigStatuses {
		if c := &item.Status.ConfigStatuses[i]; c.Mark == mark && c.State == infrav1.ConfigStateInUse {
			return c, nil
		}
	}
	return nil, nil
}

// poolStore is pool.Store over a VSphereMachineConfigPool.
type poolStore struct {
	*pools
	key types.NamespacedName

	loading sync.Mutex
	loaded  *infrav1.VSphereMachineConfigPool
}

var _ pool.Store = (*poolStore)(nil)

// Load implements pool.Store.
func (s *poolStore) Load(ctx context.Context) (pool.State, string, error) {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := s.reader.Get(ctx, s.key, p); err != nil {
		if apierrors.IsNotFound(err) {
			return pool.State{}, "", pool.ErrGone
		}
		return pool.State{}, "", fmt.Errorf("reading pool %s: %w", s.key, err)
	}
	retain, err := retainsDisks(ctx, s.client, p)
	if err != nil {
		return pool.State{}, "", err
	}
	s.loading.Lock()
	s.loaded = p
	s.loading.Unlock()
	said, err := s.judge(ctx, p)
	if err != nil {
		return pool.State{}, "", err
	}
	state := stateOf(p, retain)
	state.Invalid = said.slots
	state.Lost = s.lost(p)
	return state, p.ResourceVersion, nil
}

// Save implements pool.Store.
func (s *poolStore) Save(ctx context.Context, state pool.State, version string) error {
	s.loading.Lock()
	loaded := s.loaded
	s.loading.Unlock()
	if loaded == nil || loaded.ResourceVersion != version {
		return pool.ErrStale
	}
	next := loaded.DeepCopy()
	setState(next, state)
	switch err := s.client.Status().Update(ctx, next); {
	case apierrors.IsConflict(err):
		return pool.ErrStale
	case apierrors.IsNotFound(err):
		return pool.ErrGone
	case err != nil:
		return fmt.Errorf("writing the status of pool %s: %w", s.key, err)
	}
	s.grown(next.UID)
	s.loading.Lock()
	s.loaded = next
	s.loading.Unlock()
	return nil
}

// retainByCluster is the annotation's value on a pool whose Cluster has the annotation. It speaks for a Cluster that is gone before
// its pools, by whatever force.
const retainByCluster = "cluster"

// noteRetention copies the wish of a pool's Cluster to the pool, and takes it back with the Cluster's. A person's own annotation
// on the pool stays.
func noteRetention(p *infrav1.VSphereMachineConfigPool, cluster *clusterv1.Cluster) {
	own := p.Annotations[infrav1.RetainDisksAnnotation]
	switch retain := cluster.Annotations[infrav1.RetainDisksAnnotation] == "true"; {
	case retain && own == "":
		setAnnotation(p, infrav1.RetainDisksAnnotation, retainByCluster)
	case !retain && own == retainByCluster:
		delete(p.Annotations, infrav1.RetainDisksAnnotation)
	}
}

// retainsDisks: the annotation on the pool or on its Cluster (D19).
func retainsDisks(ctx context.Context, c client.Reader, p *infrav1.VSphereMachineConfigPool) (bool, error) {
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterRef.Name}, cluster)
	if apierrors.IsNotFound(err) {
		return retains(p, nil), nil
	}
	return retains(p, cluster), err
}

// retains decides it, with the Cluster that has the name of the pool's one now, nil if there is none. A pool that is being deleted
// belongs to the Cluster that it had: a later one of the same name cannot take the earlier one's wish back.
func retains(p *infrav1.VSphereMachineConfigPool, cluster *clusterv1.Cluster) bool {
	own := p.Annotations[infrav1.RetainDisksAnnotation]
	if own == "true" || cluster != nil && cluster.Annotations[infrav1.RetainDisksAnnotation] == "true" {
		return true
	}
	if own != retainByCluster {
		return false
	}
	return cluster == nil || !p.DeletionTimestamp.IsZero() && !slices.ContainsFunc(p.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "Cluster" && ref.UID == cluster.UID
	})
}

var errNoCluster = errors.New("the pool's Cluster or VSphereCluster does not exist")
