package machine_test

import (
	"fmt"
	"testing"

	"github.com/berth-dev/berth/internal/machine"
)

// Hazard H2, VS-D20: a guest that does not stop keeps its disks. Nothing is detached before the server is seen off, however often it is
// looked at.
func TestNothingIsDetachedFromARunningGuest(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	w.cloud.Stubborn = true
	p.remove(a)
	expect(t, p.passes(5, a), machine.Wait, machine.ReasonPoweringOff, "vm-a")
	if w.calls("Detach")+w.calls("Destroy") != 0 || len(w.cloud.Violations()) > 0 {
		t.Errorf("calls %v, violations %v", w.gate.trace, w.cloud.Violations())
	}
	w.cloud.Stubborn = false
	p.passes(5, a)
	if !a.gone || len(w.cloud.Contents()) != 2 {
		t.Errorf("gone %v, volumes %v", a.gone, w.cloud.Contents())
	}
}

// Hazard H17, VS-R59, VS-D26: a rollback replaces machines like any other change, whoever asks for it. Disks are neither made anew, nor
// deleted, nor taken back to what they were.
func TestRollbackLeavesDisksAlone(t *testing.T) {
	w, p, a := single(t)
	p.passes(2, a)
	before := fmt.Sprint(w.state.Disks[0].Volume, w.state.Disks[0].Identity, w.cloud.Contents())
	last := a
	for _, name := range []string{"forward", "back"} {
		p.remove(last)
		p.passes(5, last)
		delete(w.machines, "owner-uid-"+last.name)
		p.passes(1)
		next := w.add(name)
		if p.passes(5, next); !next.notes.Ready {
			t.Fatalf("%s: %s %s", name, next.report.Reason, next.report.Message)
		}
		last = next
	}
	if after := fmt.Sprint(w.state.Disks[0].Volume, w.state.Disks[0].Identity, w.cloud.Contents()); after != before {
		t.Errorf("the disks were %s and are %s", before, after)
	}
	if w.calls("CreateVolume") != 2 || w.calls("DeleteVolume") != 0 || len(w.cloud.Violations()) > 0 {
		t.Errorf("%d volumes created, %d deleted, violations %v", w.calls("CreateVolume"), w.calls("DeleteVolume"), w.cloud.Violations())
	}
}
