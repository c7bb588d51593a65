// Package config carries the manifests of Berth inside its programs: what a management cluster needs before the controllers
// run. `make generate` writes the files from the types and the markers in the code.
package config

import "embed"

// CRDs holds crd/bases: one CustomResourceDefinition per file, with the contract labels of Cluster API.
//
//go:embed crd/bases/*.yaml
var CRDs embed.FS
