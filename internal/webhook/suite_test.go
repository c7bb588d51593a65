package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/internal/tools"
	"github.com/berth-dev/berth/internal/webhook"
)

// unguarded is a label that exempts a namespace from admission, as if the webhooks were off there.
const unguarded = "unguarded"

// patience bounds every wait for a condition.
const patience = 30 * time.Second

// k8s talks to a real API server that sends what config/webhook/manifests.yaml says to our webhook server.
var (
	k8s       client.Client
	k8sConfig *rest.Config
)

// server lists what is registered.
var server = &recorder{}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	environment, err := newEnvironment(scheme)
	if err != nil {
		return 1, err
	}
	restConfig, err := environment.Start()
	if err != nil {
		return 1, fmt.Errorf("starting etcd and kube-apiserver: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	defer func() {
		cancel()
		err = errors.Join(err, <-stopped, environment.Stop())
	}()
	restConfig.QPS, restConfig.Burst = 500, 1000
	k8sConfig = restConfig
	if k8s, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		stopped <- nil
		return 1, err
	}
	options := environment.WebhookInstallOptions
	server.Server = ctrlwebhook.NewServer(ctrlwebhook.Options{Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir})
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = webhook.Setup(mgr)
	}
	if err != nil {
		stopped <- nil
		return 1, err
	}
	go func() { stopped <- mgr.Start(ctx) }()
	return m.Run(), nil
}

// newEnvironment prepares etcd and an API server with our kinds, those of Cluster API, and our webhook configurations.
func newEnvironment(scheme *runtime.Scheme) (*envtest.Environment, error) {
	capi, err := tools.CAPIConfig()
	if err != nil {
		return nil, err
	}
	etcd, err := tools.Path("etcd")
	if err != nil {
		return nil, err
	}
	apiServer, err := tools.Path("kube-apiserver")
	if err != nil {
		return nil, err
	}
	e := &envtest.Environment{Scheme: scheme, ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: patience}
	e.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	e.ControlPlane.APIServer = &envtest.APIServer{Path: apiServer}
	if e.CRDInstallOptions.CRDs, err = definitions(
		filepath.Join("..", "..", "config", "crd", "bases"),
		filepath.Join(capi, "core", "crd", "bases"), filepath.Join(capi, "controlplane", "crd", "bases"),
	); err != nil {
		return nil, err
	}
	e.WebhookInstallOptions.LocalServingHost = "127.0.0.1"
	mutating, validating, err := configurations()
	if err != nil {
		return nil, err
	}
	letThrough := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: unguarded, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = letThrough
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = letThrough
	}
	e.WebhookInstallOptions.MutatingWebhooks = []*admissionv1.MutatingWebhookConfiguration{mutating}
	e.WebhookInstallOptions.ValidatingWebhooks = []*admissionv1.ValidatingWebhookConfiguration{validating}
	return e, nil
}

// definitions reads CRDs. Cluster API's convert between versions by their managers, which do not run here; without, an object
// keeps its fields and changes the version.
func definitions(dirs ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no CRDs in %s: %w", dir, err)
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
			out = append(out, crd)
		}
	}
	return out, nil
}

// configurations are the webhook configurations as they are shipped.
func configurations() (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration, error) {
	text, err := config.Webhooks.ReadFile("webhook/manifests.yaml")
	if err != nil {
		return nil, nil, err
	}
	var mutating admissionv1.MutatingWebhookConfiguration
	var validating admissionv1.ValidatingWebhookConfiguration
	reader := utilyaml.NewYAMLReader(bufferedReader(text))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return &mutating, &validating, nil
		}
		if err != nil {
			return nil, nil, err
		}
		switch {
		case bytes.Contains(document, []byte("kind: MutatingWebhookConfiguration")):
			err = yaml.UnmarshalStrict(document, &mutating)
		case bytes.Contains(document, []byte("kind: ValidatingWebhookConfiguration")):
			err = yaml.UnmarshalStrict(document, &validating)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}
