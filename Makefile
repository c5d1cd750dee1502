# `make` without a target lists the targets.

# The environment uses the first suitable Python. PYTHON=/path/to/python3.12 selects another one.
FITS := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p $(FITS) 2>/dev/null && echo $$p && break; done)

# cpu, gpu, jax, jax-gpu or jax-tpu. The default is the value of the existing environment.
EXTRA ?= $(shell cat .venv/.extra 2>/dev/null || echo cpu)
LOCK = requirements-$(EXTRA).lock
BIN = .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev engine cluster-test pipeline train-local nightly scheduler status config doctor verify clean-stale push pull experiments experiments-table report report-diff predict serve verify-determinism tensorboard export test test-slow test-faults mutation-test soak bench lint format docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 28

setup: $(BIN)/.installed-$(EXTRA) ## create or update .venv (EXTRA=gpu adds CUDA, EXTRA=jax, jax-gpu or jax-tpu adds JAX)

setup-dev: $(BIN)/.installed-dev ## install the packages for tests, checks and optional features

PIP = $(BIN)/python -m pip --disable-pip-version-check
# uv installs the same files faster. pip is the fallback if uv is unavailable or fails, for example because only pip is
# configured for a mirror. uv does not compile bytecode by default. If Python may not write bytecode, each start would
# compile all imports, which takes 28 s of CPU for TensorFlow, Keras and Beam instead of 10.
COMPILED = $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode)
INSTALL = install() { { test -x $(BIN)/uv && $(BIN)/uv pip install --quiet $(COMPILED) --python $(BIN)/python "$$@"; } || \
  { echo "setup: without uv, pip takes a few minutes"; $(PIP) install --quiet "$$@"; }; }; install

$(BIN)/.installed-$(EXTRA): $(LOCK) requirements-uv.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "setup: expected Python 3.11, 3.12 or 3.13, found none. Install one, or name it: make setup PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "setup: $(PYTHON) -m venv failed. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setup: installing the packages of $(LOCK) into .venv (about 2.5 GB, half a minute)"
	@rm -f $(BIN)/.installed-*
	@$(PIP) install --quiet --require-hashes -r requirements-uv.lock || rm -f $(BIN)/uv
	@$(INSTALL) --require-hashes -r $(LOCK)
	@# The name before 0.2.0. Delete this after one release.
	@$(PIP) uninstall --quiet --yes tensorcraft 2>/dev/null
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@echo $(EXTRA) > .venv/.extra
	@touch $@

# The pins equal those of the other locks, so the packages of a run do not change.
$(BIN)/.installed-dev: $(BIN)/.installed-$(EXTRA) requirements-dev.lock
	@echo "setup: adding the packages of requirements-dev.lock"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

# Packages for exports, notifications, the profiler of TensorBoard and the removal of interrupted uploads.
$(BIN)/.installed-optional: $(BIN)/.installed-$(EXTRA) requirements-optional.lock
	@echo "setup: adding the packages of requirements-optional.lock"
	@$(INSTALL) --require-hashes -r requirements-optional.lock
	@touch $@

empty :=
space := $(empty) $(empty)

# FORCE=Train rebuilds that stage and all later stages. FORCE=1 rebuilds every stage.
FORCED = $(if $(FORCE),--Force-stage $(if $(filter 1,$(FORCE)),Source,$(FORCE)))

# local runs a scheduler inside each process. central uses the scheduler that `make scheduler` starts.
SCHEDULER ?= local
$(if $(filter-out local central,$(SCHEDULER)),$(error SCHEDULER: expected local or central, got $(SCHEDULER)))
export TENSORCRAFT_SCHEDULER = $(SCHEDULER)
# Port of `make scheduler` and of runs with SCHEDULER=central.
SCHEDULER_PORT ?= 8082
export TENSORCRAFT_SCHEDULER_PORT = $(SCHEDULER_PORT)

# Name of a settings file in experiments/. nightly accepts several, as in EXPERIMENT="cifar10 flowers".
EXPERIMENT := $(or $(EXPERIMENT),$(TENSORCRAFT_EXPERIMENT))
export TENSORCRAFT_EXPERIMENT := $(EXPERIMENT)

pipeline: setup ## build all stale stages (EXPERIMENT=flowers, ARGS="--Train-epochs 1", FORCE=Train)
	@$(BIN)/python -m tasks run $(FORCED) $(ARGS)

train-local: setup ## run the pipeline with several JAX processes on this machine (PROCESSES=2)
	@$(BIN)/python -m tasks train-local --processes $(or $(PROCESSES),2) $(ARGS)

