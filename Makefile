# Every target installs what it needs by itself; a second run starts at once.
#   make test ARGS="-k framing"    make build KPROD_DEBUG=1    make demo PYTHON=python3.13

VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TYPES := $(shell find kprod -name '*.pxd')
TYPED := $(TYPES:.pxd=.py)
SOURCES := $(wildcard kprod_ext/*.pyx kprod_ext/*.pxd) $(TYPES) $(TYPED)
# All of Cython's warnings but one, which takes every `with lock:` block for one that may be skipped.
CYTHON_WARNINGS := -3 -Werror -Wextra -X warn.maybe_uninitialized=False -X annotation_typing=False
export KPROD_DEBUG KPROD_SANITIZE
SANITIZER = $(if $(filter-out 0,$(KPROD_SANITIZE)),ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$(CURDIR)/build/sanitizer UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$(CURDIR)/build/sanitizer LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so))

.DELETE_ON_ERROR:
.PHONY: build demo test campaign sanitize lint types bench acceptance docs clean FORCE

build: $(VENV)/dev build/extensions

demo: $(VENV)/demo build/extensions
	$(BIN)/kprod demo $(ARGS)

test: build
	$(SANITIZER) $(BIN)/python -m pytest $(ARGS)

campaign: build
	$(BIN)/python -m tests.fault.campaign $(ARGS)

# Afterwards the extensions are compiled for release again, by the next target that needs them.
sanitize:
	rm -f build/sanitizer.*
	PYTHONMALLOC=malloc $(MAKE) test KPROD_SANITIZE=1 ARGS="tests/ext tests/property $(ARGS)"
	@! grep -E "ERROR|runtime error" build/sanitizer.* 2>/dev/null

lint: build
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy && $(BIN)/python -m mypy.stubtest kprod_ext --allowlist tests/ext/stubtest_allowlist.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint kprod_ext $(TYPES)
	$(BIN)/lint-imports --no-cache
	mkdir -p build/lint && $(BIN)/cython $(CYTHON_WARNINGS) -o build/lint/ kprod_ext/*.pyx
	$(BIN)/cython $(CYTHON_WARNINGS) -X warn.unused=False -o build/lint/ $(TYPED)
	CFLAGS=-Werror $(BIN)/python setup.py --quiet build_ext --force --build-temp build/lint --build-lib build/lint

bench: build
	mkdir -p benchmarks/results
	$(BIN)/python -m pytest benchmarks -q --benchmark-json=benchmarks/results/kernels.json --timeout=600 $(ARGS)
	$(BIN)/python -m benchmarks.kernels.instructions
	$(BIN)/python -m benchmarks.pipeline --quick
	$(BIN)/python -m benchmarks.report --only-page

# Every comparison with other clients, then the report, and the figures in the documentation.
acceptance: build
	$(BIN)/python -m benchmarks.acceptance $(ARGS)
	$(BIN)/python -m benchmarks.report

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find kprod kprod_ext -name '*.so' -delete
	find kprod kprod_ext tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The environment: an empty file per set of requirements installed into it.

$(VENV)/pip:
	@test -n "$(PYTHON)" || { echo "kprod needs Python 3.11 or newer, and none was found on PATH. Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) && $(PIP_INSTALL) 'setuptools>=77' 'cython>=3.1' && touch $@

$(VENV)/dev $(VENV)/demo $(VENV)/docs: $(VENV)/pip pyproject.toml constraints.txt
	@echo "Installing what '$(@F)' needs into $(VENV): a minute or two the first time."
	$(PIP_INSTALL) --no-build-isolation -e '.[$(@F)]' && touch $@

# The extensions, compiled in place; again when a source, setup.py or a build switch changed.

build/extensions: $(SOURCES) setup.py build/switches | $(VENV)/pip
	$(BIN)/python setup.py --quiet build_ext --inplace $(if $(wildcard $@),$(if $(filter build/switches setup.py,$?),--force)) && touch $@

build/switches: FORCE
	@mkdir -p build && echo "debug=$(KPROD_DEBUG) sanitize=$(KPROD_SANITIZE)" | cmp -s - $@ || echo "debug=$(KPROD_DEBUG) sanitize=$(KPROD_SANITIZE)" > $@
