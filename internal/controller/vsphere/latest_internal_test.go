package vsphere

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
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

// The cache shows a Machine without the label of its host for a moment after we have written it: the next pass sees what was written
// and does not write it again.
func TestHostLabelIsWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	before := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	patches := 0
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(before).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	g.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(before), before)).To(Succeed())
	behind := fake.NewClientBuilder().WithScheme(scheme).WithObjects(before).Build()
	r := &machineReconciler{client: server, reader: server, latest: newLatest(behind, server)}
	m := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m"},
	}}}
	pass := func(host string) {
		owner, err := r.ownerOf(t.Context(), m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.labelHost(t.Context(), &scope{owner: owner}, &machine.Server{Host: host, Power: machine.PowerOn})).To(Succeed())
	}
	pass("h1")
	pass("h1")
	g.Expect(patches).To(Equal(1))
	pass("h2")
	g.Expect(patches).To(Equal(2), "a move is told although the cache is behind")
}
