# Everything that people do with this checkout. `make help` lists it; CONTRIBUTING.md says more.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help
help: ## List what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

.PHONY: test
test: ## Install what is missing, build, and check everything that can be checked here
	@e2e/test.sh

.PHONY: quick
quick: ## The same without a cluster: format, lints, dependencies, unit tests, fuzzing, request path
	@e2e/test.sh format dependencies lints unit fuzz request-path

.PHONY: soak
soak: ## Have sessions survive for hours what `make test` does for seconds, and write target/soak.md (needs root)
	@e2e/soak.sh

.PHONY: fmt
fmt: ## Format the sources
	cargo fmt --all

.PHONY: lint
lint: ## Check format, lints and dependencies
	@e2e/test.sh format dependencies
	cargo clippy --locked --workspace --all-targets -- -D warnings

.PHONY: advisories
advisories: ## Look for known vulnerabilities of what is depended upon (asks the RustSec database, so no test does)
	@"$$(e2e/tools/install.sh)/bin/cargo-deny" --locked check advisories

.PHONY: crds
crds: ## Write the CustomResourceDefinitions into the chart, and docs/fields.md
	LONGSHORE_UPDATE_CRDS=1 cargo test --locked --quiet -p longshore-crds --test manifests

.PHONY: images
images: ## Build the container images from this checkout, and print where they are
	@command -v buildah >/dev/null || { echo 'this needs buildah: apt-get install --no-install-recommends buildah' >&2; exit 1; }
	@e2e/images/longshore.sh

.PHONY: cluster
cluster: ## A Kubernetes cluster with Longshore and the examples on it; prints how to enter it (needs root)
	@cargo run --locked --quiet -p longshore-e2e --bin longshore-cluster -- up

.PHONY: cluster-down
cluster-down: ## End that cluster, and leave nothing of it behind
	@cargo run --locked --quiet -p longshore-e2e --bin longshore-cluster -- down

.PHONY: profile
profile: ## Write down what calls do in the sidecar, by which its release is compiled (needs root, and llvm-profdata)
	@sidecar/profile/train.sh

.PHONY: bench
bench: ## Measure what docs/benchmarks.md tells, on core LONGSHORE_BENCH_CPU what is of one core (needs root)
	@e2e/images/longshore.sh
	LONGSHORE_SIDECAR=$$(echo "$$PWD"/target/images/*/release/longshore-sidecar) cargo bench --locked --workspace --bench '*'
