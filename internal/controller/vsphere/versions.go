package vsphere

import (
	"fmt"
	"strings"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// versions remembers what was told about kubelets of another version than asked for, so that it is told once.
type versions struct {
	mu   sync.Mutex
	told map[machine.Mark]string
}

// news says whether a sentence about a machine was not told before.
func (v *versions) news(mark machine.Mark, sentence string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.told == nil {
		v.told = map[machine.Mark]string{}
	}
	if v.told[mark] == sentence {
		return false
	}
	v.told[mark] = sentence
	return true
}

func (v *versions) forget(mark machine.Mark) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.told, mark)
}

// kubelet is the version that a Machine's Node reports, "" while it is unknown.
func kubelet(m *clusterv1.Machine) string {
	if m.Status.NodeInfo == nil {
		return ""
	}
	return m.Status.NodeInfo.KubeletVersion
}

// warnOfVersion tells of a Node whose kubelet has another version than the Machine asks for: the image was made for another one, and
// Cluster API takes the Machine for what it asked for.
func (r *machineReconciler) warnOfVersion(s *scope) {
	want, have := s.owner.Spec.Version, kubelet(s.owner)
	if want == "" || have == "" || release(want) == release(have) {
		return
	}
	sentence := fmt.Sprintf("Machine %s asks for Kubernetes %s in spec.version and its Node runs kubelet %s: the image of template %q has another version; name a template with %s and roll out",
		s.owner.Name, want, have, s.machine.Spec.Template, want)
	if r.versions.news(s.mark(), sentence) {
		r.publish(s.machine, []machine.Event{{Warning: true, Reason: infrav1.EventKubeletVersionMismatch, Message: sentence}})
	}
}

// release drops the leading v and build metadata.
func release(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	return version
}
