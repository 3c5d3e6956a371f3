# Two commands matter: `make demo` shows the whole loop, `make test` proves it. `make help` lists the others.

# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python ...` decides otherwise.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed

.PHONY: help install demo test other-processor nightly fuzz lint types docs site browser browser-short explore-picture picture bench validate scoreboard live trackers live-router machines peers soak conformance-random mutants lock sbom wheel wheel-check release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv from the lock file

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "python: found none, expected Python 3.11 or newer (make PYTHON=/path/to/python)" >&2; exit 2; }
	@echo "setting up $(VENV) with $(PYTHON): a minute or two, once" >&2
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q calibrate observe replay sim traces vtwin.py lazy_dataclasses.py  # else, with PYTHONDONTWRITEBYTECODE, at each start
	touch $@

demo: $(STAMP) ## a minute, the first time half a minute more (compiling): emulated server -> observe -> fit -> held-out replay -> report.html
	$(BIN)/vtwin demo

# More than cores: a third of the time some test waits for a server, a client or the clock.
WORKERS := 4
# What pytest makes of a test's file is stored, whatever the caller's environment says: each worker would make it anew.
test other-processor nightly: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP) ## everything that needs no GPU and no hour
	$(BIN)/python -m tests.compile_all  # once, or every worker would compile it
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --durations 15

# The fit minimises a loss whose last bits differ between kernels of BLAS and between numpy's vector paths.
FIT_TESTS := $(addprefix tests/,traces/statistics/test_bootstrap.py calibrate/compare/test_compare_by_hand.py calibrate/compare/test_errors_by_other_means.py \
	calibrate/fit calibrate/run_to_run/test_run_to_run.py)
other-processor: $(STAMP) ## the tests of the fit once more, with the arithmetic of another processor
	$(BIN)/python -m tests.compile_all
	env $$($(BIN)/python -m tests.other_processor) \
		$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(FIT_TESTS)

nightly: $(STAMP) ## the same with ten times the drawn cases, others each night, then every reader fuzzed: an hour or two
	$(BIN)/python -m tests.compile_all
	VTWIN_THOROUGH=5 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS_EACH)

SECONDS_EACH := 60
fuzz: $(STAMP) ## SECONDS_EACH=60: damaged and hostile inputs for every reader, so long for each
	$(BIN)/python -m tests.compile_all  # an input may take 5 s, and is not to blame for the compiler
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS_EACH)

lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

docs: $(STAMP) ## renew docs/reference from the code's own tables, and run docs/notebooks
	$(BIN)/python -m tests.docs

SITE := build/site-venv
site: ## the documentation as a site with search, build/site/index.html; fails on a dead link
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements-site.lock
	$(SITE)/bin/python -m tests.docs.site

