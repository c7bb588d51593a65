//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	workerPoolFile = "17-vspheremachineconfigpool-worker.yaml"
	workersFile    = "30-workers-md-0.yaml"

	workerPool       = cluster + "-worker"
	controlPlanePool = cluster + "-control-plane"
	workers          = cluster + "-md-0"
	controlPlane     = cluster + "-control-plane"
	workerTemplate   = cluster + "-worker"
	controlTemplate  = cluster + "-control-plane"
	workerBootstrap  = cluster + "-worker-bootstrap"
)

// edit changes the only object of a manifest, as an editor would.
func (w *world) edit(t *testing.T, file string, change func(*unstructured.Unstructured)) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(w.manifest(file))
	g.Expect(err).NotTo(HaveOccurred())
	object := parse(g, text)
	change(object)
	w.write(g, file, object)
}

func (w *world) write(g Gomega, file string, object *unstructured.Unstructured) {
	text, err := yaml.Marshal(object.Object)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(w.manifest(file), text, 0o600)).To(Succeed())
}

func parse(g Gomega, text []byte) *unstructured.Unstructured {
	g.Expect(bytes.Count(text, []byte("\n---"))).To(BeNumerically("<=", 1), "one object in a manifest")
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal(text, &object.Object)).To(Succeed())
	return object
}

// addSlot appends a worker slot that differs from the last one only in host name and address.
func (w *world) addSlot(t *testing.T, number int) {
	t.Helper()
	g := NewWithT(t)
	w.edit(t, workerPoolFile, func(pool *unstructured.Unstructured) {
		configs, _, err := unstructured.NestedSlice(pool.Object, "spec", "configs")
		g.Expect(err).NotTo(HaveOccurred())
		last := configs[len(configs)-1].(map[string]any)
		text, err := yaml.Marshal(last)
		g.Expect(err).NotTo(HaveOccurred())
		slot := map[string]any{}
		g.Expect(yaml.Unmarshal(text, &slot)).To(Succeed())
		slot["hostname"] = fmt.Sprintf("%s-worker-%d", cluster, number)
		ip := fmt.Sprintf("127.%d.1.%d/24", int(w.env.Range), 30+number)
		g.Expect(unstructured.SetNestedField(slot, ip, "network", "primary", "ip")).To(Succeed())
		g.Expect(unstructured.SetNestedSlice(pool.Object, append(configs, slot), "spec", "configs")).To(Succeed())
	})
}

func (w *world) setReplicas(t *testing.T, replicas int64) {
	t.Helper()
	w.edit(t, workersFile, func(md *unstructured.Unstructured) {
		NewWithT(t).Expect(unstructured.SetNestedField(md.Object, replicas, "spec", "replicas")).To(Succeed())
	})
}

// export writes an object of the server into a file under a new name, without what the server generated, as the manual says,
// and applies it (VS-R33).
func (w *world) export(t *testing.T, kind, name, newName, file string, change func(*unstructured.Unstructured)) {
	t.Helper()
	w.copy(t, kind, name, newName, file, change)
	w.kubectl(t, "apply", "-f", w.manifest(file))
}

// copyCluster is export for what belongs to no namespace.
func (w *world) copyCluster(t *testing.T, kind, name, newName, file string, change func(*unstructured.Unstructured)) {
	t.Helper()
	w.shell(t, "kubectl get "+kind+" "+name+" -o yaml > "+file)
	w.rename(t, newName, file, change)
	w.kubectl(t, "apply", "-f", w.manifest(file))
}

// copy is export up to the file.
func (w *world) copy(t *testing.T, kind, name, newName, file string, change func(*unstructured.Unstructured)) {
	t.Helper()
	w.shell(t, "kubectl get "+kind+" "+name+" -n "+namespace+" -o yaml > "+file)
	w.rename(t, newName, file, change)
}

func (w *world) rename(t *testing.T, newName, file string, change func(*unstructured.Unstructured)) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(w.manifest(file))
	g.Expect(err).NotTo(HaveOccurred())
	object := parse(g, text)
	object.SetName(newName)
	for _, field := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	unstructured.RemoveNestedField(object.Object, "status")
	change(object)
	w.write(g, file, object)
}

func set(t *testing.T, object *unstructured.Unstructured, value any, path string) {
	t.Helper()
	NewWithT(t).Expect(unstructured.SetNestedField(object.Object, value, strings.Split(path, ".")...)).To(Succeed())
}

// patch changes a reference with the merge patch of the manual.
func (w *world) patch(t *testing.T, kind, name, patch string) {
	t.Helper()
	w.shell(t, "kubectl patch "+kind+" "+name+" -n "+namespace+" \\\n  --type='merge' -p='"+patch+"'")
}

func (w *world) useWorkerTemplate(t *testing.T, name string) {
	t.Helper()
	w.patch(t, "machinedeployment", workers, `{
    "spec": {
      "template": {
        "spec": {
          "infrastructureRef": {
            "name": "`+name+`"
          }
        }
      }
    }
  }`)
}
