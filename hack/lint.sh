#!/usr/bin/env bash
# All static checks. CI and `make lint` call this.
set -euo pipefail
cd "$(dirname "$0")/.."

go run ./hack/tools lint generate

echo "lint: golangci-lint"
"$(go run ./hack/tools -path golangci-lint)" run --allow-serial-runners ./...

echo "lint: generated files"
hack/generate.sh
if ! git diff --quiet -- api config internal/tools/modules; then
	git --no-pager diff --stat -- api config internal/tools/modules
	echo "lint: generated files differ from their source; run 'make generate' and commit the result" >&2
	exit 1
fi

echo "lint: shell scripts"
if ! command -v shellcheck >/dev/null; then
	echo "lint: shellcheck is missing; install it (apt-get install shellcheck)" >&2
	exit 1
fi
git ls-files '*.sh' .ci/run | xargs shellcheck
