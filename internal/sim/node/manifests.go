package node

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

const (
	etcdName       = "etcd"
	apiServerName  = "kube-apiserver"
	controllerName = "kube-controller-manager"
	schedulerName  = "kube-scheduler"

	etcdImageTag    = "3.6.14-0"
	coreDNSImageTag = "v1.14.2"

	annotationEtcdURLs  = "kubeadm.kubernetes.io/etcd.advertise-client-urls"
	annotationAPIServer = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
)

// member is one line of etcd's initial cluster.
type member struct{ name, peerURL string }

func clientURL(host string) string { return hostURL("https", host, etcdClientPort) }
func peerURL(host string) string   { return hostURL("https", host, etcdPeerPort) }

func hostURL(scheme, host string, port int) string {
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// The manifests carry kubeadm's own flags, for a guest that has a loopback interface to itself. What running on a shared one
// takes is added when the kubelet starts them (see containers.go).

func etcdManifest(c *clusterConfiguration, local apiEndpoint, nodeName string, initial []member) *corev1.Pod {
	host, pkiDir := local.AdvertiseAddress, c.CertificatesDir
	flags := []arg{
		{"name", nodeName},
		{"data-dir", c.Etcd.Local.DataDir},
		{"listen-client-urls", clientURL("127.0.0.1") + "," + clientURL(host)},
		{"advertise-client-urls", clientURL(host)},
		{"listen-peer-urls", peerURL(host)},
		{"initial-advertise-peer-urls", peerURL(host)},
		{"listen-metrics-urls", hostURL("http", "127.0.0.1", etcdMetricsPort)},
		{"cert-file", path.Join(pkiDir, "etcd/server.crt")},
		{"key-file", path.Join(pkiDir, "etcd/server.key")},
		{"trusted-ca-file", path.Join(pkiDir, "etcd/ca.crt")},
		{"client-cert-auth", "true"},
		{"peer-cert-file", path.Join(pkiDir, "etcd/peer.crt")},
		{"peer-key-file", path.Join(pkiDir, "etcd/peer.key")},
		{"peer-trusted-ca-file", path.Join(pkiDir, "etcd/ca.crt")},
		{"peer-client-cert-auth", "true"},
		{"snapshot-count", "10000"},
		{"watch-progress-notify-interval", "5s"},
		{"feature-gates", "InitialCorruptCheck=true"},
	}
	if len(initial) == 0 {
		flags = append(flags, arg{"initial-cluster", nodeName + "=" + peerURL(host)})
	} else {
		lines := make([]string, len(initial))
		for i, m := range initial {
			lines[i] = m.name + "=" + m.peerURL
		}
		flags = append(flags, arg{"initial-cluster", strings.Join(lines, ",")}, arg{"initial-cluster-state", "existing"})
	}
	img := c.Etcd.Local.image
	fill(&img.Repository, c.ImageRepository)
	fill(&img.Tag, etcdImageTag)
	pod := staticPod(etcdName, img.Repository+"/etcd:"+img.Tag, commandLine(etcdName, flags, c.Etcd.Local.ExtraArgs), 2381)
	pod.Annotations = map[string]string{annotationEtcdURLs: clientURL(host)}
	addVolumes(pod, []extraVolume{
		{Name: "etcd-data", HostPath: c.Etcd.Local.DataDir, PathType: corev1.HostPathDirectoryOrCreate},
		{Name: "etcd-certs", HostPath: path.Join(pkiDir, "etcd"), PathType: corev1.HostPathDirectoryOrCreate},
	})
	return pod
}

func apiServerManifest(c *clusterConfiguration, local apiEndpoint) *corev1.Pod {
	pkiDir := c.CertificatesDir
	in := func(file string) string { return path.Join(pkiDir, file) }
	etcdServers := clientURL("127.0.0.1")
	if urls, ok := c.Etcd.Local.ExtraArgs.get("advertise-client-urls"); ok {
		etcdServers = urls
	}
	flags := []arg{
		{"advertise-address", local.AdvertiseAddress},
		{"allow-privileged", "true"},
		{"authorization-mode", "Node,RBAC"},
		{"client-ca-file", in("ca.crt")},
		{"enable-admission-plugins", "NodeRestriction"},
		{"enable-bootstrap-token-auth", "true"},
		{"etcd-cafile", in("etcd/ca.crt")},
		{"etcd-certfile", in("apiserver-etcd-client.crt")},
		{"etcd-keyfile", in("apiserver-etcd-client.key")},
		{"etcd-servers", etcdServers},
		{"kubelet-client-certificate", in("apiserver-kubelet-client.crt")},
		{"kubelet-client-key", in("apiserver-kubelet-client.key")},
		{"kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname"},
		{"proxy-client-cert-file", in("front-proxy-client.crt")},
		{"proxy-client-key-file", in("front-proxy-client.key")},
		{"requestheader-allowed-names", "front-proxy-client"},
		{"requestheader-client-ca-file", in("front-proxy-ca.crt")},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-"},
		{"requestheader-group-headers", "X-Remote-Group"},
		{"requestheader-username-headers", "X-Remote-User"},
		{"secure-port", strconv.Itoa(int(local.BindPort))},
		{"service-account-issuer", "https://kubernetes.default.svc." + c.Networking.DNSDomain},
		{"service-account-key-file", in("sa.pub")},
		{"service-account-signing-key-file", in("sa.key")},
		{"service-cluster-ip-range", c.Networking.ServiceSubnet},
		{"tls-cert-file", in("apiserver.crt")},
		{"tls-private-key-file", in("apiserver.key")},
	}
	if _, structured := c.APIServer.ExtraArgs.get("authorization-config"); structured {
		flags = slices.DeleteFunc(flags, func(a arg) bool { return a.Name == "authorization-mode" })
	}
	pod := staticPod(apiServerName, c.componentImage(apiServerName), commandLine(apiServerName, flags, c.APIServer.ExtraArgs), local.BindPort)
	pod.Annotations = map[string]string{annotationAPIServer: local.String()}
	addVolumes(pod, []extraVolume{{Name: "k8s-certs", HostPath: pkiDir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate}})
	addVolumes(pod, c.APIServer.ExtraVolumes)
	return pod
}

func controllerManagerManifest(c *clusterConfiguration) *corev1.Pod {
	in := func(file string) string { return path.Join(c.CertificatesDir, file) }
	flags := []arg{
		{"authentication-kubeconfig", controllerConf},
		{"authorization-kubeconfig", controllerConf},
		{"bind-address", "127.0.0.1"},
		{"client-ca-file", in("ca.crt")},
		{"cluster-name", c.ClusterName},
		{"cluster-signing-cert-file", in("ca.crt")},
		{"cluster-signing-key-file", in("ca.key")},
		{"controllers", "*,bootstrapsigner,tokencleaner"},
		{"kubeconfig", controllerConf},
		{"leader-elect", "true"},
		{"requestheader-client-ca-file", in("front-proxy-ca.crt")},
		{"root-ca-file", in("ca.crt")},
		{"service-account-private-key-file", in("sa.key")},
		{"use-service-account-credentials", "true"},
	}
	if c.Networking.PodSubnet != "" {
		flags = append(flags, arg{"allocate-node-cidrs", "true"}, arg{"cluster-cidr", c.Networking.PodSubnet},
			arg{"service-cluster-ip-range", c.Networking.ServiceSubnet})
	}
	pod := staticPod(controllerName, c.componentImage(controllerName), commandLine(controllerName, flags, c.ControllerManager.ExtraArgs), 10257)
	addVolumes(pod, []extraVolume{
		{Name: "k8s-certs", HostPath: c.CertificatesDir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate},
		{Name: "kubeconfig", HostPath: controllerConf, ReadOnly: true, PathType: corev1.HostPathFileOrCreate},
	})
	addVolumes(pod, c.ControllerManager.ExtraVolumes)
	return pod
}

func schedulerManifest(c *clusterConfiguration) *corev1.Pod {
	flags := []arg{
		{"authentication-kubeconfig", schedulerConf},
		{"authorization-kubeconfig", schedulerConf},
		{"bind-address", "127.0.0.1"},
		{"kubeconfig", schedulerConf},
		{"leader-elect", "true"},
	}
	pod := staticPod(schedulerName, c.componentImage(schedulerName), commandLine(schedulerName, flags, c.Scheduler.ExtraArgs), 10259)
	addVolumes(pod, []extraVolume{{Name: "kubeconfig", HostPath: schedulerConf, ReadOnly: true, PathType: corev1.HostPathFileOrCreate}})
	addVolumes(pod, c.Scheduler.ExtraVolumes)
	return pod
}

func (c *clusterConfiguration) componentImage(name string) string {
	return fmt.Sprintf("%s/%s:%s", c.ImageRepository, name, strings.ReplaceAll(c.KubernetesVersion, "+", "_"))
}

// staticPod is the frame that kubeadm gives every component.
func staticPod(name, image string, command []string, port int32) *corev1.Pod {
	priority := int32(2000001000)
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"component": name, "tier": "control-plane"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
				Ports:     []corev1.ContainerPort{{Name: "probe-port", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("probe-port"), Scheme: corev1.URISchemeHTTPS}},
					PeriodSeconds: 1, TimeoutSeconds: 15, FailureThreshold: 3,
				},
			}},
			HostNetwork: true, Priority: &priority, PriorityClassName: "system-node-critical",
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
}

