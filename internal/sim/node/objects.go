package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterObjects writes what `kubeadm init` leaves in a cluster, in its order.
type clusterObjects struct {
	client kubernetes.Interface
	c      *clusterConfiguration
	local  apiEndpoint
}

type rbacRole struct {
	name      string
	namespace string // "" for a ClusterRole
	rule      rbacv1.PolicyRule
}

type rbacBinding struct {
	name      string
	namespace string // "" for a ClusterRoleBinding
	role      string
	isCluster bool // the role is a ClusterRole
	subjects  []rbacv1.Subject
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func configMapRule(name string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}}
}

var kubeadmRoles = []rbacRole{
	{"kubeadm:nodes-kubeadm-config", metav1.NamespaceSystem, configMapRule("kubeadm-config")},
	{"kubeadm:kubelet-config", metav1.NamespaceSystem, configMapRule("kubelet-config")},
	{"kube-proxy", metav1.NamespaceSystem, configMapRule("kube-proxy")},
	{"kubeadm:bootstrap-signer-clusterinfo", metav1.NamespacePublic, configMapRule(clusterInfo)},
	{"kubeadm:get-nodes", "", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
	{"system:coredns", "", rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}}},
}

var kubeadmBindings = []rbacBinding{
	{"kubeadm:cluster-admins", "", "cluster-admin", true, []rbacv1.Subject{group(groupClusterAdmins)}},
	{"kubeadm:nodes-kubeadm-config", metav1.NamespaceSystem, "kubeadm:nodes-kubeadm-config", false, []rbacv1.Subject{group(groupBootstrappers), group(groupNodes)}},
	{"kubeadm:kubelet-config", metav1.NamespaceSystem, "kubeadm:kubelet-config", false, []rbacv1.Subject{group(groupNodes), group(groupBootstrappers)}},
	{"kube-proxy", metav1.NamespaceSystem, "kube-proxy", false, []rbacv1.Subject{group(groupBootstrappers)}},
	{"kubeadm:bootstrap-signer-clusterinfo", metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo", false, []rbacv1.Subject{user("system:anonymous")}},
	{"kubeadm:get-nodes", "", "kubeadm:get-nodes", true, []rbacv1.Subject{group(groupBootstrappers)}},
	{"kubeadm:kubelet-bootstrap", "", "system:node-bootstrapper", true, []rbacv1.Subject{group(groupBootstrappers)}},
	{"kubeadm:node-autoapprove-bootstrap", "", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", true, []rbacv1.Subject{group(groupBootstrappers)}},
	{"kubeadm:node-autoapprove-certificate-rotation", "", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", true, []rbacv1.Subject{group(groupNodes)}},
	{"kubeadm:apiserver-kubelet-client", "", "system:kubelet-api-admin", true, []rbacv1.Subject{user("kube-apiserver-kubelet-client")}},
	{"kubeadm:node-proxier", "", "system:node-proxier", true, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "kube-proxy", Namespace: metav1.NamespaceSystem}}},
	{"system:coredns", "", "system:coredns", true, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "coredns", Namespace: metav1.NamespaceSystem}}},
}

// rbac creates roles and bindings.
func (o clusterObjects) rbac(ctx context.Context) error {
	api := o.client.RbacV1()
	for _, r := range kubeadmRoles {
		meta := metav1.ObjectMeta{Name: r.name, Namespace: r.namespace}
		var err error
		if r.namespace == "" {
			_, err = api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{r.rule}}, metav1.CreateOptions{})
		} else {
			_, err = api.Roles(r.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{r.rule}}, metav1.CreateOptions{})
		}
		if err := created(err); err != nil {
			return fmt.Errorf("creating role %s: %w", r.name, err)
		}
	}
	for _, b := range kubeadmBindings {
		meta := metav1.ObjectMeta{Name: b.name, Namespace: b.namespace}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: b.role}
		if b.isCluster {
			ref.Kind = "ClusterRole"
		}
		var err error
		if b.namespace == "" {
			_, err = api.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: b.subjects}, metav1.CreateOptions{})
		} else {
			_, err = api.RoleBindings(b.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: b.subjects}, metav1.CreateOptions{})
		}
		if err := created(err); err != nil {
			return fmt.Errorf("creating role binding %s: %w", b.name, err)
		}
	}
	return nil
}

// configMaps uploads kubeadm's and the kubelets' configuration and publishes the cluster's address and CA.
func (o clusterObjects) configMaps(ctx context.Context, kubeletConfig, caPEM []byte) error {
	stored, err := o.c.stored()
	if err != nil {
		return err
	}
	info := clientcmdapi.NewConfig()
	info.Clusters[""] = &clientcmdapi.Cluster{Server: "https://" + o.c.endpoint(o.local), CertificateAuthorityData: caPEM}
	infoYAML, err := clientcmd.Write(*info)
	if err != nil {
		return err
	}
	for _, m := range []*corev1.ConfigMap{
		configMap(metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration", string(stored)),
		configMap(metav1.NamespaceSystem, "kubelet-config", "kubelet", string(kubeletConfig)),
		configMap(metav1.NamespacePublic, clusterInfo, kubeconfigKey, string(infoYAML)),
	} {
		_, err := o.client.CoreV1().ConfigMaps(m.Namespace).Create(ctx, m, metav1.CreateOptions{})
		if err := created(err); err != nil {
			return fmt.Errorf("creating ConfigMap %s: %w", m.Name, err)
		}
	}
	return nil
}

func configMap(namespace, name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: value}}
}

// tokens creates the bootstrap tokens of an InitConfiguration.
func (o clusterObjects) tokens(ctx context.Context, list []bootstrapToken) error {
	for _, t := range list {
		parts := tokenForm.FindStringSubmatch(t.Token)
		if parts == nil {
			return fmt.Errorf("bootstrapTokens: Invalid value: the bootstrap token %q was not of the expected form", redact(t.Token))
		}
		if len(t.Groups) == 0 {
			t.Groups = []string{groupBootstrappers}
		}
		if len(t.Usages) == 0 {
			t.Usages = []string{"signing", "authentication"}
		}
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + parts[1]},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{"token-id": parts[1], "token-secret": parts[2], "auth-extra-groups": t.Groups[0]},
		}
		if t.Description != "" {
			s.StringData["description"] = t.Description
		}
		life := 24 * time.Hour
		if t.TTL != nil {
			life = t.TTL.Duration
		}
		if life > 0 {
			s.StringData["expiration"] = time.Now().Add(life).UTC().Format(time.RFC3339)
		}
		for _, u := range t.Usages {
			s.StringData["usage-bootstrap-"+u] = "true"
		}
		_, err := o.client.CoreV1().Secrets(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
		if err := created(err); err != nil {
			return fmt.Errorf("creating bootstrap token %s: %w", parts[1], err)
		}
	}
	return nil
}

// created treats an object that is there already as created: kubeadm's phases can be repeated.
func created(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// markControlPlane labels and taints the Node. nil taints are the default ones, an empty list is none.
func markControlPlane(ctx context.Context, client kubernetes.Interface, nodeName string, taints []corev1.Taint) error {
	if taints == nil {
		taints = controlPlaneTaints()
	}
	return retry(ctx, 2*time.Minute, func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all := append([]corev1.Taint{}, taints...)
		for _, t := range n.Spec.Taints {
			known := false
			for _, other := range all {
				known = known || other.MatchTaint(&t)
			}
			if !known {
				all = append(all, t)
			}
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{
				// The version guards the taints, which others write as a whole list too.
				"resourceVersion": n.ResourceVersion,
				"labels":          map[string]string{labelControlPlane: "", labelExcludeFromBalancer: ""},
			},
			"spec": map[string]any{"taints": all},
		})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}
