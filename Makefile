# Every target explains itself: `make` prints this list.
SHELL := /bin/bash
VENV := .venv
# Debian's is built with profile-guided optimisation, as the image's is, and takes nine tenths of the time of one without.
PYTHON ?= $(shell /usr/bin/python3.11 -c 'import ensurepip' 2>/dev/null && echo /usr/bin/python3.11 || echo python3)
BIN := $(VENV)/bin
# What a plain `pip install` installs: no AMQP, so that nothing is compiled.
PLAIN := .venv-plain
# Why a folder of its own: tests start hundreds of Python processes, and nothing is written beside sources.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache $(BIN)/pytest -q
# What only `make proof` runs is deselected; PROOF=1 runs it, and goes on at length elsewhere (tests/support/tier.py).
TIER := $(if $(PROOF),,-m "not proof")
export PROOF
# Why more than processors: tests on real brokers wait. Why no more: each starts brokers and imports all tests. May need 1 GB.
WORKERS := 5
# Tests without brokers, and tests on real brokers.
ALONE := tests/unit tests/tidy tests/simulation tests/fuzz
SHARED := tests/contract tests/oracle tests/end_to_end tests/matrix tests/field tests/monitoring tests/helm tests/image tests/documentation tests/pipeline tests/bench tests/chaos tests/combinations
PIN := uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11

# Why not beside the sources: mypy compares contents, so that a fresh clone begins with what another one found.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/amqsidecar/mypy

.DEFAULT_GOAL := help

.PHONY: help
help: ## print the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

$(VENV)/.installed: pyproject.toml deploy/requirements/build.txt deploy/requirements/dev.txt deploy/prepare-machine
	deploy/prepare-machine
	$(PYTHON) -m venv $(VENV)
	@# Why first: its pip takes what it has compiled once, such as python-qpid-proton, out of its cache; older ones
	@# compile that again where hashes are required.
	$(BIN)/pip install --quiet --no-compile --require-hashes -r deploy/requirements/build.txt
	@# Why uncompiled: tests keep what they compile in a folder of their own (PYTEST).
	$(BIN)/pip install --quiet --no-compile --require-hashes -r deploy/requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(VENV)/.installed ## install everything that development needs into .venv

.PHONY: brokers
brokers: setup ## fetch the real brokers, JMS clients, Helm and what the image is built of into the cache, once per machine
	@# Helm is compiled while Maven waits for the network.
	PYTHONPATH=tests $(BIN)/python -m support.deployment.helm & PYTHONPATH=tests $(BIN)/python -m support.maven; code=$$?; wait; exit $$code
	PYTHONPATH=tests $(BIN)/python -m support.write_class_archives
	@PYTHONPATH=tests $(BIN)/python -m support.deployment.image || { echo "tests that are marked image can't run" >&2; [ -z "$$TESTS_MUST_RUN" ]; }

.PHONY: image
image: ## build the container image by docker, podman or buildah, also with the journal's packages; REGISTRY=host/team pushes them
	deploy/image/build
	deploy/image/build journal
	@$(if $(REGISTRY),deploy/image/push "$(REGISTRY)" && deploy/image/push "$(REGISTRY)" journal)

.PHONY: chart
chart: ## package the chart into dist; REGISTRY=host/team pushes it, and dist/chart.txt then has its digest
	helm package helm/amqsidecar --destination dist
	$(if $(REGISTRY),helm push $(PUSH_OPTIONS) dist/amqsidecar-[0-9]*.tgz "oci://$(REGISTRY)/charts" > dist/chart.txt 2>&1 || { cat dist/chart.txt >&2; exit 1; })

.PHONY: wheels
wheels: ## build a wheelhouse to publish: dist/wheels with our wheel and python-qpid-proton's, checksums and an SBOM
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/pip install --quiet --require-hashes -r deploy/requirements/wheels.txt
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" .venv-wheels/bin/python deploy/wheels.py

