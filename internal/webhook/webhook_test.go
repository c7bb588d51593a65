package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// recorder is a webhook server that remembers what is registered with it, and counts what it is sent.
type recorder struct {
	ctrlwebhook.Server
	paths []string
	calls atomic.Int64
}

func (r *recorder) Register(path string, hook http.Handler) {
	r.paths = append(r.paths, path)
	r.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.calls.Add(1)
		hook.ServeHTTP(w, req)
	}))
}

func bufferedReader(text []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(text)) }

// TestManifestsNameWhatIsServed holds config/webhook/manifests.yaml and the code together.
func TestManifestsNameWhatIsServed(t *testing.T) {
	g := NewWithT(t)
	mutating, validating, err := configurations()
	g.Expect(err).NotTo(HaveOccurred())
	var configured []string
	for _, w := range mutating.Webhooks {
		configured = append(configured, *w.ClientConfig.Service.Path)
		if w.Name == "early.vspheremachineconfigpool.infrastructure.cluster.x-k8s.io" {
			continue // it changes nothing
		}
		for _, r := range w.Rules {
			g.Expect(r.Operations).To(Equal([]admissionv1.OperationType{admissionv1.Create}), "a default that comes later looks like a forbidden edit")
		}
	}
	for _, w := range validating.Webhooks {
		configured = append(configured, *w.ClientConfig.Service.Path)
		policy := admissionv1.Fail
		if slices.Contains([]string{"scale.warnings.infrastructure.cluster.x-k8s.io", "deletion.vspheremachine.infrastructure.cluster.x-k8s.io"}, w.Name) {
			policy = admissionv1.Ignore // it refuses nothing
		}
		g.Expect(*w.FailurePolicy).To(Equal(policy), w.Name)
		g.Expect(*w.SideEffects).To(Equal(admissionv1.SideEffectClassNone), w.Name)
		var conditions []string
		for _, c := range w.MatchConditions {
			conditions = append(conditions, c.Name)
		}
		g.Expect(conditions).To(ContainElements("spec-changes", "not-being-deleted"), w.Name)
	}
	g.Expect(server.paths).To(ConsistOf(configured))
}

// newNamespace makes a namespace of its own for a test, and waits until admission is in force.
func newNamespace(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}
	g.Expect(k8s.Create(t.Context(), ns)).To(Succeed())
	g.Eventually(canary(t, ns.Name)).WithTimeout(patience).Should(MatchError(apierrors.IsInvalid, "IsInvalid"))
	return ns.Name
}

// canary tries what admission refuses.
func canary(t *testing.T, namespace string) func() error {
	return func() error {
		return k8s.Create(t.Context(), newPool(namespace, "canary", "a", "a"), client.DryRunAll)
	}
}

func newPool(namespace, name string, hostNames ...string) *v1beta1.VSphereMachineConfigPool {
	pool := &v1beta1.VSphereMachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1beta1.VSphereMachineConfigPoolSpec{ClusterRef: corev1.ObjectReference{Kind: "Cluster", Name: "demo"}},
	}
	for i, h := range hostNames {
		pool.Spec.Configs = append(pool.Spec.Configs, v1beta1.VSphereMachineConfig{
			Hostname:        h,
			Network:         &v1beta1.MachineConfigNetwork{Primary: v1beta1.MachineConfigNetworkDevice{NetworkName: "pg", IP: fmt.Sprintf("192.0.2.%d/24", 31+i)}},
			PersistentDisks: []v1beta1.PersistentDisk{{Name: "data", SizeGiB: 10}},
		})
	}
	return pool
}

func newTemplate(namespace, name, pool string) *v1beta1.VSphereMachineTemplate {
	t := &v1beta1.VSphereMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	t.Spec.Template.Spec.Template = "image"
	t.Spec.Template.Spec.Network.Devices = []v1beta1.NetworkDeviceSpec{{NetworkName: "pg"}}
	if pool != "" {
		t.Spec.Template.Spec.MachineConfigPoolRef = &corev1.ObjectReference{Kind: "VSphereMachineConfigPool", Name: pool}
	}
	return t
}

func TestPoolAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	pool := newPool(ns, "workers", "w-1", "w-2")
	g.Expect(k8s.Create(ctx, pool)).To(Succeed())

	// VS-W9: host names are unique in the cluster.
	g.Expect(k8s.Create(ctx, newPool(ns, "more", "w-2"))).To(MatchError(ContainSubstring("slot w-2 of pool " + ns + "/workers")))

	// VS-R11, VS-W28: a status, a label or a finalizer never waits for the rules; the spec of a slot in use does.
	pool.Status.ConfigStatuses = []v1beta1.VSphereMachineConfigStatus{{Hostname: "w-1", State: v1beta1.ConfigStateInUse}}
	g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())
	smaller := pool.DeepCopy()
	smaller.Spec.Configs = smaller.Spec.Configs[1:]
	g.Expect(k8s.Update(ctx, smaller)).To(MatchError(ContainSubstring("slot w-1 cannot be removed or renamed while it is InUse")))

	// VS-W27: nor is a pool in use deleted.
	g.Expect(k8s.Delete(ctx, pool)).To(MatchError(ContainSubstring("1 slot(s) are still in use: w-1")))
	pool.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
	g.Expect(k8s.Update(ctx, pool)).To(Succeed())
	pool.Status.ConfigStatuses[0].State = v1beta1.ConfigStateReleased
	g.Expect(k8s.Status().Update(ctx, pool)).To(Succeed())
	g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
	g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	pool.Finalizers = nil
	g.Expect(k8s.Update(ctx, pool)).To(Succeed())
	g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

func TestTemplateAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	g.Expect(k8s.Create(ctx, newPool(ns, "workers", "w-1"))).To(Succeed())
	template := newTemplate(ns, "v1", "workers")
	g.Expect(k8s.Create(ctx, template)).To(Succeed())

	// VS-W40: templates are complete, so that equal ones are equal.
	g.Expect(template.Spec.Template.Spec.Datacenter).To(Equal("*"))
	g.Expect(template.Spec.Template.Spec.OS).To(Equal(v1beta1.Linux))

	// VS-R29, VS-W55: they do not change, except in a dry run of a managed topology.
	changed := template.DeepCopy()
	changed.Spec.Template.Spec.NumCPUs = 8
	g.Expect(k8s.Update(ctx, changed)).To(MatchError(And(ContainSubstring("spec.template.spec.numCPUs"), ContainSubstring("field is immutable, create a new resource"))))
	g.Expect(k8s.Update(ctx, changed.DeepCopy(), client.DryRunAll)).To(MatchError(apierrors.IsInvalid, "IsInvalid"))
	changed.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	g.Expect(k8s.Update(ctx, changed.DeepCopy(), client.DryRunAll)).To(Succeed())
	relabelled := template.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	g.Expect(k8s.Update(ctx, relabelled)).To(Succeed())

	// VS-R33: an exported template is accepted under another name.
	exported := relabelled.DeepCopy()
	exported.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "v2", Labels: relabelled.Labels}
	exported.Spec.Template.Spec.NumCPUs = 8
	g.Expect(k8s.Create(ctx, exported)).To(Succeed())

	// decision V4: a template has as many devices as the slots have interfaces.
	wide := newTemplate(ns, "v3", "workers")
	wide.Spec.Template.Spec.Network.Devices = append(wide.Spec.Template.Spec.Network.Devices, v1beta1.NetworkDeviceSpec{NetworkName: "pg-2"})
	g.Expect(k8s.Create(ctx, wide)).To(MatchError(ContainSubstring("slot w-1 of pool " + ns + "/workers has 1 network interface(s)")))
}

func TestVMAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	machine := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "m", Finalizers: []string{v1beta1.MachineFinalizer}}}
	machine.Spec.Template, machine.Spec.Network.Devices = "image", []v1beta1.NetworkDeviceSpec{{NetworkName: "pg"}}
	g.Expect(k8s.Create(ctx, machine)).To(Succeed())
	vm := &v1beta1.VSphereVM{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "m", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "VSphereMachine", Name: machine.Name, UID: machine.UID,
	}}}}
	vm.Spec.VirtualMachineCloneSpec = machine.Spec.VirtualMachineCloneSpec
	g.Expect(k8s.Create(ctx, vm)).To(Succeed())

	// decision V9: a virtual machine object goes with its machine, not before.
	g.Expect(k8s.Delete(ctx, vm)).To(MatchError(ContainSubstring("while its VSphereMachine m lives")))
	vm.Spec.BiosUUID = "4237c4ac-0000-0000-0000-000000000000"
	g.Expect(k8s.Update(ctx, vm)).To(Succeed())
	vm.Spec.BiosUUID = "another"
	g.Expect(k8s.Update(ctx, vm)).To(MatchError(ContainSubstring("spec.biosUUID")))
	g.Expect(k8s.Delete(ctx, machine)).To(Succeed())
	g.Expect(k8s.Delete(ctx, vm)).To(Succeed())
	g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Finalizers = nil
	g.Expect(k8s.Update(ctx, machine)).To(Succeed())
}

// deployment is a MachineDeployment in a version, with the rollout settings that it has there.
func deployment(namespace, version, template string, rolling map[string]any) *unstructured.Unstructured {
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/" + version, "kind": "MachineDeployment",
		"metadata": map[string]any{"namespace": namespace, "name": "md"},
		"spec": map[string]any{
			"clusterName": "demo", "replicas": int64(3),
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
				"clusterName": "demo", "version": "v1.36.3",
				"bootstrap": map[string]any{"dataSecretName": "secret"},
			}},
		},
	}}
	strategy, ref := []string{"spec", "rollout", "strategy", "rollingUpdate"}, map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "VSphereMachineTemplate", "name": template}
	if version == "v1beta1" {
		strategy, ref = []string{"spec", "strategy", "rollingUpdate"}, map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereMachineTemplate", "name": template}
	}
	must(unstructured.SetNestedMap(d.Object, ref, "spec", "template", "spec", "infrastructureRef"))
	if rolling != nil {
		must(unstructured.SetNestedField(d.Object, "RollingUpdate", append(slices.Clone(strategy[:len(strategy)-1]), "type")...))
		must(unstructured.SetNestedMap(d.Object, rolling, strategy...))
	}
	return d
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestDeploymentAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	create := func(d *unstructured.Unstructured) error { return k8s.Create(ctx, d, client.DryRunAll) }
	noSurge := map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)}

	// VS-W30, VS-W32: what it needs is there.
	g.Expect(create(deployment(ns, "v1beta2", "v1", noSurge))).To(MatchError(ContainSubstring("referenced VSphereMachineTemplate does not exist: " + ns + "/v1")))
	template := newTemplate(ns, "v1", "workers")
	g.Expect(k8s.Create(ctx, template)).To(Succeed())
	g.Expect(create(deployment(ns, "v1beta2", "v1", noSurge))).To(MatchError(ContainSubstring("referenced machine config pool does not exist: " + ns + "/workers")))
	g.Expect(k8s.Create(ctx, newPool(ns, "workers", "w-1", "w-2", "w-3"))).To(Succeed())
	g.Expect(create(deployment(ns, "v1beta2", "v1", noSurge))).To(Succeed())

	// VS-R5, VS-R6, VS-W37: no surge, said at the field that the user wrote.
	surge := map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(1)}
	g.Expect(create(deployment(ns, "v1beta1", "v1", surge))).To(MatchError(And(ContainSubstring("spec.strategy.rollingUpdate.maxSurge"), ContainSubstring("maxSurge must be 0"))))
	g.Expect(create(deployment(ns, "v1beta2", "v1", surge))).To(MatchError(And(ContainSubstring("spec.rollout.strategy.rollingUpdate.maxSurge"), ContainSubstring("maxSurge must be 0"))))
	g.Expect(create(deployment(ns, "v1beta1", "v1", nil))).To(MatchError(ContainSubstring("maxSurge must be 0")))

	// Machines of others are none of our business.
	foreign := deployment(ns, "v1beta2", "v1", surge)
	must(unstructured.SetNestedField(foreign.Object, "OtherMachineTemplate", "spec", "template", "spec", "infrastructureRef", "kind"))
	g.Expect(create(foreign)).To(Succeed())

	// VS-R60: labels and finalizers change even when the template is gone; the reference can always be set right.
	real := deployment(ns, "v1beta2", "v1", noSurge)
	g.Expect(k8s.Create(ctx, real)).To(Succeed())
	g.Expect(k8s.Delete(ctx, template)).To(Succeed())
	real.SetLabels(map[string]string{"touched": "true"})
	g.Expect(k8s.Update(ctx, real)).To(Succeed())

	// decision D18: while the Cluster is paused, what is missing may be on its way.
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo"}}
	cluster.Spec.Paused = ptr.To(true)
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.GroupVersion.Group, Kind: "VSphereCluster", Name: "demo"}
	g.Expect(k8s.Create(ctx, cluster)).To(Succeed())
	must(unstructured.SetNestedField(real.Object, int64(2), "spec", "replicas"))
	g.Expect(k8s.Update(ctx, real)).To(Succeed())
	cluster.Spec.Paused = ptr.To(false)
	g.Expect(k8s.Update(ctx, cluster)).To(Succeed())
	must(unstructured.SetNestedField(real.Object, int64(3), "spec", "replicas"))
	g.Expect(k8s.Update(ctx, real)).To(MatchError(ContainSubstring("does not exist")))
	g.Expect(k8s.Delete(ctx, real)).To(Succeed())
}

