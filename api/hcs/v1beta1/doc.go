// Package v1beta1 holds the Huawei Cloud Stack kinds of the group infrastructure.cluster.x-k8s.io: wire types, their constants,
// and no logic.
//
// The fields are those that users of Huawei Cloud Stack with Cluster API already have in their manifests, two historical
// misspellings included, plus the status that the v1beta2 contract of Cluster API asks for. Fields may be added; none is removed
// or changes its type (testdata/fields.tsv and the conformance test beside it hold us to that). Objects stored by the first
// published schema may lack fields that are required now.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
