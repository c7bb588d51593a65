package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/manifest/schema"
	"github.com/berth-dev/berth/internal/rules"
)

// Groups of the kinds that refer to each other.
const (
	clusterGroup      = "cluster.x-k8s.io"
	bootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
)

var (
	infraGroup = v1beta1.GroupVersion.Group
	clusterGK  = kschema.GroupKind{Group: clusterGroup, Kind: "Cluster"}
	secretGK   = kschema.GroupKind{Kind: "Secret"}
	poolGK     = kschema.GroupKind{Group: infraGroup, Kind: "VSphereMachineConfigPool"}
	templateGK = kschema.GroupKind{Group: infraGroup, Kind: "VSphereMachineTemplate"}
	zoneGK     = kschema.GroupKind{Group: infraGroup, Kind: "VSphereDeploymentZone"}
	domainGK   = kschema.GroupKind{Group: infraGroup, Kind: "VSphereFailureDomain"}
)

// reference of an object to another.
type reference struct {
	path string
	to   key
	// soft: its target belongs to others, so it is only warned about.
	soft bool
}

// references of an object whose targets are ours, bootstrap templates, Clusters, control planes or Secrets.
func (o *object) references() []reference {
	var refs []reference
	add := func(gk kschema.GroupKind, namespace string, soft bool, path ...string) {
		name, _, _ := unstructured.NestedString(o.data.Object, path...)
		if name != "" {
			refs = append(refs, reference{path: strings.Join(path, "."), to: key{gk, namespace, name}, soft: soft})
		}
	}
	// reference reads an object reference of either version of Cluster API's types.
	byKind := func(gk kschema.GroupKind, soft bool, path ...string) {
		ref, _, _ := unstructured.NestedMap(o.data.Object, path...)
		kind, _ := ref["kind"].(string)
		group, _ := ref["apiGroup"].(string)
		if apiVersion, _ := ref["apiVersion"].(string); apiVersion != "" {
			gv, _ := kschema.ParseGroupVersion(apiVersion)
			group = gv.Group
		}
		if gk.Group == infraGroup && group == "" {
			group = infraGroup // a reference within our group may leave it out
		}
		if gk == poolGK && kind == "" {
			kind = gk.Kind // there is nothing else that it could name
		}
		if kind == gk.Kind && group == gk.Group {
			namespace, _ := ref["namespace"].(string)
			add(gk, cmp.Or(namespace, o.Namespace), soft, append(path, "name")...)
		}
	}
	spec := func(path ...string) []string { return append([]string{"spec"}, path...) }
	switch o.GroupKind {
	case clusterGK:
		byKind(kschema.GroupKind{Group: infraGroup, Kind: "VSphereCluster"}, false, spec("infrastructureRef")...)
		byKind(kschema.GroupKind{Group: controlPlaneGroup, Kind: rules.KindKubeadmControlPlane}, true, spec("controlPlaneRef")...)
	case kschema.GroupKind{Group: infraGroup, Kind: "VSphereCluster"}:
		switch kind, _, _ := unstructured.NestedString(o.data.Object, "spec", "identityRef", "kind"); kind {
		case "Secret":
			add(secretGK, o.Namespace, true, spec("identityRef", "name")...)
		case "VSphereClusterIdentity":
			add(kschema.GroupKind{Group: infraGroup, Kind: kind}, "", false, spec("identityRef", "name")...)
		}
	case poolGK:
		add(clusterGK, o.Namespace, true, spec("clusterRef", "name")...)
	case templateGK:
		byKind(poolGK, false, spec("template", "spec", "machineConfigPoolRef")...)
	case kschema.GroupKind{Group: infraGroup, Kind: "VSphereMachine"}:
		byKind(poolGK, false, spec("machineConfigPoolRef")...)
	case zoneGK:
		add(domainGK, "", false, spec("failureDomain")...)
	case kschema.GroupKind{Group: clusterGroup, Kind: rules.KindMachineDeployment}:
		add(clusterGK, o.Namespace, true, spec("clusterName")...)
		byKind(kschema.GroupKind{Group: bootstrapGroup, Kind: "KubeadmConfigTemplate"}, false, spec("template", "spec", "bootstrap", "configRef")...)
		if c, err := rules.ConsumerOf(o.data); err == nil && rules.UsesVSphere(c) {
			add(zoneGK, "", false, spec("template", "spec", "failureDomain")...)
		}
	}
	return refs
}

