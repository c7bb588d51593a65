// Package e2e walks through the life of a cluster as its owner would: a real management cluster, the real Cluster API managers,
// berth-manager, a simulated vCenter and simulated guests, all as processes, driven by kubectl and berth alone.
//
// The tests carry the build tag e2e and are run by `make e2e` and `make e2e-full`. What a user types is typed here too; the Go
// client only looks. An invariant checker watches both worlds from the first moment to the last.
package e2e
