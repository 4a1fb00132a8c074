# make demo, make test: each does all its own set-up (a virtual environment in .venv, pip) and runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
# The tests start hundreds of processes. Where none may write bytecode, each compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# What tests compare with, and browsers: its own virtual environment, so that $(VENV) is what a user has.
PEERS := .venv-peers
OUT := out

.PHONY: demo demo-ranks test test-all test-rest test-peers quick fuzz faults bench-cpu test-cuda-offline gpu-check gpu-check-rehearse gpu-check-wheels lint models reference pictures gallery docs docs-versions wheels wheels-check clean help

help:
	@echo "make demo    train on real digits, compare memory policies, write $(OUT)/demo.html"
	@echo "make demo-ranks   train them on one rank and on two, and compare the files"
	@echo "make test    run the tests: some minutes"
	@echo "make test-all   run all tests: those of make test, make test-rest and make test-peers, at once"
	@echo "make test-rest  those that make test leaves out: CUDA's kernels on the CPU, sanitizers, long cases, papers"
	@echo "make test-peers those beside PyTorch, OpenCV and other packages, which it installs into $(PEERS)"
	@echo "make test-torch [TORCH=2.6.0]   tests of minidnn.torch with another version of PyTorch (some GB)"
	@echo "make quick   run those tests that are quick, in about a minute"
	@echo "make faults  every fault at every call of a training that saves, kills, power cuts, loads: some minutes"
	@echo "make fuzz [MINUTES=1]   try new hostile inputs of every kind, and keep those that break a promise"
	@echo "make bench-cpu   a training iteration on the CPU beside PyTorch's: seconds and bytes (ARGS=\"--networks lenet:64\")"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make test-cuda-offline [CUDA=12|13]   the CUDA backend's tests that need no GPU (fetches 1 to 2 GB each)"
	@echo "make gpu-check   on a machine with a GPU: everything that only a GPU can show, in less than nine minutes"
	@echo "make gpu-check-rehearse   the same script without a GPU, in small: does it work?"
	@echo "make gpu-check-wheels   the wheels that it needs there, for a GPU machine that fetches nothing"
	@echo "make models  write the generated networks of models/ anew"
	@echo "make docs    build the site in $(OUT)/site, and run every command and all Python that it shows: some minutes"
	@echo "make docs-versions   build the site of each release beside that of the files as they are, in $(OUT)/versions"
	@echo "make reference  write docs/layers.md, docs/solver.md, docs/papers.md, docs/results.md and the JSON Schemas anew"
	@echo "make pictures   draw the pictures of docs/ anew (screenshots need Chromium)"
	@echo "make gallery    compute the papers' figures anew, and what docs/gallery shows of them: half an hour"
	@echo "make wheels  what goes to PyPI, of the last commit, into dist/: the sources, a wheel, a wheel for Linux with its C compiled"
	@echo "make wheels-check   make them, install the one for Linux on Python 3.10 to 3.14, and run minidnn demo on each"
	@echo "make clean   remove $(OUT), the virtual environments, wheels and what pip built"

# -- set-up: .run holds what the demo needs, .dev what the tests and linters need besides

$(BIN)/python:
	@for python in $${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue; \
	  if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "make: $$python has no venv module (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; \
	  fi; \
	  echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
	done; \
	echo "make: no Python of at least 3.10 is on the PATH (name one: make PYTHON=/path/to/python3 ...)" >&2; exit 1

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.run: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) -e '.[data,cpu]'
	@touch $@

$(VENV)/.ranks: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) -e '.[data,cpu,mpi]'
	@touch $@ $(VENV)/.run

$(VENV)/.dev: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) -e '.[data,cpu,dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e '.[data,cpu,dev,docs]'
	@touch $@

$(VENV)/.release: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) -e '.[data,cpu,release]'
	@touch $@ $(VENV)/.run

# A virtual environment with all that tests can use. PyTorch has one version, since comparisons are with its numbers.
$(PEERS)/.peers: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -e '.[data,cpu,dev,browser,pandas,peer,png]' torch==2.13.0
	@touch $@ $(PEERS)/.dev $(PEERS)/.run

# -- what to run

# Three processes for two cores: tests of signals, copies that are late and other processes wait.
PYTEST := pytest -n 3 --dist worksteal