func addVolumes(pod *corev1.Pod, volumes []extraVolume) {
	for _, v := range volumes {
		src := &corev1.HostPathVolumeSource{Path: v.HostPath}
		if v.PathType != "" {
			src.Type = &v.PathType
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{HostPath: src}})
		mount := v.MountPath
		if mount == "" {
			mount = v.HostPath
		}
		ctr := &pod.Spec.Containers[0]
		ctr.VolumeMounts = append(ctr.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: mount, ReadOnly: v.ReadOnly})
	}
}

// commandLine merges defaults and overrides: an override replaces every default of its name, and may itself repeat.
func commandLine(program string, defaults []arg, overrides args) []string {
	slices.SortStableFunc(defaults, func(x, y arg) int { return strings.Compare(x.Name, y.Name) })
	line := []string{program}
	for _, a := range defaults {
		if _, over := overrides.get(a.Name); !over {
			line = append(line, "--"+a.Name+"="+a.Value)
		}
	}
	for _, a := range overrides.list {
		line = append(line, "--"+a.Name+"="+a.Value)
	}
	return line
}

// writeManifest patches a static pod with what the patches directory holds for it and hands it to the kubelet.
func (d guestDisk) writeManifest(pod *corev1.Pod, p *patches) error {
	data, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	if data, err = d.patch(p, pod.Name, data, corev1.Pod{}); err != nil {
		return fmt.Errorf("failed to patch static Pod manifest file for %q: %w", pod.Name, err)
	}
	return d.write(path.Join(manifestsDir, pod.Name+".yaml"), data, 0o600)
}
