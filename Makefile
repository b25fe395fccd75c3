# The project's commands. `make` alone lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
MODEL_DIR := build/models
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test conformance chaos lint bench loadtest hostile proto docs audit clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## install everything into .venv

$(VENV)/.ready: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[serve,train,loadtest,dev]'
	touch $@

$(MODEL_DIR)/.ready: $(VENV)/.ready $(wildcard rewriter/*.py rewriter/pretrained/zh/*)
	$(BIN)/rewriter export --output $(MODEL_DIR)
	touch $@

demo: $(MODEL_DIR)/.ready ## start the service, rewrite conversations over gRPC and print them with their origins
	$(BIN)/python examples/demo.py $(MODEL_DIR)

serve: $(MODEL_DIR)/.ready ## run the service on localhost:8600
	$(BIN)/rewriter serve --model-dir $(MODEL_DIR)

# A file's tests stay together: they share exported models and running servers.
test: $(VENV)/.ready ## run the tests, two files at a time
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

conformance: $(VENV)/.ready ## the backend for TF Serving, against a stand-in or a real one (docs/conformance.md)
	$(BIN)/python -m pytest tests/conformance

chaos: $(MODEL_DIR)/.ready ## what callers notice while things go wrong: half an hour (docs/resilience.md)
	$(BIN)/python -m benchmarks.chaos --model-dir $(MODEL_DIR)

lint: $(VENV)/.ready ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(MODEL_DIR)/.ready ## latency of the service on this machine
	$(BIN)/python benchmarks/latency.py $(MODEL_DIR)
	$(BIN)/python -m benchmarks.overhead $(MODEL_DIR)

loadtest: $(MODEL_DIR)/.ready ## eight callers for a minute, against `make serve` in another terminal
	$(BIN)/locust -f loadtest/locustfile.py --host localhost:8600 --headless --users 8 --run-time 1m

hostile: $(MODEL_DIR)/.ready ## send the service 10,000 malformed and hostile calls
	$(BIN)/python benchmarks/hostile.py $(MODEL_DIR) --calls 10000

proto: $(VENV)/.ready ## generate the gRPC stubs anew
	$(BIN)/python -m serving.generate

docs: $(VENV)/.ready ## write docs/settings.md anew
	$(BIN)/python -m serving.reference > docs/settings.md

audit: ## look up the pinned packages in the database of known vulnerabilities (needs the network)
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

clean: ## remove what was built
	rm -rf $(VENV) build *.egg-info
