package webhook_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// keep is a finalizer of somebody else.
const keep = "example.com/keep"

// TestNothingButTheSpecWaits: VS-W28: objects that the rules would refuse today, because they were there before the webhooks or came
// around them, can still be labelled, annotated, given a status, deleted, and let go of. Only their spec is guarded.
func TestNothingButTheSpecWaits(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "slipped-", Labels: map[string]string{unguarded: "true"}}}
	g.Expect(k8s.Create(ctx, ns)).To(Succeed())
	g.Eventually(canary(t, ns.Name)).WithTimeout(patience).Should(Succeed())

	// Two slots with one address; a template and a machine with a field that is refused; a machine deployment and a control plane
	// whose template is missing.
	pool := newPool(ns.Name, "workers", "w-1", "w-2")
	pool.Spec.Configs[1].Network.Primary.IP = pool.Spec.Configs[0].Network.Primary.IP
	template := newTemplate(ns.Name, "bad", "workers")
	template.Spec.Template.Spec.ProviderID = ptr.To("vsphere://1")
	machine := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "m"}, Spec: newTemplate(ns.Name, "", "workers").Spec.Template.Spec}
	machine.Spec.Network.PreferredAPIServerCIDR = "192.0.2.0/24"
	vm := &v1beta1.VSphereVM{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "m"}}
	vm.Spec.VirtualMachineCloneSpec = *machine.Spec.VirtualMachineCloneSpec.DeepCopy()
	vm.Spec.Network.Devices[0].IPAddrs = []string{"192.0.2.31"}
	cluster := &v1beta1.VSphereCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "demo"}}
	cluster.Spec.Server = "https://vc.example/"
	surge := map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(1)}
	objects := []client.Object{
		pool, template, machine, vm, cluster,
		deployment(ns.Name, "v1beta2", "gone", surge), controlPlaneObject(ns.Name, "v1beta2", 1),
	}
	for _, o := range objects {
		o.SetFinalizers([]string{keep})
		g.Expect(k8s.Create(ctx, o)).To(Succeed())
	}
	delete(ns.Labels, unguarded)
	g.Expect(k8s.Update(ctx, ns)).To(Succeed())
	g.Eventually(canary(t, ns.Name)).WithTimeout(patience).Should(MatchError(apierrors.IsInvalid, "IsInvalid"))

	// The guard is up: none of them would be accepted anew. (Machines of machine deployments are judged as far as they are known.)
	for _, o := range objects {
		again := o.DeepCopyObject().(client.Object)
		again.SetName("again")
		again.SetResourceVersion("")
		g.Expect(k8s.Create(ctx, again, client.DryRunAll)).To(MatchError(apierrors.IsInvalid, "IsInvalid"), "%T", o)
	}
	for _, o := range objects {
		what := "%T " + o.GetName()
		o.SetLabels(map[string]string{"touched": "true"})
		o.SetAnnotations(map[string]string{"touched": "true"})
		o.SetFinalizers([]string{keep, "example.com/another"})
		g.Expect(k8s.Update(ctx, o)).To(Succeed(), what, o)
		if _, stateless := o.(*v1beta1.VSphereMachineTemplate); !stateless {
			g.Expect(k8s.Status().Update(ctx, o)).To(Succeed(), what, o)
		}
	}
	// What the controller has to write works: where the machine runs.
	machine.Spec.ProviderID = ptr.To("vsphere://4237c4ac")
	g.Expect(k8s.Update(ctx, machine)).To(Succeed())

	// A way out of what is wrong, and nothing but that.
	g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	wrong, right := pool.DeepCopy(), pool.DeepCopy()
	wrong.Spec.Configs[1].Network.Primary.IP = "192.0.2.0/24"
	right.Spec.Configs[1].Network.Primary.IP = "192.0.2.32/24"
	g.Expect(k8s.Update(ctx, wrong)).To(MatchError(ContainSubstring("the network's own address")))
	g.Expect(k8s.Update(ctx, right, client.DryRunAll)).To(Succeed())

	for _, o := range objects {
		g.Expect(k8s.Delete(ctx, o)).To(Succeed(), "%T", o)
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed(), "%T", o)
		o.SetFinalizers(nil)
		g.Expect(k8s.Update(ctx, o)).To(Succeed(), "%T", o)
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(MatchError(apierrors.IsNotFound, "IsNotFound"), "%T", o)
	}
}

