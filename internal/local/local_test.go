package local

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// printing is a Progress for tests: what Up does is in the test's log.
type printing struct{ t *testing.T }

func (p printing) Begin(string)     {}
func (p printing) Note(_, _ string) {}
func (p printing) End(step string, took time.Duration, err error) {
	p.t.Logf("%s ended after %s: %v", step, took.Round(time.Millisecond), err)
}

// managementOptions ask for a management cluster without Berth.
func managementOptions(t *testing.T, dir string) Options {
	return Options{Dir: dir, Bare: true, Progress: printing{t}, Without: []string{ManagerProcess, VCenterProcess, GuestsProcess}}
}

// management brings one up and takes it down after the test.
func management(t *testing.T) *Environment {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	t.Cleanup(func() {
		e, err := Open(dir)
		if err != nil {
			return
		}
		if t.Failed() {
			for _, name := range e.recorded() {
				t.Log(name, e.lastWords(name))
			}
		}
		g.Expect(e.Purge(context.WithoutCancel(t.Context()), nil)).To(Succeed())
	})
	e, err := Up(t.Context(), managementOptions(t, dir))
	g.Expect(err).NotTo(HaveOccurred())
	return e
}

const bothVersions = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: old, namespace: default}
spec:
  paused: true
  clusterNetwork: {pods: {cidrBlocks: [10.3.0.0/16]}}
  infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereCluster, name: old, namespace: default}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: new, namespace: default}
spec:
  paused: true
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereCluster, name: new}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: old-md-0, namespace: default}
spec:
  clusterName: old
  replicas: 0
  selector: {}
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    spec:
      clusterName: old
      nodeDrainTimeout: 1m
      bootstrap: {configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: old-worker-bootstrap, namespace: default}}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: old-worker, namespace: default}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: old-control-plane, namespace: default}
spec:
  replicas: 3
  version: v1.36.3
  rolloutStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}
  machineTemplate:
    nodeDrainTimeout: 1m
    infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: old-control-plane, namespace: default}
  kubeadmConfigSpec: {clusterConfiguration: {}}
