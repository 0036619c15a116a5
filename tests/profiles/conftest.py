"""Data sets for the tests of profiles."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
from stored import write

from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[LMDBDataRef]:
    """A hundred records of more than a page, fixed in size."""
    spec = {"image": TensorSpec("uint8", (100, 100)), "label": TensorSpec("int64")}
    records = ({"image": np.full((100, 100), n, "u1"), "label": np.int64(n)} for n in range(100))
    with write(tmp_path / "images.mdb", spec, records) as dataref:
        yield dataref


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> Iterator[LMDBDataRef]:
    """Byte strings from nothing to two pages."""
    values = (b"x" * (n * 100) for n in range(100))
    with write(tmp_path / "texts.mdb", TensorSpec("string"), values) as dataref:
        yield dataref
