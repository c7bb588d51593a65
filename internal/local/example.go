package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/examples"
)

// stepExample is the step that brings up the example cluster; each of its machines is shown as a step of its own.
const stepExample = "example cluster"

// examplePatience is how long the example cluster may take. It usually takes about a minute and a half.
const examplePatience = 15 * time.Minute

const waitingForMachines = "waiting until every machine runs and every node is ready"

// Stages of the example cluster in an environment's record.
const (
	// ExampleWanted means that it was asked for and its manifests are not applied yet.
	ExampleWanted = "wanted"
	// ExampleApplied means that its manifests were applied, once: from then on the cluster is the user's to change.
	ExampleApplied = "applied"
	// ExampleReady means that all of it has been ready once.
	ExampleReady = "ready"
)

// DefaultExample is the example of an environment for which nobody chose one.
const DefaultExample = "v1beta2"

// Examples lists the names of the examples of a provider, sorted.
func Examples(provider string) []string {
	entries, err := fs.ReadDir(examples.Files, provider)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// exampleDir is where the examples that are applied come from, in the embedded files.
func (e *Environment) exampleDir() string {
	return path.Join(e.Provider, cmp.Or(e.Variant, DefaultExample))
}

// ensureExample applies the example's manifests if that has not been done before, and waits for the machines if that has not
// succeeded before. A cluster that was ready once belongs to the user: Up must neither undo what they changed nor wait for it.
func (e *Environment) ensureExample(ctx context.Context, progress Progress, say func(string)) error {
	if e.Example == ExampleReady {
		return nil
	}
	names, texts, err := e.render()
	if err != nil {
		return err
	}
	var all []*unstructured.Unstructured
	client, err := e.client()
	if err != nil {
		return err
	}
	for i, name := range names {
		objects, err := parse([]byte(texts[i]))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, objects...)
		if e.Example == ExampleApplied {
			continue
		}
		say("applying " + name)
		// One file after the other: admission looks up what an object refers to.
		for _, object := range objects {
			err := rememberForKubectl(object)
			if err == nil {
				err = client.applyOne(ctx, object)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(e.Manifests(), name), err)
			}
		}
	}
	e.Example = ExampleApplied
	if err := e.write(); err != nil {
		return err
	}
	say(waitingForMachines)
	if err := e.awaitMachines(ctx, wantedMachines(all), progress, say); err != nil {
		return err
	}
	e.Example = ExampleReady
	return e.write()
}

// rememberForKubectl notes the object on itself as `kubectl apply` does. People edit these files and apply them again; without
// the note kubectl would warn, and would not notice what they have taken out.
func rememberForKubectl(object *unstructured.Unstructured) error {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	// kubectl's own note has an empty map here; another text would count as a change.
	object.SetAnnotations(annotations)
	text, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
	if err != nil {
		return err
	}
	annotations[corev1.LastAppliedConfigAnnotation] = string(text)
	object.SetAnnotations(annotations)
	return nil
}

// render writes the example's manifests in the addresses of this environment into the state directory, where people can read
// and change them, and returns their names in order and their texts.
func (e *Environment) render() (names, texts []string, err error) {
	files, err := fs.ReadDir(examples.Files, e.exampleDir())
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		if file.IsDir() || path.Ext(file.Name()) != ".yaml" || file.Name() == "kustomization.yaml" {
			continue
		}
		text, err := fs.ReadFile(examples.Files, path.Join(e.exampleDir(), file.Name()))
		if err != nil {
			return nil, nil, err
		}
		target := filepath.Join(e.Manifests(), file.Name())
		rendered := e.Range.Rewrite(string(text))
		// A file that exists may have been edited on purpose.
		switch existing, err := os.ReadFile(target); {
		case err == nil:
			rendered = string(existing)
		case errors.Is(err, fs.ErrNotExist):
			if err := replaceFile(target, []byte(rendered)); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, err
		}
		names, texts = append(names, file.Name()), append(texts, rendered)
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("this program carries no example for provider %s", e.Provider)
	}
	return names, texts, nil
}

