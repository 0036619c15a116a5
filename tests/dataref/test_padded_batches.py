"""``stream.batches(pad=…)``: arrays of varying shape as one array."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

import numpy as np
import pytest
from batch_rig import always_in_a_thread, in_batches, padded, stacked, write
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, data_sets, same, structures

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, Sparse, SparseSpec, TensorSpec


def varies(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec) and not leaf.is_string and leaf.static_shape is None


# One of them is unknown at least.
ranked = st.lists(st.integers(0, 3) | st.none(), min_size=1, max_size=3).map(tuple)
varying_leaves = st.builds(TensorSpec, st.sampled_from(NUMBERS), ranked)
other_leaves = st.sampled_from(
    [TensorSpec("string"), TensorSpec("string", (None,)), TensorSpec("int16", (2,)),
     specs.NoneSpec(), OptionalSpec(TensorSpec("int8")), SparseSpec("int32", (None,)),
     RaggedSpec("int32", (None, None), 1, "int64")]
)  # fmt: skip


@given(
    data_set=data_sets(structures(varying_leaves | other_leaves), max_size=7),
    size=st.integers(1, 4),
    busy=st.booleans(),
    data=st.data(),
)
def test_padded_batches(
    folder: pathlib.Path, data_set: Any, size: int, busy: bool, data: st.DataObject
) -> None:
    spec, records = data_set
    leaves = list(specs.leaves(spec))
    # 1 is a number that every dtype has.
    everywhere = data.draw(st.booleans())
    values = [1 if varies(x) and (everywhere or data.draw(st.booleans())) else None for x in leaves]
    with LMDBDataRef(write(folder / "padded.mdb", spec, records)) as dataref:
        pad = 1 if everywhere else specs.unflatten(spec, values)
        batches = dataref.stream().batches(size, pad=pad)
        with always_in_a_thread() if busy else contextlib.nullcontext():
            found = list(batches)
        expected = [padded(spec, b, values) for b in in_batches(spec, records, size)]
        assert same(found, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", -1),
        ("int64", np.int8(-3)),
        ("uint8", 255),
        ("float32", -1e9),
        ("float32", float("nan")),
        ("float64", 0.1),
        ("float32", 0.1),
        ("float32", float("-inf")),
        ("bool", True),
        ("bfloat16", float("nan")),
        ("float16", 0.5),
        ("complex64", 1j),
    ],
)
@pytest.mark.parametrize("shape", [(None,), (None, 2), (2, None), (None, None)])
def test_pad_values(dtype: str, value: Any, shape: Any, tmp_path: pathlib.Path) -> None:
    made = [
        np.ones([at if dim is None else dim for dim in shape], dtypes.to_numpy(dtype))
        for at in (2, 0, 3, 1)
    ]
    path = write(tmp_path / "cache.mdb", TensorSpec(dtype, shape), made)
    with LMDBDataRef(path) as dataref:
        found = list(dataref.stream().batches(2, pad=value))
        expected = [padded(dataref.spec, made[at : at + 2], [value]) for at in (0, 2)]
        assert same(found, expected)
        assert same(list(dataref.stream().batches(2, pad=np.array(value))), expected)


PADDED_SPEC = {
    "tokens": TensorSpec("int32", (None,)),
    "scores": TensorSpec("float32", (None, 2)),
    "text": TensorSpec("string", (None,)),
    "any": TensorSpec("int64", None),
    "size": TensorSpec("int64"),
}
NONE = dict.fromkeys(PADDED_SPEC)


@pytest.mark.parametrize(
    "pad",
    [
        0,  # "any" has no rank
        {**NONE, "any": 0},
        {**NONE, "text": b""},
        {**NONE, "text": 0},
        {**NONE, "size": 0},
        {**NONE, "tokens": 2**40},
        {**NONE, "tokens": 2**70},
        {**NONE, "tokens": 0.5},
        {**NONE, "tokens": float("nan")},
        {**NONE, "tokens": float("inf")},
        {**NONE, "tokens": 1j},
        {**NONE, "tokens": "a"},
        {**NONE, "tokens": [0]},
        {**NONE, "tokens": np.zeros(2, "i4")},
        {**NONE, "scores": "nan"},
        {**NONE, "scores": 1e300},
        {"tokens": 0},
        {**NONE, "more": 0},
        (0, None, None, None, None),
        [],
        "0",
    ],
    ids=repr,
)
def test_pads_that_do_not_fit(pad: Any, tmp_path: pathlib.Path) -> None:
    record = {
        "tokens": np.zeros(1, "i4"), "scores": np.zeros((1, 2), "f4"),
        "text": np.array([b"a"], object), "any": np.zeros(1, "i8"), "size": np.int64(1),
    }  # fmt: skip
    with LMDBDataRef(write(tmp_path / "cache.mdb", PADDED_SPEC, [record])) as dataref:
        with pytest.raises(InvalidArgumentError):
            dataref.stream().batches(2, pad=pad)
        (batch,) = dataref.stream().batches(2, pad={**NONE, "tokens": 0, "scores": -1})
        assert batch["scores"].shape == (1, 1, 2)


def test_ragged_and_sparse_values_beside_padded_ones(tmp_path: pathlib.Path) -> None:
    spec = {
        "tokens": TensorSpec("int32", (None,)),
        "rows": RaggedSpec("int32", (None, None), 1, "int64"),
        "cells": SparseSpec("int32", (None,)),
    }
    records = [
        {
            "tokens": np.arange(at, dtype="i4"),
            "rows": Ragged(np.arange(3, dtype="i4"), (np.array([0, 1, 3]),)),
            "cells": Sparse(np.array([[at]]), np.array([at], "i4"), np.array([5])),
        }
        for at in range(4)
    ]
    with LMDBDataRef(write(tmp_path / "cache.mdb", spec, records)) as dataref:
        (plain,) = dataref.stream().batches(4)
        (batch,) = dataref.stream().batches(4, pad=0)
        assert same(plain, stacked(spec, records))
        assert same(batch, padded(spec, plain, [None, None, 0]))
