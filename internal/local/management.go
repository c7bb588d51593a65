package local

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/internal/tools"
)

// Names of the processes, as Kill and Restart take them.
const (
	EtcdProcess              = "etcd"
	APIServerProcess         = "kube-apiserver"
	ControllerManagerProcess = "kube-controller-manager"
	CoreProcess              = "capi-core"
	BootstrapProcess         = "capi-kubeadm-bootstrap"
	ControlPlaneProcess      = "capi-kubeadm-control-plane"
	ManagerProcess           = "berth-manager"
	VCenterProcess           = "vcenter"
	GuestsProcess            = "guests"
)

// Names of certificate pairs.
const (
	pairEtcdServer        = "etcd-server"
	pairEtcdClient        = "etcd-client"
	pairAPIServer         = "kube-apiserver"
	pairAdmin             = "admin"
	pairControllerManager = "kube-controller-manager"
	pairWebhooks          = "webhooks"
)

// capiManager is one of the three managers of Cluster API.
type capiManager struct {
	component
	process string
	title   string
	// config is the directory of its manifests below tools.CAPIConfig.
	config string
	// webhookPort, and 100 and 200 above it the ports for health and metrics.
	webhookPort int
	gates       string
}

// contractOfCAPI labels Cluster API's own definitions: without it, objects in v1beta1 cannot be read.
var contractOfCAPI = map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}

// inPlaceGates are what in-place updates need; they are alpha and off by default.
const inPlaceGates = "RuntimeSDK=true,InPlaceUpdates=true"

func (e *Environment) capiManagers() []capiManager {
	return []capiManager{{
		component: component{
			provider: "cluster-api", prefix: "capi-", namespace: "capi-system", contract: contractOfCAPI,
			aggregate: "cluster.x-k8s.io/aggregate-to-manager",
		},
		process: CoreProcess, title: "Cluster API core manager", config: "core", webhookPort: 9441, gates: inPlaceGates,
	}, {
		component: component{
			provider: "bootstrap-kubeadm", prefix: "capi-kubeadm-bootstrap-", namespace: "capi-kubeadm-bootstrap-system", contract: contractOfCAPI,
		},
		process: BootstrapProcess, title: "Cluster API kubeadm bootstrap manager", config: "bootstrap", webhookPort: 9442,
	}, {
		component: component{
			provider: "control-plane-kubeadm", prefix: "capi-kubeadm-control-plane-", namespace: "capi-kubeadm-control-plane-system", contract: contractOfCAPI,
			aggregate: "kubeadm.controlplane.cluster.x-k8s.io/aggregate-to-manager",
		},
		process: ControlPlaneProcess, title: "Cluster API kubeadm control plane manager", config: "controlplane", webhookPort: 9443, gates: inPlaceGates,
	}}
}

func (e *Environment) pki() pki { return pki{dir: e.path("pki")} }

func (e *Environment) server() string {
	return "https://" + hostPort(e.Range.Management(), portAPIServer)
}

// certificates makes every key, certificate and kubeconfig of the management cluster.
func (e *Environment) certificates() error {
	address := []string{e.Range.Management()}
	pairs := []pair{
		{name: pairEtcdServer, authority: etcdAuthority, user: "etcd", addresses: append([]string{"127.0.0.1"}, address...)},
		{name: pairEtcdClient, authority: etcdAuthority, user: "kube-apiserver"},
		{name: pairAPIServer, authority: authority, user: "kube-apiserver", addresses: append([]string{serviceAddress}, address...)},
		{name: pairAdmin, authority: authority, user: "berth-admin", groups: []string{"system:masters"}},
		{name: pairControllerManager, authority: authority, user: "system:kube-controller-manager", addresses: address},
		{name: pairWebhooks, authority: authority, user: "webhooks", addresses: address},
	}
	kubeconfigs := map[string]string{pairAdmin: e.Kubeconfig(), pairControllerManager: e.kubeconfigOf(ControllerManagerProcess)}
	for process, c := range e.accounts() {
		pairs = append(pairs, pair{name: process, authority: authority, user: c.account(), groups: c.groups()})
		kubeconfigs[process] = e.kubeconfigOf(process)
	}
	if err := e.pki().ensure(pairs); err != nil {
		return err
	}
	for name, path := range kubeconfigs {
		if err := e.pki().writeKubeconfig(path, e.server(), name); err != nil {
			return fmt.Errorf("writing kubeconfig of %s: %w", name, err)
		}
	}
	return nil
}

