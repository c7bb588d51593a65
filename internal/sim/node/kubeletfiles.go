package node

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kubeletDefaults is the cluster-wide kubelet configuration that kubeadm makes, with what a KubeletConfiguration document says
// on top.
func kubeletDefaults(c *clusterConfiguration, given map[string]any) ([]byte, error) {
	dns, err := c.serviceIP(10)
	if err != nil {
		return nil, err
	}
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true, "cacheTTL": "0s"},
			"x509":      map[string]any{"clientCAFile": c.CertificatesDir + "/ca.crt"},
		},
		"authorization":      map[string]any{"mode": "Webhook"},
		"cgroupDriver":       "systemd",
		"clusterDNS":         []string{dns.String()},
		"clusterDomain":      c.Networking.DNSDomain,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        10248,
		"rotateCertificates": true,
		"staticPodPath":      manifestsDir,
	}
	for k, v := range given {
		conf[k] = v
	}
	return yaml.Marshal(conf)
}

// writeKubeletFiles writes the kubelet's configuration, patched for this node, and its flags.
func (d guestDisk) writeKubeletFiles(config []byte, r nodeRegistration, hostName, nodeName string, registerTaints bool, p *patches) error {
	config, err := d.patch(p, "kubeletconfiguration", config, nil)
	if err != nil {
		return fmt.Errorf("could not apply patches to the KubeletConfiguration: %w", err)
	}
	if err := d.write(kubeletConfigFile, config, 0o644); err != nil {
		return err
	}
	var flags []arg
	if r.CRISocket != "" {
		flags = append(flags, arg{"container-runtime-endpoint", r.CRISocket})
	}
	if nodeName != hostName {
		flags = append(flags, arg{"hostname-override", nodeName})
	}
	if registerTaints && len(r.Taints) > 0 {
		taints := make([]string, len(r.Taints))
		for i, t := range r.Taints {
			taints[i] = taintString(t)
		}
		flags = append(flags, arg{"register-with-taints", strings.Join(taints, ",")})
	}
	line := commandLine("", flags, r.KubeletExtraArgs)[1:]
	return d.write(kubeletFlagsFile, fmt.Appendf(nil, "KUBELET_KUBEADM_ARGS=%q\n", strings.Join(line, " ")), 0o644)
}

func taintString(t corev1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}
