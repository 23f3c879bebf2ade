# Every target sets up what it needs first and says what it installs.

SHELL := /bin/bash
# Tools that this machine lacks are put there by .ci/setup.
export PATH := $(CURDIR)/.tools/bin:$(PATH)
ARGS ?=
# A test waits for databases, git and browsers most of its time: four for each processor keep it busy.
export RUST_TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint interop bench chaos

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Install what all other targets need
	@.ci/setup test

demo: ## Try Lockkeeper on this machine, without an account anywhere (ARGS=--exit: end when it is done)
	@.ci/setup demo
	cargo run --locked -- demo $(ARGS)

test: ## Run all tests (ARGS: passed on to cargo test)
	@.ci/setup test
	.ci/scratch .ci/test $(ARGS)

lint: ## Check formatting, wording of comments and type names, lints, documentation, licences and sources of dependencies
	@.ci/setup lint
	cargo fmt --check
	.ci/prose
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items
	.ci/deny

interop: ## Test with other versions of Terraform, a real OpenTofu, a real conftest, servers of S3 and Azure, real Go modules and the version before, which takes minutes to build once
	@.ci/setup interop
	LOCKKEEPER_INTEROP="$${XDG_CACHE_HOME:-$$HOME/.cache}/lockkeeper-tools/interop" \
		.ci/scratch cargo test --locked --test it -- --ignored hostile::interop policies:: registry:: upgrade:: $(ARGS)

bench: ## Measure (ARGS: passed on to cargo bench)
	@.ci/setup test
	cargo bench --locked --bench lockkeeper $(ARGS)

chaos: ## Let everything go wrong for a while (ARGS="--seconds 600 --seed 7 --database sqlite|postgres|both --deployments 2|3")
	@.ci/setup test
	@result=0; \
	LOCKKEEPER_CHAOS="$(ARGS)" .ci/scratch cargo test --locked --test it fuzz::no_text -- --nocapture --test-threads 1 || \
		{ result=1; echo "make chaos: hostile texts FAILED"; }; \
	seed=$$(sed -n 's/.*--seed  *\([0-9][0-9]*\).*/\1/p' <<<"$(ARGS)"); \
	properties="PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-$${seed:-3}} PROPTEST_CASES=$${PROPTEST_CASES:-1000}"; \
	env $$properties cargo test --locked --package lockkeeper-registry --lib && \
		env $$properties .ci/scratch cargo test --locked --package lockkeeper --lib -- features::registry workflow::installed_modules || \
		{ result=1; echo "make chaos: properties of the registry FAILED ($$properties)"; }; \
	LOCKKEEPER_CHAOS="$(ARGS)" .ci/scratch cargo test --locked --test it chaos::promises -- --nocapture --test-threads 1 || \
		{ result=1; echo "make chaos: promises FAILED"; }; \
	LOCKKEEPER_CHAOS="$(ARGS)" .ci/scratch cargo test --locked --test it chaos::deployments -- --nocapture --test-threads 1 || \
		{ result=1; echo "make chaos: deployments FAILED"; }; \
	LOCKKEEPER_CHAOS="$(ARGS)" .ci/scratch cargo test --locked --test it -- chaos::races chaos::kills store::claims::of_64 store::locks::sixty_four --nocapture --test-threads 1 || \
		{ result=1; echo "make chaos: races FAILED"; }; \
	exit $$result
