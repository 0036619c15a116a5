# make quickstart   set up, then run the walkthrough and train on handwritten digits
# make test         set up, then run the tests, but for those of frameworks other than TensorFlow,
#                   and those that take longest
# make test-torch   the same for PyTorch, in .venv-torch, which has no TensorFlow
# make test-others  the same for the other frameworks, in .venv-others
# make test-ray     the same for Ray and Dask, in .venv-ray
# make test-pythons the tests that need no framework, on every Python that is supported, but for
#                   long ones of which the version of Python makes no difference
# make test-long    set up, then run the tests that take longest, which are in none of the above
# make properties   the tests of properties, with ten times as many examples
# make outages      the tests of outages and faults at full length: half a minute is half a minute
# make gc           collect for MINUTES (10) while all else goes on and is killed, on disk and in buckets
# make soak         kill, cut, damage and fill for MINUTES (10), by SEED if given; see tests/soak
# make kills        kill KILLS (1000) processes amid random operations on KIND (all: disk, s3, gcs),
#                   by SEED if given, and compare what is there at the end
# make bench        measure this yogadl and its peers, each in an environment of its own
# make bench-smoke  only see whether the benchmark works, in seconds
# All set-up happens in .venv; PYTHON chooses the interpreter it is made from.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
WORKERS ?= 2
# Tests of one file share what takes long to set up, and the last ones should not take long.
SPREAD = -n $(WORKERS) --dist worksteal
BRIEF = $(SPREAD) -m "not long"
# The oldest is in CI, beside the one that runs all tests. Each has an environment of its own,
# .venv-3.10 and so on.
PYTHONS ?= 3.10 3.11 3.12 3.13
ON_PYTHONS ?= tests/test_*.py tests/adapters tests/cache tests/dataref tests/format tests/loaders \
	tests/profiles tests/recipes tests/remote tests/rw_coordinator tests/storage tests/versions

# TensorFlow tells much that no newcomer needs, some of it before it can be told not to.
export TF_CPP_MIN_LOG_LEVEL ?= 1
# Without the bytecode of what is installed, each of thousands of processes would compile it anew.
unexport PYTHONDONTWRITEBYTECODE
SHELL = /bin/bash
QUIETLY = 2> >(grep -vE '^[IWE][0-9]{4} |^WARNING: All log messages before absl' >&2)

.PHONY: quickstart test test-long properties test-torch test-others test-ray test-pythons outages gc soak kills lint docs bench bench-smoke clean

quickstart: $(VENV)/.examples
	$(BIN)/python examples/walkthrough.py $(QUIETLY)
	$(BIN)/python examples/mnist.py $(QUIETLY)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(BRIEF)

test-long: $(VENV)/.test
	$(MAKE) VENV=.venv-torch .venv-torch/.test-torch
	$(MAKE) VENV=.venv-others .venv-others/.test-others
	$(MAKE) VENV=.venv-ray .venv-ray/.test-ray
	$(BIN)/python -m pytest $(SPREAD) -m long
	.venv-torch/bin/python -m pytest $(SPREAD) -m long tests/pytorch tests/examples
	KERAS_BACKEND=jax .venv-others/bin/python -m pytest $(SPREAD) -m long tests/keras3 tests/jax_grain
	.venv-ray/bin/python -m pytest -m long tests/ray_cluster

# hypothesis marks what draws examples.
properties: $(VENV)/.test
	$(BIN)/python -m pytest $(SPREAD) --timeout 3000 --hypothesis-profile=many -m "hypothesis and not long"