// follow reports references to what is not there.
func (s *set) follow(ctx context.Context, o *object) error {
	for _, ref := range o.references() {
		if o.spoilt(ref.path) {
			continue
		}
		there, err := s.exists(ctx, ref.to)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		severity := Error
		if ref.soft || s.options.Partial || o.refersAlready(ref.path) {
			severity = Warning
		} else if paused, err := s.paused(ctx, o); err != nil {
			return err
		} else if paused {
			severity = Warning
		}
		// A rule may have warned of it already, more mildly.
		o.problems = slices.DeleteFunc(o.problems, func(p Problem) bool { return p.Field == ref.path && p.Severity == Warning })
		o.at(severity, ref.path, s.missing(ref.to, severity))
	}
	return nil
}

// refersAlready reports whether the cluster's object has the same reference: what is there is not refused for it.
func (o *object) refersAlready(path string) bool {
	if o.old == nil {
		return false
	}
	steps := strings.Split(path, ".")
	now, _, _ := unstructured.NestedString(o.data.Object, steps...)
	before, _, _ := unstructured.NestedString(o.old.Object, steps...)
	return now == before
}

// missing is the sentence about something that is not there.
func (s *set) missing(k key, severity string) string {
	where, way := "is not in these files", "add it or correct the name, unless it is in the cluster, where --server looks"
	if severity == Error {
		way += "; --partial makes this a warning"
	}
	if s.options.Server != nil {
		where, way = "is neither in these files nor in the cluster", "add it or correct the name"
	}
	return fmt.Sprintf("%s %s%s; %s", k, where, s.hint(k), way)
}

// hint looks for what may be meant by a key that leads nowhere.
func (s *set) hint(k key) string {
	var names []string
	for _, o := range s.objects {
		switch {
		case o.GroupKind != k.GroupKind:
		case o.Name == k.Name && o.Namespace != k.Namespace:
			return fmt.Sprintf(" (there is one in namespace %s: all objects of a cluster live in one namespace)", o.Namespace)
		case o.Namespace == k.Namespace:
			names = append(names, o.Name)
		}
	}
	if near := schema.Nearest(k.Name, names); near != "" {
		return fmt.Sprintf(" (there is one called %s)", near)
	}
	return ""
}

// exists reports whether something is in the set, well-formed or not, or in the cluster.
func (s *set) exists(ctx context.Context, k key) (bool, error) {
	if s.index[k] != nil || s.absent[k] {
		return true, nil
	}
	if s.options.Server == nil {
		return false, nil
	}
	found := &metav1.PartialObjectMetadata{}
	version := clusterv1.GroupVersion.Version
	switch k.Group {
	case infraGroup:
		version = v1beta1.GroupVersion.Version
	case "":
		version = "v1"
	}
	found.SetGroupVersionKind(k.WithVersion(version))
	err := s.options.Server.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, found)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	case apierrors.IsForbidden(err) && k.GroupKind == secretGK:
		return true, nil // who must not see it cannot be told that it is missing
	case err != nil:
		return false, fmt.Errorf("looking for %s in the cluster: %w", k, err)
	}
	return true, nil
}

// paused reports whether the Cluster that an object belongs to is paused; a move or a restore may then be under way.
func (s *set) paused(ctx context.Context, o *object) (bool, error) {
	name := o.data.GetLabels()[clusterv1.ClusterNameLabel]
	for _, path := range [][]string{{"spec", "clusterName"}, {"spec", "clusterRef", "name"}} {
		if given, _, _ := unstructured.NestedString(o.data.Object, path...); given != "" {
			name = given
		}
	}
	if o.GroupKind == clusterGK {
		name = o.Name
	}
	if name == "" {
		return false, nil
	}
	var cluster clusterv1.Cluster
	err := s.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: name}, &cluster)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return cluster.Spec.Paused != nil && *cluster.Spec.Paused, err
}
