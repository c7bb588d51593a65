package vsphere

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// latest reads objects that we write ourselves so that a read never returns less than our own last write: where the cache is
// behind, it asks the server. Without it a pass started by an event that outran the cache would act on what was true before.
type latest struct {
	cached, live client.Reader

	mu       sync.Mutex
	versions map[string]string
	// gone are objects that went with the finalizer that we took off, by UID.
	gone map[string]types.UID
}

func newLatest(cached, live client.Reader) *latest {
	return &latest{cached: cached, live: live, versions: map[string]string{}, gone: map[string]types.UID{}}
}

// wrote remembers the version of an object that a write has returned.
func (l *latest) wrote(obj client.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions[entry(obj, client.ObjectKeyFromObject(obj))] = obj.GetResourceVersion()
}

// released remembers an object from which a finalizer was taken: without any other it is gone, although the cache shows it for a
// moment. A pass over it would ask vCenter once more for what is proven gone.
func (l *latest) released(obj client.Object) {
	if len(obj.GetFinalizers()) > 0 || obj.GetDeletionTimestamp().IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := entry(obj, client.ObjectKeyFromObject(obj))
	l.gone[id] = obj.GetUID()
	delete(l.versions, id)
}

// buried says whether what the cache shows is gone, and forgets it when the cache has caught up.
func (l *latest) buried(id string, obj client.Object, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, known := l.gone[id]
	if known && err == nil && obj.GetUID() == uid {
		return true
	}
	if known && (err == nil || apierrors.IsNotFound(err)) {
		delete(l.gone, id)
	}
	return false
}

// get reads an object, not older than our last write to it.
func (l *latest) get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	id := entry(obj, key)
	l.mu.Lock()
	want, pending := l.versions[id]
	l.mu.Unlock()

	err := l.cached.Get(ctx, key, obj)
	if l.buried(id, obj, err) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, key.Name)
	}
	if !pending {
		return err
	}
	if err == nil {
		if order, e := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), want); e == nil && order >= 0 {
			l.forget(id, want)
			return nil
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	err = l.live.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		l.forget(id, want)
	}
	return err
}

func (l *latest) forget(id, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.versions[id] == version {
		delete(l.versions, id)
	}
}

func entry(obj client.Object, key client.ObjectKey) string { return fmt.Sprintf("%T/%s", obj, key) }