test-torch:
	$(MAKE) VENV=.venv-torch .venv-torch/.test-torch
	.venv-torch/bin/python -m pytest $(BRIEF) tests/pytorch tests/loaders/test_loader_torch.py \
		tests/adapters/test_adapter_convert.py tests/adapters/test_adapter_torch.py \
		tests/adapters/test_adapter_traps.py tests/adapters/test_adapter_whole_columns.py \
		tests/adapters/test_adapter_workers.py tests/docs/test_code_blocks.py \
		tests/examples/test_distributed_examples.py tests/test_imports.py \
		tests/recipes/test_processes.py::test_expressions_of_classes_of_ones_own \
		tests/recipes/test_processes.py::test_what_an_object_says_of_itself_does_not_count \
		tests/recipes/test_values_of_others.py \
		tests/remote/test_remote_adapters.py

# JAX has threads and warns of forks, which the workers of PyTorch and TensorPack are. So tests that
# use JAX and tests that fork run in different processes.
test-others:
	$(MAKE) VENV=.venv-others .venv-others/.test-others
	KERAS_BACKEND=jax .venv-others/bin/python -m pytest $(BRIEF) tests/jax_grain tests/keras3 \
		"tests/docs/test_code_blocks.py::test_blocks_run[huggingface-jax.md]" \
		"tests/docs/test_code_blocks.py::test_blocks_run[jax.md]" \
		tests/loaders/test_loader_jax.py tests/loaders/test_loader_keras.py \
		tests/loaders/test_loader_grain.py \
		tests/recipes/test_values_of_others.py \
		tests/remote/test_remote_adapters.py::test_jax \
		tests/remote/test_remote_adapters.py::test_keras
	KERAS_BACKEND=torch .venv-others/bin/python -m pytest $(BRIEF) tests/adapters \
		tests/dataflow tests/loaders/test_loader_tensorpack.py \
		tests/keras3/test_keras_dataset.py

# Each process of the tests starts clusters of its own, and can be part of one at a time.
test-ray:
	$(MAKE) VENV=.venv-ray .venv-ray/.test-ray
	.venv-ray/bin/python -m pytest -m "not long" tests/ray_cluster
	.venv-ray/bin/python -m pytest tests/storage/test_dask.py tests/cloud/test_cloud_dask.py \
		"tests/docs/test_code_blocks.py::test_blocks_run[building-elsewhere.md]"
	.venv-ray/bin/python -m pytest "tests/docs/test_code_blocks.py::test_blocks_run[ray.md]"

test-pythons:
	set -e; for version in $(PYTHONS); do \
		python=$$(.ci/find-python $$version); \
		$(MAKE) VENV=.venv-$$version PYTHON=$$python .venv-$$version/.test-pythons; \
		.venv-$$version/bin/python -m pytest $(SPREAD) -m "not once and not long" \
			$(ON_PYTHONS); \
	done

# They mostly wait.
outages: WORKERS = 4
outages: $(VENV)/.test
	YOGADL_OUTAGES=full $(BIN)/python -m pytest $(SPREAD) --durations=10 \
		tests/cloud/test_cloud_outages.py tests/cloud/test_cloud_faults.py \
		tests/cloud/test_cloud_changes.py tests/cloud/test_far_outages.py \
		tests/remote/test_remote_faults.py tests/storage/test_changes_at_once.py

MINUTES ?= 10
gc: $(VENV)/.test
	YOGADL_GC_SECONDS=$$((60 * $(MINUTES))) $(BIN)/python -m pytest $(SPREAD) \
		tests/storage/test_gc_load.py tests/cloud/test_cloud_gc_load.py

soak: $(VENV)/.test
	$(BIN)/python tests/soak/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

KILLS ?= 1000
KIND ?= all
kills: $(VENV)/.test
	$(BIN)/python tests/soak/kills.py --kills $(KILLS) --kind $(KIND) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

bench-smoke: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py --smoke >/dev/null
	$(BIN)/python benchmarks/far.py --parts peers --rounds 1 --scale 0.01 --results build/far-smoke >/dev/null

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip

$(VENV)/.%: pyproject.toml | $(BIN)/python
	# What is imported is compiled then.
	$(BIN)/python -m pip install -qq --no-compile --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) .venv-torch .venv-others .venv-ray .venv-3.* build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache
