"""Fixtures and settings for the whole suite."""

from __future__ import annotations

import os
import pathlib

import hypothesis
import pytest

# Before anything imports TensorFlow: no chatter, no search for GPUs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Two workers share two cores: how long an example takes says nothing.
hypothesis.settings.register_profile("yogadl", deadline=None, max_examples=40, print_blob=True)
# On Pythons beside the one on which all tests run; see the Makefile.
hypothesis.settings.register_profile("brief", deadline=None, max_examples=20, print_blob=True)
hypothesis.settings.load_profile("yogadl")


@pytest.fixture
def storage_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty directory for a storage."""
    directory = tmp_path / "storage"
    directory.mkdir()
    return directory