func TestControlPlaneAdmission(t *testing.T) {
	g, ctx, ns := NewWithT(t), t.Context(), newNamespace(t)
	g.Expect(k8s.Create(ctx, newPool(ns, "cp", "c-1", "c-2", "c-3"))).To(Succeed())
	g.Expect(k8s.Create(ctx, newTemplate(ns, "cp", "cp"))).To(Succeed())
	for _, version := range []string{"v1beta1", "v1beta2"} {
		err := createControlPlane(ctx, ns, version, 1)
		// VS-R9, VS-R10, VS-W35, VS-W36.
		g.Expect(err).To(MatchError(And(ContainSubstring("maxSurge must be 0"), ContainSubstring("must have at least 3 replicas"))), version)
	}
}

func createControlPlane(ctx context.Context, namespace, version string, replicas int64) error {
	return k8s.Create(ctx, controlPlaneObject(namespace, version, replicas), client.DryRunAll)
}

func controlPlaneObject(namespace, version string, replicas int64) *unstructured.Unstructured {
	kcp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/" + version, "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"namespace": namespace, "name": "cp"},
		"spec":     map[string]any{"replicas": replicas, "version": "v1.36.3", "kubeadmConfigSpec": map[string]any{}},
	}}
	if version == "v1beta1" {
		must(unstructured.SetNestedMap(kcp.Object, map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereMachineTemplate", "name": "cp"}, "spec", "machineTemplate", "infrastructureRef"))
	} else {
		must(unstructured.SetNestedMap(kcp.Object, map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "VSphereMachineTemplate", "name": "cp"}, "spec", "machineTemplate", "spec", "infrastructureRef"))
		// Cluster API's own defaults are not filled in here, and this version wants one field at least.
		must(unstructured.SetNestedField(kcp.Object, "cloud-config", "spec", "kubeadmConfigSpec", "format"))
	}
	return kcp
}
