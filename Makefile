# Everything here works from a fresh clone. `make` alone lists the targets.
#
# CARGO_TARGET_DIR is honoured; TOOLS is where test tools are installed when the machine lacks them.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO  ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
export CARGO_TARGET_DIR ?= $(CURDIR)/target
export TOOLS ?= $(CARGO_TARGET_DIR)/tools
export PATH := $(PATH):$(HOME)/.cargo/bin:$(TOOLS)/bin

SIM = "$(CARGO_TARGET_DIR)/simulation/txfs-sim"

# The simulator's seed and the number of crash states of one campaign.
SEED   ?= 1
STATES ?= 1000000
# How many transactions a checked history has, and how many threads make it.
TRANSACTIONS ?= 500000
THREADS      ?= 8
# Arguments for the benchmark, for example ARGS="--rounds 7" or ARGS="--txfs /mnt/a --ext4 /mnt/b".
ARGS   ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-zA-Z0-9_-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is missing: Debian packages, a Rust toolchain where there is none
	scripts/setup.sh

.PHONY: build
build: ## release build of the whole workspace
	$(CARGO) build --release --locked --workspace

.PHONY: demo
demo: setup ## see a real build and a git import survive kills at random moments
	$(CARGO) build --release --locked -p txfs-cli
	scripts/demo.sh

.PHONY: test
test: setup lint test-rust test-sim broken test-e2e posix ## everything below that checks something
	@echo "make test: all passed"

.PHONY: lint
lint: check-format clippy deny check-docs ## formatting, clippy with warnings as errors, dependencies, documents

.PHONY: check-format
check-format: ## formatting only
	$(CARGO) fmt --all -- --check

.PHONY: clippy
clippy: ## clippy only, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: deny
deny: ## cargo deny only
	scripts/deny.sh

.PHONY: check-docs
check-docs: ## tests and files that the documents name exist
	scripts/check-docs.sh

.PHONY: test-rust
test-rust: ## unit and integration tests of all crates
	$(CARGO) test --locked --workspace --exclude txfs-e2e --no-fail-fast

.PHONY: test-sim
test-sim: ## the simulator: 20,000 crash states, power lost at every write, faults, the engine by itself
	$(CARGO) build --profile simulation --locked -p txfs-sim
	$(SIM) campaign --states 20000 --seed $(SEED)
	$(SIM) campaign --engine --states 5000 --seed $(SEED)
	$(SIM) every-write --scenarios 20 --seed $(SEED)
	$(SIM) faults --scenarios 200 --seed $(SEED)
	$(SIM) faults --every-position --scenarios 12 --seed $(SEED)
	$(SIM) concurrent --scenarios 60 --seed $(SEED)
	$(SIM) histories --transactions 20000 --seed $(SEED)
	$(SIM) histories --transactions 20000 --isolation snapshot --seed $(SEED)

.PHONY: sim
sim: ## replay one simulated run: make sim SEED=42 (PROFILE= and MODE= as a violation says them)
	$(CARGO) build --profile simulation --locked -p txfs-sim
	$(SIM) replay --seed $(SEED) $(if $(PROFILE),--profile $(PROFILE)) $(if $(MODE),--mode $(MODE))

.PHONY: sim-campaign
sim-campaign: ## the simulator over a million distinct crash states (STATES= SEED=)
	$(CARGO) build --profile simulation --locked -p txfs-sim
	$(SIM) campaign --states $(STATES) --seed $(SEED)

.PHONY: histories
histories: ## isolation: histories of many threads, checked for anomalies (TRANSACTIONS= THREADS= SEED=)
	$(CARGO) build --profile simulation --locked -p txfs-sim
	$(SIM) histories --transactions $(TRANSACTIONS) --threads $(THREADS) --seed $(SEED)
	$(SIM) histories --transactions $(TRANSACTIONS) --threads $(THREADS) --seed $(SEED) --isolation snapshot

.PHONY: broken
broken: ## engines broken on purpose; the simulator must catch each within a minute
	$(CARGO) build --profile simulation --locked -p txfs-sim
	$(SIM) broken --seed $(SEED)

.PHONY: test-e2e
test-e2e: ## kill -9, conflicts, snapshots, wrong use: real processes on a real mount
	$(CARGO) build --release --locked -p txfs-cli
	$(CARGO) test --profile simulation --locked -p txfs-e2e --no-fail-fast -- --test-threads=2

.PHONY: posix
posix: ## pjdfstest and fsx on a real mount
	$(CARGO) build --release --locked -p txfs-cli
	scripts/posix.sh

# Built apart from the product: TxFS's system calls go through the C library there, where the preloaded flush delay sees
# them.
.PHONY: bench-build
bench-build: ## the benchmark, the command that it mounts with, and the library that makes flushes dearer
	$(CARGO) build --release --locked -p txfs-bench -p txfs-flush-delay -p txfs-cli -p txfs-capi --features txfs-bench/preload \
		--target-dir "$(CARGO_TARGET_DIR)/measured"

.PHONY: bench
bench: bench-build ## TxFS beside ext4, xfs and btrfs, all workloads, into docs/BENCHMARKS.md (ARGS="--rounds 7")
	TXFS_BENCH_COMMAND="make $@" scripts/bench.sh all --report docs/BENCHMARKS.md $(ARGS)

.PHONY: bench-quick
bench-quick: bench-build ## the same with short rounds, for a look; writes nothing
	IMAGE_MIB=3072 scripts/bench.sh all --rounds 2 --round-seconds 0.15 --day-seconds 10 $(ARGS)

.PHONY: bench-huge
bench-huge: bench-build ## the workloads that need much time and disk
	TXFS_BENCH_COMMAND="make bench" IMAGE_MIB=512 TXFS_IMAGE_MIB=30720 \
		scripts/bench.sh all --huge --report docs/BENCHMARKS.md $(ARGS)

.PHONY: install
install: build ## install the command, mount.txfs, libtxfs, man pages and completions (PREFIX=/usr/local DESTDIR= LIBDIR=)
	scripts/install.sh "$(DESTDIR)" "$(PREFIX)"

.PHONY: clean
clean: ## remove what was built
	$(CARGO) clean
