"""Pickles of values as 0.1.4 wrote them."""

from __future__ import annotations

import collections
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.legacy import unpickling as legacy

VALUES = [
    None,
    True,
    0,
    255,
    65536,
    -5,
    2**40,
    -(2**100),
    2.5,
    "tëxt",
    "x" * 300,
    "\ud800",
    b"bytes",
    b"b" * 300,
    bytearray(b"abc"),
    (),
    (1,),
    (1, 2),
    (1, 2, 3, (4, [5, {"a": 6, 7: "b"}])),
    collections.OrderedDict(b=1, a=2),
    np.int64(-5),
    np.uint8(5),
    np.float16(1.5),
    np.bool_(True),
    np.complex64(1 + 2j),
    ml_dtypes.bfloat16(2),
    ml_dtypes.float8_e5m2(1),
    np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    np.arange(20).reshape(4, 5)[::2],
    np.arange(4, dtype=">f4"),
    np.array(3.5),
    np.empty((0, 3), np.float32),
    np.empty((3, 0), object),
    np.array([True, False]),
    np.ones(3, ml_dtypes.bfloat16),
    np.ones(3, ml_dtypes.int4),
    np.array([[b"a", b""], [b"\0", b"abc"]], object),
    np.array(b"scalar", object),
    np.zeros(100_000, np.uint8),
]


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, np.ndarray):
        return (
            isinstance(got, np.ndarray)
            and got.shape == wanted.shape
            and got.dtype == wanted.dtype.newbyteorder("=")
            and bool((got == wanted).all())
        )
    return type(got) is type(wanted) and bool(got == wanted)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30].replace("\n", ""))
def test_values(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    got = legacy.load(data)
    assert same(got, value)
    assert same(legacy.load(memoryview(data)), value)
    if isinstance(got, np.ndarray):
        assert got.flags.writeable


def test_modules_of_numpy_1() -> None:
    value = (np.float32(3), np.array([b"a"], object))
    data = pickle.dumps(value, 3).replace(b"numpy._core", b"numpy.core")
    got = legacy.load(data)
    assert same(got[0], value[0])
    assert same(got[1], value[1])


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_quantized(protocol: int, byte_order: str) -> None:
    """Older releases of TensorFlow had structures for them."""
    value = np.arange(4, dtype=f"{byte_order}i2")
    structured = value.view([("qint16", f"{byte_order}i2")])
    assert same(legacy.load(pickle.dumps(structured, protocol)), value)
    assert same(legacy.load(pickle.dumps(structured[1], protocol)), np.int16(1))


def test_shared_parts() -> None:
    array = np.arange(3)
    got = legacy.load(pickle.dumps({"a": array, "b": (array, array)}, -1))
    assert got["a"] is got["b"][0] is got["b"][1]


def test_read_only_arrays_become_writable() -> None:
    array = np.arange(3)
    array.setflags(write=False)
    got = legacy.load(pickle.dumps(array, -1))
    got[0] = 7
    assert got.tolist() == [7, 1, 2]


NESTS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(NESTS, st.sampled_from([3, 4, 5]))
def test_nests(value: Any, protocol: int) -> None:
    assert legacy.load(pickle.dumps(value, protocol)) == value


def test_trace() -> None:
    value: dict[str, Any] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": (np.bool_(True), np.uint8(5)),
    }
    value["c"] = np.bool_(False)
    data = pickle.dumps(value, -1)
    traced = legacy.trace(data)
    assert traced is not None
    got, place = traced
    for array, wanted in ((got["a"], value["a"]), *zip(got["b"], value["b"], strict=True)):
        at = place(array)
        assert at is not None
        assert same(array, np.asarray(wanted))
        assert data[at : at + array.nbytes] == wanted.tobytes()
    assert len({place(got["a"]), place(got["b"][0]), place(got["b"][1]), place(got["c"])}) == 4
    assert place(np.arange(3)) is None


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(4, dtype=">f4"),
        np.array([b"a"], object),
    ],
    ids=["F order", "K order", "big-endian", "strings"],
)
@pytest.mark.parametrize("protocol", [4, 5])
def test_no_trace(value: Any, protocol: int) -> None:
    data = pickle.dumps((value, np.int64(3)), protocol)
    traced = legacy.trace(data)
    if traced is not None:
        # Protocol 4 stores an array of neither order as a copy in C order.
        (array, _), place = traced
        at = place(array)
        assert at is not None
        assert data[at : at + array.nbytes] == value.tobytes()
