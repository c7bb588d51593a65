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
// The state directory holds
//
//	disks/<uuid>/meta.json       what a probe of the disk finds; absent on a blank or raw disk
//	disks/<uuid>/fs/             the root of the disk's file system
//	disks/<uuid>/raw             the bytes of a raw disk, sparse
//	guests/<vm>/console.log      the serial console, over all boots
//	guests/<vm>/status.json      Status
//	guests/<vm>/mounts.json      the mount table, for Open
//	guests/<vm>/run/             the guest's /run, lost with the power
//	guests/<vm>/runtime/         process records and logs of a control plane
//
// A disk's directory goes when the simulated vCenter deletes the VMDK, a guest's when the virtual machine is gone. A second
// machine of the same name, in another datacenter, has its reference behind the name.
//
// A guest's kubeadm and kubelet have the version that the virtual machine's image was built with, or, if it does not say, the
// version of the cluster. kubeadm refuses a kubelet that the version skew policy does not allow beside the control plane.
//
// What is simpler than in reality: there is no DHCP; a kube-apiserver is the one that is at hand, whatever the image's version
// and the tag in its static pod; an interrupted cloud-init is repeated only if it was the simulator that was interrupted.
//
// The guests know vSphere and Kubernetes, and nothing of the controllers that made them: any provider's manager can use
// them.
package guest
