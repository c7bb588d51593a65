package vsphere_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// pain 45: a clone goes on after its client has gone and nobody remembers the task; until it ends nothing is believed absent.
func TestCloneOfUnknownOutcome(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	c := newCloud(t, vcenter.Options{CloneTime: 3 * time.Second})
	spec := machine.ServerSpec{Name: "m-1", Mark: "7c9e6679-7425-40de-944b-e07fc1f90ae7", Shape: shape()}
	id := machine.Identity{Mark: spec.Mark, Name: spec.Name, Location: "dc-a"}
	g.Expect(c.dial(t).Creating(ctx, id)).To(BeFalse(), "nothing was asked for")
	_, err := c.dial(t).Create(ctx, spec)
	g.Expect(err).NotTo(HaveOccurred())

	after := c.dial(t)
	_, err = after.LookupLive(ctx, id)
	g.Expect(machine.Is(err, machine.NotFound)).To(BeTrue(), "the clone does not show yet: %v", err)
	g.Expect(after.Creating(ctx, id)).To(BeTrue())
	g.Eventually(func() (bool, error) { return after.Creating(ctx, id) }, 20*time.Second).Should(BeFalse())
	_, err = after.LookupLive(ctx, id)
	g.Expect(err).NotTo(HaveOccurred(), "and now it is there to be destroyed")
}
