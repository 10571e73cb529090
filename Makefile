# Commands for developers. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Each local test trains on two cores: never run two targets at once, even with -j.
.NOTPARALLEL:

# Any Python 3.10 to 3.13, used once to make .venv: make setup PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# If it is newer than requirements.lock and pyproject.toml, .venv is up to date.
STAMP := $(VENV)/.installed
PEERS_STAMP := .venv-peers/.installed
TF_KERAS_STAMP := .venv-peers/tf_keras/.installed
TF215_STAMP := .venv-tf215/.installed
NOTEBOOK_STAMP := .venv-peers/notebook/.installed
MLFLOW_STAMP := .venv-mlflow/.installed
TENSORBOARD := $(shell grep -om1 'tensorboard==[^"]*' pyproject.toml)
# One process of pytest more than there are cores: each waits at times for the processes that it has started.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Each run of tests says which 25 took longest, and leaves the seconds of all in build/tests/.
PYTEST = $(BIN)/pytest --durations 25 --durations-min 1 --junitxml build/tests/$(subst /,-,$@)$(1).xml
UV_INSTALL = $(BIN)/uv pip install --quiet --no-deps --require-hashes
SHELL_SCRIPTS := $(wildcard scripts/*.sh images/*.sh .ci/run) images/trainer

# Settings for the machines of our continuous integration; not needed elsewhere.
-include .ci/machine.mk

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## create .venv from requirements.lock; does nothing if it is up to date

$(STAMP): requirements.lock images/requirements-uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
	  { echo "make: $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing):" \
	    "trainer needs Python 3.10 to 3.13; try make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: $(PYTHON) cannot create virtual environments: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import platform as p, sys; sys.exit(f"{sys.platform} {p.machine()}" not in sys.argv[1:])' \
	  "linux x86_64" "linux aarch64" "darwin arm64" || \
	  { echo "make: $$(uname -sm): TensorFlow has wheels for Linux on x86-64 and arm64, and for macOS on arm64;" \
	    "use containers or another machine" >&2; exit 1; }
# --clear removes packages that are no longer in the lock; Keras imports some packages wherever it finds them.
# pip brings only uv, which installs the rest in a third of the time.
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes -r images/requirements-uv.lock
	$(UV_INSTALL) --python $(BIN)/python -r requirements.lock
# With isolation uv would download a setuptools of its own, without a hash; the lock has one.
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python -e .
	@touch $@

.PHONY: demo
demo: setup ## train a digit classifier on a local parameter-server cluster
	rm -rf runs/digits-ps
	$(BIN)/trainer local examples/digits-ps.yaml

.PHONY: test
test: test-unit test-local ## run unit and golden tests, and the quick tests on local clusters (4 minutes)

# TRAINER_SLOW=all: each test, not only those whose turn it is at this commit (tests/tools/rotation.py).
export TRAINER_SLOW ?= part
.PHONY: test-unit
test-unit: setup ## run unit and golden tests
	$(call PYTEST) -n $(WORKERS) -m "not slow and not part" tests/unit tests/golden tests/simulation

.PHONY: test-local
test-local: setup ## run the quick tests on local clusters
	$(call PYTEST) -n $(WORKERS) -m "not slow and not part" tests/local

.PHONY: test-slow
test-slow: setup programs-in-turn notebook-setup ## run the slow unit tests and local clusters whose turn it is (TRAINER_SLOW=all: all)
	$(call PYTEST) -n $(WORKERS) -m "slow or part" --slow=$(TRAINER_SLOW) tests/unit tests/local
	$(call PYTEST,-failures) -n 2 --slow=part tests/failures -k "not compose and not kind"

.PHONY: support-table
support-table: setup ## run each feature under each API and strategy (40 minutes); writes the table in docs/models.md
	$(BIN)/python -m tests.local.support

# TARGET=kind PART=3/40 make failures: a part of the cells of one target. A result of this commit is kept; AGAIN=--again.
TARGET ?= local compose kind
PART ?= 1/1
AGAIN ?=
.PHONY: failures
failures: setup $(if $(filter-out local,$(TARGET)),image-cpu) ## try each fault at each moment of jobs (hours; needs root for some); writes docs/failures.md
	failed=0; for target in $(TARGET); do \
	  command=($(BIN)/python -m tests.failures $$target --part $(PART) $(AGAIN)); \
	  if [[ $$target == kind ]]; then command=(scripts/kind.sh run "$${command[@]}"); fi; \
	  "$${command[@]}" || failed=1; \
	done; exit $$failed

.PHONY: soak
soak: setup ## run random jobs with random faults, judged by the files that they leave
	TRAINER_SOAK_SEED=$${TRAINER_SOAK_SEED:-$$(date +%s)} $(call PYTEST) -n 2 -m soak tests/soak

# SEED=1 make simulate: from that seed on; SECONDS=3600 make simulate: for an hour.
.PHONY: simulate
simulate: setup ## run 10,000 jobs, with faults, in a simulated world, judged by what the documents promise (2 minutes)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(filter environment command,$(origin SECONDS)),--seconds $(SECONDS))

.PHONY: simulate-defects
simulate-defects: setup ## plant defects in the supervisors, one at a time, and let the simulated world find them
	$(BIN)/python -m tests.simulation --defects --histories 5000 $(if $(SEED),--seed $(SEED))

.PHONY: simulate-all
simulate-all: setup ## try each fault at some moments with any two of the first messages late (10 minutes)
	$(BIN)/python -m tests.simulation --exhaustive

.PHONY: prometheus
prometheus: ## check that Prometheus is installed, without which the tests of the metrics are skipped
	@command -v prometheus promtool >/dev/null || \
	  { echo "make: prometheus and promtool are missing: apt install prometheus, or brew install prometheus" >&2; exit 1; }

.PHONY: chromium
chromium: ## check that Chromium and the fonts of its pictures are installed, for the tests of the page
	@command -v chromium >/dev/null && ls /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf >/dev/null 2>&1 || \
	  { echo "make: chromium or its fonts are missing: apt install chromium fonts-dejavu-core" >&2; exit 1; }

.PHONY: test-browser
test-browser: chromium setup ## run the tests of the page in Chromium (3 minutes)
	$(call PYTEST) -n 2 --dist loadfile --slow=$(TRAINER_SLOW) tests/browser

.PHONY: pictures
pictures: chromium setup ## renew the screenshots of the page, that of the README too; look at them before you commit
	$(BIN)/pytest tests/browser/test_pictures.py -k looks --update-golden

# Of the simulated world each commit has seeds of its own: what fails fails again.
# What compiles or downloads begins beside tests that wait for nothing of it (+); Kubernetes comes last.
.PHONY: test-all
test-all: setup ## run all tests and checks, and say how many seconds each stage took; parts that are unchanged come in turn
	SEED=$${SEED:-$$(git rev-list --count HEAD 2>/dev/null || date +%s)0000} scripts/stages.sh prometheus chromium $(addprefix +,$(KIND_SETUP)) +programs-setup +images-of-tests \
	  lint docs test-locks test-unit simulate programs-setup test-local test-slow test-browser images-of-tests test-compose \
	  soak bench-smoke $(KIND_SETUP) test-kind

.PHONY: bench
bench: setup $(PEERS_STAMP) $(TF_KERAS_STAMP) ## measure throughput, steps, costs and growth, beside torch, tf_keras and classic TensorFlow (30 minutes); writes docs/benchmarks.md
	$(BIN)/python -m bench

.PHONY: bench-page
bench-page: setup $(PEERS_STAMP) ## measure what the page of a job costs it (10 minutes)
	$(BIN)/python -m bench page

# FROM="FILE ...": results that were measured before, named PART-*.json.
FROM ?=
.PHONY: bench-compare
bench-compare: setup $(PEERS_STAMP) $(TF_KERAS_STAMP) ## say what is slower than the committed results of this kind of CPU (20 minutes; FROM=FILE: at once)
	$(BIN)/python -m bench.compare $(if $(FROM),--from $(FROM))

# Five gigabytes: torch's wheel for Linux includes CUDA, even without a GPU.
$(PEERS_STAMP): bench/peers/requirements.lock | setup
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python .venv-peers
	$(UV_INSTALL) --python .venv-peers/bin/python -r $<
	@touch $@

# tf_keras needs the TensorFlow of .venv, so it is in a folder of its own.
$(TF_KERAS_STAMP): bench/peers/tf_keras.lock | setup
	rm -rf $(@D)
	$(UV_INSTALL) --python $(BIN)/python --target $(@D) -r $<
	@touch $@

# TensorFlow 2.15 has wheels for Python 3.9 to 3.11 only.
$(TF215_STAMP): tests/programs/tf215.lock | setup
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python '>=3.10,<3.12' .venv-tf215 || \
	  { echo "make: TensorFlow 2.15 needs Python 3.10 or 3.11: install one of them" >&2; exit 1; }
	$(UV_INSTALL) --python .venv-tf215/bin/python -r $<
	@touch $@

$(MLFLOW_STAMP): tests/programs/mlflow.lock | setup
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python .venv-mlflow
	$(UV_INSTALL) --python .venv-mlflow/bin/python -r $<
	@touch $@

.PHONY: programs-setup
programs-setup: $(TF_KERAS_STAMP) $(TF215_STAMP) $(MLFLOW_STAMP) ## install what tests run beside trainer: tf_keras, TensorFlow 2.15, MLflow

# For tests, of which those that need it are left out while what it is for is unchanged.
.PHONY: programs-in-turn
programs-in-turn: setup
	turn=$$($(BIN)/python -m tests.tools.rotation programs); echo "$$turn"; \
	if [[ $$turn == "runs"* ]]; then $(MAKE) --no-print-directory programs-setup; fi

# In a folder of its own too: Keras imports IPython where it is installed, 0.2 s of every start.
$(NOTEBOOK_STAMP): tests/local/notebook.lock | setup
	rm -rf $(@D)
	$(UV_INSTALL) --python $(BIN)/python --target $(@D) -r $<
	@touch $@

.PHONY: notebook-setup
notebook-setup: $(NOTEBOOK_STAMP) ## install what the test of trainer in a notebook runs with: ipykernel, nbclient

.PHONY: bench-smoke
bench-smoke: setup ## run every benchmark once on a small scale; skips torch and tf_keras if .venv-peers is missing
	$(BIN)/python -m bench --smoke
	$(BIN)/python -m bench.compare --smoke
	$(BIN)/python -m bench.fit small --turns 1
	$(BIN)/python -m bench.programs --windows 1 --starts 1
	$(BIN)/python -m bench.losses --tasks 40 --share 0.5 --seconds 8
	$(BIN)/python -m bench.accuracy cnn --smoke --settings every10

.PHONY: bench-losses
bench-losses: setup $(PEERS_STAMP) ## lose 1 % of 3,000 tasks per minute: what the chief notices, and what that costs it (12 minutes)
	$(BIN)/python -m bench.losses --write
	$(BIN)/python -m bench --render

.PHONY: bench-large
bench-large: setup $(PEERS_STAMP) ## measure models with 22 to 250 million parameters: steps, checkpoints, two ps (40 minutes; Linux, as root); writes docs/benchmarks.md
	$(BIN)/python -m bench.large

.PHONY: bench-network
bench-network: setup $(PEERS_STAMP) ## measure workers on slow networks, in network namespaces (15 minutes; Linux, as root); writes docs/benchmarks.md
	$(BIN)/python -m bench.network

# PARTS="cnn --seeds 1": a part of it; the other results stay.
PARTS ?=
.PHONY: bench-accuracy
bench-accuracy: setup ## measure the accuracy of each setting of communication (40 minutes); writes docs/benchmarks.md
	$(BIN)/python -m bench.accuracy $(PARTS)

.PHONY: bench-compose
bench-compose: setup image-cpu ## measure a job across containers: sizes, start, first step, end
	$(BIN)/python bench/compose.py

.PHONY: bench-kind
bench-kind: setup image-cpu ## measure a job across pods and across local processes: first step, rate, end
	scripts/kind.sh run $(BIN)/python bench/kubernetes.py

.PHONY: wheel
wheel: setup ## build dist/trainer-VERSION-py3-none-any.whl
# setuptools would pack everything in build/, including deleted modules.
	rm -rf build dist
	$(BIN)/uv build --wheel --no-build-isolation --offline --quiet
	@ls dist/*.whl

.PHONY: images
images: ## build trainer:cpu, trainer:cuda, trainer:tensorboard, trainer:track, trainer:supervisor (PLATFORM=linux/arm64: all but cuda for arm64)
	scripts/images.sh

.PHONY: image-cpu image-cuda image-tensorboard image-track image-supervisor
image-cpu image-cuda image-tensorboard image-track image-supervisor: image-%:
	scripts/images.sh $*

.PHONY: images-of-tests
images-of-tests: image-cpu image-tensorboard image-track image-supervisor

.PHONY: compose-file
compose-file: setup ## write docker-compose.yml from examples/
	$(BIN)/trainer render compose ps=examples/mnist-ps.yaml mwms=examples/mnist-mwms.yaml gpu=examples/mnist-gpu.yaml \
	  > docker-compose.yml.new
	mv docker-compose.yml.new docker-compose.yml

.PHONY: manifests
manifests: setup ## write k8s/*.yaml from examples/
	for file in k8s/*.yaml; do \
	  $(BIN)/trainer render kubernetes examples/$${file##*/} > $$file.new; \
	  mv $$file.new $$file; \
	done

