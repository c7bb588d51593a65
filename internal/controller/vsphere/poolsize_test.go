package vsphere_test

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// large is a pool whose slots have long names, two interfaces of two families each, and these disks.
func (w *world) large(slots, persistent, ephemeral int) *infrav1.VSphereMachineConfigPool {
	pool := &infrav1.VSphereMachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("large-%d-%d-%d", slots, persistent, ephemeral)}}
	pool.Spec.ClusterRef = corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo"}
	for i := range slots {
		nic := func(n int) infrav1.MachineConfigNetworkDevice {
			return infrav1.MachineConfigNetworkDevice{
				NetworkName: "/datacenter-of-the-north/network/distributed-port-group-of-nodes", DeviceName: "ens192",
				IP: fmt.Sprintf("100.%d.%d.%d/24", 100+n, i/250, 1+i%250), Gateway: "100.100.100.254", IPv6: fmt.Sprintf("fd00:1111:2222:%d::%x/64", n, i+1), IPv6Gateway: "fd00:1111:2222:3333::1",
				DNS: []string{"100.100.100.100", "100.100.100.101"},
			}
		}
		config := infrav1.VSphereMachineConfig{
			Hostname: fmt.Sprintf("%s-%04d.example.org", strings.Repeat("w", 58), i), Datacenter: "datacenter-of-the-north",
			Network: &infrav1.MachineConfigNetwork{Primary: nic(0), Additional: []infrav1.MachineConfigNetworkDevice{nic(1)}},
		}
		for d := range persistent {
			config.PersistentDisks = append(config.PersistentDisks, infrav1.PersistentDisk{
				Name: fmt.Sprintf("var-lib-something-%d", d), SizeGiB: 1000, Datastore: "datastore-of-the-north-01", UnitNumber: ptr.To[int32](1),
				MountPath: fmt.Sprintf("/var/lib/something-%d", d), FSFormat: infrav1.Ext4, MountOptions: []string{"noatime", "nodiratime"}, WipeFilesystem: ptr.To(false),
			})
		}
		for d := range ephemeral {
			config.EphemeralDisks = append(config.EphemeralDisks, infrav1.EphemeralDisk{
				Name: fmt.Sprintf("var-lib-other-%d", d), SizeGiB: 1000, Datastore: "datastore-of-the-north-01", MountPath: fmt.Sprintf("/var/lib/other-%d", d), FSFormat: infrav1.XFS,
			})
		}
		pool.Spec.Configs = append(pool.Spec.Configs, config)
	}
	return pool
}

// fill sets every field of the status, with every slot in use and every disk in error.
func fill(p *infrav1.VSphereMachineConfigPool) {
	uid := func(n int) string { return fmt.Sprintf("7c9e6679-7425-40de-944b-%012d", n) }
	now := ptr.To(metav1.NewTime(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)))
	p.Status.Total, p.Status.Allocated = int32(len(p.Spec.Configs)), int32(len(p.Spec.Configs))
	p.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment", Namespace: p.Namespace, Name: strings.Repeat("m", 63)}
	for i, c := range p.Spec.Configs {
		name := fmt.Sprintf("%s-%05d", strings.Repeat("m", 57), i)
		p.Status.ConfigStatuses = append(p.Status.ConfigStatuses, infrav1.VSphereMachineConfigStatus{
			Hostname: c.Hostname, State: infrav1.ConfigStateInUse, Mark: uid(i), CAPIMachineName: name, CAPIMachineUID: uid(i), VacatedTime: now,
			MachineRef: &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereMachine", Namespace: p.Namespace, Name: name, UID: types.UID(uid(i))},
		})
		for _, d := range c.PersistentDisks {
			path := fmt.Sprintf("[%s] %s-%s-100.100.100.100-0123abcd/%s-100.100.100.100-%s.vmdk", d.Datastore, strings.Repeat("c", 40), c.Hostname, c.Hostname, d.Name)
			p.Status.PersistentDiskStatuses = append(p.Status.PersistentDiskStatuses, infrav1.PersistentDiskStatus{
				Hostname: c.Hostname, Name: d.Name, VolumePath: path, DiskUUID: uid(i), UnitNumber: ptr.To[int32](15), CapacityGiB: d.SizeGiB,
				Phase: infrav1.DiskPhaseError, InterruptedPhase: infrav1.DiskPhaseReclaiming, OwnerMachineUID: uid(i), OwnerMachineName: name, OwnerMark: uid(i),
				TaskRef: "task-123456", RetryAfter: now, LastTransitionTime: now,
				LastError: "the data of this disk is gone: " + path + " is on record and is not there. It is not replaced by a blank one: restore it, or release and reclaim the slot to start anew",
			})
		}
		for _, d := range c.EphemeralDisks {
			p.Status.EphemeralDiskStatuses = append(p.Status.EphemeralDiskStatuses, infrav1.EphemeralDiskStatus{
				Hostname: c.Hostname, Name: d.Name, UnitNumber: ptr.To[int32](15), DiskUUID: uid(i),
			})
		}
	}
}

// stored is how many bytes the API server keeps of a pool.
func stored(p *infrav1.VSphereMachineConfigPool) (int, error) {
	config := rest.CopyConfig(restConfig)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &infrav1.GroupVersion, "/apis", clientscheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		return 0, err
	}
	body, err := raw.Get().Namespace(p.Namespace).Resource("vspheremachineconfigpools").Name(p.Name).Do(ctx).Raw()
	return len(body), err
}

// The largest pool that admission lets through can be written with every field of its status filled, and what admission expects of
// it is not too little.
func TestLargestPoolFits(t *testing.T) {
	w := newWorld(t)
	for _, shape := range []struct{ persistent, ephemeral int }{{0, 0}, {1, 1}, {2, 2}, {4, 2}, {14, 0}} {
		t.Run(fmt.Sprintf("%d persistent, %d ephemeral disks", shape.persistent, shape.ephemeral), func(t *testing.T) {
			g := NewWithT(t)
			slots := sort.Search(10000, func(n int) bool {
				return rules.PoolBytes(w.large(n+1, shape.persistent, shape.ephemeral)) > rules.MaxPoolBytes
			})
			p := w.large(slots, shape.persistent, shape.ephemeral)
			expected := rules.PoolBytes(p)
			g.Expect(k8s.Create(ctx, p)).To(Succeed())
			fill(p)
			g.Expect(k8s.Status().Update(ctx, p)).To(Succeed())
			// And again, as an update of what is there: the request counts, and so does what was there before.
			p.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Full", Message: strings.Repeat("x", 4000), LastTransitionTime: metav1.Now()}}
			g.Expect(k8s.Status().Update(ctx, p)).To(Succeed())
			size, err := stored(p)
			g.Expect(err).NotTo(HaveOccurred())
			t.Logf("%d slots: %d bytes stored, at most %d expected", slots, size, expected)
			g.Expect(size).To(BeNumerically("<=", expected))
			g.Expect(k8s.Delete(ctx, p)).To(Succeed())
		})
	}
}
