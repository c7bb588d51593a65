package vsphere

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// shows is a cache that shows one machine, or none.
type shows struct {
	client.Reader
	*infrav1.VSphereMachine
}

func (s shows) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.VSphereMachine == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.DeepCopyInto(obj.(*infrav1.VSphereMachine))
	return nil
}

// What went with our finalizer is gone at once, however long the cache shows it; a new object of its name is not.
func TestReleasedObjectIsGoneAtOnce(t *testing.T) {
	g := NewWithT(t)
	old := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "1", ResourceVersion: "5", Finalizers: []string{infrav1.MachineFinalizer}}}
	now := metav1.Now()
	old.DeletionTimestamp = &now
	l := newLatest(shows{VSphereMachine: old}, shows{})
	key := types.NamespacedName{Namespace: "n", Name: "m"}
	get := func() error { return l.get(t.Context(), key, &infrav1.VSphereMachine{}) }

	others := old.DeepCopy()
	others.Finalizers = []string{"of.somebody/else"}
	l.released(others)
	g.Expect(get()).To(Succeed(), "somebody else's finalizer keeps it")
	last := old.DeepCopy()
	last.Finalizers = nil
	l.wrote(last)
	l.released(last)
	g.Expect(apierrors.IsNotFound(get())).To(BeTrue())
	successor := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "2", ResourceVersion: "9"}}
	l.cached = shows{VSphereMachine: successor}
	g.Expect(get()).To(Succeed())
	l.cached = shows{VSphereMachine: old}
	g.Expect(get()).To(Succeed(), "the tombstone went when the cache had caught up")
}
