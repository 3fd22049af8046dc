# The two that matter: `make demo` shows an allowed and a refused call, `make test` checks everything.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.tools/bin:$(PATH)

NEXTEST_VERSION := 0.9.143
FUZZ_VERSION := 0.13.2
DENY_VERSION := 0.20.2

.PHONY: help
help: ## List what can be made.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: setup
setup: ## Install what the tests need and isn't here yet.
	@scripts/setup-system.sh
	@scripts/setup-python.sh
	@scripts/setup-node.sh

.PHONY: demo
demo: ## Run Lictor in front of a notes server: a call that is allowed, one that is refused.
	@scripts/setup-system.sh
	cargo build --quiet --release --locked --bin lictor --example demo_mcp_server
	target/release/lictor demo

# The test runner comes last, so that its summary is the last thing to be read. Where cargo-nextest can't
# be had, cargo's own runner does.
.PHONY: test
test: setup lint docs policies ## Check everything: format, lints, docs, policies, all tests.
	@scripts/setup-cargo-tool.sh cargo-nextest $(NEXTEST_VERSION) || true
	cargo test --quiet --locked --doc
	if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --locked; \
	else \
		cargo test --locked --tests; \
	fi

.PHONY: lint
lint:
	cargo fmt --all --check
	cargo clippy --quiet --locked --all-targets -- -D warnings

.PHONY: docs
docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --no-deps

.PHONY: policies
policies:
	cargo run --quiet --locked --bin lictor -- policy test policies

# What is found on the way stays below `target`; what breaks a law is in `fuzz/artifacts`. `fuzz/corpus` holds what
# tests replay and is only read.
.PHONY: fuzz
fuzz: ## Look for inputs that break a parser, with libFuzzer: each for $FUZZ_SECONDS (60), $FUZZ_TARGETS or all. Needs a nightly toolchain.
	@scripts/setup-cargo-tool.sh cargo-fuzz $(FUZZ_VERSION)
	cp Cargo.lock fuzz/Cargo.lock
	cargo +nightly fuzz build --target-dir target/fuzz
	for target in $${FUZZ_TARGETS:-$$(cargo +nightly fuzz list)}; do \
		mkdir -p target/fuzz/corpus/$$target; \
		cargo +nightly fuzz run --target-dir target/fuzz $$target \
			target/fuzz/corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$${FUZZ_SECONDS:-60} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1; \
	done

.PHONY: audit
audit: ## Check the dependencies: bans, licences, sources.
	@scripts/setup-cargo-tool.sh cargo-deny $(DENY_VERSION)
	cargo deny --locked check bans licenses sources

.PHONY: bench
bench: ## Measure what a call costs through Lictor and through its peers, in about 20 minutes.
	python3 bench/run.py

.PHONY: soak
soak: ## Kill writers and proxies two hundred times, where `make test` does so twenty times, open very many sessions, and run everything at once for $SOAK_SECONDS (300).
	LICTOR_CRASH_ROUNDS=200 LICTOR_KILL_ROUNDS=200 \
		cargo nextest run --locked --profile soak -E 'test(killed)'
	cargo nextest run --locked --profile soak --run-ignored ignored-only -E 'test(crowds)'
	LICTOR_SOAK_SECONDS=$${SOAK_SECONDS:-300} \
		cargo nextest run --locked --profile soak --run-ignored ignored-only \
		--success-output immediate -E 'binary(e2e) & test(/^soak::/)'
