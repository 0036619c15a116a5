"""Records to bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import data_sets, element_specs, records, same, static_specs

from yogadl import spec as specs
from yogadl.errors import ChecksumError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec
from yogadl.format.components import join_record, split_record
from yogadl.spec import (
    NoneSpec,
    OptionalSpec,
    Ragged,
    RaggedSpec,
    Sparse,
    SparseSpec,
    TensorSpec,
)


@pytest.mark.once
@given(data_set=data_sets())
def test_encode_and_decode_are_inverse(data_set: tuple[Any, list[Any]]) -> None:
    spec, found = data_set
    codec = RecordCodec(spec)
    for record in found:
        content = codec.encode(record)
        assert same(codec.decode(content), record)
        assert same(codec.decode(memoryview(content)), record)
        assert len(content) % 8 == 0
        if codec.layout.content_size is not None:
            assert len(content) == codec.layout.content_size


@given(data_set=data_sets(max_size=2))
def test_split_and_join_are_inverse(data_set: tuple[Any, list[Any]]) -> None:
    spec, found = data_set
    for record in found:
        assert same(join_record(spec, split_record(spec, record)), record)


@given(data=st.data(), spec=static_specs)
def test_columns_are_encoded_as_records_are(data: st.DataObject, spec: Any) -> None:
    found = data.draw(st.lists(records(spec), min_size=1, max_size=6))
    codec = RecordCodec(spec)
    assert codec.layout.content_size is not None
    rows = [codec.components(record) for record in found]
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    # A view with gaps between its rows, as the writer gives.
    out = np.zeros((len(found), codec.layout.content_size + 24), "u1")
    codec.encode_columns(columns, out[:, 16:-8])
    assert [row.tobytes() for row in out[:, 16:-8]] == [codec.encode(row) for row in found]
    assert not out[:, :16].any()
    assert not out[:, -8:].any()


@given(data=st.data(), spec=element_specs)
def test_decoded_arrays_are_writable_and_their_own(data: st.DataObject, spec: Any) -> None:
    codec = RecordCodec(spec)
    content = codec.encode(data.draw(records(spec)))
    buffer = bytearray(content)
    for value in (*codec.decode_components(content), *codec.decode_components(memoryview(buffer))):
        if isinstance(value, np.ndarray):
            assert value.flags.writeable
            value.reshape(-1)[:] = b"x" if value.dtype == object else np.ones((), value.dtype)
    assert buffer == content


# What is converted and what is not


@pytest.mark.parametrize(
    ("spec", "value", "read"),
    [
        (TensorSpec("int8"), 5, np.int8(5)),
        (TensorSpec("uint64"), 2**64 - 1, np.uint64(2**64 - 1)),
        (TensorSpec("float32"), 3, np.float32(3)),
        (TensorSpec("float32"), 0.1, np.float32(0.1)),
        (TensorSpec("float64"), float("inf"), np.float64("inf")),
        (TensorSpec("complex64"), 2, np.complex64(2)),
        (TensorSpec("bool"), True, np.True_),
        (TensorSpec("int16", (2, 1)), [[1], [2]], np.array([[1], [2]], "i2")),
        (TensorSpec("float32", (None,)), [], np.zeros(0, "f4")),
        (TensorSpec("int32", (2,)), np.array([1, -2], ">i4"), np.array([1, -2], "i4")),
        (TensorSpec("int32", (2,)), np.array([1, 7, -2], "i4")[::2], np.array([1, -2], "i4")),
        (TensorSpec("qint8"), np.int8(-3), np.int8(-3)),
        (TensorSpec("string"), "näme", "näme".encode()),
        (TensorSpec("string"), np.bytes_(b"a"), b"a"),
        (TensorSpec("string", (2,)), ["a", b"\0"], np.array([b"a", b"\0"], object)),
        (TensorSpec("string", (2,)), np.array(["a", "é"]), np.array([b"a", "é".encode()], object)),
        (TensorSpec("string", (0, 2)), np.zeros((0, 2), object), np.zeros((0, 2), object)),
    ],
)
def test_values_that_are_converted(spec: TensorSpec, value: Any, read: Any) -> None:
    codec = RecordCodec(spec)
    assert same(codec.decode(codec.encode(value)), read)


LEAF = TensorSpec("int32", (2,))
RAGGED = RaggedSpec("int8", (None, None), 1)
TWICE = RaggedSpec("int8", (None, None, None), 2)
SPARSE = SparseSpec("int8", (3, 4))


def ragged(values: int, *splits: list[int]) -> Ragged:
    return Ragged(np.zeros(values, "i1"), tuple(np.array(part, "i8") for part in splits))


def sparse(indices: Any, values: Any, shape: Any) -> Sparse:
    return Sparse(np.array(indices, "i8"), np.array(values, "i1"), np.array(shape, "i8"))


@pytest.mark.parametrize(
    ("spec", "record"),
    [
        # Nesting
        ((LEAF,), [np.zeros(2, "i4")] * 2),
        ({"a": LEAF}, {"b": np.zeros(2, "i4")}),
        ({"a": LEAF}, np.zeros(2, "i4")),
        # None
        (LEAF, None),
        (NoneSpec(), 0),
        (OptionalSpec(LEAF), np.zeros(3, "i4")),
        # Dtypes
        (LEAF, np.zeros(2, "i8")),
        (LEAF, np.zeros(2, "u4")),
        (LEAF, np.zeros(2, "f4")),
        (LEAF, np.array(["a", "b"])),
        (TensorSpec("bool"), np.int8(1)),
        (TensorSpec("string"), np.int8(1)),
        (TensorSpec("string", (2,)), np.zeros(2, "i4")),
        # Shapes
        (LEAF, np.zeros(3, "i4")),
        (LEAF, np.zeros((2, 1), "i4")),
        (LEAF, np.int32(1)),
        (TensorSpec("int32"), np.zeros(1, "i4")),
        (TensorSpec("int32", (None, 2)), np.zeros((1, 3), "i4")),
        (TensorSpec("int32", (None, 2)), np.zeros(2, "i4")),
        (TensorSpec("string"), np.array([b"a"], object)),
        (TensorSpec("string", (1,)), b"a"),
        (TensorSpec("string", (1,)), np.array([b"a", b"b"], object)),
        # Python numbers that would change
        (TensorSpec("int8"), 128),
        (TensorSpec("uint8"), -1),
        (TensorSpec("uint64"), 2**64),
        (TensorSpec("int64"), 2**70),
        (TensorSpec("int32"), 1.0),
        (TensorSpec("int32"), True),
        (TensorSpec("bool"), 1),
        (TensorSpec("float32"), 1j),
        (TensorSpec("float32"), 2**24 + 1),
        (TensorSpec("float32"), 1e300),
        (TensorSpec("float32"), "1"),
        (TensorSpec("int32", (None,)), [1, [2]]),
        (TensorSpec("int32", (None,)), ["a"]),
        (TensorSpec("int32"), object()),
        # Ragged
        (RAGGED, np.zeros((2, 2), "i1")),
        (RAGGED, ragged(2, [0, 1], [0, 2])),
        (TWICE, ragged(2, [0, 2])),
        (RAGGED, ragged(2, [0, 1])),
        (RAGGED, ragged(2, [0, 3])),
        (RAGGED, ragged(2, [1, 2])),
        (RAGGED, ragged(2, [0, 2, 1, 2])),
        (RAGGED, ragged(0, [])),
        (TWICE, ragged(2, [0, 1], [0, 1, 2])),
        (RAGGED, Ragged(np.zeros(2, "i2"), (np.array([0, 2]),))),
        (RAGGED, Ragged(np.zeros(2, "i1"), (np.array([0, 2], "i4"),))),
        (RAGGED, Ragged(np.zeros((2, 1), "i1"), (np.array([0, 2]),))),
        (RaggedSpec("int8", (3, None), 1), ragged(2, [0, 2])),
        (RAGGED, Ragged(np.int8(1), (np.int64(0),))),
        (RAGGED, Ragged(np.zeros(1, "i1"), (np.array([[0, 1]]),))),
        (RAGGED, Ragged(np.zeros(1, "i1"), (np.array(["a", "b"]),))),
        (RAGGED, Ragged(None, None)),  # type: ignore[arg-type]
        # Sparse
        (SPARSE, np.zeros((3, 4), "i1")),
        (SPARSE, sparse([[0, 0]], [1, 2], [3, 4])),
        (SPARSE, sparse([[0, 0, 0]], [1], [3, 4])),
        (SPARSE, sparse([[0, 0]], [1], [3, 4, 5])),
        (SPARSE, sparse([[0, 0]], [[1]], [3, 4])),
        (SPARSE, sparse([[0, 0]], [1], [3, 5])),
        (SPARSE, Sparse(np.int64(1), np.int8(1), np.array([3, 4]))),  # type: ignore[arg-type]
        (SPARSE, Sparse(np.zeros((1, 2), "i8"), np.zeros(1, "i2"), np.array([3, 4]))),
        (SPARSE, Sparse(np.zeros((1, 2), "i4"), np.zeros(1, "i1"), np.array([3, 4]))),
        (SPARSE, Sparse(np.zeros((1, 2), "i8"), np.zeros(1, "i1"), np.array([3, 4], "i4"))),
    ],
)
def test_records_that_do_not_fit(spec: Any, record: Any) -> None:
    with pytest.raises(SpecMismatchError):
        RecordCodec(spec).encode(record)


@pytest.mark.parametrize("value", [[b"a", 1], np.array([b"a", None], object), [b"a", ["b"]]])
def test_object_arrays_hold_only_strings(value: Any) -> None:
    with pytest.raises((UnsupportedTypeError, SpecMismatchError)):
        RecordCodec(TensorSpec("string", (2,))).encode(value)


@pytest.mark.parametrize("spec", [TensorSpec("string"), TensorSpec("string", (1,))])
def test_text_that_is_no_utf_8(spec: TensorSpec) -> None:
    value = "\ud800" if spec.shape == () else ["\ud800"]
    with pytest.raises((SpecMismatchError, UnsupportedTypeError)):
        RecordCodec(spec).encode(value)


@pytest.mark.parametrize(
    "column",
    [np.zeros((3, 2), "i8"), np.zeros((3, 3), "i4"), np.zeros(3, "i4"), np.zeros((3, 2), "f4")],
)
def test_columns_that_do_not_fit(column: np.ndarray[Any, Any]) -> None:
    codec = RecordCodec(LEAF)
    with pytest.raises(SpecMismatchError):
        codec.encode_columns([column], np.zeros((3, codec.layout.content_size or 0), "u1"))


# Contents that were tampered with


def decodes(codec: RecordCodec, content: bytes) -> None:
    """Decoding gives a record or ``ChecksumError``, and no more memory than the content has."""
    try:
        record = codec.decode(content)
    except ChecksumError:
        return
    for value in split_record(codec.spec, record) if _is_whole(codec.spec) else ():
        if isinstance(value, np.ndarray) and value.dtype != object:
            assert value.nbytes <= len(content)


def _is_whole(spec: Any) -> bool:
    """Whether nothing in it is checked again when it is split."""
    return all(isinstance(leaf, TensorSpec) for leaf in specs.leaves(spec))


@given(data=st.data(), spec=element_specs)
def test_damaged_contents(data: st.DataObject, spec: Any) -> None:
    codec = RecordCodec(spec)
    content = bytearray(codec.encode(data.draw(records(spec))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    decodes(codec, bytes(content))


def test_a_shape_of_very_many_empty_rows() -> None:
    codec = RecordCodec(SparseSpec("string", None))
    empty = Sparse(np.zeros((0, 0), "i8"), np.zeros(0, object), np.zeros(0, "i8"))
    content = bytearray(codec.encode(empty))
    # The upper half of the number of rows of the indices.
    content[36] = 1
    with pytest.raises(ChecksumError, match="4294967296"):
        codec.decode(bytes(content))


@given(data=st.data(), spec=element_specs)
def test_truncated_and_extended_contents(data: st.DataObject, spec: Any) -> None:
    codec = RecordCodec(spec)
    content = codec.encode(data.draw(records(spec)))
    decodes(codec, content[: data.draw(st.integers(0, len(content)))])
    decodes(codec, content + data.draw(st.binary(max_size=20)))


@given(spec=element_specs, content=st.binary(max_size=200))
def test_arbitrary_contents(spec: Any, content: bytes) -> None:
    decodes(RecordCodec(spec), content)


HUGE = [2**62, 2**63 - 1, -1, -(2**63), 2**32]
WORD = st.sampled_from(HUGE) | st.integers(0, 3)


@given(
    spec=st.sampled_from(
        [
            TensorSpec("int64", None),
            TensorSpec("float32", (None, None)),
            TensorSpec("int8", (None, 0)),
            TensorSpec("string", None),
            TensorSpec("string", (None, 2)),
            TensorSpec("string", (2,)),
            SparseSpec("string", None),
        ]
    ),
    words=st.lists(WORD, max_size=14),
)
def test_contents_of_hostile_sizes(spec: Any, words: list[int]) -> None:
    decodes(RecordCodec(spec), np.array(words, "i8").tobytes())


def test_a_checksum_error_says_what_is_wrong() -> None:
    with pytest.raises(ChecksumError, match="a record of 8 bytes does not fit the element spec"):
        RecordCodec(TensorSpec("string")).decode(np.array([9], "i8").tobytes())
