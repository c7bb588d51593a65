// Package chaos breaks one thing at a time, at every point where something can break, and looks whether the five promises hold.
//
// A flow (create a machine, replace it in a full pool, delete a pool and so on) runs once undisturbed in front of a recorder:
// every call to vCenter and every write to the API server that it makes becomes a point, named by flow, method and number
// ("create:CloneVM_Task:1") and never by time. Then the flow runs once for every point and every kind of fault that is possible
// there: the manager is killed right before the call or right after it has taken effect, the call fails, its answer is lost, its
// task fails after its effect, and so on. Afterwards the flow must reach its end all the same, and the world is examined:
// no promise broken at any moment, nothing left behind, every byte that was declared persistent still in its place.
//
// Everything is real but vCenter, the guests and Cluster API: a kube-apiserver, the controllers, the session with vCenter through
// a proxy that disturbs it. Cluster API's part is played by a few lines that delete what it deletes, in its order.
//
// `go test ./test/chaos` draws some points by a fixed seed; `make chaos` runs all. A point that did not survive is printed with
// the command that runs it alone.
package chaos
