package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme makes the kinds of this package known to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&HCSCluster{}, &HCSClusterList{},
		&HCSMachine{}, &HCSMachineList{},
		&HCSMachineConfigPool{}, &HCSMachineConfigPoolList{},
		&HCSMachineTemplate{}, &HCSMachineTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
