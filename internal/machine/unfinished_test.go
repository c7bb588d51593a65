package machine_test

import (
	"context"
	"testing"

	"github.com/berth-dev/berth/internal/machine"
)

// slow is a platform on which creations run for long before their server shows.
type slow struct {
	gated
	creating *bool
}

func (s slow) Creating(context.Context, machine.Identity) (bool, error) { return *s.creating, nil }

// pain 45: the process died between the request for a server and the record of its operation, and the deletion that follows
// finds nothing. However long the creation takes, the place is not given back and the machine does not go before it has ended.
func TestCreationOfUnknownOutcomeIsAwaited(t *testing.T) {
	w, p, a := single(t)
	a.spec = &machine.ServerSpec{Name: "vm-a", Mark: "mark-a", Location: "dc-a", Place: ptr(place("w-1", "10.0.0.11/24"))}
	p.remove(a)
	creating := true
	look := func() machine.Report {
		life, err := p.life(a)
		if err != nil {
			t.Fatal(err)
		}
		life.Platform = slow{gated{w.cloud, w.gate}, &creating}
		w.clock = w.clock.Add(machine.DefaultSettle)
		return p.engine.Delete(context.Background(), life)
	}
	for range 5 {
		expect(t, look(), machine.Wait, machine.ReasonDeleting, "vm-a", "still creates")
	}
	creating = false
	expect(t, look(), machine.Wait, machine.ReasonDeleting, "may still appear")
	if r := look(); r.Outcome != machine.Done {
		t.Errorf("it does not go although nothing is created any more: %s %s", r.Reason, r.Message)
	}
}
