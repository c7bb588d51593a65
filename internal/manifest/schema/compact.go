// Package schema knows the kinds that manifests of a cluster are made of, and checks objects against their schemas as an API
// server does: unknown fields, types, patterns, limits, required fields, defaults, rules in CEL.
package schema

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Definition is what is kept of a CustomResourceDefinition.
type Definition struct {
	Group      string    `json:"group"`
	Kind       string    `json:"kind"`
	Namespaced bool      `json:"namespaced"`
	Versions   []Version `json:"versions"`
}

// Version of a kind that is served.
type Version struct {
	Name   string                           `json:"name"`
	Schema *apiextensionsv1.JSONSchemaProps `json:"schema"`
}

// Compact keeps of a definition what a check of manifests needs: the served versions, without descriptions and without status,
// which is not the manifests' business.
func Compact(crd *apiextensionsv1.CustomResourceDefinition) Definition {
	d := Definition{
		Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served || v.Schema == nil {
			continue
		}
		s := v.Schema.OpenAPIV3Schema.DeepCopy()
		delete(s.Properties, "status")
		silence(s)
		d.Versions = append(d.Versions, Version{Name: v.Name, Schema: s})
	}
	return d
}

// silence drops the descriptions of a schema and all below it.
func silence(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description, s.Example = "", nil
	for name, p := range s.Properties {
		silence(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		silence(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		silence(s.AdditionalProperties.Schema)
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			silence(&list[i])
		}
	}
	silence(s.Not)
}

func decode(text []byte) (Definition, error) {
	var d Definition
	err := json.Unmarshal(text, &d)
	return d, err
}