.PHONY: test-compose
test-compose: setup programs-in-turn images-of-tests ## run the container tests on a real Docker Engine
	$(call PYTEST) -n $(WORKERS) --dist loadfile --timeout 600 --slow=$(TRAINER_SLOW) tests/compose
	$(call PYTEST,-failures) --slow=part tests/failures -k compose

.PHONY: kind-up kind-down
kind-up: setup image-cpu ## create a kind cluster of three nodes, with trainer:cpu and a demo job
	scripts/kind.sh up
	$(BIN)/trainer submit examples/digits-ps.yaml
kind-down: ## remove that cluster
	scripts/kind.sh down

# Of test_nodes.py all tests are slow: pytest ends with 5 where it is the turn of none.
.PHONY: test-kind
test-kind: prometheus setup programs-in-turn image-cpu $(KIND_SETUP) ## run the Kubernetes tests on a kind cluster
	scripts/kind.sh run bash -ec 'scripts/kind.sh controllers; \
	  $(call PYTEST) -n $(WORKERS) --dist loadfile --timeout 600 --slow=$(TRAINER_SLOW) tests/kind --ignore tests/kind/test_nodes.py; \
	  $(call PYTEST,-nodes) --timeout 600 --slow=$(TRAINER_SLOW) tests/kind/test_nodes.py || (( $$? == 5 )); \
	  $(call PYTEST,-failures) --slow=part tests/failures -k kind'

