"""Fixtures and settings for the whole suite."""

from __future__ import annotations

import gc
import os
import pathlib

import hypothesis
import pytest

# Before anything imports TensorFlow: no chatter, no search for GPUs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Two workers share two cores: how long an example takes says nothing.
# Every run draws others, and make properties draws many.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.register_profile("yogadl", _PATIENT, max_examples=20)
hypothesis.settings.register_profile("many", _PATIENT, max_examples=200)
hypothesis.settings.load_profile("yogadl")


@pytest.hookimpl(tryfirst=True)  # before they are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        values = [value for marker in item.iter_markers("long_for") for value in marker.args]
        callspec = getattr(item, "callspec", None)  # of tests with parameters
        params = [] if callspec is None else callspec.params.values()
        if any(getattr(param, "__name__", param) in values for param in params):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    # What was imported so far stays, and need not be looked at by every collection.
    gc.collect()
    gc.freeze()


@pytest.fixture
def storage_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty directory for a storage."""
    directory = tmp_path / "storage"
    directory.mkdir()
    return directory
