package vsphere_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

func (w *world) unavailable(contains ...string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		c := conditions.Get(w.infra, infrav1.VCenterAvailableCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		for _, s := range contains {
			g.Expect(c.Message).To(ContainSubstring(s))
		}
		g.Expect(conditions.IsFalse(w.infra, infrav1.ReadyCondition)).To(BeTrue())
	}).Should(Succeed())
}

// A wrong password names server, Secret and cause, is tried once, and is healed by an edit of the Secret.
func TestWrongPassword(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) { o.Lockout = vcenter.Lockout{Failures: 3, Window: 60e9, Duration: 60e9} })
	w.withCluster()
	w.secret("wrong")
	w.start()
	w.unavailable(w.vcenter.Address(), "Secret "+w.ns+"/demo-vcenter: vCenter ", "refuses the password of user "+vcenter.DefaultUsername)
	w.g.Expect(conditions.GetMessage(w.infra, infrav1.VCenterAvailableCondition)).NotTo(ContainSubstring("spec.server"))
	counters, err := w.vcenter.Admin().Counters(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(counters.Logins.Failed).To(BeNumerically("<=", 2), "a refused password is not tried until the account is locked")
	w.secret(vcenter.DefaultPassword)
	w.provisioned()
	w.g.Expect(w.infra.Status.VCenterVersion).To(Equal(vcenter.DefaultVersion))
	w.g.Expect(w.infra.Status.Ready).To(BeTrue())
}

func TestMissingSecretIsNamedAndAwaited(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.g.Expect(k8s.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-vcenter"}})).To(Succeed())
	w.start()
	w.unavailable("Secret "+w.ns+"/demo-vcenter", "username", "password")
	w.secret(vcenter.DefaultPassword)
	w.provisioned()
}

func TestThumbprintMismatchIsNamed(t *testing.T) {
	w := newWorld(t)
	w.withCluster(func(c *infrav1.VSphereCluster) {
		c.Spec.Thumbprint = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33"
	})
	w.start()
	w.unavailable(w.vcenter.Address(), "VSphereCluster "+w.ns+"/demo, spec.thumbprint: ", "99:AA:BB", w.vcenter.Thumbprint())
	w.g.Expect(conditions.GetMessage(w.infra, infrav1.VCenterAvailableCondition)).NotTo(Or(ContainSubstring("spec.server"), ContainSubstring("password")))
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra); err != nil {
			return err
		}
		w.infra.Spec.Thumbprint = w.vcenter.Thumbprint()
		return k8s.Update(ctx, w.infra)
	}).Should(Succeed())
	w.provisioned()
}

func TestUnreachableVCenterIsNamed(t *testing.T) {
	w := newWorld(t)
	w.withCluster(func(c *infrav1.VSphereCluster) { c.Spec.Server = "127.64.0.9:8443" })
	w.start()
	w.unavailable("VSphereCluster "+w.ns+"/demo, spec.server: vCenter 127.64.0.9:8443 cannot be reached", "connection refused")
	message := conditions.GetMessage(w.infra, infrav1.VCenterAvailableCondition)
	w.g.Expect(message).NotTo(Or(ContainSubstring("password"), ContainSubstring("thumbprint")))
	w.g.Expect(strings.Count(message, "127.64.0.9")).To(Equal(1), message)
}

// A machine that names a vCenter of its own says that the value is its own, in its conditions and in one event.
func TestUnreachableVCenterOfAMachine(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	m := w.withMachine("m1", "", func(m *infrav1.VSphereMachine) { m.Spec.Server = "127.64.0.9:8443" })
	said := And(ContainSubstring("VSphereMachine "+w.ns+"/m1, spec.server: vCenter 127.64.0.9:8443 cannot be reached"), Not(ContainSubstring("password")))
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(conditions.GetReason(m, infrav1.ReadyCondition)).To(Equal(infrav1.VCenterUnreachableReason))
		g.Expect(conditions.GetMessage(m, infrav1.ReadyCondition)).To(said)
		g.Expect(w.events("VSphereMachine", infrav1.VCenterUnreachableReason)).To(ConsistOf(said))
	}).Should(Succeed())
}

func TestEndpointIsRequired(t *testing.T) {
	w := newWorld(t)
	w.withCluster(func(c *infrav1.VSphereCluster) { c.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{} })
	w.start()
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		c := conditions.Get(w.infra, infrav1.ReadyCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(infrav1.WaitingForControlPlaneEndpointReason))
		g.Expect(w.infra.Status.Ready).To(BeFalse())
	}).Should(Succeed())
}

