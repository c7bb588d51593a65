package chaos

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/tools"
)

var (
	seed     = flag.Uint64("seed", 20261201, "which points are drawn")
	points   = flag.Int("points", 45, "how many points are drawn over all flows; 0 means all")
	only     = flag.String("point", "", "run this point only, as the report prints it (flow:what:number:fault)")
	flowName = flag.String("flow", "", "run the points of this flow only")
	kindName = flag.String("fault", "", "run the points with this fault only")
	parallel = flag.Int("worlds", 6, "how many worlds run at the same time")
	table    = flag.String("table", "", "write the rows of the table into this file, too")
	verbose  = flag.Bool("controller-logs", false, "show the logs of the controllers under test")
)

// One API server serves all worlds; each has its own namespace, vCenter and manager.
var (
	restConfig *rest.Config
	kubeconfig []byte
	k8s        client.WithWatch
	scheme     = runtime.NewScheme()
	ctx        = context.Background()

	// over: the run was interrupted.
	over atomic.Bool
)

const controllerNamespace = "berth-system"

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard) // the simulator's
	if *verbose {
		ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2))))
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
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
	stop := func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping etcd and kube-apiserver:", err)
		}
	}
	defer stop()
	// Whoever has seen enough of a long run leaves no processes behind.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		over.Store(true)
		fmt.Fprintln(os.Stderr, "chaos: interrupted; what is not finished is not reported")
		stop()
		os.Exit(1)
	}()
	restConfig.QPS, restConfig.Burst = 500, 1000
	kubeconfig = environment.KubeConfig
	if k8s, err = client.NewWithWatch(restConfig, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controllerNamespace}}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// definitions are our CRDs and those of Cluster API's core, with the contract labels that its kustomization adds.
func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := tools.CAPIConfig()
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, dir := range []string{filepath.Join("..", "..", "config", "crd", "bases"), filepath.Join(capi, "core", "crd", "bases")} {
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
			if crd.Spec.Group == clusterv1.GroupVersion.Group {
				metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta1", "v1beta1")
				metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
			}
			out = append(out, crd)
		}
	}
	return out, nil
}
