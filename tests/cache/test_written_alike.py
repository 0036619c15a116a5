"""Records are the same bytes in a file however they come: singly, many at once, or as columns."""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NUMBERS, data_sets, shapes, structures

from yogadl import spec as specs
from yogadl.cache import waiting
from yogadl.cache.opening import open_cache
from yogadl.cache.reader import CacheFile
from yogadl.cache.writer import CacheWriter
from yogadl.errors import SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec
from yogadl.format.contents import Packed
from yogadl.format.rows import rows_of
from yogadl.spec import TensorSpec, flatten, leaves

NOW = 1_790_000_000_000_000_000
TEXT = {
    "n": TensorSpec("int8"),
    "text": TensorSpec("string"),
    "tokens": TensorSpec("int16", (None, 3)),
}


@pytest.fixture(scope="module")
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture(autouse=True)
def _one_time() -> Iterator[None]:
    with mock.patch("time.time_ns", return_value=NOW):
        yield


def _one_unknown(shape: specs.Shape) -> bool:
    return shape is not None and shape.count(None) <= 1 and not (None in shape and 0 in shape)


one_array_leaves = st.builds(
    TensorSpec, st.sampled_from(NUMBERS), shapes().filter(_one_unknown)
) | st.just(TensorSpec("string"))
"""Leaves that are stored in one array each, so that columns of them can be written."""


def columns_of(spec: Any, records: Sequence[Any]) -> list[Any]:
    """One column per leaf: stacked where the shape is static, else lists."""
    rows = [flatten(spec, record) for record in records]
    columns = []
    for at, leaf in enumerate(leaves(spec)):
        values = [row[at] for row in rows]
        if leaf.static_shape is not None and not leaf.is_string:
            columns.append(np.stack(values))
        else:
            columns.append(values)
    return columns


def packed(columns: Sequence[Any]) -> list[Any]:
    """Columns, with what varies in one buffer, in the reverse order and with gaps."""
    found = []
    for column in columns:
        if isinstance(column, np.ndarray):
            found.append(column)
            continue
        values = [v if isinstance(v, bytes) else v.tobytes() for v in column]
        whole = b"?".join(reversed(values))
        sizes = np.array([len(value) for value in values], "i8")
        ends = len(whole) - np.cumsum(sizes + 1) + 1 + sizes
        found.append(Packed(np.frombuffer(whole, "u1"), ends - sizes, sizes))
    return found


@given(data_set=data_sets(structures(one_array_leaves), max_size=8))
def test_columns_are_encoded_as_records_are(data_set: Any) -> None:
    spec, records = data_set
    codec = RecordCodec(spec)
    if not records or codec.layout.content_size is not None:
        return
    expected = [codec.encode(record) for record in records]
    columns = columns_of(spec, records)
    for given_columns in (columns, packed(columns)):
        contents = rows_of(codec, given_columns, len(records))
        assert list(contents.each()) == expected
        assert contents.sizes.tolist() == list(map(len, expected))


def sized(sizes: Sequence[int]) -> list[Any]:
    return [
        {
            "n": np.int8(at % 100),
            "text": bytes([at % 251]) * size,
            "tokens": np.full((at % 7, 3), at, "i2"),
        }
        for at, size in enumerate(sizes)
    ]


def written(
    path: pathlib.Path, cuts: Sequence[int], records: Sequence[Any], as_columns: Any
) -> tuple[bytes, list[bytes]]:
    """The bytes of a file, and of its parts, of records that come between some cuts at once."""
    parts: list[bytes] = []

    def take(part: Any, _header: Any) -> None:
        parts.append(part.path.read_bytes())

    with CacheWriter(path, TEXT, part_bytes=60_000, take_part=take) as writer:
        for start, stop in itertools.pairwise([0, *cuts, len(records)]):
            some = records[start:stop]
            if as_columns is not None and some:
                columns = columns_of(TEXT, some)
                writer.append_columns(as_columns(columns), len(some))
            else:
                for record in some:
                    writer.append(record)
        writer.commit()
    return path.read_bytes(), parts


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(
        st.integers(0, 60) | st.integers(1900, 2050) | st.integers(0, 9_000), max_size=30
    ),
    repeated=st.integers(1, 6),
    cut=st.lists(st.integers(0, 180), max_size=4),
)
def test_files_are_the_same_however_records_come(
    folder: pathlib.Path, sizes: list[int], repeated: int, cut: list[int]
) -> None:
    records = sized(sizes * repeated)
    cuts = sorted(at for at in cut if at <= len(records))
    path = folder / "cache.mdb"
    with mock.patch.object(waiting, "_RECORDS", 1):
        expected = written(path, [], records, None)
    assert written(path, [], records, None) == expected
    assert written(path, cuts, records, list) == expected
    assert written(path, cuts, records, packed) == expected
    if not expected[1]:
        with open_cache(path) as reader:
            assert isinstance(reader, CacheFile)
            reader.verify()


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(0, 60) | st.integers(1960, 2040) | st.integers(2000, 9000),
    count=st.integers(0, 450),
    cuts=st.lists(st.integers(0, 450), max_size=5),
    part_bytes=st.sampled_from([None, 60_000]),
)
def test_records_of_fixed_size_are_the_same_however_they_come(
    folder: pathlib.Path, size: int, count: int, cuts: list[int], part_bytes: int | None
) -> None:
    spec = TensorSpec("uint8", (size,))
    records = np.arange(count)[:, None].repeat(size, 1).astype("u1")
    ends = [0, *sorted(cut for cut in cuts if cut <= count), count]

    def write(one_by_one: bool, waiting_records: int) -> tuple[bytes, list[bytes]]:
        parts: list[bytes] = []

        def take(part: Any, _header: Any) -> None:
            parts.append(part.path.read_bytes())

        path = folder / "cache.mdb"
        with (
            mock.patch.object(waiting, "_RECORDS", waiting_records),
            CacheWriter(path, spec, part_bytes=part_bytes, take_part=take) as writer,
        ):
            for start, stop in itertools.pairwise(ends):
                if one_by_one:
                    for record in records[start:stop]:
                        writer.append(record)
                else:
                    writer.append_columns([records[start:stop]], stop - start)
            writer.commit()
        return path.read_bytes(), parts

    expected = write(True, 1)
    assert write(True, 1024) == expected
    assert write(True, 7) == expected
    assert write(False, 1024) == expected
    if count and part_bytes is None:
        with open_cache(folder / "cache.mdb") as reader:
            assert isinstance(reader, CacheFile)
            reader.verify()
            assert (np.stack([reader.read_record(at) for at in range(count)]) == records).all()


