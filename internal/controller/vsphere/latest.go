package vsphere

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// latest reads objects that we write ourselves so that a read never returns less than our own last write: where the cache is
// behind, it asks the server. Without it a pass started by an event that outran the cache would act on what was true before.
type latest struct {
	cached, live client.Reader

	mu       sync.Mutex
	versions map[string]string
}

func newLatest(cached, live client.Reader) *latest {
	return &latest{cached: cached, live: live, versions: map[string]string{}}
}

// wrote remembers the version of an object that a write has returned.
func (l *latest) wrote(obj client.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions[entry(obj, client.ObjectKeyFromObject(obj))] = obj.GetResourceVersion()
}

// get reads an object, not older than our last write to it.
func (l *latest) get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	id := entry(obj, key)
	l.mu.Lock()
	want, pending := l.versions[id]
	l.mu.Unlock()

	err := l.cached.Get(ctx, key, obj)
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
