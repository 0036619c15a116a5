"""Caches to read batches of."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from batch_rig import write

from yogadl.spec import TensorSpec


@pytest.fixture(scope="module")
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture
def ten(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of the numbers 0 … 9."""
    return write(tmp_path / "cache.mdb", TensorSpec("int64"), range(10))


@pytest.fixture
def wide(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of 60 records, of 8 kB and a number each."""
    spec = {"x": TensorSpec("int64", (1000,)), "y": TensorSpec("int16")}
    records = [{"x": np.full(1000, at), "y": np.int16(at)} for at in range(60)]
    return write(tmp_path / "wide.mdb", spec, records)