nightly: $(BIN)/.installed-optional ## make a scheduled run and keep its dated report, in UTC (DATE=2026-11-20)
	@code=0; for name in $(or $(EXPERIMENT),""); do \
	  TENSORCRAFT_EXPERIMENT="$$name" $(BIN)/python -m tasks nightly $(if $(DATE),--date $(DATE)) $(FORCED) $(ARGS); \
	  last=$$?; if [ $$last -gt $$code ]; then code=$$last; fi; if [ $$last -ge 128 ]; then break; fi; done; exit $$code

# The scheduler unpickles its state at start, so write access to it allows running code as this user.
SCHEDULER_STATE ?= $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/tensorcraft

scheduler: setup ## start Luigi's central scheduler on loopback, for SCHEDULER=central (SCHEDULER_PORT=8082)
	@install -d -m 0700 "$(SCHEDULER_STATE)"
	@echo "scheduler: http://127.0.0.1:$(SCHEDULER_PORT), state in $(SCHEDULER_STATE)"
	@umask 077; LUIGI_CONFIG_PARSER=ini LUIGI_CONFIG_PATH="$${LUIGI_CONFIG_PATH:-central.ini}" \
	  exec $(BIN)/luigid --address 127.0.0.1 --port $(SCHEDULER_PORT) --state-path "$(SCHEDULER_STATE)/luigid.pickle"

config: setup ## write config.ini and the generated pages of docs/reference
	@$(BIN)/python -m docs.reference.write_settings
	@$(BIN)/python -m docs.reference.write_pages

status: setup ## show the state of each stage and the reasons for it (ARGS="--json")
	@$(BIN)/python -m tasks status $(ARGS)

doctor: setup ## check the packages, storage, dataset and hardware of this machine (ARGS="--Train-device gpu")
	@$(BIN)/python -m tasks doctor $(ARGS)

verify: setup ## read every artifact and compare it with its checksums
	@$(BIN)/python -m tasks verify $(ARGS)

clean-stale: setup ## list artifacts that are no longer needed (YES=1 removes them, REMOTE=1 checks the remote)
	@$(BIN)/python -m tasks clean-stale $(if $(YES),--yes) $(if $(REMOTE),--remote) $(ARGS)

push: setup ## upload the artifacts of the current settings to [Storage] remote
	@$(BIN)/python -m tasks push $(ARGS)

pull: setup ## download the artifacts of the current settings from [Storage] remote
	@$(BIN)/python -m tasks pull $(ARGS)

experiments: setup ## list the experiments, for EXPERIMENT=..., and whether their datasets are on this machine
	@$(BIN)/python -m tasks experiments $(ARGS)

experiments-table: setup ## print the results of each experiment as Markdown
	@$(BIN)/python -m tasks experiments-table $(ARGS)

report: setup ## print the path of the newest report, open it (ARGS="--open") or serve it (ARGS="--serve")
	@$(BIN)/python -m tasks report $(ARGS)

report-diff: setup ## show the differences between two runs (A=<run> B=<run>)
	@$(BIN)/python -m tasks diff "$(A)" "$(B)" $(ARGS)

predict: setup ## run a trained model on images or texts (IMAGES=<folder> or TEXTS=<folder> MODEL=<run> OUTPUT=predictions)
	@$(BIN)/python -m tasks predict "$(or $(IMAGES),$(TEXTS))" $(if $(MODEL),--model "$(MODEL)") --output "$(or $(OUTPUT),predictions)" $(ARGS)

verify-determinism: setup ## retrain the run and compare the weights bit by bit
	@$(BIN)/python -m tasks verify-determinism $(ARGS)

serve: $(BIN)/.installed-optional ## serve a trained model on this machine only (ARGS="RUN --port 8000")
	@$(BIN)/python -m tasks serve $(ARGS)

export: $(BIN)/.installed-optional ## export a run in formats for other programs, and compare each with the Keras model (ARGS="--format onnx")
	@$(BIN)/python -m tasks export $(ARGS)

tensorboard: $(BIN)/.installed-optional ## start TensorBoard with all runs, on this machine only (ARGS="--port 6007")
	@$(BIN)/python -m tasks tensorboard $(ARGS)

test: setup-dev ## run the fast tests (ARGS="-k stream")
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow and not faults and not soak and not engine" $(ARGS)

test-slow: setup-dev ## run the tests that train or run the whole pipeline several times
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "slow and not faults and not soak and not engine" $(ARGS)

test-faults: setup-dev ## run the tests that kill or damage whole runs
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 -m faults $(ARGS)

mutation-test: setup-dev ## apply 60 defects one by one to a copy, and list those that the tests detect (ARGS="--suite slow")
	@$(BIN)/python tests/mutation/run.py $(ARGS)

