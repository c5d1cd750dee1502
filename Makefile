# Targets for people; `make` alone lists them.

# Python of the environment: the first that fits; PYTHON=/path/to/python3.12 chooses another.
FITS := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p $(FITS) 2>/dev/null && echo $$p && break; done)

# cpu, gpu, jax, jax-gpu or jax-tpu; what an environment was set up with is kept until another is asked for.
EXTRA ?= $(shell cat .venv/.extra 2>/dev/null || echo cpu)
LOCK = requirements-$(EXTRA).lock
BIN = .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev engine cluster-test pipeline train-local train-worker nightly scheduler status config doctor verify clean-stale push pull experiments experiments-table report-diff predict verify-determinism tensorboard export test test-slow test-faults mutation-test soak bench lint format docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(BIN)/.installed-$(EXTRA) ## create or update .venv (EXTRA=gpu: TensorFlow with CUDA; jax, jax-gpu, jax-tpu: JAX beside it)

setup-dev: $(BIN)/.installed-dev ## add what tests, checks and optional parts need; the targets that need it do so

PIP = $(BIN)/python -m pip --disable-pip-version-check
# uv installs the same files in a fraction of the time. Where it is unavailable, or fails where pip may not (a mirror that
# only pip's settings name), pip installs them. uv leaves the compiling to Python, which must be allowed to write its bytecode:
# where it is not, every start would compile all it imports again, 28 s of CPU for TensorFlow, Keras and Beam instead of 10.
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

# The same pins as in the other locks, so that nothing a run needs changes.
$(BIN)/.installed-dev: $(BIN)/.installed-$(EXTRA) requirements-dev.lock
	@echo "setup: adding the packages of requirements-dev.lock"
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

# What exports, notifications, the profiler of TensorBoard and cut uploads need.
$(BIN)/.installed-optional: $(BIN)/.installed-$(EXTRA) requirements-optional.lock
	@echo "setup: adding the packages of requirements-optional.lock"
	@$(INSTALL) --require-hashes -r requirements-optional.lock
	@touch $@

empty :=
space := $(empty) $(empty)

# FORCE=Train makes that stage and all after it again, FORCE=1 every stage.
FORCED = $(if $(FORCE),--Force-stage $(if $(filter 1,$(FORCE)),Source,$(FORCE)))

# local: inside each process; central: the one that "make scheduler" runs.
SCHEDULER ?= local
$(if $(filter-out local central,$(SCHEDULER)),$(error SCHEDULER: expected local or central, got $(SCHEDULER)))
export TENSORCRAFT_SCHEDULER = $(SCHEDULER)
# Where "make scheduler" listens, and where runs with SCHEDULER=central look for it.
SCHEDULER_PORT ?= 8082
export TENSORCRAFT_SCHEDULER_PORT = $(SCHEDULER_PORT)

# One of the settings files in experiments/, by its name; nightly takes several: EXPERIMENT="cifar10 flowers".
EXPERIMENT := $(or $(EXPERIMENT),$(TENSORCRAFT_EXPERIMENT))
export TENSORCRAFT_EXPERIMENT := $(EXPERIMENT)

pipeline: setup ## run what is stale of Source, Records, Train, Report (EXPERIMENT=flowers, ARGS="--Train-epochs 1", FORCE=Train)
	@$(BIN)/python -m tasks run $(FORCED) $(ARGS)

train-local: setup ## the pipeline by several processes of this machine that train together, on JAX (PROCESSES=2)
	@$(BIN)/python -m tasks train-local --processes $(or $(PROCESSES),2) $(ARGS)

train-worker: setup ## train with process 0 on another host, on the same storage root (ARGS="--Train-processes 2 ...")
	@$(BIN)/python -m tasks train-worker $(ARGS)

