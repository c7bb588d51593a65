# Berth: everything a person or CI types. `make help` explains each target.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/berth-dev/berth/internal/version.Version=$(VERSION)
PROGRAMS := berth berth-manager berth-sim
TOOL = $(shell go run ./hack/tools -path $(1))
# Arguments for the programs started here, e.g. make up ARGS="--bare"
ARGS ?=
# Seed of the fault schedules; CI keeps this one, choose another to explore.
SEED ?= 20261201
# How many points of the crash matrix `make chaos` tries; 0 means all.
POINTS ?= 0
# How many random lives `make properties` tries of each kind.
CHECKS ?= 20000

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2} /^## / {printf "\n%s\n", substr($$0, 4)}' $(MAKEFILE_LIST)

## Run
.PHONY: up down status
up: build ## Bring up a management cluster, a simulated vCenter and the example cluster on this machine
	@$(BIN)/berth up $(ARGS)

down: build ## Stop all of it and remove its state
	@$(BIN)/berth down --purge $(ARGS)

status: build ## Show what runs
	@$(BIN)/berth status $(ARGS)

## Build
.PHONY: build tools
build: tools ## Build the programs and kubectl into bin/
	@mkdir -p $(BIN)
	@echo "building $(PROGRAMS)"
	@go build -ldflags "$(LDFLAGS)" -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))
	@ln -sf "$$(go run ./hack/tools -path kubectl)" $(BIN)/kubectl

tools: ## Build etcd, Kubernetes and Cluster API from source into the user's cache (once; minutes)
	@go run ./hack/tools cluster

## Test
.PHONY: test lint unit chaos-sample e2e e2e-full chaos properties bench
test: lint unit chaos-sample e2e ## Everything that must be green: lint, unit tests, one full journey on real processes

lint: ## Check format, lint, generated files and shell scripts
	@hack/lint.sh

unit: tools ## Run all tests that need no full environment
	go test -timeout 30m $$(go list ./... | grep -v /test/chaos$$)

chaos-sample: tools ## Break some calls and writes of every flow, one at a time (SEED=)
	@go test -count=1 -timeout 20m -v ./test/chaos -args -seed=$(SEED)

e2e: build ## The journey of one cluster on real processes, with a bounded number of kills
	go test -count=1 -timeout 40m -tags e2e ./test/e2e/... -args -seed=$(SEED)

e2e-full: build ## Every journey in every flavour
	@go run ./hack/tools move
	go test -count=1 -timeout 120m -tags e2e ./test/e2e/... -args -seed=$(SEED) -full

chaos: build ## Break every call and every write of every flow, one at a time, then disturb the journeys on real processes (SEED=, POINTS=)
	@hack/chaos.sh $(SEED) $(POINTS)

properties: ## Random lives of slots, disks and whole pools, more than a million steps (SEED=, CHECKS=)
	@set -o pipefail; for p in slot disk pool; do echo "internal/$$p:"; \
	  SEED=$(SEED) go test -count=1 -timeout 60m -v ./internal/$$p -run 'Lives$$' -rapid.checks=$(CHECKS) -rapid.steps=60 -rapid.nofailfile \
	    | grep -E 'random steps|FAIL|_test.go:|^ok' || exit 1; done

bench: build ## Print calls, writes, times and memory per machine for 20, 100 and 300 machines
	go run ./test/bench $(ARGS)

## Change
.PHONY: generate format
generate: ## Regenerate deepcopy code, CRDs, RBAC and webhook manifests
	@hack/generate.sh

format: ## Format all Go code
	@go run ./hack/tools lint
	@"$$(go run ./hack/tools -path gofumpt)" -l -w $$(git ls-files '*.go' | grep -v zz_generated)
