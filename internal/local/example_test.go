package local

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func rendered(t *testing.T, r Range) (*Environment, []*unstructured.Unstructured) {
	t.Helper()
	g := NewWithT(t)
	e := emptyEnvironment(t)
	e.Record = Record{Range: r, Provider: "vsphere"}
	names, texts, err := e.render()
	g.Expect(err).NotTo(HaveOccurred())
	var all []*unstructured.Unstructured
	for i, name := range names {
		objects, err := parse([]byte(texts[i]))
		g.Expect(err).NotTo(HaveOccurred(), name)
		all = append(all, objects...)
	}
	return e, all
}

func TestTheExampleMovesIntoTheRangeOfItsEnvironment(t *testing.T) {
	g := NewWithT(t)
	e, objects := rendered(t, 99)
	g.Expect(wantedMachines(objects)).To(Equal(map[string]int{"cpaas-system/demo": 6}))
	for _, object := range objects {
		if object.GetKind() == "VSphereCluster" {
			server, _, _ := unstructured.NestedString(object.Object, "spec", "server")
			g.Expect(server).To(Equal(e.VCenterServer()))
		}
	}
	files, err := filepath.Glob(filepath.Join(e.Manifests(), "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).NotTo(ContainSubstring("127.64."), file)
	}
}

func TestEveryExampleCanBeChosen(t *testing.T) {
	g := NewWithT(t)
	all := Examples("vsphere")
	g.Expect(all).To(ContainElements(DefaultExample, "v1beta1", "second-nic", "legacy-disks"))
	for _, name := range all {
		g.Expect(Options{Example: name}.Validate()).To(Succeed())
		e := emptyEnvironment(t)
		e.Record = Record{Range: 99, Provider: "vsphere", Variant: name}
		names, texts, err := e.render()
		g.Expect(err).NotTo(HaveOccurred())
		var objects []*unstructured.Unstructured
		for i := range names {
			parsed, err := parse([]byte(texts[i]))
			g.Expect(err).NotTo(HaveOccurred(), "%s/%s", name, names[i])
			objects = append(objects, parsed...)
		}
		g.Expect(wantedMachines(objects)).To(HaveLen(1), "machines of one cluster in %s", name)
	}
	g.Expect(Options{Example: "third-nic"}.Validate()).To(MatchError(And(ContainSubstring("third-nic"), ContainSubstring("second-nic"))))
}

func TestAnEnvironmentKeepsItsExample(t *testing.T) {
	g := NewWithT(t)
	e := emptyEnvironment(t)
	e.Record = Record{Range: 99, Provider: "vsphere", Variant: "second-nic"}
	g.Expect(e.write()).To(Succeed())
	_, _, err := create(Options{Dir: e.Dir, Provider: "vsphere", Example: "legacy-disks"})
	g.Expect(err).To(MatchError(And(ContainSubstring("second-nic"), ContainSubstring("legacy-disks"), ContainSubstring("--state-dir"))))
}

func TestAManifestEditedByTheUserIsTheOneApplied(t *testing.T) {
	g := NewWithT(t)
	e, _ := rendered(t, 99)
	file := filepath.Join(e.Manifests(), "00-namespace.yaml")
	const edited = "apiVersion: v1\nkind: Namespace\nmetadata: {name: edited}\n"
	g.Expect(os.WriteFile(file, []byte(edited), 0o600)).To(Succeed())
	_, texts, err := e.render()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(texts).To(ContainElement(edited))
}

func TestTheSimulatedVCenterKnowsTheExamplesCredentials(t *testing.T) {
	g := NewWithT(t)
	_, objects := rendered(t, ExampleRange)
	secrets := ofKinds(objects, "Secret")
	g.Expect(secrets).To(HaveLen(1))
	data, _, err := unstructured.NestedStringMap(secrets[0].Object, "stringData")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(data).To(Equal(map[string]string{"username": vcenterUser, "password": vcenterPassword}))
}

func objects(g *WithT, text string) []*unstructured.Unstructured {
	all, err := parse([]byte(text))
	g.Expect(err).NotTo(HaveOccurred())
	return all
}

func TestMachinesAreJoinedWithTheirPlaces(t *testing.T) {
	g := NewWithT(t)
	machines := objects(g, `
metadata: {name: demo-md-0-b, namespace: ns}
spec: {clusterName: demo, version: v1.36.3, infrastructureRef: {kind: VSphereMachine, name: demo-md-0-b}}
status:
  phase: Provisioning
  conditions:
  - {type: BootstrapConfigReady, status: "True"}
  - {type: InfrastructureReady, status: "False", message: "status.initialization.provisioned is false"}
---
metadata: {name: demo-control-plane-a, namespace: ns, labels: {cluster.x-k8s.io/control-plane: ""}}
spec: {clusterName: demo, infrastructureRef: {kind: VSphereMachine, name: demo-control-plane-a}}
status:
  phase: Running
  nodeRef: {name: demo-cp-1}
  addresses: [{type: Hostname, address: demo-cp-1}, {type: ExternalIP, address: 127.64.1.21}]
  conditions: [{type: NodeReady, status: "True"}]
---
metadata: {name: demo-md-0-c, namespace: ns}
spec: {clusterName: demo, infrastructureRef: {kind: VSphereMachine, name: demo-md-0-c}}
status: {phase: Pending, conditions: [{type: BootstrapConfigReady, status: "False", message: "* Waiting\n  for the control plane"}]}
`)
	infra := objects(g, `
metadata: {name: demo-md-0-b, namespace: ns}
status: {conditions: [{type: Ready, status: "False", reason: NoAvailableSlots, message: "no free slot in pool demo-worker: 3 of 3 in use"}]}
---
metadata: {name: demo-control-plane-a, namespace: ns}
---
metadata: {name: demo-md-0-b, namespace: another}
status: {conditions: [{type: Ready, status: "False", reason: Wrong, message: "of another namespace"}]}
`)
	vms := objects(g, `
metadata:
  name: some-vm
  namespace: ns
  annotations: {infrastructure.cluster.x-k8s.io/machine-config-slot-hostname: demo-cp-1}
  ownerReferences: [{kind: VSphereMachine, name: demo-control-plane-a}]
`)
	got := machinesOf(machines, infra, vms)
	g.Expect(got).To(HaveLen(3))
	g.Expect(got[0]).To(Equal(Machine{
		Namespace: "ns", Cluster: "demo", Name: "demo-control-plane-a", Role: "control plane", Phase: "Running",
		Slot: "demo-cp-1", Address: "127.64.1.21", Node: "demo-cp-1", Ready: true,
	}))
	g.Expect(got[1].Waiting).To(Equal("NoAvailableSlots: no free slot in pool demo-worker: 3 of 3 in use"), "the infrastructure knows best")
	g.Expect(got[2].Waiting).To(Equal("* Waiting for the control plane"), "in one line")
	g.Expect(unready(map[string]int{"ns/demo": 3}, got)).To(ContainSubstring("demo-md-0-b: Provisioning: NoAvailableSlots"))
}