nightly: $(BIN)/.installed-optional ## the same without anyone watching, and keep the report of today (UTC) (DATE=2026-11-20)
	@code=0; for name in $(or $(EXPERIMENT),""); do \
	  TENSORCRAFT_EXPERIMENT="$$name" $(BIN)/python -m tasks nightly $(if $(DATE),--date $(DATE)) $(FORCED) $(ARGS); \
	  last=$$?; if [ $$last -gt $$code ]; then code=$$last; fi; if [ $$last -ge 128 ]; then break; fi; done; exit $$code

# The scheduler unpickles its state when it starts: whoever can write there runs code as this user.
SCHEDULER_STATE ?= $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/tensorcraft

scheduler: setup ## Luigi's central scheduler and visualiser, for SCHEDULER=central, on loopback (SCHEDULER_PORT=8082)
	@install -d -m 0700 "$(SCHEDULER_STATE)"
	@echo "scheduler: http://127.0.0.1:$(SCHEDULER_PORT), state in $(SCHEDULER_STATE)"
	@umask 077; LUIGI_CONFIG_PARSER=ini LUIGI_CONFIG_PATH="$${LUIGI_CONFIG_PATH:-central.ini}" \
	  exec $(BIN)/luigid --address 127.0.0.1 --port $(SCHEDULER_PORT) --state-path "$(SCHEDULER_STATE)/luigid.pickle"

config: setup ## write config.ini and the generated pages of docs/reference
	@$(BIN)/python -m pipeline.settings.reference
	@$(BIN)/python -c 'from tasks import cli; from tasks.commands.reference import write; write(cli.COMMANDS)'

status: setup ## the state of each stage (fresh, stale, new, damaged, unreadable, waiting), and why (ARGS="--json")
	@$(BIN)/python -m tasks status $(ARGS)

doctor: setup ## whether a run would work here, and on what hardware (ARGS="--Train-device gpu", ARGS="--json")
	@$(BIN)/python -m tasks doctor $(ARGS)

verify: setup ## read every artifact to the last byte
	@$(BIN)/python -m tasks verify $(ARGS)

clean-stale: setup ## list artifacts the present settings do not reach (YES=1 removes them; REMOTE=1: garbage on the remote)
	@$(BIN)/python -m tasks clean-stale $(if $(YES),--yes) $(if $(REMOTE),--remote) $(ARGS)

push: setup ## give [Storage] remote what the present settings reach here
	@$(BIN)/python -m tasks push $(ARGS)

pull: setup ## fetch what the present settings reach from [Storage] remote, the records too
	@$(BIN)/python -m tasks pull $(ARGS)

experiments: setup ## list the settings files in experiments/, for EXPERIMENT=..., and whether their data are at hand
	@$(BIN)/python -m tasks experiments $(ARGS)

experiments-table: setup ## the results of each experiment under the storage root, as Markdown
	@$(BIN)/python -m tasks experiments-table $(ARGS)

report-diff: setup ## what differs between two runs (A=<name or fingerprint> B=<another>)
	@$(BIN)/python -m tasks diff "$(A)" "$(B)" $(ARGS)

predict: setup ## labels of a folder of images, or nats of texts (MODEL=<run> IMAGES=<folder> or TEXTS=<folder> OUTPUT=predictions)
	@$(BIN)/python -m tasks predict "$(MODEL)" "$(or $(IMAGES),$(TEXTS))" --output "$(or $(OUTPUT),predictions)" $(ARGS)

verify-determinism: setup ## train the run again and compare the weights bit by bit
	@$(BIN)/python -m tasks verify-determinism $(ARGS)

export: $(BIN)/.installed-optional ## the run as SavedModel and LiteRT, each compared with Keras (ARGS as for pipeline)
	@$(BIN)/python -m tasks export $(ARGS)

tensorboard: $(BIN)/.installed-optional ## show all runs in TensorBoard, on this machine only (ARGS="--port 6007")
	@$(BIN)/python -m tasks tensorboard $(ARGS)

test: setup-dev ## run the fast tests (ARGS="-k stream")
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow and not faults and not soak and not engine" $(ARGS)

