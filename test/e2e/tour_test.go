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
	tours := map[string]tour{
		"two zones": {"failure-domains", []flow{
			{"create over two datacenters", createInZones},
			{"a health check replaces a worker of a full pool", remediateWorker},
			{"a health check replaces a control plane", remediateControlPlane},
			{"delete the cluster", deleteCluster},
		}},
	}
	if *full {
		tours["two zones"] = tour{"failure-domains", []flow{
			{"create over two datacenters", createInZones},
			{"a health check replaces a worker of a full pool", remediateWorker},
			{"a health check replaces a control plane", remediateControlPlane},
			{"a second interface in one zone, and back", changeInterfacesInZone},
			{"roll control planes over their zones", rollOverZones},
			{"delete the cluster", deleteCluster},
		}}
		tours["second interface"] = tour{"second-nic", []flow{
			{"create with two interfaces", createWithTwoInterfaces},
			{"take the second interface away", func(t *testing.T, w *world) { w.takeInterface(t, firstGroup, "one", "") }},
			{"add a second interface", func(t *testing.T, w *world) { w.addInterface(t, firstGroup, "two", "") }},
			{"pools that keep their disks", keepPool},
			{"pools that do not", losePool},
			{"delete the cluster", deleteCluster},
		}}
		tours["two management clusters"] = tour{"v1beta1", []flow{
			{"create", create},
			{"move to another management cluster", moveAway},
			{"replace a machine there", replaceOne},
			{"delete the cluster", deleteCluster},
		}}
		tours["older disks"] = tour{"legacy-disks", []flow{
			{"create", create},
			{"roll control planes with older disks", rollLegacyControlPlanes},
			{"roll workers with older disks", rollLegacyWorkers},
			{"a second group of workers, with newer disks", secondGroup},
			{"wrong addresses in a pool", wrongPlaces},
			{"wrong disks in a pool", wrongDisks},
			{"two owners of one pool while nobody checks", contestedPool},
			{"delete the cluster but not its disks, and create it again", keepCluster},
			{"delete the cluster", deleteCluster},
		}}
	}
	for name, tour := range tours {
		t.Run(name, func(t *testing.T) { travel(t, newWorld(t, tour.example), tour.flows, nil) })
	}
}