// accounts maps the processes that act under a ServiceAccount's rights, as they would in a cluster, to their components.
func (e *Environment) accounts() map[string]component {
	all := map[string]component{}
	for _, m := range e.capiManagers() {
		all[m.process] = m.component
	}
	all[ManagerProcess] = e.berthComponent()
	return all
}

func (e *Environment) kubeconfigOf(process string) string {
	return e.path("pki", process+".kubeconfig")
}

const (
	serviceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
	// serviceIssuer is the name under which tokens of ServiceAccounts are issued.
	serviceIssuer = "https://kubernetes.default.svc"
)

func (e *Environment) etcd() (program, error) {
	path, err := tools.Path("etcd")
	if err != nil {
		return program{}, err
	}
	p := e.pki()
	client, err := p.client(etcdAuthority, pairEtcdClient)
	if err != nil {
		return program{}, err
	}
	url, peer := "https://"+hostPort(e.Range.Management(), portEtcd), "https://"+hostPort(e.Range.Management(), portEtcdPeer)
	return program{
		name: EtcdProcess, title: "database of the management cluster", path: path,
		args: []string{
			"--name=management", "--data-dir=" + e.path("etcd"),
			"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=management=" + peer,
			"--cert-file=" + p.cert(pairEtcdServer), "--key-file=" + p.key(pairEtcdServer),
			"--trusted-ca-file=" + p.cert(etcdAuthority), "--client-cert-auth=true",
			"--peer-cert-file=" + p.cert(pairEtcdServer), "--peer-key-file=" + p.key(pairEtcdServer),
			"--peer-trusted-ca-file=" + p.cert(etcdAuthority), "--peer-client-cert-auth=true",
			"--logger=zap", "--log-level=warn",
			// A world on one machine does not outlive a power cut anyway: the simulated vCenter is in memory.
			"--unsafe-no-fsync",
		},
		ready: answers(url+"/readyz", client),
	}, nil
}

func (e *Environment) apiServer() (program, error) {
	path, err := tools.Path("kube-apiserver")
	if err != nil {
		return program{}, err
	}
	p := e.pki()
	admin, err := p.client(authority, pairAdmin)
	if err != nil {
		return program{}, err
	}
	address := e.Range.Management()
	return program{
		name: APIServerProcess, title: "API server of the management cluster", path: path,
		args: []string{
			"--etcd-servers=https://" + hostPort(address, portEtcd), "--etcd-cafile=" + p.cert(etcdAuthority),
			"--etcd-certfile=" + p.cert(pairEtcdClient), "--etcd-keyfile=" + p.key(pairEtcdClient),
			"--bind-address=" + address, fmt.Sprintf("--secure-port=%d", portAPIServer), "--advertise-address=" + address,
			// Endpoints may not name a loopback address.
			"--endpoint-reconciler-type=none",
			"--client-ca-file=" + p.cert(authority),
			"--tls-cert-file=" + p.cert(pairAPIServer), "--tls-private-key-file=" + p.key(pairAPIServer),
			"--service-account-issuer=" + serviceIssuer, "--service-account-key-file=" + p.serviceAccountKey(),
			"--service-account-signing-key-file=" + p.serviceAccountKey(), "--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=RBAC", "--profiling=false",
		},
		ready: answers(e.server()+"/readyz", admin),
	}, nil
}

func (e *Environment) controllerManager() (program, error) {
	path, err := tools.Path("kube-controller-manager")
	if err != nil {
		return program{}, err
	}
	p := e.pki()
	client, err := p.client(authority, "")
	if err != nil {
		return program{}, err
	}
	address := e.Range.Management()
	return program{
		name: ControllerManagerProcess, title: "garbage collection and namespaces", path: path,
		args: []string{
			"--kubeconfig=" + e.kubeconfigOf(ControllerManagerProcess), "--leader-elect=false", "--use-service-account-credentials=true",
			"--bind-address=" + address, fmt.Sprintf("--secure-port=%d", portControllerManager),
			"--tls-cert-file=" + p.cert(pairControllerManager), "--tls-private-key-file=" + p.key(pairControllerManager),
			"--service-account-private-key-file=" + p.serviceAccountKey(), "--root-ca-file=" + p.cert(authority),
			"--controllers=" + strings.Join([]string{
				// Owner references: what is left of a deleted Cluster.
				"garbage-collector-controller",
				// kubectl delete namespace.
				"namespace-controller",
				"serviceaccount-controller",
				// Cluster API's managers get their rights through aggregated roles.
				"clusterrole-aggregation-controller",
			}, ","),
			"--profiling=false",
		},
		ready: answers("https://"+hostPort(address, portControllerManager)+"/healthz", client),
	}, nil
}