`

// The journey of a management cluster: up, both versions of the API, a killed process, down, up again, purge.
func TestManagementCluster(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	e := management(t)

	t.Log("everything listens in the range of the environment")
	g.Expect(strangers(g, e)).To(BeEmpty())

	t.Log("v1beta1 and v1beta2 manifests apply and read back in both versions")
	client, err := e.client()
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := parse([]byte(bothVersions))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.apply(ctx, objects)).To(Succeed())
	read := func(group, version, resource, name string, path ...string) any {
		object, err := client.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).
			Namespace("default").Get(ctx, name, getOptions)
		g.Expect(err).NotTo(HaveOccurred())
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
		g.Expect(err).NotTo(HaveOccurred())
		return value
	}
	const core, control = "cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"
	for _, name := range []string{"old", "new"} {
		g.Expect(read(core, "v1beta2", "clusters", name, "spec", "infrastructureRef", "apiGroup")).To(Equal("infrastructure.cluster.x-k8s.io"))
		g.Expect(read(core, "v1beta1", "clusters", name, "spec", "infrastructureRef", "apiVersion")).
			To(Equal("infrastructure.cluster.x-k8s.io/v1beta1"), "needs the contract label of our definition")
	}
	g.Expect(read(core, "v1beta2", "machinedeployments", "old-md-0", "spec", "template", "spec", "deletion", "nodeDrainTimeoutSeconds")).To(BeEquivalentTo(60))
	g.Expect(read(core, "v1beta1", "machinedeployments", "old-md-0", "spec", "template", "spec", "nodeDrainTimeout")).To(Equal("1m0s"))
	g.Expect(read(control, "v1beta2", "kubeadmcontrolplanes", "old-control-plane", "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")).To(BeEquivalentTo(0))
	g.Expect(read(control, "v1beta1", "kubeadmcontrolplanes", "old-control-plane", "spec", "rolloutStrategy", "rollingUpdate", "maxSurge")).To(BeEquivalentTo(0))

	t.Log("the managers act under the rights of their own accounts")
	for _, process := range []string{CoreProcess, BootstrapProcess, ControlPlaneProcess} {
		log, err := os.ReadFile(e.logPath(process))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).NotTo(ContainSubstring("forbidden"))
	}

	t.Log("a killed process is brought back, the others are left alone")
	before := identities(e)
	g.Expect(e.Kill(ctx, CoreProcess)).To(Succeed())
	status, err := e.Status(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.State).To(Equal(StateDegraded))
	_, err = Up(ctx, managementOptions(t, e.Dir))
	g.Expect(err).NotTo(HaveOccurred())
	after := identities(e)
	g.Expect(after[CoreProcess]).NotTo(Equal(before[CoreProcess]))
	delete(before, CoreProcess)
	delete(after, CoreProcess)
	g.Expect(after).To(Equal(before))
	status, err = e.Status(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.State).To(Equal(StateReady))

	t.Log("down leaves no process and no socket")
	g.Expect(e.Stop(ctx, printing{t})).To(Succeed())
	g.Expect(e.survivors()).To(BeEmpty())
	busy, err := listening()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(busy).NotTo(HaveKey(e.Range))

	t.Log("without a world there is nothing to lose: up again finds what was there")
	again, err := Up(ctx, managementOptions(t, e.Dir))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Range).To(Equal(e.Range))
	g.Expect(read(core, "v1beta1", "clusters", "old", "spec", "paused")).To(BeTrue())

	t.Log("purge leaves nothing, not even the range")
	g.Expect(again.Purge(ctx, printing{t})).To(Succeed())
	g.Expect(e.Dir).NotTo(BeADirectory())
	home, err := stateHome()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(holderOf(filepath.Join(home, "ranges", strconv.Itoa(int(e.Range))))).To(BeEmpty())
}

func identities(e *Environment) map[string]identity {
	all := map[string]identity{}
	for _, name := range e.Processes() {
		if record, ok := e.running(name); ok {
			all[name] = record.identity
		}
	}
	return all
}

// strangers are sockets that processes of the environment listen on outside its range of addresses.
func strangers(g *WithT, e *Environment) []string {
	var found []string
	for _, s := range e.survivors() {
		for _, address := range socketsOf(g, s.PID) {
			if address.IP[0] != 127 || address.IP[1] != byte(e.Range) {
				found = append(found, s.process+" on "+address.String())
			}
		}
	}
	return found
}

// socketsOf lists the TCP sockets, of IPv4 and IPv6, that a process listens on.
func socketsOf(g *WithT, pid int) []net.TCPAddr {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	g.Expect(err).NotTo(HaveOccurred())
	own := map[string]bool{}
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			own[target] = true
		}
	}
	var all []net.TCPAddr
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		sockets, err := listenersIn(file)
		if os.IsNotExist(err) {
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		for _, s := range sockets {
			if own["socket:["+s.inode+"]"] {
				all = append(all, s.TCPAddr)
			}
		}
	}
	return all
}

func TestAForeignDirectoryIsNotTakenOver(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600)).To(Succeed())
	_, err := Up(t.Context(), Options{Dir: dir})
	g.Expect(err).To(MatchError(ContainSubstring("files of something else")))
	g.Expect(dir + "/run").NotTo(BeADirectory())
}

func TestOneBringUpAtATime(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	unlock, err := tryLockFile(lockPath(e.Dir))
	g.Expect(err).NotTo(HaveOccurred())
	defer unlock()
	_, err = Up(t.Context(), Options{Dir: e.Dir})
	g.Expect(err).To(MatchError(ErrBusy))
	g.Expect(e.Stop(t.Context(), nil)).To(MatchError(ErrBusy))
}

func TestNoEnvironmentIsSaidAsSuch(t *testing.T) {
	g := NewWithT(t)
	_, err := Open(filepath.Join(t.TempDir(), "nothing"))
	g.Expect(err).To(MatchError(ErrNoEnvironment))
}

func TestWhenTheSimulatedCloudDiedTheWorldIsLost(t *testing.T) {
	g := NewWithT(t)
	register(t)
	e := emptyEnvironment(t)
	_, err := take(e.Dir)
	g.Expect(err).NotTo(HaveOccurred())
	e, err = Open(e.Dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.WorldLost()).To(BeFalse(), "no world has existed yet")

	cloud := program{name: VCenterProcess, path: "/bin/sleep", args: []string{"600"}, irreplaceable: true}
	g.Expect(e.ensureWorld(t.Context(), cloud, func(string) {})).To(Succeed())
	g.Expect(e.WorldLost()).To(BeFalse())
	g.Expect(e.Kill(t.Context(), VCenterProcess)).To(Succeed())
	g.Expect(e.WorldLost()).To(BeTrue())

	g.Expect(e.ensureWorld(t.Context(), cloud, func(string) {})).To(MatchError(ErrWorldLost))
	_, err = Up(t.Context(), Options{Dir: e.Dir, Provider: e.Provider})
	g.Expect(err).To(MatchError(ErrWorldLost))
	g.Expect(err).To(MatchError(ContainSubstring("berth down --purge --state-dir " + e.Dir)))
}
