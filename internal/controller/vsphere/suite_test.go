package vsphere_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/tools"
)

// The management cluster of all tests of this package: a real etcd and a real API server. Each test has its own namespace,
// its own manager and its own simulated vCenter.
var (
	restConfig *rest.Config
	kubeconfig []byte
	k8s        client.WithWatch
	scheme     = runtime.NewScheme()
)

// patience bounds every wait for a condition; nothing takes nearly that long on an idle machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	verbose := flag.Bool("controller-logs", false, "show the logs of the controllers under test")
	flag.Parse()
	if *verbose {
		ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2))))
	} else {
		ctrl.SetLogger(logr.Discard())
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	crds, err := definitions()
	if err != nil {
		return 1, err
	}
	etcd, err := tools.Path("etcd")
	if err != nil {
		return 1, err
	}
	apiServer, err := tools.Path("kube-apiserver")
	if err != nil {
		return 1, err
	}
	environment := &envtest.Environment{
		Scheme:                   scheme,
		CRDInstallOptions:        envtest.CRDInstallOptions{CRDs: crds},
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  30 * time.Second,
	}
	environment.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	environment.ControlPlane.APIServer = &envtest.APIServer{Path: apiServer}
	if restConfig, err = environment.Start(); err != nil {
		return 1, fmt.Errorf("starting etcd and kube-apiserver: %w", err)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping etcd and kube-apiserver:", err)
		}
	}()
	restConfig.QPS, restConfig.Burst = 500, 1000
	kubeconfig = environment.KubeConfig
	if k8s, err = client.NewWithWatch(restConfig, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllerNamespace}}); err != nil {
		return 1, err
	}
	if err := bindRole(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// managerUser has the rights of the manager's role and no others: what the controllers do here they may do in a cluster too.
const managerUser = "berth-manager"

// bindRole gives managerUser the role that is shipped.
func bindRole() error {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(part), role); err != nil {
			return fmt.Errorf("config/rbac/role.yaml: %w", err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
		}
		if err := k8s.Create(ctx, role); err != nil {
			return err
		}
		if err := k8s.Create(ctx, binding); err != nil {
			return err
		}
	}
	return nil
}

// definitions are our CRDs and those of Cluster API's core, with the contract labels that its kustomization adds.
func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := tools.CAPIConfig()
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, dir := range []string{filepath.Join("..", "..", "..", "config", "crd", "bases"), filepath.Join(capi, "core", "crd", "bases")} {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no CRDs in %s", dir)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(text, crd); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if crd.Kind != "CustomResourceDefinition" {
				continue
			}
			if strings.HasSuffix(crd.Spec.Group, "cluster.x-k8s.io") && crd.Spec.Group != infrav1.GroupVersion.Group {
				metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta1", "v1beta1")
				metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
			}
			out = append(out, crd)
		}
	}
	return out, nil
}
