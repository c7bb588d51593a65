package webhook_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// warned remembers the warnings that the API server sends along.
type warned struct{ texts []string }

func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.texts = append(w.texts, text)
}

// listening is a client that hears warnings.
func listening(g *WithT, w *warned) client.Client {
	config := rest.CopyConfig(k8sConfig)
	config.WarningHandlerWithContext = w
	c, err := client.New(config, client.Options{Scheme: k8s.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// scale does what kubectl scale does.
func scale(ctx context.Context, c client.Client, obj *unstructured.Unstructured, replicas int32) error {
	wanted := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	return c.SubResource("scale").Update(ctx, obj.DeepCopy(), client.WithSubResourceBody(wanted))
}

// TestControlPlaneScale: VS-R10, VS-W36: the minimum of a control plane on a pool holds at the subresource scale as well.
func TestControlPlaneScale(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	var heard warned
	c := listening(g, &heard)
	g.Expect(k8s.Create(ctx, newPool(ns, "cp", "c-1", "c-2", "c-3"))).To(Succeed())
	g.Expect(k8s.Create(ctx, newTemplate(ns, "cp", "cp"))).To(Succeed())
	kcp := controlPlaneObject(ns, "v1beta2", 3)
	must(unstructured.SetNestedField(kcp.Object, int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge"))
	must(unstructured.SetNestedField(kcp.Object, "RollingUpdate", "spec", "rollout", "strategy", "type"))
	g.Expect(k8s.Create(ctx, kcp)).To(Succeed())
	for _, version := range []string{"v1beta1", "v1beta2"} {
		asWritten := kcp.DeepCopy()
		asWritten.SetAPIVersion("controlplane.cluster.x-k8s.io/" + version)
		for _, few := range []int32{0, 1, 2} {
			g.Expect(scale(ctx, c, asWritten, few)).To(MatchError(And(
				ContainSubstring("spec.replicas"), ContainSubstring("a control plane on a pool must have at least 3 replicas"))), "%s to %d", version, few)
		}
	}
	heard.texts = nil // the old version is deprecated, the server says
	g.Expect(scale(ctx, c, kcp, 5)).To(Succeed())
	g.Expect(heard.texts).To(ConsistOf(ContainSubstring("5 replicas, but machine config pool " + ns + "/cp has 3 slots")))
	g.Expect(scale(ctx, c, kcp, 3)).To(Succeed())

	// A template that is gone hides whether there is a pool.
	g.Expect(k8s.Delete(ctx, newTemplate(ns, "cp", "cp"))).To(Succeed())
	g.Expect(scale(ctx, c, kcp, 1)).To(MatchError(ContainSubstring("referenced VSphereMachineTemplate does not exist: " + ns + "/cp")))

	// Without a pool, and with machines of others, every number is fine; and what is not there is not there.
	g.Expect(k8s.Create(ctx, newTemplate(ns, "cp", ""))).To(Succeed())
	g.Expect(scale(ctx, c, kcp, 1)).To(Succeed())
	foreign := controlPlaneObject(ns, "v1beta2", 3)
	foreign.SetName("foreign")
	must(unstructured.SetNestedField(foreign.Object, "OtherMachineTemplate", "spec", "machineTemplate", "spec", "infrastructureRef", "kind"))
	g.Expect(k8s.Create(ctx, foreign)).To(Succeed())
	g.Expect(scale(ctx, c, foreign, 1)).To(Succeed())
	foreign.SetName("nobody")
	g.Expect(scale(ctx, c, foreign, 1)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

// TestDeploymentScale: autoscalers write here; they are told, never refused.
func TestDeploymentScale(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	var heard warned
	c := listening(g, &heard)
	g.Expect(k8s.Create(ctx, newPool(ns, "workers", "w-1", "w-2", "w-3"))).To(Succeed())
	template := newTemplate(ns, "v1", "workers")
	g.Expect(k8s.Create(ctx, template)).To(Succeed())
	md := deployment(ns, "v1beta2", "v1", map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)})
	g.Expect(k8s.Create(ctx, md)).To(Succeed())
	g.Expect(scale(ctx, c, md, 1)).To(Succeed())
	g.Expect(heard.texts).To(BeEmpty())
	g.Expect(scale(ctx, c, md, 4)).To(Succeed())
	g.Expect(heard.texts).To(ConsistOf(ContainSubstring("4 replicas, but machine config pool " + ns + "/workers has 3 slots")))
	g.Expect(k8s.Delete(ctx, template)).To(Succeed())
	g.Expect(scale(ctx, c, md, 0)).To(Succeed())
}
