package vsphere

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/pool"
)

// alarm turns what vCenter reports by mark into reconciles of the machine with that mark.
type alarm struct {
	events chan event.GenericEvent
	object func(key types.NamespacedName) client.Object

	mu   sync.Mutex
	keys map[machine.Mark]types.NamespacedName
}

func newAlarm(object func(key types.NamespacedName) client.Object) *alarm {
	return &alarm{
		events: make(chan event.GenericEvent, 1024),
		object: object,
		keys:   map[machine.Mark]types.NamespacedName{},
	}
}

// set says whose mark it is. Every pass does it first, so that after a restart the initial list has named them all.
func (a *alarm) set(mark machine.Mark, key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[mark] = key
}

func (a *alarm) forget(mark machine.Mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.keys, mark)
}

func (a *alarm) ring(ctx context.Context, mark machine.Mark) {
	a.mu.Lock()
	key, known := a.keys[mark]
	a.mu.Unlock()
	if known {
		send(ctx, a.events, a.object(key))
	}
}

// ring wakes the pool whose own operation, the deletion of a disk, has ended.
func (p *pools) ring(ctx context.Context, mark machine.Mark) {
	if namespace, name, ok := pool.Marked(mark); ok {
		send(ctx, p.changed, &infrav1.VSphereMachineConfigPool{ObjectMeta: meta(types.NamespacedName{Namespace: namespace, Name: name})})
	}
}

// ringer wakes whom a mark stands for, if it knows.
type ringer interface {
	ring(ctx context.Context, mark machine.Mark)
}

func send(ctx context.Context, events chan<- event.GenericEvent, object client.Object) {
	select {
	case events <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

func meta(key types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}

// queue remembers which machines wait for which pool, so that a change of a pool wakes those and not its other machines: with
// hundreds of machines in one pool, waking all at every write would cost the square of their number.
type queue struct {
	mu      sync.Mutex
	ticks   map[types.NamespacedName]uint64
	waiting map[types.NamespacedName]map[types.NamespacedName]struct{}
}

func newQueue() *queue {
	return &queue{
		ticks:   map[types.NamespacedName]uint64{},
		waiting: map[types.NamespacedName]map[types.NamespacedName]struct{}{},
	}
}

// tick is the pool's change count; read it before looking at the pool.
func (q *queue) tick(pool types.NamespacedName) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ticks[pool]
}

// wait puts a machine in the queue. false says that the pool changed after tick was read: look again instead.
func (q *queue) wait(pool, machine types.NamespacedName, tick uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ticks[pool] != tick {
		return false
	}
	if q.waiting[pool] == nil {
		q.waiting[pool] = map[types.NamespacedName]struct{}{}
	}
	q.waiting[pool][machine] = struct{}{}
	return true
}

// changed counts a change and takes all waiting machines out of the queue.
func (q *queue) changed(pool types.NamespacedName) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticks[pool]++
	var out []types.NamespacedName
	for key := range q.waiting[pool] {
		out = append(out, key)
	}
	delete(q.waiting, pool)
	return out
}
