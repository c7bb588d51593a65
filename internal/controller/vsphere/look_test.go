package vsphere_test

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// ready waits until a machine is ready and reads it.
func (w *world) ready(m *infrav1.VSphereMachine) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.Status.Ready).To(BeTrue(), "%s: %+v", m.Name, m.Status.Conditions)
		g.Expect(ptr.Deref(m.Status.Initialization.Provisioned, false)).To(BeTrue())
		g.Expect(conditions.IsTrue(m, infrav1.ReadyCondition)).To(BeTrue())
		g.Expect(m.Spec.ProviderID).NotTo(BeNil())
	}).Should(Succeed())
}

// waits until a machine's condition is false with a reason.
func (w *world) waits(m *infrav1.VSphereMachine, condition, reason string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		c := conditions.Get(m, condition)
		g.Expect(c).NotTo(BeNil(), "%+v", m.Status.Conditions)
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal(reason), c.Message)
	}).Should(Succeed())
}

// gone waits until an object is gone.
func (w *world) gone(obj client.Object) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		err := k8s.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		g.Expect(err).To(HaveOccurred(), "%s still exists: %+v", obj.GetName(), conditionsOf(obj))
	}).Should(Succeed())
}

func conditionsOf(obj client.Object) []metav1.Condition {
	if c, ok := obj.(conditions.Getter); ok {
		return c.GetConditions()
	}
	return nil
}

func (w *world) vm(name string) *vcenter.VM {
	for _, vm := range w.vcenter.World().VMs {
		if vm.Name == name && !vm.Template {
			return &vm
		}
	}
	return nil
}

func (w *world) vms() (n int) {
	for _, vm := range w.vcenter.World().VMs {
		if !vm.Template {
			n++
		}
	}
	return n
}

func (w *world) disk(path string) *vcenter.Disk {
	for _, d := range w.vcenter.World().Disks {
		if d.Path == path {
			return &d
		}
	}
	return nil
}

// attachedTo maps the paths of a virtual machine's disks to their UUIDs.
func (w *world) attachedTo(vm *vcenter.VM) map[string]string {
	w.t.Helper()
	w.g.Expect(vm).NotTo(BeNil())
	out := map[string]string{}
	for _, d := range vm.Disks {
		out[d.Path] = normal(d.UUID)
	}
	return out
}

func containsHost(path, host string) bool { return strings.Contains(path, "/"+host) }

func normal(uuid string) string { return strings.ToLower(strings.ReplaceAll(uuid, "-", "")) }

func (w *world) pool() *infrav1.VSphereMachineConfigPool {
	w.t.Helper()
	pool := &infrav1.VSphereMachineConfigPool{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "demo-worker"}, pool)).To(Succeed())
	return pool
}

func (w *world) slotStatus(host string) infrav1.VSphereMachineConfigStatus {
	w.t.Helper()
	for _, c := range w.pool().Status.ConfigStatuses {
		if c.Hostname == host {
			return c
		}
	}
	return infrav1.VSphereMachineConfigStatus{}
}

func (w *world) diskStatus(host string) infrav1.PersistentDiskStatus {
	w.t.Helper()
	for _, d := range w.pool().Status.PersistentDiskStatuses {
		if d.Hostname == host {
			return d
		}
	}
	return infrav1.PersistentDiskStatus{}
}

// reachable makes the API server of the tests the workload cluster too.
func (w *world) reachable() {
	w.t.Helper()
	w.g.Expect(k8s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"}},
		Data:       map[string][]byte{"value": kubeconfig},
	})).To(Succeed())
	w.clusterStatus(func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = ptr.To(true) })
}

// workload lets a machine's Node exist in the workload cluster.
func (w *world) workload(m *infrav1.VSphereMachine) {
	w.t.Helper()
	w.reachable()
	w.g.Expect(k8s.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Annotations[infrav1.SlotHostnameAnnotation]},
		Spec:       corev1.NodeSpec{ProviderID: *m.Spec.ProviderID},
	})).To(Succeed())
}

// powerOff is a person with the vSphere client.
func (w *world) powerOff(name string) {
	w.t.Helper()
	u := w.vcenter.URL()
	u.User = w.vcenter.Userinfo()
	c, err := govmomi.NewClient(ctx, u, true)
	w.g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = c.Logout(ctx) }()
	vm := object.NewVirtualMachine(c.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: w.vm(name).Ref})
	task, err := vm.PowerOff(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(task.Wait(ctx)).To(Succeed())
}

// sessions of the manager under test that are open.
func (w *world) sessions() (n int) {
	for _, s := range w.vcenter.World().Sessions {
		if strings.Contains(s.UserAgent, "berth-test") {
			n++
		}
	}
	return n
}

// writeCounter counts what a manager writes to the API server, events and leases apart.
type writeCounter struct {
	mu       sync.Mutex
	by       map[string]int
	conflict int
}

var resource = regexp.MustCompile(`/namespaces/[^/]+/([^/]+)(?:/[^/]+)?(/status)?$`)

func (c *writeCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "/events") {
			return response, err
		}
		key := r.Method + " " + r.URL.Path
		if m := resource.FindStringSubmatch(r.URL.Path); m != nil {
			key = r.Method + " " + m[1] + m[2]
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.by[key]++
		if response.StatusCode == http.StatusConflict {
			c.conflict++
		}
		return response, nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *writeCounter) snapshot() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for k, v := range c.by {
		out[k] = v
	}
	return out
}

func (c *writeCounter) total() (n int) {
	for _, v := range c.snapshot() {
		n += v
	}
	return n
}

func (c *writeCounter) conflicts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conflict
}

// soon is how long the tests watch for something that must not happen.
const soon = 500 * time.Millisecond
