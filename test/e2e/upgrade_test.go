//go:build e2e

package e2e

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// The minor version after the example's, and its image.
const (
	oldVersion = "v1.36.3"
	newVersion = "v1.37.0"
	newImage   = "os-v137-0"
)

// upgradeControlPlanes: a Kubernetes upgrade is a new image and a new version together, control planes first. The places and
// their data stay (VS-R31, VS-R35, VS-R59).
func upgradeControlPlanes(t *testing.T, w *world) {
	g := NewWithT(t)
	before, tenants := w.places(t.Context(), g, controlPlanePool)
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
		w.writeInGuest(t, host, "/var/lib/containerd/marker", "images of "+host)
	}
	w.export(t, "vspheremachinetemplate", w.templateOf(t, controlPlane), controlTemplate+"-v137", "control-plane-v137.yaml", func(o *unstructured.Unstructured) {
		set(t, o, newImage, "spec.template.spec.template")
	})
	w.useControlPlane(t, newVersion, controlTemplate+"-v137")
	w.replaced(t, controlPlanePool, before, tenants)
	w.runs(t, controlPlanePool, newVersion)
	for host := range before {
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
		_, err := w.run(t.Context(), w.tool("berth"), "guest", "cat", host, "/var/lib/containerd/marker", "--state-dir", w.env.Dir)
		g.Expect(err).To(HaveOccurred(), "an ephemeral disk of %s starts empty", host)
	}
	w.runs(t, workerPool, oldVersion)
}

// upgradeWorkers follows with everything in one edit: image, version and bootstrap template (VS-R39, VS-R40, VS-R42).
func upgradeWorkers(t *testing.T, w *world) {
	g := NewWithT(t)
	_, tenants := w.places(t.Context(), g, workerPool)
	w.newBootstrap(t)
	w.export(t, "vspheremachinetemplate", w.templateOf(t, workers), workerTemplate+"-v137", "worker-v137.yaml", func(o *unstructured.Unstructured) {
		set(t, o, newImage, "spec.template.spec.template")
	})
	w.patch(t, "machinedeployment", workers, `{"spec": {"template": {"spec": {"version": "`+newVersion+`",
		"infrastructureRef": {"name": "`+workerTemplate+`-v137"}, "bootstrap": {"configRef": {"name": "`+workerBootstrap+`-v2"}}}}}}`)
	w.renewed(t, workerPool, tenants)
	w.runs(t, workerPool, newVersion)
	places, _ := w.places(t.Context(), g, workerPool)
	for host := range places {
		g.Expect(w.berth(t, "guest", "cat", host, "/etc/motd")).To(Equal("second edition\n"))
		g.Expect(w.berth(t, "guest", "cat", host, "/etc/kubernetes/patches/kubeletconfiguration0+strategic.json")).
			To(ContainSubstring("imagePullCredentialsVerificationPolicy"))
	}
}

// restoreUnstartedUpgrade: an upgrade to an image that is not there gives one place up and stops. While no node of the new
// version exists, the earlier references and version can be restored (VS-R60, first stage).
func restoreUnstartedUpgrade(t *testing.T, w *world) {
	g := NewWithT(t)
	good := w.templateOf(t, controlPlane)
	before, _ := w.places(t.Context(), g, controlPlanePool)
	for host := range before {
		w.writeInGuest(t, host, "/var/cpaas/marker", "data of "+host)
	}
	w.export(t, "vspheremachinetemplate", good, controlTemplate+"-typo", "control-plane-typo.yaml", func(o *unstructured.Unstructured) {
		set(t, o, "os-v137-O", "spec.template.spec.template")
	})
	w.useControlPlane(t, newVersion, controlTemplate+"-typo")
	w.stops(t, controlTemplate+"-typo", "os-v137-O")
	w.useControlPlane(t, oldVersion, good)
	w.backOn(t, controlPlanePool, good, before)
	w.runs(t, controlPlanePool, oldVersion)
	for host := range before {
		g.Expect(w.berth(t, "guest", "cat", host, "/var/cpaas/marker")).To(Equal("data of " + host))
	}
}