# Software for each Beam runner. experiments/engines/ has settings for each of them.
ENGINES = flink spark prism dask
# Other targets ignore ENGINE, because the environment may set it for another program.
ifneq ($(filter engine cluster-test,$(MAKECMDGOALS)),)
$(if $(filter-out $(ENGINES) multi_processing,$(ENGINE)),$(error ENGINE: expected some of $(ENGINES), got $(ENGINE)))
endif
PARTS = build/engines
BEAM_VERSION = $(shell sed -n 's/^apache-beam==\([^ ]*\).*/\1/p' requirements-cpu.lock)

engine: $(foreach name,$(or $(ENGINE),$(ENGINES)),engine-$(name)) ## build the software that Beam runners need (ENGINE=flink, spark, prism or dask)

.PHONY: engine-flink engine-spark engine-prism engine-dask engine-multi_processing
engine-flink: $(PARTS)/flink.jar
engine-spark: $(PARTS)/spark.jar
engine-prism: $(PARTS)/prism-$(BEAM_VERSION)
engine-multi_processing:

$(PARTS)/%.jar: deploy/engines/%/pom.xml deploy/engines/pom.xml
	@command -v mvn >/dev/null && command -v java >/dev/null || { echo "engine: Maven and Java 11 or newer are needed. On Debian and Ubuntu: apt-get install maven default-jdk-headless"; exit 1; }
	@echo "engine: building $@ with Maven, a minute or two"
	@mvn --quiet --batch-mode --file $< package

$(PARTS)/prism-$(BEAM_VERSION):
	@command -v go >/dev/null || { echo "engine: Go is needed, 1.26 or newer"; exit 1; }
	@echo "engine: building Prism $(BEAM_VERSION) with Go, a minute or two"
	@GOBIN="$(CURDIR)/$(PARTS)" go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM_VERSION)
	@ln -sf prism $@

# The pins equal those of the other locks, so the packages of a run do not change.
engine-dask: $(BIN)/.installed-$(EXTRA)
	@if ! $(BIN)/python -c "import distributed" 2>/dev/null; then $(INSTALL) --require-hashes -r requirements-dask.lock; fi

cluster-test: setup-dev ## start clusters on this machine and compare their records (ENGINE=flink, spark, prism or dask)
	@$(MAKE) --no-print-directory engine ENGINE="$(ENGINE)"
	@$(BIN)/python -m pytest -m engine tests/engines $(if $(ENGINE),-k "$(subst $(space), or ,$(strip $(ENGINE)))") $(ARGS)

soak: setup-dev ## simulate a month of scheduled runs with kills, a full disk and network failures (N=30)
	@$(BIN)/python -m pytest -m soak -s tests/faults/test_soak.py --dates $(or $(N),30) $(ARGS)

bench: setup ## compare the performance with other tools, in 10 minutes (ARGS="records" for another part)
	@[ "$(firstword $(ARGS))" = gpu ] || $(BIN)/python -c "import torchvision, grain" 2>/dev/null || { echo "bench: installing PyTorch and Grain into .venv"; \
	  $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-build-isolation --editable ".[bench]"; }
	@$(BIN)/python -m benchmarks $(ARGS)

lint: setup-dev ## check style, formatting and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo

format: setup-dev ## fix style and formatting automatically
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup-dev ## build the documentation site in build/site and check its links
	@$(BIN)/python -m zensical build --strict

COMPILE = $(BIN)/uv pip compile --quiet $(if $(KEEP),,--upgrade) --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header

lock: setup ## pin the newest versions that pyproject.toml allows (KEEP=1 keeps the other pins)
	@$(COMPILE) --extra cpu pyproject.toml -o requirements-cpu.lock
	@$(COMPILE) --extra gpu -c requirements-cpu.lock pyproject.toml -o requirements-gpu.lock
	@$(COMPILE) --extra jax -c requirements-cpu.lock pyproject.toml -o requirements-jax.lock
	@for extra in jax-gpu jax-tpu; do \
	  $(COMPILE) --extra $$extra -c requirements-jax.lock pyproject.toml -o requirements-$$extra.lock || exit 1; done
	@$(COMPILE) --extra dask -c requirements-cpu.lock pyproject.toml -o requirements-dask.lock
	@$(COMPILE) --group optional -c requirements-jax.lock -c requirements-gpu.lock -o requirements-optional.lock
	@$(COMPILE) --group dev -c requirements-jax.lock -c requirements-gpu.lock -o requirements-dev.lock
	@$(COMPILE) --group uv -o requirements-uv.lock

clean: ## remove the environment and caches, but no data
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis .cache build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
