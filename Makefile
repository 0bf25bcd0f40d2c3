# Every target installs what it needs by itself; a second run starts at once.
#   make test ARGS="-k framing"    make build KPROD_DEBUG=1    make demo PYTHON=python3.13

VENV ?= .venv
BIN := $(VENV)/bin
# The versions that are installed; CONSTRAINTS= takes the newest ones there are.
CONSTRAINTS ?= -c constraints.txt
# Modules are compiled to bytecode when they are first imported: most of them never are.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile $(CONSTRAINTS)
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
SOURCES := $(wildcard kprod_ext/*.pyx kprod_ext/*.pxd)
# All of Cython's warnings but one, which takes every `with lock:` block for one that may be skipped.
CYTHON_WARNINGS := -3 -Werror -Wextra -X warn.maybe_uninitialized=False -X annotation_typing=False
export KPROD_DEBUG KPROD_SANITIZE KPROD_PORTABLE
# Tests start hundreds of processes. Where this is set, each would compile what it imports, and
# pytest would rewrite the assertions of every file in every worker and run.
unexport PYTHONDONTWRITEBYTECODE
SANITIZER = $(if $(filter-out 0,$(KPROD_SANITIZE)),ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$(CURDIR)/build/sanitizer UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$(CURDIR)/build/sanitizer LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so))

# Tests that share a fixture run in one worker (tests/support/worker_shares.py says which). They wait
# for processes and for time to pass for 4 of 10 seconds: four workers keep two cores busy.
IN_WORKERS := -n 4
QUICK := -m "not full" tests/architecture tests/unit tests/ext tests/golden

.DELETE_ON_ERROR:
.PHONY: build bytecode demo test test-full check check-source check-tests oldest coverage campaign frameworks sanitize lint lint-style lint-types lint-cython lint-c lint-workflows cross wheel test-wheel release-check bench acceptance file-map diagrams docs site-check clean FORCE

# The downloads go on while the extensions are compiled.
build:
	@$(MAKE) --no-print-directory -j2 $(VENV)/bytecode build/extensions

demo:
	@$(MAKE) --no-print-directory -j2 $(VENV)/demo build/extensions
	$(BIN)/kprod demo $(ARGS)

# The jars of Apache Kafka are fetched while the first tests run; those that need them wait for them.
# Its brokers start in half of the time once their classes are in an archive.
test: TIER := -m "not full"
test-full: export KPROD_TESTS := full
test test-full: build bytecode
	@{ $(BIN)/python -m tests.support.apache_kafka.jars \
		&& $(BIN)/python -m tests.support.apache_kafka.class_archive; } >/dev/null 2>&1 & \
	$(SANITIZER) $(BIN)/python -m pytest $(IN_WORKERS) $(TIER) $(ARGS)

# For the inner loop: style, types, and the tests that take no time.
check: build bytecode
	@$(MAKE) --no-print-directory -j2 check-source check-tests

check-source:
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && $(BIN)/mypy

# These hardly wait: a fourth worker would cost more to start than it does.
check-tests:
	@$(BIN)/python -m pytest -n 3 -q $(QUICK) $(ARGS)

# Tests of modules and of commands with the oldest versions that pyproject.toml allows, in an
# environment of their own; what tests are run with is found behind these, in the usual one.
oldest: build
	rm -rf build/oldest && $(BIN)/python -m venv build/oldest
	$(BIN)/python .ci/oldest.py > build/oldest/requirements.txt
	build/oldest/bin/pip install --quiet --disable-pip-version-check --no-compile -r build/oldest/requirements.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/oldest/tools.pth
	cp build/oldest/tools.pth build/oldest/lib/python*/site-packages/
	PYTHONPATH=$(CURDIR) build/oldest/bin/python -m pytest $(IN_WORKERS) -q -m "not full" \
		tests/unit tests/ext tests/golden tests/integration/cli tests/integration/observability $(ARGS)

campaign: build
	$(PIP_INSTALL) grpcio grpcio-status googleapis-common-protos  # no wheels for 3.14t: not in dev
	$(BIN)/python -m tests.fault.campaign $(ARGS)

# The programs of docs/frameworks.md, and servers that fork, in environments of their own.
frameworks: build build/frameworks/others/ready build/frameworks/airflow/ready build/frameworks/servers/ready
	KPROD_FRAMEWORKS=$(CURDIR)/build/frameworks $(BIN)/python -m pytest -q tests/frameworks $(ARGS)

build/frameworks/others/ready: tests/frameworks/requirements.txt
build/frameworks/airflow/ready: tests/frameworks/requirements-airflow.txt
build/frameworks/servers/ready: tests/frameworks/requirements-servers.txt
build/frameworks/%/ready:
	@echo "Installing frameworks into $(@D): minutes the first time."
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --no-compile -r $^ crc32c lz4 zstandard cramjam scramp && touch $@

# Afterwards the extensions are compiled for release again, by the next target that needs them.
# Under sanitizers a test takes several times as long.
sanitize:
	rm -f build/sanitizer.*
	PYTHONMALLOC=malloc $(MAKE) test KPROD_SANITIZE=1 ARGS="--timeout=1800 tests/ext tests/property $(ARGS)"
	@! grep -E "ERROR|runtime error" build/sanitizer.* 2>/dev/null

lint: build
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint-types lint-cython lint-style lint-c

lint-style:
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint kprod_ext
	$(BIN)/lint-imports --no-cache

lint-types:
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest kprod_ext --allowlist tests/ext/stubtest_allowlist.txt

lint-cython:
	@mkdir -p build/lint
	$(BIN)/cython $(CYTHON_WARNINGS) -o build/lint/ kprod_ext/*.pyx

# The warnings of the C compiler are errors here, and nowhere else; compiles what has changed.
lint-c:
	KPROD_WERROR=1 $(BIN)/python setup.py --quiet build_ext --build-temp build/lint/temp --build-lib build/lint/lib

# Which lines of Python the unit tests pass.
coverage: build
	$(BIN)/python -m coverage run -m pytest -q tests/unit $(ARGS)
	$(BIN)/python -m coverage report

# Source distribution and wheel of this machine's Python, audited and tried in a clean environment.
wheel: $(VENV)/wheel
	rm -rf build/wheel
	$(BIN)/python -m build --no-isolation --outdir build/wheel
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	$(PYTHON) -m venv build/wheel/venv
	cp build/wheel/*.tar.gz dist/
	cp .ci/smoke_test.py build/wheel/
	wheel=$$(ls -t dist/*.whl | head -1) && for extra in "" "[broker]"; do \
		build/wheel/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt "$$wheel$$extra" \
		&& build/wheel/venv/bin/python -X dev build/wheel/smoke_test.py || exit 1; done

# The tests of the compiled package and of single modules, from the source distribution, against the
# wheel: there is no kprod to import but the installed one. The other packages are those of the
# environment: a path file within it, which leads to the checkout, is not read then.
test-wheel: wheel $(VENV)/dev
	rm -rf build/wheel/tests && mkdir build/wheel/tests
	tar -xzf build/wheel/*.tar.gz -C build/wheel/tests --strip-components=1
	rm -rf build/wheel/tests/kprod build/wheel/tests/kprod_ext
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/wheel/tools.pth
	cp build/wheel/tools.pth build/wheel/venv/lib/python*/site-packages/
	cd build/wheel/tests && ../venv/bin/python -m pytest $(IN_WORKERS) -q -m "not full" tests/unit tests/ext tests/property $(ARGS)

# All that a release takes but the upload: checks, tests, wheel, documentation; then in build/upload
# what is published beside the files: their hashes, what kprod is installed with, and the notes.
release-check: $(VENV)/release
	rm -rf dist build/upload && mkdir -p build/upload
	$(BIN)/python .ci/release_notes.py > build/upload/notes.md
	$(MAKE) --no-print-directory lint lint-workflows test-full test-wheel docs
	cd dist && sha256sum * > ../build/upload/SHA256SUMS
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
		--output-file build/upload/sbom.json build/wheel/venv
	@echo "dist/ and build/upload/ are what a release consists of"

# Compiles the extensions for macOS, musl and ARM, and runs nothing there.
cross: build $(VENV)/cross
	$(BIN)/python .ci/cross_compile.py

# Needs Go, as the checker is a program in it.
lint-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

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

# Every module, with the first line of its docstring.
file-map:
	@$(BIN)/python -m tools.file_map

# The diagrams, from the code; needs Graphviz (apt-get install graphviz).
diagrams: build
	$(BIN)/python -m tools.diagrams

# Not --quiet, which hides warnings from --strict as well.
docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The site in a browser: Chromium or Chrome, which the system has (apt-get install chromium).
site-check: build docs $(VENV)/site
	KPROD_SITE=$(CURDIR)/site $(BIN)/python -m pytest -q tests/browser $(ARGS)

clean:
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find kprod kprod_ext -name '*.so' -delete
	find kprod kprod_ext tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The environment: an empty file per set of requirements installed into it.

$(VENV)/pip:
	@test -n "$(PYTHON)" || { echo "kprod needs Python 3.11 or newer, and none was found on PATH. Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) && $(PIP_INSTALL) 'setuptools>=77' 'cython>=3.1' && touch $@

# What Kerberos is tested with is compiled against its headers, so only where these are.
$(VENV)/dev: KERBEROS := $(shell command -v krb5-config >/dev/null && echo ,kerberos)
$(VENV)/dev $(VENV)/demo $(VENV)/docs $(VENV)/site $(VENV)/wheel $(VENV)/release $(VENV)/cross: $(VENV)/pip pyproject.toml constraints.txt
	@echo "Installing what '$(@F)' needs into $(VENV): a minute or two the first time."
	KPROD_EXTENSIONS=0 $(PIP_INSTALL) --no-build-isolation -e '.[$(@F)$(KERBEROS)]' && touch $@

# Done once here: the workers and processes of the tests would each begin with it.
COMPILE := $(BIN)/python -m compileall -q -j 0
NOT_IMPORTED := /(tests|pip|setuptools|mypy|mypyc|Cython|boto3|botocore|lexers|ml|mllib)/

bytecode: $(VENV)/bytecode
	@$(COMPILE) kprod kprod_ext pyspark_kprod tests

$(VENV)/bytecode: $(VENV)/dev
	@$(COMPILE) -x '$(NOT_IMPORTED)' $(VENV)/lib && touch $@

# The extensions, compiled in place; again when a source, setup.py or a build switch changed.

build/extensions: $(SOURCES) setup.py build/switches | $(VENV)/pip
	$(BIN)/python setup.py --quiet build_ext --inplace $(if $(wildcard $@),$(if $(filter build/switches setup.py,$?),--force)) && touch $@

build/switches: SWITCHES := debug=$(KPROD_DEBUG) sanitize=$(KPROD_SANITIZE) portable=$(KPROD_PORTABLE)
build/switches: FORCE
	@mkdir -p build && echo "$(SWITCHES)" | cmp -s - $@ || echo "$(SWITCHES)" > $@
