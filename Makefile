# SPDX-License-Identifier: Apache-2.0
#
# Everything runs in .venv, which the first target that needs it makes.
#
# Without a GPU the CPU wheel of torch is the smaller choice by some gigabytes: set PIP_INDEX_URL,
# PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to where you get it. They reach pip untouched.

PYTHON = python3
# A device in the environment counts as well; the command line wins.
DEVICE = $(or $(ASSAY_DEVICE),auto)
# Each worker holds torch and one kernel's operands, so a few are enough; ask for more if you like.
WORKERS = $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 2 ? cores : 2)))
# Small N and few trials, some minutes without a GPU: `make audit AUDIT_ARGS=` measures it all.
AUDIT_ARGS = --quick
PYTEST_ARGS =

BIN = .venv/bin
export ASSAY_DEVICE := $(DEVICE)

ifeq ($(filter auto cuda interpreter,$(DEVICE)),)
$(error DEVICE is '$(DEVICE)': expected auto, cuda or interpreter)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help audit test gpu-test lint clean

help: ## Show this list
	@awk -F ': .*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'DEVICE=auto|cuda|interpreter  where kernels run ($(DEVICE))'
	@echo 'PYTHON=...                    Python 3.11 to 3.13 for .venv ($(PYTHON))'
	@echo 'WORKERS=N                     processes of make test ($(WORKERS))'
	@echo 'AUDIT_ARGS=... PYTEST_ARGS=...  passed on'

audit: .venv/.installed ## Measure error against N for every kernel; writes assay-report/
	$(BIN)/assay audit $(AUDIT_ARGS)

test: .venv/.installed ## Run all tests, on a GPU if there is one
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

# In one process, and a skipped GPU test is a failure: this is the proof that they ran.
gpu-test: .venv/.installed ## Run all tests on a GPU; fail if there is none or any was skipped for it
	ASSAY_DEVICE=cuda $(BIN)/pytest --require-gpu $(PYTEST_ARGS)

lint: .venv/.installed ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PYTHON='$(CURDIR)/$(BIN)/python' tools/typecheck.sh

clean: ## Remove .venv, builds and caches; reports and witnesses stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two ways in which a fresh machine is not ready, each told in one line.
define CHECK_PYTHON
import sys
version = "%d.%d" % sys.version_info[:2]
if version not in ("3.11", "3.12", "3.13"):
    sys.exit("assay needs Python 3.11, 3.12 or 3.13 and $(PYTHON) is %s: try make PYTHON=python3.12" % version)
try:
    import ensurepip, venv
except ImportError:
    sys.exit("$(PYTHON) cannot make virtual environments: install the packages make and python3-venv "
             "(as Debian calls them; on a GPU, Triton needs gcc and python3-dev too)")
endef
export CHECK_PYTHON

# The stamp is written last, so that an installation which was cut short is taken up again.
.venv/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo '$(PYTHON) not found: install Python 3.11, 3.12 or 3.13 with its venv (Debian: python3-venv)' >&2; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON"
	$(PYTHON) -m venv .venv
# The build backend first and from the pins: pip applies them to no isolated build.
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[fast,dev]'
	touch $@
