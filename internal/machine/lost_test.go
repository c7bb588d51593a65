package machine_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/machine"
)

// Promise 5: with the notes and the pool's status gone, a machine that runs is found by its mark in its place, with its disks, and
// is neither powered off, nor made again, nor told to be.
func TestAllMemoryLost(t *testing.T) {
	w, p, a := single(t)
	if r := p.passes(3, a); !r.Ready {
		t.Fatalf("not ready: %+v", r.Result)
	}
	contents := w.cloud.Contents()
	w.mu.Lock()
	w.state.Records, w.state.Disks, w.state.Ephemeral, w.state.Consumer = nil, nil, nil, nil
	a.notes, a.report = machine.Notes{}, machine.Report{}
	w.version++
	w.mu.Unlock()
	p = w.start()
	starts := w.calls("PowerOn")
	r := p.pass(a)
	if !r.Ready {
		t.Errorf("%s: %s, %s", r.Phase, r.Reason, r.Message)
	}
	if w.calls("PowerOn") != starts || len(w.cloud.Servers()) != 1 || len(w.cloud.Violations()) != 0 {
		t.Errorf("servers %v, violations %v", w.cloud.Servers(), w.cloud.Violations())
	}
	if len(w.cloud.Contents()) != len(contents) {
		t.Errorf("disks %v, were %v", w.cloud.Contents(), contents)
	}
	for _, d := range w.state.Disks {
		if d.Phase != "Attached" || d.OwnerMark != "mark-a" {
			t.Errorf("%+v", d)
		}
	}
}
