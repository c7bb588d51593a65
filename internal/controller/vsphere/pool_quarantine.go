package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// releaseQuarantined carries out what a person has decided in the annotation: the named slots go back to the state that their
// published word says, and are judged anew from there. The annotation goes when that is on record.
func (r *poolReconciler) releaseQuarantined(ctx context.Context, key client.ObjectKey) error {
	p := &infrav1.VSphereMachineConfigPool{}
	if err := r.reader.Get(ctx, key, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	list, decided := p.Annotations[infrav1.ReleaseQuarantinedAnnotation]
	if !decided {
		return nil
	}
	var released []string
	for i := range p.Status.ConfigStatuses {
		c := &p.Status.ConfigStatuses[i]
		if c.Quarantine != "" && slices.Contains(hostNames(list), c.Hostname) {
			c.Quarantine = ""
			released = append(released, c.Hostname)
		}
	}
	if len(released) > 0 {
		if err := r.client.Status().Update(ctx, p); err != nil {
			return fmt.Errorf("releasing quarantined slots: %w", err)
		}
		r.latest.wrote(p)
		publish(r.recorder, p, []machine.Event{{
			Reason: infrav1.EventSlotReleased, Message: "released from quarantine by annotation: " + strings.Join(released, ", "),
		}})
	}
	before := p.DeepCopy()
	delete(p.Annotations, infrav1.ReleaseQuarantinedAnnotation)
	if err := r.client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("removing the annotation %s: %w", infrav1.ReleaseQuarantinedAnnotation, err)
	}
	r.latest.wrote(p)
	// This went past the pool's writer, which has to read what is there now; who waits for a slot asks again.
	r.writer(key).Forget()
	r.wake(ctx, key)
	return nil
}

func hostNames(list string) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}