BROWSER := build/browser-venv
$(BROWSER)/.installed: requirements-browser.lock
	test -x $(BROWSER)/bin/python || $(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements-browser.lock
	touch $@

browser: $(STAMP) $(BROWSER)/.installed ## the page of vtwin explore in a real Chromium: what it does, axe-core, how fast turns are; needs Chromium
	$(BROWSER)/bin/python -m tests.studies.browser

explore-picture: $(STAMP) $(BROWSER)/.installed ## the picture of vtwin explore, from a run of it; needs Chromium
	$(BROWSER)/bin/python -m tests.studies.browser --pictures build
	cp build/explore-wide-top.png docs/images/explore.png

browser-short: $(STAMP) $(BROWSER)/.installed  # what CI runs of it
	$(BROWSER)/bin/python -m tests.studies.browser --short

picture: $(STAMP) ## the README's picture, from the demo's report; needs Chromium
	$(BIN)/python -m tests.docs.picture

machines: $(STAMP) ## observe and sweep on two machines' worth (network namespaces, one clock shifted, one worker killed); root on Linux
	$(BIN)/python -m tests.studies.machines

mutants: $(STAMP) ## EACH=12: so many single changes of each room, and whether a test notices; an hour or two
	$(BIN)/python -m tests.studies.mutation --each $(or $(EACH),12)

bench: $(STAMP) ## the table of docs/performance.md
	$(BIN)/python -m tests.studies.bench

validate: $(STAMP) ## the tables of docs/validation.md that need public data (VTWIN_DATA=folder)
	$(BIN)/python -m tests.studies.validation

scoreboard: $(STAMP) ## every tool on the same measured servers, into docs/comparison.md (VTWIN_DATA=folder)
	$(BIN)/python -m tests.studies.validation.scoreboard

live: $(STAMP) ## the openai client, vllm bench, guidellm and aiperf against serve; the loop against a real vLLM on this machine's CPU
	$(BIN)/python -m tests.studies.live.clients
	$(BIN)/python -m tests.studies.live.round_trips
	$(BIN)/python -m tests.studies.live
	$(BIN)/python -m tests.studies.live.agents
	$(BIN)/python -m tests.studies.live.hybrid
	$(BIN)/python -m tests.studies.live.kinds

trackers: $(STAMP) ## MLflow and Weights & Biases, each in an environment of its own: a run is logged to a folder and read back
	$(BIN)/python -m tests.studies.live.trackers

live-router: $(STAMP) ## real routers in front of emulated servers, beside the simulated cluster
	$(BIN)/python -m tests.studies.live.routers

peers: $(STAMP) ## vtwin, vllm bench serve, aiperf, guidellm and inference-perf with one load on one server of known times; installs them (8 GB), VLLM_PYTHON=python of a vLLM
	$(BIN)/python -m tests.studies.peers

soak: $(STAMP) ## ten minutes of serve and observe at a low rate: the memory of both, which must stay flat
	$(BIN)/python -m tests.studies.live.soak

N := 200
SEED := 1
conformance-random: $(STAMP) ## N=200 SEED=1 [GROUPS_TOO=1: of models whose layers cache differently] [UNITS=1: with it, hits that end inside blocks] [OFFLOADING=1: with KV offloading] [ADAPTERS=1: with LoRA] [GRAMMARS=1] [DRAFTS=1] [IMAGES=1] [CHECKPOINTS=1: with GROUPS_TOO, states saved inside chunks]: random cases, a real vLLM's scheduler against the engine
	$(BIN)/python -m tests.conformance.random_run --number $(N) --seed $(SEED) $(if $(GROUPS_TOO),--groups) $(if $(UNITS),--units) $(if $(OFFLOADING),--offloading) $(if $(ADAPTERS),--adapters) $(if $(GRAMMARS),--grammars) $(if $(DRAFTS),--drafts) $(if $(IMAGES),--images) $(if $(CHECKPOINTS),--checkpoints)

LOCKER := uv==0.13.9
COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml
lock: ## renew the lock files, hashes of every file included; pins stay unless UPGRADE=--upgrade
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --quiet --disable-pip-version-check install $(LOCKER)
	$(COMPILE) $(UPGRADE) --extra dev --output-file requirements.lock >/dev/null
	$(COMPILE) --constraint requirements.lock --no-annotate --output-file requirements-run.lock >/dev/null
	$(COMPILE:pyproject.toml=) --no-annotate --group pyproject.toml:site --output-file requirements-site.lock >/dev/null
	$(COMPILE:pyproject.toml=) --no-annotate --group pyproject.toml:browser --output-file requirements-browser.lock >/dev/null

sbom: $(STAMP) ## what an installation consists of, as CycloneDX JSON: sbom.json
	$(BIN)/python -m tests.sbom

wheel: $(STAMP) ## build the wheel into dist/, with compiled code for each of Python 3.11 to 3.13 that is there: minutes
	$(BIN)/python -m tests.wheel

wheel-check: $(STAMP) ## the wheel in clean environments of Python 3.11, 3.12 and 3.13, used from an empty folder
	$(BIN)/python -m tests.install

release-check: $(STAMP) ## wheel, source distribution, bill of materials and hashes into dist/; each tried from an empty folder, under two Pythons or more
	$(BIN)/python -m tests.release

clean: ## remove what building and testing leave, .venv excepted
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
