// Package guest runs the guests of a simulated vCenter: it watches the virtual machines over the ordinary vSphere API, and
// whenever one is powered on, it does what the operating system in it would do. It reads metadata and user data from the
// guestinfo keys, takes host name and addresses from them, keeps files on the virtual disks (directories and sparse files
// under the state directory, named by the disks' UUIDs), finds, formats and mounts the disks of its place with the decisions
// of the real disk script, and runs what cloud-init would run. kubeadm then brings up a real etcd member and kube-apiserver
// on the guest's own loopback address, or joins as a worker: package node does that.
//
// User data never runs on the host. Commands are interpreted: those listed in commands.go have their effect on the guest,
// everything else is written down on the guest's console as not run. A guest whose user data is wrong fails where a real one
// would and says so on its console.
//
// The guests know vSphere and Kubernetes, and nothing of the controllers that made them: any provider's manager can use
// them.
package guest
