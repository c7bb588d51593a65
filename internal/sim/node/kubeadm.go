package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	kubeadmGroup   = "kubeadm.k8s.io/"
	kubeadmV1beta3 = kubeadmGroup + "v1beta3"
	kubeadmV1beta4 = kubeadmGroup + "v1beta4"
)

// arg is one command line flag of a component.
type arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// args are extra flags as a kubeadm document writes them: a map up to v1beta3, a list since v1beta4.
type args struct {
	list  []arg
	asMap bool
}

func (a *args) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		var m map[string]string
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		a.asMap = true
		for name, value := range m {
			a.list = append(a.list, arg{name, value})
		}
		slices.SortFunc(a.list, func(x, y arg) int { return strings.Compare(x.Name, y.Name) })
		return nil
	}
	return json.Unmarshal(data, &a.list)
}

func (a args) get(name string) (string, bool) {
	for i := len(a.list) - 1; i >= 0; i-- {
		if a.list[i].Name == name {
			return a.list[i].Value, true
		}
	}
	return "", false
}

// The documents below carry the fields that have an effect on a simulated guest. The same structs read both versions: apart
// from the form of extra arguments and from timeouts, v1beta4 only adds fields.

type component struct {
	ExtraArgs    args           `json:"extraArgs"`
	ExtraVolumes []extraVolume  `json:"extraVolumes"`
	CertSANs     []string       `json:"certSANs"`
	Timeout      *kubeadmPeriod `json:"timeoutForControlPlane"`
}

type extraVolume struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly"`
	PathType  corev1.HostPathType `json:"pathType"`
}

type image struct {
	Repository string `json:"imageRepository"`
	Tag        string `json:"imageTag"`
}

type clusterConfiguration struct {
	APIVersion           string          `json:"apiVersion"`
	KubernetesVersion    string          `json:"kubernetesVersion"`
	ClusterName          string          `json:"clusterName"`
	ControlPlaneEndpoint string          `json:"controlPlaneEndpoint"`
	CertificatesDir      string          `json:"certificatesDir"`
	ImageRepository      string          `json:"imageRepository"`
	FeatureGates         map[string]bool `json:"featureGates"`
	Networking           struct {
		ServiceSubnet string `json:"serviceSubnet"`
		PodSubnet     string `json:"podSubnet"`
		DNSDomain     string `json:"dnsDomain"`
	} `json:"networking"`
	APIServer         component `json:"apiServer"`
	ControllerManager component `json:"controllerManager"`
	Scheduler         component `json:"scheduler"`
	DNS               image     `json:"dns"`
	Etcd              struct {
		Local    *localEtcd      `json:"local"`
		External json.RawMessage `json:"external"`
	} `json:"etcd"`

	// raw is the document as given, for the copy that kubeadm keeps in the cluster.
	raw map[string]any
}

type localEtcd struct {
	image
	DataDir        string   `json:"dataDir"`
	ExtraArgs      args     `json:"extraArgs"`
	ServerCertSANs []string `json:"serverCertSANs"`
	PeerCertSANs   []string `json:"peerCertSANs"`
}

type nodeRegistration struct {
	Name                  string         `json:"name"`
	CRISocket             string         `json:"criSocket"`
	Taints                []corev1.Taint `json:"taints"` // nil is kubeadm's default, empty is none
	KubeletExtraArgs      args           `json:"kubeletExtraArgs"`
	IgnorePreflightErrors []string       `json:"ignorePreflightErrors"`
}

type apiEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         int32  `json:"bindPort"`
}

type patches struct {
	Directory string `json:"directory"`
}

type timeouts struct {
	ControlPlane *kubeadmPeriod `json:"controlPlaneComponentHealthCheck"`
	EtcdAPICall  *kubeadmPeriod `json:"etcdAPICall"`
	TLSBootstrap *kubeadmPeriod `json:"tlsBootstrap"`
	Discovery    *kubeadmPeriod `json:"discovery"`
}

type kubeadmPeriod = metav1.Duration

type bootstrapToken struct {
	Token       string           `json:"token"`
	Description string           `json:"description"`
	TTL         *metav1.Duration `json:"ttl"`
	Usages      []string         `json:"usages"`
	Groups      []string         `json:"groups"`
}

