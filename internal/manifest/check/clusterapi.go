package check

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/berth-dev/berth/internal/rules"
)

// clusterAPI tells the most common reasons for which Cluster API's own webhooks refuse the owners of machines.
func (o *object) clusterAPI() {
	tell := func(path, message string) {
		said := slices.ContainsFunc(o.problems, func(p Problem) bool { return p.Field == path && p.Severity == Error })
		if !said && !o.spoilt(path) {
			o.at(Error, path, message)
		}
	}
	semantic := func(steps ...string) {
		given, found, _ := unstructured.NestedString(o.data.Object, steps...)
		if _, err := version.ParseSemantic(given); found && err != nil {
			tell(dotted(steps), fmt.Sprintf("Invalid value: %q: must be a whole version such as v1.34.2", given))
		}
	}
	switch o.Kind {
	case rules.KindKubeadmControlPlane:
		semantic("spec", "version")
		replicas, found, _ := unstructured.NestedInt64(o.data.Object, "spec", "replicas")
		_, external, _ := unstructured.NestedMap(o.data.Object, "spec", "kubeadmConfigSpec", "clusterConfiguration", "etcd", "external")
		if found && replicas > 0 && replicas%2 == 0 && !external {
			tell("spec.replicas", fmt.Sprintf("Invalid value: %d: Cluster API refuses an even number of control planes, since one more than an odd number outlives no more failures; write %d or %d", replicas, replicas-1, replicas+1))
		}
	case rules.KindMachineDeployment:
		semantic("spec", "template", "spec", "version")
		of, _, _ := unstructured.NestedString(o.data.Object, "spec", "clusterName")
		if inner, _, _ := unstructured.NestedString(o.data.Object, "spec", "template", "spec", "clusterName"); of != "" && inner != "" && of != inner {
			tell("spec.template.spec.clusterName", fmt.Sprintf("Invalid value: %q: must be %q, as spec.clusterName", inner, of))
		}
		o.selector(of)
	}
}

// selector compares a MachineDeployment's selector with the labels of its machines, both as Cluster API completes them.
func (o *object) selector(cluster string) {
	given, _, _ := unstructured.NestedMap(o.data.Object, "spec", "selector")
	var s metav1.LabelSelector
	if runtime.DefaultUnstructuredConverter.FromUnstructured(given, &s) != nil {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil || selector.Empty() {
		return // the schema, or Cluster API's default, says what is to be said
	}
	has, _, _ := unstructured.NestedStringMap(o.data.Object, "spec", "template", "metadata", "labels")
	all := labels.Merge(has, labels.Set{clusterv1.ClusterNameLabel: cluster})
	if !selector.Matches(all) && !o.spoilt("spec.template.metadata.labels") {
		o.at(Error, "spec.template.metadata.labels", fmt.Sprintf("must have the labels that spec.selector asks for (%s); leave the selector empty to let Cluster API choose both", selector))
	}
}

// notNew refuses what a server adds to an object where it is no longer true. An exported object that becomes another one has it.
func (o *object) notNew() {
	version, _, _ := unstructured.NestedString(o.document.Object, "metadata", "resourceVersion")
	switch {
	case version == "":
	case o.old == nil:
		o.at(Error, "metadata.resourceVersion", "must not be set on a new object; remove what the server had added: resourceVersion, uid, generation, creationTimestamp, managedFields, status")
	case version != o.old.GetResourceVersion():
		o.at(Error, "metadata.resourceVersion", fmt.Sprintf("is %s, and the object in the cluster is at %s by now: the change would be refused; remove resourceVersion, or export the object anew", version, o.old.GetResourceVersion()))
	}
}

func dotted(steps []string) string {
	out := steps[0]
	for _, s := range steps[1:] {
		out += "." + s
	}
	return out
}
