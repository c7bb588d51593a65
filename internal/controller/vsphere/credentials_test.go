package vsphere_test

import (
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// sessionKeys are the manager's logins at the vCenter, REST included.
func (w *world) sessionKeys() []string {
	var out []string
	for _, s := range w.vcenter.World().Sessions {
		if s.UserAgent == "berth-test" {
			out = append(out, s.Key)
		}
	}
	return out
}

func (w *world) failedLogins() int64 {
	w.t.Helper()
	counters, err := w.vcenter.Admin().Counters(ctx)
	w.g.Expect(err).NotTo(HaveOccurred())
	return counters.Logins.Failed
}

// VS-V43, pain 67, pain 68, pain 69: a password is rotated in vCenter and, with a mistake first, in the Secret. The mistake is tried
// once or twice and not until the account is locked; the right one opens one new session and the old one is logged out; machines
// that run notice nothing, and new ones come.
func TestPasswordRotation(t *testing.T) {
	w := newWorld(t, func(o *vcenter.Options) {
		o.Lockout = vcenter.Lockout{Failures: 4, Window: time.Hour, Duration: time.Hour}
	})
	w.withCluster()
	w.start()
	w.provisioned()
	w.withPool(3)
	first := w.withMachine("m1", "demo-worker")
	w.ready(first)
	before := w.sessionKeys()
	w.g.Expect(before).To(HaveLen(1))

	const rotated = "rotated-password"
	w.vcenter.Service().Listen.User = url.UserPassword(vcenter.DefaultUsername, rotated)
	w.secret("typo")
	w.unavailable("Secret "+w.ns+"/demo-vcenter", "refuses the password")
	second := w.withMachine("m2", "demo-worker")
	w.waits(second, infrav1.ReadyCondition, infrav1.VCenterUnreachableReason)
	w.g.Expect(w.failedLogins()).To(BeNumerically("<=", 2), "a refused password is not tried until the account is locked")
	w.g.Consistently(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		g.Expect(conditions.IsTrue(first, infrav1.ReadyCondition)).To(BeTrue(), "a machine that runs is not unready because of a password")
	}, soon).Should(Succeed())

	w.secret(rotated)
	w.ready(second)
	w.g.Eventually(w.sessionKeys).Should(HaveLen(1))
	w.g.Expect(w.sessionKeys()).NotTo(Equal(before), "the new password has a session of its own")
	w.g.Expect(w.failedLogins()).To(BeNumerically("<=", 2))
	w.stop()
	w.g.Eventually(w.sessionKeys).Should(BeEmpty())
}

// another adds a second Cluster with its VSphereCluster to the namespace.
func (w *world) another(change func(*infrav1.VSphereCluster)) *infrav1.VSphereCluster {
	w.t.Helper()
	cluster := w.cluster.DeepCopy()
	cluster.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "other"}
	cluster.Spec.InfrastructureRef.Name = "other"
	w.g.Expect(k8s.Create(ctx, cluster)).To(Succeed())
	infra := &infrav1.VSphereCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: "other", Labels: map[string]string{clusterv1.ClusterNameLabel: "other"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "other", UID: cluster.UID}},
		},
		Spec: *w.infra.Spec.DeepCopy(),
	}
	change(infra)
	w.g.Expect(k8s.Create(ctx, infra)).To(Succeed())
	return infra
}

// identity is a VSphereClusterIdentity with good credentials that every namespace may use.
func (w *world) identity() *infrav1.VSphereIdentityReference {
	w.t.Helper()
	w.g.Expect(k8s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: w.ns},
		StringData: map[string]string{"username": vcenter.DefaultUsername, "password": vcenter.DefaultPassword},
	})).To(Succeed())
	w.g.Expect(k8s.Create(ctx, &infrav1.VSphereClusterIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		Spec:       infrav1.VSphereClusterIdentitySpec{SecretName: w.ns, AllowedNamespaces: &infrav1.AllowedNamespaces{Selector: metav1.LabelSelector{}}},
	})).To(Succeed())
	return &infrav1.VSphereIdentityReference{Kind: infrav1.VSphereClusterIdentityKind, Name: w.ns}
}

// VS-V40, VS-V45: the Secret of one cluster is not another's, which says whose it is. A zone whose own cluster has no way to vCenter
// is looked at with the credentials of another cluster there, and all of them together have one session.
func TestZoneBorrowsCredentials(t *testing.T) {
	w := newWorld(t)
	zone := w.zoned("a", nil)
	w.withCluster(func(c *infrav1.VSphereCluster) { w.selecting(c); c.Spec.IdentityRef.Name = "nobody" })
	lender := w.another(func(c *infrav1.VSphereCluster) { c.Spec.FailureDomainSelector, c.Spec.IdentityRef = nil, w.identity() })
	w.start()
	w.unavailable("Secret " + w.ns + "/nobody")
	w.g.Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(lender), lender)).To(Succeed())
		g.Expect(lender.Status.Ready).To(BeTrue(), "%+v", lender.Status.Conditions)
	}).Should(Succeed())
	w.zoneReady(zone)
	w.g.Eventually(w.sessionKeys).Should(HaveLen(1))

	// With an identity of its own the selecting cluster shares that session: same server, same user, same password.
	w.g.Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(w.infra), w.infra); err != nil {
			return err
		}
		w.infra.Spec.IdentityRef = lender.Spec.IdentityRef
		return k8s.Update(ctx, w.infra)
	}).Should(Succeed())
	w.provisioned()
	w.listed(infrav1.SatisfiedReason, zone.Name)
	w.g.Eventually(w.sessionKeys).Should(HaveLen(1))
}

// VS-V42: a cluster that names no identity uses the manager's own credentials; without any it says what to do, and nothing crashes
// (VS-B20).
func TestManagersOwnCredentials(t *testing.T) {
	w := newWorld(t)
	t.Setenv("VSPHERE_USERNAME", "")
	t.Setenv("VSPHERE_PASSWORD", "")
	w.withCluster(func(c *infrav1.VSphereCluster) { c.Spec.IdentityRef = nil })
	w.start()
	w.withPool(1)
	w.unavailable("spec.identityRef", "VSPHERE_USERNAME")
	w.stop()
	t.Setenv("VSPHERE_USERNAME", vcenter.DefaultUsername)
	t.Setenv("VSPHERE_PASSWORD", vcenter.DefaultPassword)
	w.start()
	w.provisioned()
}
