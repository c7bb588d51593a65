//go:build e2e

package e2e

import "testing"

// tour is a cluster of a kind of its own and what its owner does with it.
type tour struct {
	// example names the manifests that it begins with.
	example string
	flows   []flow
}

// TestTours begins with the variants of the example and goes where TestJourney does not.
func TestTours(t *testing.T) {
	tours := map[string]tour{}
	if *full {
		tours["second interface"] = tour{"second-nic", []flow{
			{"create with two interfaces", createWithTwoInterfaces},
			{"take the second interface away", func(t *testing.T, w *world) { takeInterface(t, w, "one") }},
			{"add a second interface", func(t *testing.T, w *world) { addInterface(t, w, "two") }},
			{"pools that keep their disks", keepPool},
			{"pools that do not", losePool},
			{"delete the cluster", deleteCluster},
		}}
		tours["older disks"] = tour{"legacy-disks", []flow{
			{"create", create},
			{"roll control planes with older disks", rollLegacyControlPlanes},
			{"roll workers with older disks", rollLegacyWorkers},
			{"a second group of workers, with newer disks", secondGroup},
			{"delete the cluster but not its disks, and create it again", keepCluster},
			{"delete the cluster", deleteCluster},
		}}
	}
	for name, tour := range tours {
		t.Run(name, func(t *testing.T) { travel(t, newWorld(t, tour.example), tour.flows, nil) })
	}
}
