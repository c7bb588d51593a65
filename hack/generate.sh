#!/usr/bin/env bash
# Regenerates what is derived from source: deepcopy code, CRDs, RBAC, schemas of Cluster API, the pages about admission, and the
# copies of the tool modules.
set -euo pipefail
cd "$(dirname "$0")/.."

for family in hack/tools/*/; do
	cp "$family/go.mod" "internal/tools/modules/$(basename "$family").mod"
done

go run ./hack/tools generate
gen=$(go run ./hack/tools -path controller-gen)
"$gen" object paths=./api/...
"$gen" crd paths=./api/vsphere/... output:crd:dir=config/crd/bases
# Not installed by anything yet: a kind without its controller would take manifests and say nothing.
"$gen" crd paths=./api/hcs/... output:crd:dir=config/crd/hcs
go run ./hack/schemas
"$gen" rbac:roleName=manager-role paths="{./internal/controller/...,./internal/admission/...,./internal/webhook/...}" output:rbac:dir=config/rbac
go run ./hack/admission