test: $(VENV)/.dev
	$(BIN)/$(PYTEST) -m "not extended" $(TESTS)

test-all: $(PEERS)/.peers
	$(PEERS)/bin/$(PYTEST) $(TESTS)

# test, test-rest and test-peers together are test-all: no test is in two of them.
test-rest: $(VENV)/.dev
	$(BIN)/$(PYTEST) -m "extended and not peer" $(TESTS)

test-peers: $(PEERS)/.peers
	$(PEERS)/bin/$(PYTEST) -m peer $(TESTS)

# minidnn.torch stands on interfaces of PyTorch that change: its tests with the newest version.
TORCH := 2.14.1
.PHONY: test-torch $(TORCH:%=.torch-%)
test-torch: $(TORCH:%=.torch-%)

$(TORCH:%=.torch-%): .torch-%: .venv-torch-%/.ready
	@echo "== PyTorch $*"
	.venv-torch-$*/bin/$(PYTEST) -m "peer and not extended" tests/torch

.PRECIOUS: .venv-torch-%/.ready
.venv-torch-%/.ready: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[data,cpu,dev]' torch==$*
	@touch $@

# The tests that are not marked slow: about a minute on two idle cores. Each folder of tests has some.
quick: $(VENV)/.dev
	$(BIN)/$(PYTEST) -m "not slow and not extended" $(TESTS)

# ARGS="--only errors,kills,power,random,trainers,long --json" (tests/faults/__main__.py)
faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults $(ARGS)

# Ends with 1 if a case broke a promise. KINDS=hdf5,tar for some kinds; ARGS="--seed 7 --json FILE"
MINUTES := 1
KINDS :=
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(KINDS),--kinds $(KINDS)) $(ARGS)

bench-cpu: $(PEERS)/.peers
	$(PEERS)/bin/python benchmarks/cpu.py $(ARGS)

# What of the CUDA backend can be proved without a GPU: kernels compile, cuDNN plans exist, schedules hold. Each CUDA
# version in a virtual environment of its own, with the libraries that the GPU machines have (setup.cfg, cuda*-test).
# A test that skips proves nothing, so the reasons of any are shown, and at the end what was counted.
CUDA := 13 12
OFFLINE := $(patsubst %,.offline-cuda%,$(CUDA))

test-cuda-offline: $(OFFLINE)

.PHONY: $(OFFLINE)
$(OFFLINE): .offline-cuda%: .venv-cuda%/.ready
	@echo "== CUDA $*"
	.venv-cuda$*/bin/python -m pytest -n 2 --dist worksteal -rs --tell tests/backends/cuda

.PRECIOUS: .venv-cuda%/.ready
.venv-cuda%/.ready: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[data,cpu,dev,cuda$*-test]'
	@touch $@

# With the python3 that is there: nothing is installed. ARGS="--only a,b --again" ...
gpu-check:
	python3 -m benchmarks.gpu_check $(ARGS)

# The same script in small on a CUDA of the host's memory, without limits of time, and what it has to leave behind.
gpu-check-rehearse: $(VENV)/.dev
	$(BIN)/pytest --timeout 0 tests/benchmarks/rehearse_gpu_check.py

# For a machine where nothing can be fetched (requirements/gpu-check.txt): Python 3.12's wheels, into .whl.
gpu-check-wheels:
	python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
	  $(foreach N,2_28 2_27 2_17,--platform manylinux_$(N)_x86_64) --platform manylinux2014_x86_64 \
	  --dest .whl -r requirements/gpu-check.txt
	@du -sh .whl

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python models/generate.py --check
	$(BIN)/python docs/generate.py --check

models: $(VENV)/.run
	$(BIN)/python models/generate.py

# The pages of layers and solvers and the JSON Schemas for editors, from the schema's table.
reference: $(VENV)/.run
	$(BIN)/python docs/generate.py

wheels: $(VENV)/.release
	$(BIN)/python release/wheels.py

# As a stranger does: empty environments, no compiler on the PATH. ARGS="--python /path/to/python3.14"
wheels-check: wheels
	$(BIN)/python release/check.py $(ARGS)

demo: $(VENV)/.run
	$(BIN)/minidnn demo --out $(OUT)

