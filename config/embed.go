// Package config carries the manifests of Berth inside its programs: what a management cluster needs before the controllers
// run. `make generate` writes CRDs and the manager's role from the types and the markers in the code.
package config

import "embed"

// CRDs holds crd/bases: one CustomResourceDefinition per file, with the contract labels of Cluster API.
//
//go:embed crd/bases/*.yaml
var CRDs embed.FS

// Webhooks holds webhook/manifests.yaml: the webhook configurations. They point at a Service called webhook-service in a
// namespace called system; whoever installs them says where the webhook server really is and whom it is certified by.
//
//go:embed webhook/manifests.yaml
var Webhooks embed.FS

// RBAC holds rbac: the manager's account and what it may do. Names and namespace have no prefix yet.
//
//go:embed rbac/leader_election_role.yaml rbac/leader_election_role_binding.yaml rbac/role.yaml rbac/role_binding.yaml rbac/service_account.yaml
var RBAC embed.FS
