"""Arrays of JAX in the records of a data set that is stored."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from yogadl.storage import LFSConfigurations, LFSStorage

jnp = pytest.importorskip("jax.numpy")


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_they_become_numpy_arrays(storage_dir: pathlib.Path, dtype: str) -> None:
    storage = LFSStorage(LFSConfigurations(str(storage_dir)))
    storage.submit([{"x": jnp.arange(3, dtype=dtype) * n} for n in range(4)], "data", "1.0")
    with storage.fetch("data", "1.0").stream() as stream:
        found = [record["x"] for record in stream]
    assert all(type(array) is np.ndarray and array.dtype.name == dtype for array in found)
    assert [array.tolist() for array in found] == [[0, n, 2 * n] for n in range(4)]
