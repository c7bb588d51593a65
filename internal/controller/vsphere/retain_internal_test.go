package vsphere

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// Decision D19: a Cluster that wanted its disks kept was removed by force while its pool was still being deleted, and the manifests,
// which say nothing about it, were applied again. The new Cluster does not speak for the old pool.
func TestLaterClusterDoesNotTakeTheWishBack(t *testing.T) {
	cluster := func(uid types.UID, wish string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Name: "demo", UID: uid, Annotations: map[string]string{infrav1.RetainDisksAnnotation: wish},
		}}
	}
	for name, c := range map[string]struct {
		own      string
		deleting bool
		now      *clusterv1.Cluster
		kept     bool
	}{
		"nobody asks for it":                        {now: cluster("first", "")},
		"the pool does":                             {own: "true", deleting: true, now: cluster("second", ""), kept: true},
		"the Cluster does":                          {deleting: true, now: cluster("first", "true"), kept: true},
		"a Cluster that is gone did":                {own: retainByCluster, deleting: true, kept: true},
		"a Cluster did that was made again without": {own: retainByCluster, deleting: true, now: cluster("second", ""), kept: true},
		"the Cluster took it back":                  {own: retainByCluster, deleting: true, now: cluster("first", "")},
		"the new Cluster of a pool that lives":      {own: retainByCluster, now: cluster("second", "")},
	} {
		p := &infrav1.VSphereMachineConfigPool{}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "demo", UID: "first"}}
		if c.own != "" {
			setAnnotation(p, infrav1.RetainDisksAnnotation, c.own)
		}
		if c.deleting {
			p.DeletionTimestamp = ptr.To(metav1.Now())
		}
		if got := retains(p, c.now); got != c.kept {
			t.Errorf("%s: disks kept: %t", name, got)
		}
	}
}