// pointControlPlanesBack: an image that never boots under the same version; pointing back is all it takes (VS-R60, second
// stage).
func pointControlPlanesBack(t *testing.T, w *world) {
	good := w.templateOf(t, controlPlane)
	before, _ := w.places(t.Context(), NewWithT(t), controlPlanePool)
	w.export(t, "vspheremachinetemplate", good, controlTemplate+"-bad", "control-plane-bad.yaml", func(o *unstructured.Unstructured) {
		set(t, o, "os-no-boot", "spec.template.spec.template")
	})
	w.useControlPlane(t, oldVersion, controlTemplate+"-bad")
	w.stops(t, controlTemplate+"-bad", "address")
	w.useControlPlane(t, oldVersion, good)
	w.backOn(t, controlPlanePool, good, before)
}

// useControlPlane patches version and template of the control plane. The path of the reference is that of the version which
// kubectl prefers.
func (w *world) useControlPlane(t *testing.T, version, template string) {
	t.Helper()
	w.patch(t, "kubeadmcontrolplane", controlPlane,
		`{"spec": {"version": "`+version+`", "machineTemplate": {"spec": {"infrastructureRef": {"name": "`+template+`"}}}}}`)
}

// stops waits until exactly one machine was made from a template and says with a word why it does not come up.
func (w *world) stops(t *testing.T, template, word string) {
	t.Helper()
	await(t, "the roll stops at its first machine and says why", func(ctx context.Context, g Gomega) {
		var made []infrav1.VSphereMachine
		for _, m := range w.vsphereMachines(ctx, g) {
			if m.Annotations["cluster.x-k8s.io/cloned-from-name"] == template {
				made = append(made, m)
			}
		}
		g.Expect(made).To(HaveLen(1))
		g.Expect(message(made[0].Status.Conditions, infrav1.ReadyCondition)).To(ContainSubstring(word))
	})
}

// backOn waits until every place of a pool is held by a machine from the template, with what it had before.
func (w *world) backOn(t *testing.T, pool, template string, before map[string]place) {
	t.Helper()
	await(t, "all machines of "+pool+" come from "+template, func(ctx context.Context, g Gomega) {
		w.settled(ctx, g, pool, len(before))
		_, tenants := w.places(ctx, g, pool)
		for _, m := range w.vsphereMachines(ctx, g) {
			for host, tn := range tenants {
				if tn.Machine == m.Name {
					g.Expect(m.Annotations).To(HaveKeyWithValue("cluster.x-k8s.io/cloned-from-name", template), "machine in slot %s", host)
				}
			}
		}
	})
	after, _ := w.places(t.Context(), NewWithT(t), pool)
	NewWithT(t).Expect(after).To(Equal(before), "names, addresses, VMDK paths and UUIDs stay")
}

// runs expects a version of Machines and kubelets in a pool.
func (w *world) runs(t *testing.T, pool, version string) {
	t.Helper()
	await(t, "the nodes of "+pool+" run "+version, func(ctx context.Context, g Gomega) {
		_, tenants := w.places(ctx, g, pool)
		nodes := w.nodes(ctx, g)
		for host, tn := range tenants {
			g.Expect(w.machineOf(ctx, g, tn.Machine).Spec.Version).To(Equal(version), "machine in slot %s", host)
			g.Expect(nodes[host].Status.NodeInfo.KubeletVersion).To(Equal(version), "kubelet of %s", host)
		}
		if pool == controlPlanePool {
			kcp := &controlplanev1.KubeadmControlPlane{}
			g.Expect(w.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: controlPlane}, kcp)).To(Succeed())
			g.Expect(kcp.Status.Version).To(Equal(version))
		}
	})
}

// templateOf reads which template an owner of machines uses.
func (w *world) templateOf(t *testing.T, owner string) string {
	t.Helper()
	if owner == controlPlane {
		return w.kubectl(t, "-n", namespace, "get", "kubeadmcontrolplane", owner, "-o", "jsonpath={.spec.machineTemplate.spec.infrastructureRef.name}")
	}
	return w.kubectl(t, "-n", namespace, "get", "machinedeployment", owner, "-o", "jsonpath={.spec.template.spec.infrastructureRef.name}")
}

func (w *world) vsphereMachines(ctx context.Context, g Gomega) []infrav1.VSphereMachine {
	list := &infrav1.VSphereMachineList{}
	g.Expect(w.kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// message of a condition; empty if there is none.
func message(conditions []metav1.Condition, kind string) string {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}
