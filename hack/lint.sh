#!/usr/bin/env bash
# All static checks. CI and `make lint` call this.
set -euo pipefail
cd "$(dirname "$0")/.."

go run ./hack/tools lint generate

echo "lint: golangci-lint"
"$(go run ./hack/tools -path golangci-lint)" run --allow-serial-runners ./...

echo "lint: generated files"
generated() { git ls-files -co --exclude-standard -- api config internal/tools/modules 'docs/admission*.md' | xargs sha256sum; }
before=$(generated)
hack/generate.sh
changed=$(diff <(echo "$before") <(generated) | awk '/^[<>]/ {print $3}' | sort -u || true)
if [ -n "$changed" ]; then
	echo "$changed" >&2
	echo "lint: the files above were not what their source generates; they are now, commit them" >&2
	exit 1
fi

echo "lint: shell scripts"
if ! command -v shellcheck >/dev/null; then
	echo "lint: shellcheck is missing; install it (apt-get install shellcheck)" >&2
	exit 1
fi
git ls-files '*.sh' .ci/run | xargs shellcheck
