package vsphere

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/disk"
	"github.com/berth-dev/berth/internal/pool"
)

// pinnedAgain is how long an answer about datastores is believed: which hosts mount them hardly ever changes.
const pinnedAgain = 10 * time.Minute

// pinned remembers, for each pool, what was said about the datastores that its disks lie on, so that a pool at rest asks nothing.
type pinned struct {
	mu    sync.Mutex
	known map[types.NamespacedName]pinnedAnswer
}

type pinnedAnswer struct {
	of, says string
	read     time.Time
}

// warnOfPinned says on a pool whose disks are well that some of them tie their slots to one host (VS-D8).
func (r *poolReconciler) warnOfPinned(ctx context.Context, p *infrav1.VSphereMachineConfigPool, infra *infrav1.VSphereCluster, summary pool.Summary) {
	if infra == nil || !conditions.IsTrue(p, infrav1.PersistentDisksReadyCondition) || !conditions.IsTrue(p, infrav1.VCenterAvailableCondition) {
		return
	}
	if says := r.pinnedOf(ctx, p, infra, summary); says != "" {
		setCondition(p, infrav1.PersistentDisksReadyCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, says)
	}
}

func (r *poolReconciler) pinnedOf(ctx context.Context, p *infrav1.VSphereMachineConfigPool, infra *infrav1.VSphereCluster, summary pool.Summary) string {
	byPlace := map[string][]string{}
	where := map[string]string{}
	for _, config := range p.Spec.Configs {
		where[config.Hostname] = slotOf(config, p.Spec.Datacenter).Location
	}
	var of []string
	for _, d := range summary.State.Disks {
		datastore, _, ok := strings.Cut(strings.TrimPrefix(d.Volume, "["), "]")
		if !ok || d.Phase == disk.Absent || d.Phase == disk.Reclaimed {
			continue
		}
		place := where[d.HostName]
		if name := place + "/" + datastore; !slices.Contains(of, name) {
			of = append(of, name)
			byPlace[place] = append(byPlace[place], d.Volume)
		}
	}
	slices.Sort(of)
	key, id := client.ObjectKeyFromObject(p), strings.Join(of, ",")
	r.pinned.mu.Lock()
	known, ok := r.pinned.known[key]
	r.pinned.mu.Unlock()
	if len(of) == 0 {
		return ""
	}
	if ok && known.of == id && time.Since(known.read) < pinnedAgain {
		return known.says
	}
	session, err := r.access.session(ctx, infra, "", "", "")
	if err != nil {
		return known.says
	}
	says := map[string]string{}
	for place, volumes := range byPlace {
		found, err := session.Pinned(ctx, place, volumes)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Cannot tell which hosts see the datastores of the pool's disks", "datacenter", place, "error", err.Error())
			return known.says
		}
		maps.Copy(says, found)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(says)) {
		parts = append(parts, says[name])
	}
	answer := pinnedAnswer{of: id, says: strings.Join(parts, "; "), read: time.Now()}
	r.pinned.mu.Lock()
	defer r.pinned.mu.Unlock()
	if r.pinned.known == nil {
		r.pinned.known = map[types.NamespacedName]pinnedAnswer{}
	}
	r.pinned.known[key] = answer
	return answer.says
}