test-slow: setup-dev ## run the tests that train, or start the whole pipeline, several times
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "slow and not faults and not soak and not engine" $(ARGS)

test-faults: setup-dev ## run the tests that kill and damage whole runs
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 -m faults $(ARGS)

mutation-test: setup-dev ## apply 60 defects one at a time to a copy and see which the tests notice (ARGS="--suite slow", ARGS="7 31")
	@$(BIN)/python tests/mutation/run.py $(ARGS)

# What a Beam runner needs beside Beam; experiments/engines/ has settings for each.
ENGINES = flink spark prism dask
# Not of every target: a variable of that name may be of something else's.
ifneq ($(filter engine cluster-test,$(MAKECMDGOALS)),)
$(if $(filter-out $(ENGINES) multi_processing,$(ENGINE)),$(error ENGINE: expected some of $(ENGINES), got $(ENGINE)))
endif
PARTS = build/engines
BEAM_VERSION = $(shell sed -n 's/^apache-beam==\([^ ]*\).*/\1/p' requirements-cpu.lock)

engine: $(foreach name,$(or $(ENGINE),$(ENGINES)),engine-$(name)) ## build what a Beam runner needs beside Beam (ENGINE=flink, spark, prism or dask)

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

# The same pins as in the other locks, so that nothing a run needs changes.
engine-dask: $(BIN)/.installed-$(EXTRA)
	@if ! $(BIN)/python -c "import distributed" 2>/dev/null; then $(INSTALL) --require-hashes -r requirements-dask.lock; fi

cluster-test: setup-dev ## start clusters on this machine and compare the records they write (ENGINE=flink, spark, prism or dask)
	@$(MAKE) --no-print-directory engine ENGINE="$(ENGINE)"
	@$(BIN)/python -m pytest -m engine tests/engines $(if $(ENGINE),-k "$(subst $(space), or ,$(strip $(ENGINE)))") $(ARGS)

soak: setup-dev ## a month of scheduled runs in minutes: a moved clock, kills, a full disk, no network (N=30)
	@$(BIN)/python -m pytest -m soak -s tests/faults/test_soak.py --dates $(or $(N),30) $(ARGS)

bench: setup ## measure against what one would use instead, 10 minutes (ARGS="stream" for one part)
	@[ "$(firstword $(ARGS))" = gpu ] || $(BIN)/python -c "import torchvision" 2>/dev/null || { echo "bench: installing PyTorch, a baseline, into .venv"; \
	  $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-build-isolation --editable ".[bench]"; }
	@$(BIN)/python -m benchmarks $(ARGS)

lint: setup-dev ## check style, formatting and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo

format: setup-dev ## put style and formatting right where that can be done by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup-dev ## build the documentation as a site in build/site, and check its links
	@$(BIN)/python -m zensical build --strict

COMPILE = $(BIN)/uv pip compile --quiet $(if $(KEEP),,--upgrade) --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header

lock: setup ## pin the newest versions pyproject.toml allows (KEEP=1: only what it has changed)
	@$(COMPILE) --extra cpu pyproject.toml -o requirements-cpu.lock
	@$(COMPILE) --extra gpu -c requirements-cpu.lock pyproject.toml -o requirements-gpu.lock
	@$(COMPILE) --extra jax -c requirements-cpu.lock pyproject.toml -o requirements-jax.lock
	@for extra in jax-gpu jax-tpu; do \
	  $(COMPILE) --extra $$extra -c requirements-jax.lock pyproject.toml -o requirements-$$extra.lock || exit 1; done
	@$(COMPILE) --extra dask -c requirements-cpu.lock pyproject.toml -o requirements-dask.lock
	@$(COMPILE) --group optional -c requirements-jax.lock -c requirements-gpu.lock -o requirements-optional.lock
	@$(COMPILE) --group dev -c requirements-jax.lock -c requirements-gpu.lock -o requirements-dev.lock
	@$(COMPILE) --group uv -o requirements-uv.lock

clean: ## remove the environment and caches; data stays
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