// VS-V40: a Secret serves one cluster.
func TestSecretOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	secret := &corev1.Secret{}
	w.g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "demo-vcenter"}, secret)).To(Succeed())
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: infrav1.GroupVersion.String(), Kind: "VSphereCluster", Name: "other", UID: "1e2e5a5e-0000-4000-8000-00000000000f"}}
	w.g.Expect(k8s.Update(ctx, secret)).To(Succeed())
	w.start()
	w.unavailable("VSphereCluster other")
}

// VS-V41: an identity is used from namespaces that it allows, with a Secret of the controller's namespace.
func TestClusterIdentity(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: w.ns},
		StringData: map[string]string{"username": vcenter.DefaultUsername, "password": vcenter.DefaultPassword},
	}
	identity := &infrav1.VSphereClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Spec: infrav1.VSphereClusterIdentitySpec{SecretName: w.ns}}
	w.g.Expect(k8s.Create(ctx, identity)).To(Succeed())
	w.withCluster(func(c *infrav1.VSphereCluster) {
		c.Spec.IdentityRef = &infrav1.VSphereIdentityReference{Kind: infrav1.VSphereClusterIdentityKind, Name: identity.Name}
	})
	w.start()
	w.unavailable("VSphereClusterIdentity " + identity.Name)
	w.g.Expect(k8s.Create(ctx, secret)).To(Succeed())
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(identity), identity); err != nil {
			return err
		}
		identity.Spec.AllowedNamespaces = &infrav1.AllowedNamespaces{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}}}
		return k8s.Update(ctx, identity)
	}).Should(Succeed())
	w.provisioned()
	w.g.Expect(k8s.Delete(ctx, identity)).To(Succeed())
	w.gone(identity)
	w.gone(secret)
}

// VS-D53 to VS-D57, VS-B12: machines, then pools with their disks, then the Secret, then the VSphereCluster; nobody stays logged in.
func TestClusterDeletionLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	pool := w.withPool(2)
	m := w.withMachine("m1", "demo-worker")
	w.ready(m)
	disks := len(w.vcenter.World().Disks)
	path := w.diskStatus(w.ns + "-w-1").VolumePath

	w.g.Expect(k8s.Delete(ctx, w.cluster)).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, w.infra)).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra)).To(Succeed())
		c := conditions.Get(w.infra, infrav1.ReadyCondition)
		g.Expect(c.Reason).To(Equal(infrav1.WaitingForMachinesDeletedReason))
	}).Should(Succeed())
	w.g.Consistently(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool) }, soon).Should(Succeed())
	w.g.Expect(pool.DeletionTimestamp).To(BeNil(), "pools go after the machines")

	w.g.Expect(k8s.Delete(ctx, m)).To(Succeed())
	w.gone(m)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(m))).To(Succeed())
	w.gone(pool)
	w.gone(w.infra)
	w.gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "demo-vcenter"}})
	w.g.Expect(w.vms()).To(BeZero())
	w.g.Expect(w.disk(path)).To(BeNil())
	w.g.Expect(len(w.vcenter.World().Disks)).To(BeNumerically("<", disks))
	for _, f := range w.vcenter.World().Files {
		w.g.Expect(f.Path).NotTo(ContainSubstring(w.ns), "nothing of the cluster is left on a datastore")
	}
	w.g.Eventually(w.sessions).Should(BeZero())
}

// D19: the annotation keeps the disks, and a later pool of the same key gets them again.
func TestRetainedDisksAreAdopted(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	pool := w.withPool(1, func(p *infrav1.VSphereMachineConfigPool) {
		p.Annotations = map[string]string{infrav1.RetainDisksAnnotation: "true"}
	})
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	before := w.diskStatus(w.ns + "-w-1")
	w.g.Expect(k8s.Delete(ctx, first)).To(Succeed())
	w.gone(first)
	w.g.Expect(k8s.Delete(ctx, w.machineOf(first))).To(Succeed())
	w.g.Expect(k8s.Delete(ctx, pool)).To(Succeed())
	w.gone(pool)
	w.g.Expect(w.disk(before.VolumePath)).NotTo(BeNil())

	w.withPool(1)
	second := w.withMachine("m2", "demo-worker")
	w.ready(second)
	after := w.diskStatus(w.ns + "-w-1")
	w.g.Expect(after.VolumePath).To(Equal(before.VolumePath))
	w.g.Expect(normal(after.DiskUUID)).To(Equal(normal(before.DiskUUID)))
}

// The manager logs out when it ends.
func TestShutdownLogsOut(t *testing.T) {
	w := newWorld(t)
	w.withCluster()
	w.start()
	w.provisioned()
	w.g.Expect(w.sessions()).To(Equal(1))
	w.stop()
	w.g.Eventually(w.sessions).Should(BeZero())
}
