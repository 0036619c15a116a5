"""``Spans``: arrays of varying length, one by one, joined or padded, and always the same values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, same

from yogadl import dtypes
from yogadl.cache.spans import Spans, pad_arrays
from yogadl.errors import ChecksumError
from yogadl.spec import TensorSpec

Array = np.ndarray[Any, Any]


class Case:
    """Arrays that lie in a buffer, each at an offset of its own, and the spans of them."""

    def __init__(self, spec: TensorSpec, lengths: list[int], gaps: list[int], tail: int) -> None:
        assert spec.shape is not None
        dtype = dtypes.to_numpy(spec.dtype)
        step = math.prod(dim for dim in spec.shape if dim is not None) * dtype.itemsize
        parts, starts, at = [], [], 0
        random = np.random.RandomState(len(lengths))
        self.arrays = []
        for length, gap in zip(lengths, gaps, strict=True):
            # Numbers that are the same whatever a dtype makes of their bytes: no NaNs.
            values = random.randint(0, 2, length * step // dtype.itemsize).astype(dtype)
            shape = [length if dim is None else dim for dim in spec.shape]
            self.arrays.append(values.reshape(shape))
            parts += [np.full(gap, 255, "u1"), values.view("u1").reshape(-1)]
            starts.append(at + gap)
            at += gap + length * step
        self.buffer = np.concatenate([np.empty(0, "u1"), *parts, np.full(tail, 255, "u1")])
        self.starts = np.array(starts, "i8")
        self.sizes = np.array([array.nbytes for array in self.arrays], "i8")
        self.dtype = dtype
        self.spec = spec

    def spans(self) -> Spans:
        return Spans(self.buffer, self.spec, self.dtype, self.starts, self.sizes)


@st.composite
def cases(draw: st.DrawFn, min_size: int = 0) -> Case:
    dims = draw(st.lists(st.integers(1, 3), max_size=2))
    dims.insert(draw(st.integers(0, len(dims))), None)  # type: ignore[call-overload]
    lengths = draw(st.lists(st.integers(0, 5), min_size=min_size, max_size=8))
    gaps = draw(st.lists(st.integers(0, 9), min_size=len(lengths), max_size=len(lengths)))
    spec = TensorSpec(draw(st.sampled_from(NUMBERS)), tuple(dims))
    return Case(spec, lengths, gaps, draw(st.integers(0, 40)))


@given(case=cases())
def test_arrays_are_the_values(case: Case) -> None:
    spans = case.spans()
    assert len(spans) == len(case.arrays)
    found = spans.arrays()
    assert same(found, case.arrays)
    for array in found:
        assert array.flags.writeable
        assert not np.shares_memory(array, case.buffer)


@given(case=cases())
def test_joined_are_the_values_one_behind_the_other(case: Case) -> None:
    whole, counts = case.spans().joined()
    assert (whole.dtype, counts.dtype) == (case.dtype, np.int64)
    assert counts.tolist() == [array.size for array in case.arrays]
    empty = np.empty(0, case.dtype)
    assert same(whole, np.concatenate([empty, *map(np.ravel, case.arrays)]))
    assert not np.shares_memory(whole, case.buffer)


@given(case=cases(min_size=1))
def test_padded_are_the_values_padded(case: Case) -> None:
    value = np.asarray(1).astype(case.dtype)
    found = case.spans().padded(value)
    assert same(found, pad_arrays(case.arrays, value))
    assert found.flags.writeable
    assert not np.shares_memory(found, case.buffer)
    for row, array in zip(found, case.arrays, strict=True):
        assert same(row[tuple(map(slice, array.shape))].copy(), array)


@given(case=cases(), start=st.integers(-9, 9), stop=st.integers(-9, 9))
def test_a_slice_is_of_the_values(case: Case, start: int, stop: int) -> None:
    part = slice(start, stop)
    assert same(case.spans()[part].arrays(), case.arrays[part])
    assert same(case.spans()[part][:1].arrays(), case.arrays[part][:1])


@pytest.mark.parametrize("lengths", [[5, 1], [1, 5], [5, 5], [5, 0], [0, 5], [3, 5, 2, 0]])
@pytest.mark.parametrize("tail", [0, 1, 7, 8, 31, 32, 40])
def test_padded_at_the_very_end_of_the_buffer(lengths: list[int], tail: int) -> None:
    case = Case(TensorSpec("int64", (None,)), lengths, [0] * len(lengths), tail)
    value = np.array(-7)
    found = case.spans().padded(value)
    assert found.shape == (len(lengths), 5)
    for row, array in zip(found, case.arrays, strict=True):
        assert row.tolist() == array.tolist() + [-7] * (5 - len(array))


def test_padded_where_all_are_empty() -> None:
    case = Case(TensorSpec("float32", (None,)), [0, 0], [3, 0], 0)
    assert case.spans().padded(np.array(1, "f4")).shape == (2, 0)
    case = Case(TensorSpec("float32", (None, 2)), [0, 0], [3, 0], 0)
    assert case.spans().padded(np.array(1, "f4")).shape == (2, 0, 2)


@given(
    shapes=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=5),
    dtype=st.sampled_from(["int8", "float64", "bool"]),
)
def test_pad_arrays_fills_up_at_the_ends(shapes: list[tuple[int, ...]], dtype: str) -> None:
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    found = pad_arrays(arrays, np.array(1, dtype))
    assert found.dtype == dtype
    assert found.shape == (len(shapes), *np.array(shapes).max(axis=0))
    for row, array in zip(found, arrays, strict=True):
        inside = np.zeros(row.shape, bool)
        inside[tuple(map(slice, array.shape))] = True
        assert (row == ~inside).all()


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (TensorSpec("int64", (None,)), 7),
        (TensorSpec("int64", (None,)), 9),
        (TensorSpec("int16", (None, 3)), 8),
        (TensorSpec("int16", (3, None)), 2),
        (TensorSpec("complex128", (None,)), 8),
    ],
)
def test_sizes_that_do_not_divide(spec: TensorSpec, size: int) -> None:
    buffer, dtype = np.zeros(100, "u1"), dtypes.to_numpy(spec.dtype)
    starts = np.zeros(3, "i8")
    Spans(buffer, spec, dtype, starts, np.array([0, 48, 96]))
    with pytest.raises(ChecksumError, match="does not fit"):
        Spans(buffer, spec, dtype, starts, np.array([0, size, 48]))
