// Package local runs a whole world on one machine, without root and on loopback only: a management cluster made of real
// programs (etcd, kube-apiserver, kube-controller-manager, the three Cluster API managers), Berth's own manager, a simulated
// vCenter and simulated guests, and in it, if wanted, the example cluster.
//
// Everything of one environment lives in one directory and in one range of addresses, 127.N.0.0/16. Processes are detached:
// they outlive the command that started them. Each has a file in <dir>/run that identifies it beyond reuse of its number, and
// a log in <dir>/logs. Up is a repair as much as a start: what runs and is ready is left alone, what is missing is brought
// back. The one thing that cannot be brought back is the simulated vCenter, which keeps its world in memory; see ErrWorldLost.
//
// Read up.go first: it lists the steps and what each waits for.
package local