# One rank with two micro-batches, and two ranks with one each, train the same network, byte for byte. The ranks divide
# the cores; no bit depends on the number of threads.
SOLVER := models/digits_solver.yaml
NEWEST := _iter_250.safetensors

demo-ranks: export PATH := $(abspath $(BIN)):$(PATH)
demo-ranks: $(VENV)/.ranks
	@mkdir -p $(OUT)
	$(BIN)/minidnn train $(SOLVER) --iter-size 2 --snapshot-prefix $(OUT)/one
	@echo
	mpiexec -n 2 minidnn train $(SOLVER) --snapshot-prefix $(OUT)/two
	cmp $(OUT)/one$(NEWEST) $(OUT)/two$(NEWEST)
	@echo "The same bytes: two ranks, and one rank with iter_size 2, trained the same network."

# The pictures of the documents, by the commands that stand beside them there.
SMALL := resnet20 --batch 256 --gpu titan_x --budget 300MiB
DRAWN := base vdnn superneurons layrub accudnn recompute recompute_cheap capuchin dtr checkmate best
base := baseline:p,liveness:p
vdnn := baseline:p,vdnn_all:p,vdnn_pp:p
superneurons := baseline:p,superneurons
layrub := baseline:p,layrub:p
accudnn := baseline:p,accudnn:p
recompute := baseline:p,sqrt_n:p,recompute_all:p
recompute_cheap := baseline:p,recompute_cheap:p
capuchin := baseline:p,capuchin:p
dtr := baseline:p,dtr:p
checkmate := baseline:p,checkmate:p,monet
best := baseline:p,best

pictures: $(VENV)/.run $(PEERS)/.peers
	$(BIN)/minidnn compare vgg19 --batch 256 --gpu titan_x --budget 12GiB --policies baseline:p,vdnn_all:m,vdnn_dyn \
	  --report docs/comparison.svg > /dev/null
	$(foreach name,$(DRAWN),$(BIN)/minidnn compare $(SMALL) --policies $($(name)) --report docs/policies/$(name).svg > /dev/null;)
	$(foreach gpu,titan_x h200,$(BIN)/minidnn frontier resnet50 --batch 128 --gpu $(gpu) \
	  --policies superneurons,accudnn,recompute_cheap,sqrt_n \
	  --report docs/frontier/resnet50$(if $(findstring h200,$(gpu)),_h200).svg > /dev/null;)
	$(BIN)/minidnn frontier vgg19 --batch 64 --gpu titan_x --policies vdnn_dyn,superneurons,accudnn --points 14 \
	  --report docs/frontier/vgg19.svg > /dev/null
	$(BIN)/minidnn plan models/digits_lenet.yaml --gpu titan_x --budget 2.5MiB --policies vdnn_all:m,best \
	  --arena docs/howto/arena.svg > /dev/null
	$(BIN)/minidnn plan resnet50 --batch 64 --gpu h100 --ranks 1,2,4,...,1024 --link 8xnvlink4+8xib400 \
	  --report docs/ranks.svg > /dev/null
	$(BIN)/minidnn board resnet20:256 --report docs/board.svg > /dev/null
	$(PEERS)/bin/python -m benchmarks.torch_rivals --draw docs/torch.svg  # of what --save has written
	$(PEERS)/bin/python docs/screenshots.py

# Every figure of the papers: the rows, and what is made of them.
SYSTEMS := vdnn vdnnpp superneurons layrub accudnn
gallery: $(VENV)/.run
	$(foreach system,$(SYSTEMS),$(BIN)/minidnn reproduce $(system) --report docs/gallery/$(system).csv > /dev/null;)
	$(BIN)/python docs/generate.py

# The site, where a link that leads nowhere is an error, and then what its pages show. ARGS="-k tutorial". SHOWN=write
# puts what is printed now into the pages: read the difference before you commit it.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs $(OUT)/site
	$(BIN)/$(PYTEST) --tell tests/site/check_*.py $(ARGS)
	@echo "$(OUT)/site/index.html"

# The sites of all releases, by their tags, and of the files as they are, as they are published.
docs-versions: $(VENV)/.docs
	$(BIN)/python docs/versions.py $(OUT)/versions

clean:
	rm -rf $(OUT) $(VENV) $(PEERS) .venv-cuda12 .venv-cuda13 .whl build dist *.egg-info