// wantedMachines counts the machines that manifests ask for, by namespace and cluster.
func wantedMachines(objects []*unstructured.Unstructured) map[string]int {
	wanted := map[string]int{}
	for _, object := range objects {
		switch object.GetKind() {
		case "KubeadmControlPlane", "MachineDeployment":
		default:
			continue
		}
		replicas, found, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
		if err != nil || !found {
			replicas = 1
		}
		cluster, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName")
		if cluster == "" {
			cluster = object.GetLabels()[labelCluster]
		}
		if cluster == "" {
			// A control plane need not name its Cluster, which names it.
			cluster = clusterOf(objects, object)
		}
		wanted[object.GetNamespace()+"/"+cluster] += int(replicas)
	}
	return wanted
}

func clusterOf(objects []*unstructured.Unstructured, controlPlane *unstructured.Unstructured) string {
	for _, object := range objects {
		name, _, _ := unstructured.NestedString(object.Object, "spec", "controlPlaneRef", "name")
		if object.GetKind() == "Cluster" && object.GetNamespace() == controlPlane.GetNamespace() && name == controlPlane.GetName() {
			return object.GetName()
		}
	}
	return ""
}

// awaitMachines waits until each cluster has as many ready machines as wanted, and shows each machine's way there.
func (e *Environment) awaitMachines(ctx context.Context, wanted map[string]int, progress Progress, say func(string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, examplePatience, fmt.Errorf("not ready within %s", examplePatience))
	defer cancel()
	begun := map[string]time.Time{}
	ended := map[string]bool{}
	var last []Machine
	err := e.watchMachines(ctx, func(clusters []*unstructured.Unstructured, machines []Machine) (bool, error) {
		last = machines
		// Before there are machines, the cluster itself says what it waits for.
		for _, cluster := range clusters {
			c := conditionOf(cluster, "InfrastructureReady")
			_, ours := wanted[cluster.GetNamespace()+"/"+cluster.GetName()]
			switch {
			case !ours:
			case c.status != "True" && c.message != "":
				say("infrastructure of " + cluster.GetName() + ": " + oneLine(c.message))
			default:
				say(waitingForMachines)
			}
		}
		for name, at := range begun {
			if gone := !slices.ContainsFunc(machines, func(m Machine) bool { return m.Name == name }); gone && !ended[name] {
				ended[name] = true
				progress.End(name, time.Since(at), errors.New("deleted before it was ready"))
			}
		}
		ready := map[string]int{}
		for _, m := range machines {
			if _, known := begun[m.Name]; !known {
				begun[m.Name] = time.Now()
				progress.Begin(m.Name)
			}
			if m.Ready {
				ready[m.Namespace+"/"+m.Cluster]++
			}
			if ended[m.Name] {
				continue
			}
			progress.Note(m.Name, m.describe())
			if m.Ready {
				ended[m.Name] = true
				progress.End(m.Name, time.Since(begun[m.Name]), nil)
			}
		}
		for cluster, n := range wanted {
			if ready[cluster] < n {
				return false, nil
			}
		}
		return true, nil
	})
	outcome := errors.New("not ready")
	if errors.Is(err, context.Canceled) {
		outcome = context.Canceled
	}
	for name, at := range begun {
		if !ended[name] {
			progress.End(name, time.Since(at), outcome)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, unready(wanted, last))
	}
	return nil
}

// describe is one line about where a machine is on its way.
func (m Machine) describe() string {
	parts := []string{cmp.Or(m.Phase, "Created")}
	if m.Slot != "" {
		parts = append(parts, "slot "+m.Slot)
	}
	if m.Address != "" {
		parts = append(parts, m.Address)
	}
	line := strings.Join(parts, ", ")
	if m.Waiting != "" {
		line += ": " + m.Waiting
	}
	return line
}

func unready(wanted map[string]int, machines []Machine) string {
	total := 0
	for _, n := range wanted {
		total += n
	}
	var waiting []string
	for _, m := range machines {
		if !m.Ready {
			waiting = append(waiting, m.Name+": "+m.describe())
		}
	}
	if len(waiting) == 0 {
		return fmt.Sprintf("%d machines exist and %d are wanted; `kubectl describe cluster` says why", len(machines), total)
	}
	return strings.Join(waiting, "; ")
}