type initConfiguration struct {
	APIVersion       string           `json:"apiVersion"`
	BootstrapTokens  []bootstrapToken `json:"bootstrapTokens"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	LocalAPIEndpoint apiEndpoint      `json:"localAPIEndpoint"`
	SkipPhases       []string         `json:"skipPhases"`
	Patches          *patches         `json:"patches"`
	Timeouts         timeouts         `json:"timeouts"`
}

type joinConfiguration struct {
	APIVersion       string           `json:"apiVersion"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	CACertPath       string           `json:"caCertPath"`
	Discovery        struct {
		BootstrapToken    *tokenDiscovery `json:"bootstrapToken"`
		File              json.RawMessage `json:"file"`
		TLSBootstrapToken string          `json:"tlsBootstrapToken"`
		Timeout           *kubeadmPeriod  `json:"timeout"`
	} `json:"discovery"`
	ControlPlane *struct {
		LocalAPIEndpoint apiEndpoint `json:"localAPIEndpoint"`
	} `json:"controlPlane"`
	SkipPhases []string `json:"skipPhases"`
	Patches    *patches `json:"patches"`
	Timeouts   timeouts `json:"timeouts"`
}

type tokenDiscovery struct {
	Token             string   `json:"token"`
	APIServerEndpoint string   `json:"apiServerEndpoint"`
	CACertHashes      []string `json:"caCertHashes"`
	Unsafe            bool     `json:"unsafeSkipCAVerification"`
}

// documents are the kubeadm documents of one configuration file, and component configurations beside them.
type documents struct {
	cluster *clusterConfiguration
	init    *initConfiguration
	join    *joinConfiguration
	// kubelet is a KubeletConfiguration given along, nil if none.
	kubelet map[string]any
	// others are kinds that were read and have no effect here.
	others []string
}

// parseDocuments reads a kubeadm configuration file.
func parseDocuments(data []byte) (documents, error) {
	var d documents
	reader := utilyaml.NewYAMLReader(newReader(data))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return d, fmt.Errorf("error reading kubeadm configuration: %w", err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			return d, fmt.Errorf("invalid configuration: %w", err)
		}
		if meta.Kind == "" && meta.APIVersion == "" {
			if len(bytes.TrimSpace(doc)) == 0 || isComment(doc) {
				continue
			}
			return d, errors.New("invalid configuration for GroupVersionKind /, Kind=: kind and apiVersion is mandatory information that must be specified")
		}
		if err := d.add(meta, doc); err != nil {
			return d, fmt.Errorf("error unmarshaling configuration %s, Kind=%s: %w", meta.APIVersion, meta.Kind, err)
		}
	}
	return d, nil
}

func (d *documents) add(meta metav1.TypeMeta, doc []byte) error {
	if strings.HasPrefix(meta.APIVersion, kubeadmGroup) && meta.APIVersion != kubeadmV1beta3 && meta.APIVersion != kubeadmV1beta4 {
		return fmt.Errorf("your configuration file uses an unsupported API version %q: v1beta3 and v1beta4 are read", meta.APIVersion)
	}
	switch meta.Kind {
	case "ClusterConfiguration":
		d.cluster = &clusterConfiguration{}
		if err := yaml.Unmarshal(doc, d.cluster); err != nil {
			return err
		}
		if err := yaml.Unmarshal(doc, &d.cluster.raw); err != nil {
			return err
		}
		c := d.cluster
		forms := []args{c.APIServer.ExtraArgs, c.ControllerManager.ExtraArgs, c.Scheduler.ExtraArgs}
		if c.Etcd.Local != nil {
			forms = append(forms, c.Etcd.Local.ExtraArgs)
		}
		return checkForm(meta.APIVersion, forms...)
	case "InitConfiguration":
		d.init = &initConfiguration{}
		if err := yaml.Unmarshal(doc, d.init); err != nil {
			return err
		}
		return checkForm(meta.APIVersion, d.init.NodeRegistration.KubeletExtraArgs)
	case "JoinConfiguration":
		d.join = &joinConfiguration{}
		if err := yaml.Unmarshal(doc, d.join); err != nil {
			return err
		}
		return checkForm(meta.APIVersion, d.join.NodeRegistration.KubeletExtraArgs)
	case "KubeletConfiguration":
		return yaml.Unmarshal(doc, &d.kubelet)
	default:
		d.others = append(d.others, meta.Kind)
		return nil
	}
}

// checkForm refuses extra arguments in the form of the other version, as kubeadm's decoder does.
func checkForm(version string, all ...args) error {
	for _, a := range all {
		if len(a.list) == 0 {
			continue
		}
		if a.asMap && version == kubeadmV1beta4 {
			return errors.New("json: cannot unmarshal object into Go struct field of type []v1beta4.Arg: extra arguments are a list of name and value in v1beta4")
		}
		if !a.asMap && version == kubeadmV1beta3 {
			return errors.New("json: cannot unmarshal array into Go struct field of type map[string]string: extra arguments are a map in v1beta3")
		}
	}
	return nil
}

func isComment(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
