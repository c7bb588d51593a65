package invariant_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/invariant"
)

const vmdk = "[ds] demo-w-1/data.vmdk"

func rest(change func(*invariant.Snapshot)) invariant.Snapshot {
	records := invariant.Records{
		Marks: map[string]string{"m1": "demo-1"},
		Slots: []invariant.Slot{{Pool: "ns/pool", HostName: "w-1", Mark: "m1"}, {Pool: "ns/pool", HostName: "w-2"}},
		Disks: []invariant.Disk{{Pool: "ns/pool", HostName: "w-1", Name: "data", Volume: vmdk, Identity: "u1"}},
	}
	s := invariant.Snapshot{
		Before: records, After: records,
		Servers: []invariant.Server{{ID: "vm-1", Name: "demo-1", Mark: "m1", On: true, Volumes: []string{vmdk}}},
		Volumes: []invariant.Volume{{Address: vmdk, Identity: "u1"}},
	}
	if change != nil {
		change(&s)
	}
	return s
}

// both gives the snapshot other records, the same before and after.
func both(s *invariant.Snapshot, change func(*invariant.Records)) {
	r := invariant.Records{Marks: map[string]string{}}
	for k, v := range s.Before.Marks {
		r.Marks[k] = v
	}
	r.Slots = append(r.Slots, s.Before.Slots...)
	r.Disks = append(r.Disks, s.Before.Disks...)
	change(&r)
	s.Before, s.After = r, r
}

func TestChecker(t *testing.T) {
	tests := []struct {
		name    string
		next    func(*invariant.Snapshot)
		promise int
	}{
		{"nothing changes", nil, 0},
		{"a volume disappears", func(s *invariant.Snapshot) { s.Volumes, s.Servers[0].Volumes = nil, nil }, 2},
		{"a volume is replaced by a blank one of the same name", func(s *invariant.Snapshot) { s.Volumes[0].Identity = "u2" }, 2},
		{"a volume goes after its deletion was recorded", func(s *invariant.Snapshot) {
			s.Volumes, s.Servers[0].Volumes = nil, nil
			both(s, func(r *invariant.Records) { r.Disks[0].Expendable = true })
		}, 0},
		{"a volume goes with its pool", func(s *invariant.Snapshot) {
			s.Volumes, s.Servers = nil, nil
			both(s, func(r *invariant.Records) { *r = invariant.Records{} })
		}, 0},
		{"a record of a volume is lost with the volume", func(s *invariant.Snapshot) {
			s.Volumes, s.Servers[0].Volumes = nil, nil
			both(s, func(r *invariant.Records) { r.Disks = nil })
		}, 2},
		{"a record of a volume is lost, the volume stays", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Disks = nil })
		}, 0},
		{"a slot changes hands under a living server", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Slots[0].Mark, r.Marks["m2"] = "m2", "demo-2" })
		}, 1},
		{"a slot changes hands after the server has gone", func(s *invariant.Snapshot) {
			s.Servers = nil
			both(s, func(r *invariant.Records) { r.Slots[0].Mark, r.Marks["m2"] = "m2", "demo-2" })
		}, 0},
		{"a machine takes a second slot", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Slots[1].Mark = "m1" })
		}, 1},
		{"a machine gets a second server", func(s *invariant.Snapshot) {
			s.Servers = append(s.Servers, invariant.Server{ID: "vm-2", Name: "demo-1", Mark: "m1"})
		}, 3},
		{"a server outlives its machine", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Marks, r.Slots[0].Mark = nil, "m1" })
		}, 3},
		{"a volume is on two servers", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Marks["m2"] = "demo-2" })
			s.Servers = append(s.Servers, invariant.Server{ID: "vm-2", Name: "demo-2", Mark: "m2", Volumes: []string{vmdk}})
		}, 1},
		{"the cloud reports a misdeed", func(s *invariant.Snapshot) { s.Misdeeds = []string{"HotDetach"} }, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			var c invariant.Checker
			c.Step(rest(nil))
			g.Expect(c.Breaches()).To(BeEmpty(), "at rest nothing is broken")
			c.Step(rest(tt.next))
			if tt.promise == 0 {
				g.Expect(c.Breaches()).To(BeEmpty())
				return
			}
			g.Expect(c.Breaches()).NotTo(BeEmpty())
			g.Expect(c.Breaches()[0].Promise).To(Equal(tt.promise), "%v", c.Breaches())
		})
	}
}

func TestFinal(t *testing.T) {
	gone := func(s *invariant.Snapshot) {
		s.Servers = nil
		both(s, func(r *invariant.Records) { *r = invariant.Records{} })
	}
	tests := []struct {
		name        string
		first, last func(*invariant.Snapshot)
		promise     int
	}{
		{"at rest", nil, nil, 0},
		{"a pool leaves its volume", nil, gone, 3},
		{"a pool leaves its volume as it was told", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Retained = []string{"ns/pool"} })
		}, gone, 0},
		{"a pool leaves a volume that was never complete", func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Disks[0].Identity, r.Disks[0].Expendable = "", true })
		}, gone, 3},
		{"a pool takes its volume along", nil, func(s *invariant.Snapshot) { gone(s); s.Volumes = nil }, 0},
		{"a pool that lost its records still has its volume", nil, func(s *invariant.Snapshot) {
			both(s, func(r *invariant.Records) { r.Disks = nil })
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			var c invariant.Checker
			c.Step(rest(tt.first))
			c.Final(rest(tt.last))
			if tt.promise == 0 {
				g.Expect(c.Breaches()).To(BeEmpty())
				return
			}
			g.Expect(c.Breaches()).To(HaveLen(1))
			g.Expect(c.Breaches()[0].Promise).To(Equal(tt.promise))
		})
	}
}
