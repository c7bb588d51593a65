//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// place is what must stay when the machine in it goes.
type place struct {
	HostName, Address string
	// Persistent disks: name to "path uuid".
	Persistent map[string]string
}

// tenant is what must change when the machine is replaced.
type tenant struct {
	Machine, ProviderID string
	// Ephemeral disks: name to UUID.
	Ephemeral map[string]string
}

// pools lists the pools of the example's cluster by name.
func (w *world) pools(ctx context.Context, g Gomega) map[string]infrav1.VSphereMachineConfigPool {
	list := &infrav1.VSphereMachineConfigPoolList{}
	g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	byName := map[string]infrav1.VSphereMachineConfigPool{}
	for _, p := range list.Items {
		byName[p.Name] = p
	}
	return byName
}

// places reads the places of a pool as they are recorded, with their tenants, by host name. Only slots in use count.
func (w *world) places(ctx context.Context, g Gomega, pool string) (map[string]place, map[string]tenant) {
	p, found := w.pools(ctx, g)[pool]
	g.Expect(found).To(BeTrue(), "pool %s exists", pool)
	places, tenants := map[string]place{}, map[string]tenant{}
	for _, s := range p.Status.ConfigStatuses {
		if s.State != infrav1.ConfigStateInUse || s.VacatedTime != nil {
			continue
		}
		pl := place{HostName: s.Hostname, Persistent: map[string]string{}}
		tn := tenant{Machine: s.MachineRef.Name, Ephemeral: map[string]string{}}
		for _, c := range p.Spec.Configs {
			if c.Hostname == s.Hostname {
				pl.Address, _, _ = strings.Cut(c.Network.Primary.IP, "/")
			}
		}
		for _, d := range p.Status.PersistentDiskStatuses {
			if d.Hostname == s.Hostname {
				pl.Persistent[d.Name] = d.VolumePath + " " + d.DiskUUID
			}
		}
		for _, d := range p.Status.EphemeralDiskStatuses {
			if d.Hostname == s.Hostname {
				tn.Ephemeral[d.Name] = d.DiskUUID
			}
		}
		machine := &infrav1.VSphereMachine{}
		if err := w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: tn.Machine}, machine); err == nil && machine.Spec.ProviderID != nil {
			tn.ProviderID = *machine.Spec.ProviderID
		}
		places[s.Hostname], tenants[s.Hostname] = pl, tn
	}
	return places, tenants
}

// settled expects that exactly so many machines with the given owner label exist, all Running and up to date, and that their
// Nodes are Ready with the names and addresses of their slots.
func (w *world) settled(ctx context.Context, g Gomega, pool string, replicas int) {
	places, tenants := w.places(ctx, g, pool)
	g.Expect(places).To(HaveLen(replicas), "slots of %s in use", pool)
	nodes := w.nodes(ctx, g)
	for host, tn := range tenants {
		machine := w.machineOf(ctx, g, tn.Machine)
		g.Expect(machine.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), "machine %s in slot %s", machine.Name, host)
		g.Expect(machine.DeletionTimestamp).To(BeNil())
		g.Expect(machine.Status.NodeRef.Name).To(Equal(host), "node of machine %s", machine.Name)
		node, found := nodes[host]
		g.Expect(found).To(BeTrue(), "node %s exists", host)
		g.Expect(ready(node)).To(BeTrue(), "node %s is Ready", host)
		g.Expect(node.Spec.ProviderID).To(Equal(tn.ProviderID), "providerID of node %s", host)
		g.Expect(internalIPs(node)).To(ContainElement(places[host].Address), "address of node %s", host)
	}
}

func (w *world) machineOf(ctx context.Context, g Gomega, vsphereMachine string) clusterv1.Machine {
	list := &clusterv1.MachineList{}
	g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	for _, m := range list.Items {
		if m.Spec.InfrastructureRef.Name == vsphereMachine {
			return m
		}
	}
	g.Expect(fmt.Errorf("no Machine refers to VSphereMachine %s", vsphereMachine)).NotTo(HaveOccurred())
	return clusterv1.Machine{}
}

// nodes reads the workload cluster as its owner does: through the kubeconfig that `berth kubeconfig` or Cluster API gives.
func (w *world) nodes(ctx context.Context, g Gomega) map[string]corev1.Node {
	secret := &corev1.Secret{}
	g.Expect(w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}, secret)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	g.Expect(err).NotTo(HaveOccurred())
	workload, err := client.New(config, client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	list := &corev1.NodeList{}
	g.Expect(workload.List(ctx, list)).To(Succeed())
	byName := map[string]corev1.Node{}
	for _, n := range list.Items {
		byName[n.Name] = n
	}
	return byName
}

func ready(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func internalIPs(n corev1.Node) []string {
	var ips []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips
}

// await waits until what is claimed holds, and says what did not when patience ends.
func await(t *testing.T, what string, claim func(ctx context.Context, g Gomega)) {
	t.Helper()
	t.Logf("waiting: %s", what)
	NewWithT(t).Eventually(func(g Gomega) { claim(t.Context(), g) }, patience, glance).Should(Succeed(), what)
}
