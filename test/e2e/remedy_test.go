//go:build e2e

package e2e

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// healthCheck is the manual's, with a shorter time.
const healthCheck = `apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: ` + cluster + `-health
  namespace: ` + namespace + `
spec:
  clusterName: ` + cluster + `
  selector:
    matchLabels:
      SELECTOR
  checks:
    nodeStartupTimeoutSeconds: 1800
    unhealthyMachineConditions:
    - type: InfrastructureReady
      status: "False"
      timeoutSeconds: 60
  remediation:
    triggerIf:
      unhealthyLessThanOrEqualTo: 1
`

// remediateWorker: the virtual machine stops, the health check deletes the machine, and the replacement takes the place that this
// frees in a full pool, with its data (VS-D26, VS-R31).
func remediateWorker(t *testing.T, w *world) {
	w.remediate(t, inZoneB.pool, "cluster.x-k8s.io/deployment-name: "+inZoneB.owner)
}

// remediateControlPlane: the same for a member of etcd.
func remediateControlPlane(t *testing.T, w *world) {
	w.remediate(t, controlPlanePool, `cluster.x-k8s.io/control-plane: ""`)
}

func (w *world) remediate(t *testing.T, pool, selector string) {
	t.Helper()
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, pool)
	var victim string
	for host := range before {
		victim = max(victim, host)
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
	}
	file := w.manifest("health.yaml")
	g.Expect(os.WriteFile(file, []byte(strings.ReplaceAll(healthCheck, "SELECTOR", selector)), 0o600)).To(Succeed())
	w.kubectl(t, "apply", "-f", file)
	w.powerOff(t, tenants[victim].Machine)
	await(t, "the machine in slot "+victim+" is replaced", func(ctx context.Context, g Gomega) {
		_, now := w.places(ctx, g, pool)
		g.Expect(now).To(HaveKey(victim))
		g.Expect(now[victim].Machine).NotTo(Equal(tenants[victim].Machine))
		w.settled(ctx, g, pool, len(before))
	})
	w.kubectl(t, "delete", "-f", file)
	after, now := w.places(t.Context(), g, pool)
	g.Expect(after).To(Equal(before), "names, addresses, VMDK paths and UUIDs stay")
	for host, tn := range tenants {
		if host != victim {
			g.Expect(now[host]).To(Equal(tn), "the machine in slot %s is left alone", host)
		}
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
	}
}

// powerOff is a person with the vSphere client, or a host that fails.
func (w *world) powerOff(t *testing.T, name string) {
	t.Helper()
	g := NewWithT(t)
	secret := &corev1.Secret{}
	g.Expect(w.kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster + "-vcenter"}, secret)).To(Succeed())
	u := &url.URL{Scheme: "https", Host: w.env.VCenterServer(), Path: "/sdk", User: url.UserPassword(
		string(secret.Data[infrav1.SecretUsernameKey]), string(secret.Data[infrav1.SecretPasswordKey]))}
	c, err := govmomi.NewClient(t.Context(), u, true)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = c.Logout(t.Context()) }()
	world, err := w.cloud.World(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for _, vm := range world.VMs {
		if vm.Name != name {
			continue
		}
		task, err := object.NewVirtualMachine(c.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: vm.Ref}).PowerOff(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(task.Wait(t.Context())).To(Succeed())
		return
	}
	t.Fatalf("no virtual machine is called %s", name)
}
