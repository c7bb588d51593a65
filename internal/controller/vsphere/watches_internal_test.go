package vsphere

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A bootstrap Secret that is put right wakes its machine; a resync and a deletion do not.
func TestWhichSecretEventsWake(t *testing.T) {
	version := func(v string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: v}}
	}
	p := written()
	if !p.Create(event.CreateEvent{Object: version("1")}) || !p.Update(event.UpdateEvent{ObjectOld: version("1"), ObjectNew: version("2")}) {
		t.Error("a Secret that was written wakes nobody")
	}
	if p.Update(event.UpdateEvent{ObjectOld: version("2"), ObjectNew: version("2")}) || p.Delete(event.DeleteEvent{Object: version("2")}) {
		t.Error("nothing was written and somebody is woken")
	}
}
