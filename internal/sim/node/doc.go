// Package node is what happens on a simulated guest once its cloud-init runs kubeadm: certificates, static pods, the etcd
// member, kube-apiserver and kube-controller-manager as real processes on the guest's own loopback addresses, the bootstrap
// handshake, and a kubelet that keeps the Node, its lease, its mirror pods and port 10250.
//
// Everything durable lives on the guest's disks, under the paths the real programs use (/etc/kubernetes, /var/lib/etcd,
// /var/lib/kubelet), so that a power cycle finds what the last life left and a rebuilt guest finds only what its disks kept.
// The package knows nothing of the cloud that runs the guest.
//
// # What is real
//
// kubeadm's documents (v1beta3 and v1beta4), preflight findings about leftovers and taken addresses, phases and their error
// texts; the discovery of a cluster (signed cluster-info, pinned CA) and the kubelet's TLS bootstrap; etcd members that join
// as learners; static pod manifests with kubeadm's flags; credentials and admission (system:node, NodeRestriction); a Node
// that is taken over with its old providerID when a machine of that name comes back; crashed containers that are started
// again with a growing pause.
//
// # What is not
//
// Leaf keys are ECDSA, not RSA. The processes share the host's loopback interface, so 127.0.0.1 in a guest's manifests becomes
// the guest's address, and the kubernetes Service has no endpoints, which may not be on loopback. One set of programs stands
// in for every Kubernetes version. The controller manager's lease is shorter than kubeadm leaves it, because every join waits
// for it after a leader is gone. kube-scheduler is a few rules; other pods, static or not, run as nothing and are ready at
// once. There are no liveness probes, volumes, resource limits, container networks or commands in containers, no certificate
// rotation and no external etcd.
package node