class Flag(int):
    """A number of a class of its own."""


PYTHON = {
    "flag": TensorSpec("bool"),
    "count": TensorSpec("int64"),
    "ratio": TensorSpec("float64"),
    "small": TensorSpec("uint8"),
    "text": TensorSpec("string"),
    "row": TensorSpec("float32", (2,)),
    "rows": TensorSpec("float32", (None, 2)),
}
PLAIN: dict[str, Any] = {
    "flag": True,
    "count": 5,
    "ratio": 0.5,
    "small": 7,
    "text": "ä",
    "row": [1.0, 2.0],
    "rows": [[1, 2], [3, 4]],
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"flag": np.bool_(True), "count": np.int64(5), "ratio": np.float64(0.5)},
        {"flag": np.array(True), "count": np.array(5), "small": np.uint8(7)},
        {"count": Flag(5), "ratio": 1, "text": "ä".encode(), "row": np.array([1, 2], "f4")},
        {"row": np.array([1, 2], ">f4"), "rows": np.array([[1, 3], [2, 4]], "f4").T},
        {"rows": np.array([[1, 2], [3, 4]], ">f4"), "count": np.array(5, ">i8")},
    ],
)
def test_numbers_of_python_and_of_numpy(tmp_path: pathlib.Path, changed: Any) -> None:
    record = {**PLAIN, **changed}
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, PYTHON) as writer:
        writer.append(record)
        writer.commit()
    with open_cache(path) as reader:
        found = reader.read_record(0)
    assert found["flag"] == np.True_
    assert found["count"] == 5
    assert found["ratio"] == (1 if changed.get("ratio") == 1 else 0.5)
    assert (found["small"], found["text"]) == (7, "ä".encode())
    assert found["row"].tolist() == [1, 2]
    assert found["rows"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "changed",
    [
        {"flag": 1},
        {"count": True},
        {"count": 2**63},
        {"count": 1.0},
        {"ratio": "1"},
        {"small": 256},
        {"small": np.int64(7)},
        {"text": 5},
        {"text": "\ud800"},
        {"row": np.zeros(3, "f4")},
        {"row": np.ma.masked_array([1, 2], dtype="f4")},
        {"rows": np.zeros((2, 3), "f4")},
        {"rows": np.zeros(2, "f4")},
        {"rows": None},
        {"more": 1},
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_of_it_is_kept(
    tmp_path: pathlib.Path, changed: Any
) -> None:
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, PYTHON) as writer:
        writer.append(PLAIN)
        with pytest.raises((SpecMismatchError, UnsupportedTypeError), match=r"^record 1: "):
            writer.append({**PLAIN, **changed})
        writer.append(PLAIN)
        assert writer.commit() == 2
    with open_cache(path) as reader:
        assert reader.read_record(0)["text"] == reader.read_record(1)["text"] == "ä".encode()


def test_an_array_that_is_filled_again_is_copied(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    buffer = np.zeros((3, 2), "f4")
    with CacheWriter(path, TensorSpec("float32", (None, 2))) as writer:
        for number in range(3):
            buffer[:] = number
            writer.append(buffer[:number])
        writer.commit()
    with open_cache(path) as reader:
        found = [reader.read_record(number) for number in range(3)]
    assert [record.tolist() for record in found] == [[], [[1, 1]], [[2, 2], [2, 2]]]


def test_columns_that_do_not_fit_are_not_written_in_part(tmp_path: pathlib.Path) -> None:
    spec = TensorSpec("int32", (None,))
    good, bad = np.arange(3, dtype="i4"), np.arange(3, dtype="i8")
    with CacheWriter(tmp_path / "cache.mdb", spec) as writer:
        with pytest.raises(SpecMismatchError, match="int64"):
            writer.append_columns([[good, bad]], 2)
        with pytest.raises(SpecMismatchError, match="does not fit"):
            writer.append_columns([Packed.between(np.zeros(6, "u1"), np.array([0, 6]))], 1)
        with pytest.raises(SpecMismatchError, match="2 records stands beside 3"):
            writer.append_columns([[good, good]], 3)
        writer.append_columns([[good]], 1)
        assert writer.commit() == 1