.PHONY: lint
lint: setup ## ruff, mypy, shellcheck, hadolint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(firstword $(wildcard $(BIN)/shellcheck) shellcheck) $(SHELL_SCRIPTS)
	$(BIN)/hadolint images/Dockerfile

.PHONY: format
format: setup ## fix and format the code with ruff
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

# Keeps the locked versions that pyproject.toml still allows; UPGRADE=--upgrade takes the newest versions.
UPGRADE ?=
COMPILE = $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --only-binary :all: \
  --custom-compile-command "make lock" --quiet $(UPGRADE)
# Python 3.13 is Debian trixie's. images/README.md has the reasons for the packages left out.
FOR_IMAGES = --python-version 3.13 $(addprefix --no-emit-package ,setuptools tensorboard-data-server wheel)
FOR_TRAINING = $(addprefix --no-emit-package ,\
  google-pasta grpcio libclang markdown markdown-it-py markupsafe mdurl pillow pygments werkzeug)

.PHONY: lock
lock: setup ## renew all lock files from pyproject.toml (UPGRADE=--upgrade: the newest versions)
	$(COMPILE) --python-version 3.10 --extra cpu --extra deploy --extra track --extra dev --extra docs \
	  --output-file requirements.lock pyproject.toml
	$(COMPILE) $(FOR_IMAGES) $(FOR_TRAINING) --extra cpu --output-file images/requirements-cpu.lock pyproject.toml
	$(COMPILE) $(FOR_IMAGES) $(FOR_TRAINING) --extra cuda --output-file images/requirements-cuda.lock pyproject.toml
	$(COMPILE) $(FOR_IMAGES) --output-file images/requirements-tensorboard.lock - <<< '$(TENSORBOARD)'
	$(COMPILE) $(FOR_IMAGES) $(addprefix --no-emit-package ,markdown-it-py mdurl pygments) -c requirements.lock \
	  --extra track --output-file images/requirements-track.lock pyproject.toml
	$(COMPILE) --python-version 3.10 $(addprefix --no-emit-package ,markdown-it-py mdurl pygments) -c requirements.lock \
	  --extra nvml --output-file images/requirements-supervisor.lock pyproject.toml
	$(COMPILE) --output-file images/requirements-uv.lock -c requirements.lock - <<< uv
	$(COMPILE) --python-version 3.11 --output-file bench/peers/requirements.lock - <<< $$'numpy\ntorch\nmatplotlib'
	$(COMPILE) --no-deps --output-file bench/peers/tf_keras.lock - <<< 'tf_keras==2.21.0'
	$(COMPILE) --python-version 3.10 --output-file tests/programs/tf215.lock tests/programs/tf215.in
	$(COMPILE) --python-version 3.10 -c requirements.lock --output-file tests/local/notebook.lock - <<< $$'ipykernel\nnbclient'
	$(COMPILE) --python-version 3.10 --output-file tests/programs/mlflow.lock - <<< mlflow

.PHONY: test-locks
test-locks: setup ## check that the package index has wheels of all locked packages for each platform
	$(call PYTEST) tests/locks

.PHONY: golden
golden: setup ## rewrite the expected texts of tests/golden; read the diff before you commit
	$(BIN)/pytest tests/golden --update-golden

# The variable silences mkdocs-material's announcement of MkDocs 2.
.PHONY: docs
docs: setup ## build the documentation in site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.PHONY: picture
picture: setup ## renew docs/table.svg, the live table of a real job
	$(BIN)/python -m tests.local.picture

.PHONY: clean
clean: ## remove .venv, .venv-peers, .venv-tf215, .venv-mlflow and all caches; keeps runs/
	rm -rf $(VENV) .venv-peers .venv-tf215 .venv-mlflow build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