.PHONY: static
static: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# Each keeps one processor busy.
	$(BIN)/mypy & types=$$!; $(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports; code=$$?; wait $$types && exit $$code

# Why: in a fresh environment each worker would compile all tests, 10 s of processor time; later what has changed.
$(VENV)/.compiled: $(VENV)/.installed
	$(PYTEST) --collect-only $(ALONE) $(SHARED) tests/soak > /dev/null || $(PYTEST) --collect-only $(ALONE) $(SHARED) tests/soak
	@touch $@

ALONE_TESTS := $(PYTEST) $(TIER) --dist worksteal $(ALONE)

.PHONY: check
check: static ## format, lint, types, import contracts, tests without brokers (fast)
	$(ALONE_TESTS) --numprocesses 3

.PHONY: alone
alone: setup
	@nice -n 19 env $(ALONE_TESTS) --numprocesses 2 > $(VENV)/alone.log 2>&1; code=$$?; cat $(VENV)/alone.log; exit $$code

.PHONY: shared
shared: setup
	$(PYTEST) $(TIER) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(SHARED)

.PHONY: test
test: setup ## what must pass for every change: the above, and each claim on a real broker; WORKERS=5
	@# Why beside each other: each keeps one processor busy, or waits for the network.
	$(MAKE) --jobs=2 $(VENV)/.compiled brokers static
	@# Why beside each other: tests without brokers use the processors while the others wait.
	$(MAKE) --jobs=2 shared alone
	@# Why apart: memory is measured, while brokers take whole processors.
	$(PYTEST) $(TIER) --numprocesses 2 --dist worksteal tests/soak

.PHONY: measures
measures: setup ## print the size of the project: lines, words, parameters handed on, ...; fails on nothing
	$(BIN)/python tests/tidy/measures.py

.PHONY: versions
versions: brokers ## the wires on the other releases of the brokers (tests/support/versions.py); ONLY=artemis=2.57.0 takes one
	PYTHONPATH=tests $(BIN)/python -m support.compatibility $(ONLY)

.PHONY: proof
proof: brokers ## everything at length, before a release: each broker version, chaos, soak, fuzz, Kubernetes, ...; one report; ONLY=chaos,soak
	PYTHONPATH=tests $(BIN)/python -m support.proof --only "$(ONLY)"

.PHONY: test-times
test-times: ## make test, then a table for each folder: processor time, waiting, broker starts
	@mkdir -p dist && rm -f dist/test-times.jsonl
	TEST_TIMES=dist/test-times.jsonl $(MAKE) test; code=$$?; PYTHONPATH=tests $(BIN)/python -m support.timing dist/test-times.jsonl; exit $$code

.PHONY: kubernetes
kubernetes: brokers ## the chart on a real cluster, pods killed under load; the first run builds Kubernetes (minutes); root
	deploy/prepare-cluster
	PYTHONPATH=tests $(BIN)/python -m support.deployment.kubernetes_programs
	PYTHONPATH=tests $(BIN)/python -m kubernetes.images
	PYTHONPATH=tests $(BIN)/python -m support.machine.sealed env $(PYTEST) -s tests/kubernetes

$(PLAIN)/.installed: pyproject.toml deploy/requirements/runtime-plain.txt deploy/requirements/build.txt $(shell find sidecar plugins -type f -not -name '*.pyc')
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/pip install --quiet --require-hashes -r deploy/requirements/runtime-plain.txt -r deploy/requirements/build.txt
	$(PLAIN)/bin/pip install --quiet --no-deps --no-build-isolation --force-reinstall .
	@touch $@

.PHONY: demo
demo: $(PLAIN)/.installed ## poison messages on a real broker: watch them die, wait, come back; KEEP=1 stays, with the console
	$(PLAIN)/bin/amqsidecar demo $(if $(KEEP),--keep)

.PHONY: screenshots
screenshots: setup ## take the picture of the console for the README again
	PYTHONPATH=tests $(BIN)/python -m support.web.screenshots

.PHONY: oracle
oracle: brokers ## compare decisions with the brokers' own Java classes
	$(PYTEST) -s tests/oracle

.PHONY: simulate
simulate: setup ## run the simulation at length: SEEDS=10000, SEED=0 is the first seed
	PYTHONPATH=tests $(BIN)/python -m simulation.simulate --seeds $${SEEDS:-10000} --seed $${SEED:-0}

.PHONY: chaos
chaos: brokers ## kill, cut, stop and fill everything under load, and count: MINUTES=30, SEED=0
	PYTHONPATH=tests $(BIN)/python -m chaos.chaos --minutes $${MINUTES:-30} --seed $${SEED:-0}

.PHONY: combinations
combinations: brokers ## play many combinations of features on real brokers, and count: ROWS=2000, SEED=0; ONLY=a/row plays that
	PYTHONPATH=tests $(BIN)/python -m combinations.combinations --rows $${ROWS:-2000} --seed $${SEED:-0} --only "$(ONLY)"

.PHONY: fuzz
fuzz: setup ## feed parsers and importers with bad input at length: EXAMPLES=20000 of each
	FUZZ_EXAMPLES=$${EXAMPLES:-20000} $(PYTEST) tests/fuzz

.PHONY: differential
differential: brokers ## a whole broker with its plugins beside a broker with the sidecar: CONFIGURATIONS=20, SEED=0
	CONFIGURATIONS=$${CONFIGURATIONS:-20} SEED=$${SEED:-0} $(PYTEST) -s tests/oracle/test_whole_broker.py

.PHONY: soak
soak: brokers ## watch the memory over a backlog of a million dead letters: MESSAGES=1000000
	PYTHONPATH=tests $(BIN)/python -m soak.soak --messages $${MESSAGES:-1000000}

.PHONY: bench
bench: brokers ## ratios against Java movers and the in-broker plugin, as a table; BENCH="--only moving" is some of it
	PYTHONPATH=tests $(BIN)/python tests/bench/peers.py $(BENCH)

.PHONY: bench-scale
bench-scale: brokers ## ten million waiting messages in one file: ROWS=10000000 (20 GB of disk)
	PYTHONPATH=tests $(BIN)/python -m bench.ten_million.measure --rows $${ROWS:-10000000}

.PHONY: bench-pipeline
bench-pipeline: setup ## the Spark jobs beside a plain scan, over generated journals: EVENTS=10000000; WARM=1 in one session
	PYTHONPATH=tests $(BIN)/python tests/bench/bench_pipeline.py --events $${EVENTS:-10000000} $(if $(WARM),--warm)

.PHONY: bench-whatif
bench-whatif: setup ## whether the intervals of whatif hold, over hidden processes: SEEDS=10, SEED=0, MESSAGES=4000
	PYTHONPATH=tests $(BIN)/python -m bench.bench_whatif --seeds $${SEEDS:-10} --seed $${SEED:-0} --messages $${MESSAGES:-4000} --only known foreign held_back --workers 2

.PHONY: reference
reference: setup ## print the reference documents out of the code again
	$(BIN)/python deploy/chart.py
	$(BIN)/python deploy/monitoring/rules.py > deploy/monitoring/rules.yaml
	$(BIN)/python deploy/runbooks_page.py > sidecar/amqsidecar/http/console/static/runbooks.html
	$(BIN)/python deploy/monitoring/dashboard.py > helm/amqsidecar/files/dashboard.json

.PHONY: site
site: setup ## build the documentation site into dist/site/html; serve it by python -m http.server -d dist/site/html
	$(BIN)/python deploy/site/build.py dist/site

.PHONY: matrix
matrix: brokers ## what each wire carries, measured on real brokers: the record
	PYTHONPATH=tests $(BIN)/python -m matrix.matrix

.PHONY: field
field: brokers ## what a newcomer meets on stock brokers, written down from real runs
	PYTHONPATH=tests $(BIN)/python -m field.field

.PHONY: newcomer
newcomer: brokers ## the README's commands on an own stock broker of each kind, written down with the time of each; root
	PYTHONPATH=tests $(BIN)/python -m field.newcomer

.PHONY: interpreters
interpreters: brokers ## the plain install and the demo on each supported Python that this machine has
	PYTHONPATH=tests $(BIN)/python -m field.interpreters

.PHONY: fresh-machine
fresh-machine: ## make demo as an unprivileged user with an empty cache and few programs, with the time of each step
	PYTHONPATH=tests $(PYTHON) -m field.fresh_machine

.PHONY: requirements
requirements: ## pin the dependencies again (needs uv)
	$(PIN) --extra amqp --extra postgres --extra oidc --extra fleet --extra otel -o deploy/requirements/runtime.txt pyproject.toml
	$(PIN) -c deploy/requirements/runtime.txt -o deploy/requirements/runtime-plain.txt pyproject.toml
	$(PIN) --extra amqp --extra postgres --extra oidc --extra fleet --extra otel --extra journal -c deploy/requirements/runtime.txt -o deploy/requirements/runtime-journal.txt pyproject.toml
	$(PIN) --extra mcp -c deploy/requirements/runtime.txt -o deploy/requirements/runtime-mcp.txt pyproject.toml
	$(PIN) -c deploy/requirements/runtime.txt -o deploy/requirements/build.txt --group build
	$(PIN) -c deploy/requirements/runtime.txt -o deploy/requirements/wheels.txt --group wheels
	$(PIN) --extra amqp --extra postgres --extra oidc --extra fleet --extra otel --extra mcp --extra pipeline -c deploy/requirements/runtime.txt -o deploy/requirements/dev.txt pyproject.toml --group dev