// TestOtherProvidersNeverReachUs (VS-B18): machines of others are created, changed, scaled, given a status and deleted without a call to us,
// so that nothing of theirs waits when we are away. The one exception is a control plane scaled below three, of which the API server
// cannot know whose it is.
func TestOtherProvidersNeverReachUs(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	for _, version := range []string{"v1beta1", "v1beta2"} {
		md := deployment(ns, version, "v1", map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)})
		kcp := controlPlaneObject(ns, version, 3)
		must(unstructured.SetNestedField(md.Object, "OtherMachineTemplate", "spec", "template", "spec", "infrastructureRef", "kind"))
		ref := []string{"spec", "machineTemplate", "spec", "infrastructureRef", "kind"}
		if version == "v1beta1" {
			ref = []string{"spec", "machineTemplate", "infrastructureRef", "kind"}
		}
		must(unstructured.SetNestedField(kcp.Object, "OtherMachineTemplate", ref...))
		before := server.calls.Load()
		for _, o := range []*unstructured.Unstructured{md, kcp} {
			g.Expect(k8s.Create(ctx, o)).To(Succeed())
			must(unstructured.SetNestedField(o.Object, int64(4), "spec", "replicas"))
			g.Expect(k8s.Update(ctx, o)).To(Succeed())
			must(unstructured.SetNestedField(o.Object, int64(3), "status", "replicas"))
			g.Expect(k8s.Status().Update(ctx, o)).To(Succeed())
			g.Expect(k8s.Delete(ctx, o)).To(Succeed())
		}
		g.Expect(server.calls.Load()).To(Equal(before), version)
	}
}

// TestSentencesBeforeTheSchema: what the schema says in a regular expression is read as a sentence (VS-W6, VS-W7, VS-W13 to VS-W15,
// VS-W17), together with everything else that is wrong.
func TestSentencesBeforeTheSchema(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	g.Expect(k8s.Create(ctx, newPool(ns, "workers", "w-1"))).To(Succeed())
	pool := newPool(ns, "more", "W_9", "w-2")
	pool.Spec.ReleaseDelayHours = ptr.To(-1)
	pool.Spec.Configs[1].PersistentDisks = []v1beta1.PersistentDisk{{Name: "Data Disk", UnitNumber: ptr.To[int32](7), MountPath: "/data", FSFormat: "btrfs"}}
	err := k8s.Create(ctx, pool)
	g.Expect(err).To(MatchError(apierrors.IsInvalid, "IsInvalid"))
	for _, sentence := range []string{
		`spec.configs[0].hostname: Invalid value: "W_9": use lower-case letters`,
		`spec.configs[1].persistentDisks[0].name: Invalid value: "Data Disk": disk "Data Disk" of slot w-2: use lower-case letters`,
		"spec.configs[1].persistentDisks[0].sizeGiB: Invalid value: 0: disk \"Data Disk\" of slot w-2: must be at least 1",
		"is reserved for the SCSI controller itself",
		`spec.configs[1].persistentDisks[0].fsFormat: Unsupported value: "btrfs"`,
		"spec.releaseDelayHours: Invalid value: -1",
		"is used by slot w-1 of pool " + ns + "/workers", // what only the other pools tell
	} {
		g.Expect(err).To(MatchError(ContainSubstring(sentence)))
	}
	g.Expect(err).NotTo(MatchError(ContainSubstring("should match '")))

	none := newPool(ns, "none")
	none.Spec.Configs = []v1beta1.VSphereMachineConfig{}
	g.Expect(k8s.Create(ctx, none)).To(MatchError(ContainSubstring("a pool needs at least one slot")))

	// What has not even the form is left to the schema.
	text := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": "VSphereMachineConfigPool",
		"metadata": map[string]any{"namespace": ns, "name": "text"}, "spec": map[string]any{"configs": "none"},
	}}
	g.Expect(k8s.Create(ctx, text)).To(MatchError(ContainSubstring("must be of type array")))
}
