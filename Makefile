# make serve   install octavo into .venv and serve the embedded model
# make test    install with development tools and run every test
# make fuzz    load thousands of damaged model files, send thousands of hostile requests (about 8 minutes; a slice is in make test)
# make schemas SCHEMAS=FILE   send each JSON schema of a file to a server and check the answers (10 minutes for 300)
# make sanitize   build the native core with ASan and UBSan into build/sanitize, run its tests and a slice of the fuzz under them
# make check-deploy   deploy/ with promtool, helm and systemd-analyze, as far as they are installed
# make test-clients   install clients of other makers into .venv-clients (1 GB, Python 3.11 or newer) and run the tests that ask through them
# make fuzz-api   the same environment: thousands of requests that schemathesis makes of the server's /openapi.json
# make lint    ruff, mypy, house checks
# make bench   the figures of docs/performance.md
# make oracle  rebuild the golden files with torch and transformers (slow, large download)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
NATIVE := CMakeLists.txt $(shell find native -type f)
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=

.PHONY: serve chat test test-clients fuzz fuzz-api schemas sanitize lint check-deploy bench oracle clean

serve: $(STAMPS)/install
	@$(BIN)/octavo serve --host $(HOST) --port $(PORT) $(ARGS)

chat: $(STAMPS)/install
	@$(BIN)/octavo chat $(ARGS)

# Two processes, each with engines of one thread unless a test says otherwise; then, with nothing beside them, the tests that watch
# the clock. Exit code 5: ARGS choose no test of that half.
test: $(STAMPS)/dev
	OCTAVO_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not alone" $(ARGS) || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -m alone $(ARGS) || [ $$? -eq 5 ]

# The clients' packages may not be those of octavo: an environment of their own, and tests/conftest.py is left out.
CLIENTS := .venv-clients
test-clients: $(STAMPS)/clients
	OCTAVO_PYTHON=$(abspath $(BIN)/python) OCTAVO_NODE=$(STAMPS)/node \
		$(CLIENTS)/bin/python -m pytest -rs -W default --confcutdir=tests/clients tests/clients $(ARGS)

fuzz-api: $(STAMPS)/clients
	OCTAVO_PYTHON=$(abspath $(BIN)/python) $(CLIENTS)/bin/python -m tests.fuzz.api $(ARGS)

lint: $(STAMPS)/dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/house

check-deploy: $(STAMPS)/dev
	$(BIN)/python -m pytest tests/unit/test_deploy.py
	if command -v promtool >/dev/null; then promtool check rules deploy/prometheus/alerts.yaml && \
		promtool test rules deploy/prometheus/alerts_test.yaml; else echo "promtool is not installed (Debian: prometheus)"; fi
	if command -v helm >/dev/null; then helm lint deploy/helm/octavo && helm template demo deploy/helm/octavo >/dev/null; \
		else echo "helm is not installed"; fi
	if command -v systemd-analyze >/dev/null; then systemd-analyze verify deploy/systemd/octavo.service 2>&1 | \
		grep -v "is not executable" || true; fi

fuzz: $(STAMPS)/dev
	$(BIN)/python -m tests.fuzz.files $(ARGS)
	$(BIN)/python -m tests.fuzz.hostile_http

schemas: $(STAMPS)/dev
	$(BIN)/python benchmarks/structured_outputs.py campaign $(SCHEMAS)

# The interpreter below the environment, for it does not know the editable install, whose native core would come first.
# Leaks are Python's to judge: an interpreter that ends gives back little.
SANITIZED := build/sanitize
sanitize: $(STAMPS)/dev
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug \
		-DOCTAVO_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build $(SANITIZED)
	rm -rf $(SANITIZED)/site && mkdir -p $(SANITIZED)/site && cp -r src/octavo $(SANITIZED)/site/
	$(BIN)/cmake --install $(SANITIZED) --prefix $(SANITIZED)/site
	PYTHONPATH=$(abspath $(SANITIZED)/site):$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	PYTHON=$$($(BIN)/python -c 'import sys; print(sys._base_executable)') \
	PRELOAD=$$($${CXX:-g++} -print-file-name=libasan.so):$$($${CXX:-g++} -print-file-name=libstdc++.so) sh tests/sanitize.sh

bench: $(STAMPS)/dev
	$(BIN)/python benchmarks/run.py $(ARGS)

oracle: $(STAMPS)/install
	$(PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/python -m pip install --quiet torch==2.13.0
	.venv-oracle/bin/python -m pip install --quiet -r tests/golden/requirements.txt
	smollm2=$$($(BIN)/octavo pull) && gemma3=$$($(BIN)/octavo pull gemma3-270m) && export PYTHONPATH=tests && \
	.venv-oracle/bin/python tests/golden/text/make_golden.py $$smollm2 $$gemma3 && \
	.venv-oracle/bin/python tests/golden/models/make_golden.py tiny && \
	.venv-oracle/bin/python tests/golden/models/make_golden.py smollm2 $$smollm2 && \
	.venv-oracle/bin/python tests/golden/models/make_golden.py gemma3 $$gemma3

clean:
	rm -rf $(VENV) .venv-oracle $(CLIENTS) build $(STAMPS)

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "octavo needs Python 3.10 or newer; none was found on PATH" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "octavo needs Python 3.10 or newer; $(PYTHON) is older (choose one with make PYTHON=...)" >&2; exit 2; }
	@$${CXX:-g++} --version >/dev/null 2>&1 || { echo "octavo needs a C++17 compiler; install g++ (Debian: apt install g++) or set CXX" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment; install the venv module (Debian: apt install python3-venv)" >&2; exit 2; }
	@mkdir -p $(STAMPS)
	@touch $@

# Editable: changes to src/ need no reinstall, changes to native/ rebuild only what they touch.
$(STAMPS)/install: $(STAMPS)/venv pyproject.toml $(NATIVE)
	@echo "installing octavo into $(VENV) (compiles the native core, about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.20" "ninja>=1.11"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable ".[dev]"
	@touch $@

# uv finds the packages in seconds; every version is pinned.
$(STAMPS)/clients: $(STAMPS)/dev tests/clients/requirements.txt
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(CLIENTS)/bin/uv pip install --quiet --python $(CLIENTS)/bin/python -r tests/clients/requirements.txt
	@if command -v npm >/dev/null; then npm install --silent --prefix $(STAMPS)/node openai; fi
	@touch $@
