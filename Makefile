# make train   set up, then train the default model on four emulated systems
# make test    set up, then run the test suite
# make check   format, lint, types, import contracts, size
# make nightly set up, then run the tests that the suite leaves out for time
# make cover   run the test suite and report the coverage of every package
# make docs    install what it needs, then build the documentation site in build/site
# make size    print lines and files of each package beside their budget
# make bench   measure streaming against not streaming
# make witness compare weights, picoseconds and predictions with the record, after code has moved
.PHONY: train test nightly check cover size bench witness docs clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two processes; a file runs in one of them, and files start in the order of their folders.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder

# Tests start many processes, which would each compile all that they import.
unexport PYTHONDONTWRITEBYTECODE

# The three distributions of the repository in one command, the one that the others need first. Its argument is an extra.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock \
	--editable '.[$(1)]' --editable ./modelzoo --editable ./waferstream_compat

$(STAMP): pyproject.toml modelzoo/pyproject.toml waferstream_compat/pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(call INSTALL,dev)
	@touch $(STAMP)

train: $(STAMP)
	$(BIN)/python run.py --params params.yaml --num_csx=4 --model_dir model_dir

test: $(STAMP)
	$(PYTEST)

nightly: $(STAMP)
	$(PYTEST) -m nightly -o faulthandler_timeout=7200

cover: $(STAMP)
	$(PYTEST) --cov --cov-report=term:skip-covered

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.size

size: $(STAMP)
	$(BIN)/python -m scripts.size

bench: $(STAMP)
	$(BIN)/python -m benchmarks.streaming --json benchmarks/results/streaming.json

witness: $(STAMP)
	$(BIN)/python -m scripts.witness

docs: $(STAMP)
	$(call INSTALL,docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

clean:
	rm -rf $(VENV) model_dir build *.egg-info
