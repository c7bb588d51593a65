#!/usr/bin/env bash
# Runs the crash matrix and the disturbed journeys on real processes, then prints one table of both. `make chaos` calls this.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=$1
points=$2
rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT
failed=0

echo "chaos: the crash matrix (seed $seed)"
go test -count=1 -timeout 240m ./test/chaos -v -args -seed="$seed" -points="$points" -table="$rows/matrix" || failed=1
echo "chaos: journeys on real processes while the manager is disturbed (seed $seed)"
go test -count=1 -timeout 120m -tags e2e ./test/e2e/... -run TestDisturbed -v -args -seed="$seed" -full -table="$rows/journeys" || failed=1

echo
{
	printf 'FLOW\tFAULT\tPOINTS\tTRIED\tNOT REACHED\tSURVIVED\n'
	cat "$rows"/matrix "$rows"/journeys 2>/dev/null || true
} | column -t -s $'\t'
echo "seed $seed"
if [ "$failed" -ne 0 ]; then
	echo "chaos: something did not survive; above, each such point is printed with the command that runs it alone" >&2
fi
exit "$failed"