func (e *Environment) capiProgram(m capiManager) (program, error) {
	path, err := tools.Path(m.process)
	if err != nil {
		return program{}, err
	}
	address := e.Range.Management()
	args := []string{
		"--kubeconfig=" + e.kubeconfigOf(m.process),
		fmt.Sprintf("--webhook-port=%d", m.webhookPort), "--webhook-cert-dir=" + e.pki().file(pairWebhooks),
		"--health-addr=" + hostPort(address, m.webhookPort+100),
		"--diagnostics-address=" + hostPort(address, m.webhookPort+200), "--insecure-diagnostics",
		// A new installation has no objects in old versions.
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
	}
	if m.gates != "" {
		args = append(args, "--feature-gates="+m.gates)
	}
	return program{
		name: m.process, title: m.title, path: path, args: args,
		env:   []string{tools.WebhookHostVariable + "=" + address, "POD_NAMESPACE=" + m.namespace},
		ready: answers("http://"+hostPort(address, m.webhookPort+100)+"/readyz", nil),
	}, nil
}

// withWebhooks completes a component with where its webhook server is on this machine.
func (e *Environment) withWebhooks(c component, port int) (component, error) {
	bundle, err := e.pki().bundle(authority)
	if err != nil {
		return c, err
	}
	c.webhooks, c.caBundle = "https://"+hostPort(e.Range.Management(), port), bundle
	return c, nil
}

// capiObjects are all manifests of a Cluster API manager, adapted to this machine.
func (e *Environment) capiObjects(m capiManager) ([]*unstructured.Unstructured, error) {
	root, err := tools.CAPIConfig()
	if err != nil {
		return nil, err
	}
	c, err := e.withWebhooks(m.component, m.webhookPort)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, part := range []string{"crd/bases", "rbac", "webhook"} {
		objects, err := parseDir(os.DirFS(root), m.config+"/"+part)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	// The Service that leads to the webhooks in a cluster has no use here.
	all = ofKinds(all, kindDefinition, kindMutating, kindValidating, kindRole, kindClusterRole, kindBinding, kindClusterBinding, kindAccount)
	return c.install(all)
}

// installComponent applies everything of a component but its webhook configurations, and waits until it is in force. The
// configurations come later, in admission: until their server runs they would block every write.
func (e *Environment) installComponent(ctx context.Context, c component, objects []*unstructured.Unstructured, say func(string)) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	say("applying definitions and rights")
	if err := client.apply(ctx, []*unstructured.Unstructured{c.namespaceObject()}); err != nil {
		return err
	}
	definitions := ofKinds(objects, kindDefinition)
	if err := client.apply(ctx, append(definitions, ofKinds(objects, kindRole, kindClusterRole, kindBinding, kindClusterBinding, kindAccount)...)); err != nil {
		return err
	}
	say("waiting until the server has established them")
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("definitions not established within %s", patience))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range definitions {
		group.Go(func() error { return client.until(ctx, definitionResource, "", d.GetName(), established) })
	}
	if c.aggregate != "" {
		// The manager reads its kinds as soon as it starts; without the aggregated rights its first lists would fail and wait.
		group.Go(func() error { return client.until(ctx, clusterRoleResource, "", c.prefix+aggregatedRole, hasRules) })
	}
	return group.Wait()
}

func established(definition *unstructured.Unstructured) bool {
	return conditionStatus(definition, "Established") == "True" && conditionStatus(definition, "NamesAccepted") == "True"
}

func hasRules(role *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return len(rules) > 0
}

// awaitNamespaces returns when the namespaces exist that the API server makes by itself after it is ready.
func (e *Environment) awaitNamespaces(ctx context.Context) error {
	config, err := e.Config()
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := clients.CoreV1().Namespaces().Get(ctx, "default", getOptions)
		return err
	})
}
