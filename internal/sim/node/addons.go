package node

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// addons installs kube-proxy and CoreDNS the way kubeadm names and labels them; they are what control plane upgrades look for.
func (o clusterObjects) addons(ctx context.Context, skip func(string) bool) error {
	if !skip("addon/coredns") {
		if err := o.coreDNS(ctx); err != nil {
			return fmt.Errorf("error creating the CoreDNS addon: %w", err)
		}
	}
	if !skip("addon/kube-proxy") {
		if err := o.kubeProxy(ctx); err != nil {
			return fmt.Errorf("error creating the kube-proxy addon: %w", err)
		}
	}
	return nil
}

func (o clusterObjects) kubeProxy(ctx context.Context) error {
	const name = "kube-proxy"
	system := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	config := configMap(metav1.NamespaceSystem, name, "config.conf", fmt.Sprintf(
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nbindAddress: 0.0.0.0\nclusterCIDR: %q\nclientConnection:\n  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf\n", o.c.Networking.PodSubnet))
	config.Labels = map[string]string{"app": name}
	labels := map[string]string{"k8s-app": name}
	privileged := true
	spec := corev1.PodSpec{
		PriorityClassName: "system-node-critical", HostNetwork: true, ServiceAccountName: name,
		NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: name, Image: o.c.componentImage(name),
			Command:         []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"},
			Env:             []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
			SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			VolumeMounts:    []corev1.VolumeMount{{Name: name, MountPath: "/var/lib/kube-proxy"}},
		}},
		Volumes: []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}},
	}
	_, err := o.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: system}, metav1.CreateOptions{})
	if err := created(err); err != nil {
		return err
	}
	_, err = o.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, config, metav1.CreateOptions{})
	if err := created(err); err != nil {
		return err
	}
	ds := &appsv1.DaemonSet{ObjectMeta: system}
	ds.Labels = labels
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
	_, err = o.client.AppsV1().DaemonSets(metav1.NamespaceSystem).Create(ctx, ds, metav1.CreateOptions{})
	return created(err)
}

const corefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes %s in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
`

func (o clusterObjects) coreDNS(ctx context.Context) error {
	const name = "coredns"
	system := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	labels := map[string]string{"k8s-app": "kube-dns"}
	img := o.c.DNS
	fill(&img.Tag, coreDNSImageTag)
	repository := orElse(img.Repository, o.c.ImageRepository)
	if img.Repository == "" && repository == "registry.k8s.io" {
		repository += "/coredns" // kubeadm's own exception for the default repository
	}
	_, err := o.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx,
		configMap(metav1.NamespaceSystem, name, "Corefile", fmt.Sprintf(corefile, o.c.Networking.DNSDomain)), metav1.CreateOptions{})
	if err := created(err); err != nil {
		return err
	}
	_, err = o.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: system}, metav1.CreateOptions{})
	if err := created(err); err != nil {
		return err
	}
	replicas, one := int32(2), intstr.FromInt32(1)
	d := &appsv1.Deployment{ObjectMeta: system}
	d.Labels = labels
	d.Spec.Replicas = &replicas
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	// Nothing here asks this DNS, and each pod that must be evicted costs the drain of a machine Cluster API's fixed 20 s.
	undrained := map[string]string{"k8s-app": "kube-dns", "cluster.x-k8s.io/drain": "skip"}
	d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: undrained}, Spec: corev1.PodSpec{
		PriorityClassName: "system-cluster-critical", ServiceAccountName: name, DNSPolicy: corev1.DNSDefault,
		NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule},
		},
		Containers: []corev1.Container{{
			Name: name, Image: strings.TrimSuffix(repository, "/") + "/coredns:" + img.Tag, Args: []string{"-conf", "/etc/coredns/Corefile"},
			Ports:        []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", ContainerPort: 53}},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("70Mi")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "config-volume", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
		}}}},
	}}
	_, err = o.client.AppsV1().Deployments(metav1.NamespaceSystem).Create(ctx, d, metav1.CreateOptions{})
	if err := created(err); err != nil {
		return err
	}
	ip, err := o.c.serviceIP(10)
	if err != nil {
		return err
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-dns", Labels: map[string]string{
		"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
	}}}
	svc.Spec.ClusterIP, svc.Spec.Selector = ip.String(), labels
	svc.Spec.Ports = []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
		{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
		{Name: "metrics", Port: 9153, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(9153)},
	}
	_, err = o.client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, svc, metav1.CreateOptions{})
	return created(err)
}
