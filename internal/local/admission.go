package local

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// canaries are objects that a component's webhooks must refuse, by process. They are in the old version where there is one,
// so that a refusal proves conversion too.
var canaries = map[string]string{
	CoreProcess: `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: berth-canary, namespace: default}
spec: {clusterNetwork: {pods: {cidrBlocks: [this-is-no-cidr]}}}
`,
	BootstrapProcess: `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
kind: KubeadmConfig
metadata: {name: berth-canary, namespace: default}
spec:
  files:
  - {path: /canary, content: one, contentFrom: {secret: {name: two, key: three}}}
`,
	ControlPlaneProcess: `
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: berth-canary, namespace: default}
spec:
  replicas: 2
  version: v1.36.3
  machineTemplate: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: none, namespace: default}}
  kubeadmConfigSpec: {}
`,
	ManagerProcess: `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineConfigPool
metadata: {name: berth-canary, namespace: default}
spec:
  clusterRef: {name: none}
  datacenter: none
  configs:
  - {hostname: twice, network: {primary: {networkName: none}}}
  - {hostname: twice, network: {primary: {networkName: none}}}
`,
}

// installAdmission applies the webhook configurations of a component and waits until its refusals are in force: the server
// has taken them up, reaches the program and trusts its certificate.
func (e *Environment) installAdmission(ctx context.Context, process string, objects []*unstructured.Unstructured, say func(string)) error {
	configurations := ofKinds(objects, kindMutating, kindValidating)
	if len(configurations) == 0 {
		return nil
	}
	client, err := e.client()
	if err != nil {
		return err
	}
	say("applying webhook configurations")
	if err := client.apply(ctx, configurations); err != nil {
		return err
	}
	wrong, err := parse([]byte(canaries[process]))
	if err != nil {
		return err
	}
	say("waiting until a wrong object is refused")
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("admission not in force within %s; see %s", patience, e.logPath(process)))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range wrong {
		group.Go(func() error {
			return await(ctx, 100*time.Millisecond, func(ctx context.Context) error { return client.refuses(ctx, object) })
		})
	}
	return group.Wait()
}
