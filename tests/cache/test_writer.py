"""What the writer writes, our reader, py-lmdb and LMDB's own tools read."""

from __future__ import annotations

import datetime
import itertools
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import data_sets, records, same, static_specs

from yogadl.cache import writer as writer_module
from yogadl.cache.opening import open_cache
from yogadl.cache.reader import CacheFile
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.index import BLOCK, ENTRY
from yogadl.format.record_keys import record_key
from yogadl.spec import NoneSpec, TensorSpec, flatten, leaves, unflatten

INLINE_LIMIT = 2000
"""As the format has it; the library's own constant may not change."""

OWN_KEYS = [b"__checksums__", b"__index__", b"__metadata__", b"__spec__", b"__yogadl__"]
BYTES = TensorSpec("uint8", (None,))
"""Records of the size wanted: the content is 8 bytes longer, rounded up to a multiple of 8."""


@pytest.fixture(scope="module")
def folder() -> Iterator[pathlib.Path]:
    """A directory for the many files of a property, each of a name of its own."""
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


def write(path: pathlib.Path, spec: Any, data: Any, **options: Any) -> CacheFile:
    with CacheWriter(path, spec, **options) as writer:
        for record in data:
            writer.append(record)
        assert writer.commit() == len(data)
    reader = open_cache(path)
    assert isinstance(reader, CacheFile)
    return reader


def lmdb_open(path: pathlib.Path, **options: Any) -> lmdb.Environment:
    return lmdb.open(str(path), subdir=False, lock=False, **{"readonly": True, **options})


def check_as_lmdb(path: pathlib.Path, values: list[bytes]) -> None:
    """py-lmdb finds the same values, with a cursor in the order of keys and by key."""
    expected = {record_key(at): value for at, value in enumerate(values)}
    with lmdb_open(path) as env, env.begin() as txn:
        found = dict(txn.cursor())
        assert list(found) == [*sorted(expected), *OWN_KEYS]
        assert list(txn.cursor().iterprev(values=False)) == list(reversed(found))
        for key, value in expected.items():
            assert txn.get(key) == found[key] == value
        assert txn.get(b"0") is None
        stat = txn.stat()
        assert stat["entries"] == len(values) + len(OWN_KEYS)
        assert env.info()["last_pgno"] + 1 == path.stat().st_size // 4096


def values_of(reader: CacheFile) -> list[bytes]:
    return [bytes(reader.read_value(at)) for at in range(len(reader))]


@given(data=st.data(), data_set=data_sets(max_size=12))
def test_round_trip(folder: pathlib.Path, data: st.DataObject, data_set: Any) -> None:
    spec, found = data_set
    path = folder / "round_trip.mdb"
    with write(path, spec, found) as reader:
        assert same(reader.spec, spec)
        assert len(reader) == reader.info.record_count == len(found)
        order = data.draw(st.permutations(range(len(found))))
        for at in order:
            assert same(reader.read_record(at), found[at])
        columns = reader.read_columns(np.array(order, "i8"))
        leaves = [flatten(spec, found[at]) for at in order]
        for number, column in enumerate(columns):
            assert same([column[row] for row in range(len(order))], [row[number] for row in leaves])
        reader.verify()
        check_as_lmdb(path, values_of(reader))


@given(data=st.data(), spec=static_specs, cuts=st.lists(st.integers(0, 5), max_size=4))
def test_columns_are_written_as_records_are(
    folder: pathlib.Path, data: st.DataObject, spec: Any, cuts: list[int]
) -> None:
    found = data.draw(st.lists(records(spec), max_size=6))
    one, two = folder / "records.mdb", folder / "columns.mdb"
    with mock.patch("time.time_ns", return_value=1_790_000_000_000_000_000):
        with write(one, spec, found) as reader:
            columns = reader.read_columns(np.arange(len(found)))
        with CacheWriter(two, spec) as writer:
            edges = sorted({0, len(found), *[cut for cut in cuts if cut < len(found)]})
            for start, stop in itertools.pairwise(edges):
                if start in cuts:
                    for record in found[start:stop]:
                        writer.append(record)
                else:
                    writer.append_columns([part[start:stop] for part in columns], stop - start)
            assert writer.commit() == len(found)
    assert one.read_bytes() == two.read_bytes()


def sized(sizes: list[int]) -> list[Any]:
    return [np.full(size, number % 251, "u1") for number, size in enumerate(sizes)]


EDGES = [
    INLINE_LIMIT - 16,
    INLINE_LIMIT - 8,
    INLINE_LIMIT - 7,
    INLINE_LIMIT,
    4024,
    4025,
    4032,
    8120,
]


@settings(max_examples=30)
@given(
    sizes=st.lists(
        st.integers(0, 40) | st.sampled_from(EDGES) | st.integers(0, 20_000), max_size=40
    )
)
def test_small_and_large_records_side_by_side(folder: pathlib.Path, sizes: list[int]) -> None:
    path = folder / "mixed.mdb"
    data = sized(sizes)
    with write(path, BYTES, data) as reader:
        assert same([reader.read_record(at) for at in range(len(data))], data)
        positions = np.arange(len(data))[::-1]
        (column,) = reader.read_columns(positions)
        assert same(list(column), data[::-1])
        reader.verify()
        check_as_lmdb(path, values_of(reader))


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("words", range(INLINE_LIMIT // 8 - 1, INLINE_LIMIT // 8 + 3))
def test_around_the_inline_limit(tmp_path: pathlib.Path, words: int, columns: bool) -> None:
    path = tmp_path / "cache.mdb"
    data = np.arange(9 * words, dtype="i8").reshape(9, words)
    with CacheWriter(path, TensorSpec("int64", (words,))) as writer:
        if columns:
            writer.append_columns([data], len(data))
        else:
            for row in data:
                writer.append(row)
        writer.commit()
    with open_cache(path) as reader:
        assert isinstance(reader, CacheFile)
        assert same(reader.read_columns(np.arange(9))[0], data)
        value = bytes(reader.read_value(4))
        inside = words * 8 <= INLINE_LIMIT
        assert value == (b"" if inside else bytes(48)) + data[4].tobytes()
        entries = reader.lookup(np.arange(9))
        contents = entries["offset"] + (0 if inside else 48)
        assert not (contents % (8 if inside else 64)).any()
        assert reader.header.alignment == (8 if inside else 64)
        check_as_lmdb(path, values_of(reader))


@pytest.mark.parametrize("kind", ["inline", "large", "variable"])
def test_more_records_than_a_file_holds(
    tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MOST_RECORDS", 30)
    path = tmp_path / "cache.mdb"
    spec: Any = TensorSpec("int32", (600 if kind == "large" else 2,))
    data: Any = [np.full(spec.shape, at, "i4") for at in range(31)]
    if kind == "variable":
        spec, data = BYTES, sized(list(range(31)))
    with write(path, spec, data[:30]) as reader:
        assert len(reader) == 30
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match="30 records at most"):
        write(path, spec, data)
    assert path.read_bytes() == before


def test_the_index_of_many_blocks(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    count = 2 * BLOCK + 77
    some = (0, BLOCK - 1, BLOCK, count - 1)
    with CacheWriter(path, TensorSpec("int64")) as writer:
        writer.append_columns([np.arange(count)], count)
        writer.commit()
    raw = np.fromfile(path, "u1")
    with lmdb_open(path) as env, env.begin() as txn:
        stored = np.frombuffer(txn.get(b"__index__"), ENTRY)
        values = [txn.get(record_key(at)) for at in some]
    assert len(stored) == count
    with open_cache(path) as reader:
        assert isinstance(reader, CacheFile)
        positions = np.random.RandomState(1).permutation(count)
        assert (reader.lookup(positions) == stored[positions]).all()
    for at, value in zip(some, values, strict=True):
        start = int(stored["offset"][at])
        assert raw[start : start + 8].tobytes() == value == np.int64(at).tobytes()


def test_lmdb_may_write_to_a_copy(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    data = sized([at * 37 % 5000 for at in range(300)])
    with write(path, BYTES, data) as reader:
        values = values_of(reader)
    for round_ in range(3):
        with lmdb_open(path, readonly=False, map_size=1 << 26) as env:
            with env.begin(write=True) as txn:
                assert txn.put(b"new %d" % round_, bytes(5000 * round_))
                assert txn.put(record_key(round_ * 100), b"changed")
                assert txn.delete(record_key(round_ * 100 + 1))
            with env.begin() as txn:
                for at, value in enumerate(values):
                    changed = at % 100 == 0 and at // 100 <= round_
                    gone = at % 100 == 1 and at // 100 <= round_
                    expected = b"changed" if changed else None if gone else value
                    assert txn.get(record_key(at)) == expected
                assert txn.get(b"new %d" % round_) == bytes(5000 * round_)


@pytest.mark.parametrize("count", [0, 1, 500, 30_000])
def test_lmdbs_own_tools_read_it(tmp_path: pathlib.Path, count: int) -> None:
    stat, copy = shutil.which("mdb_stat"), shutil.which("mdb_copy")
    if stat is None or copy is None:
        pytest.skip("mdb_stat and mdb_copy of LMDB are not installed")
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, TensorSpec("int64", (3,))) as writer:
        writer.append_columns([np.arange(3 * count).reshape(count, 3)], count)
        writer.commit()
    shown = subprocess.run([stat, "-n", str(path)], capture_output=True, text=True, check=True)
    assert f"Entries: {count + len(OWN_KEYS)}" in shown.stdout
    compact = tmp_path / "compact.mdb"
    subprocess.run([copy, "-n", "-c", str(path), str(compact)], check=True)
    with (
        lmdb_open(path) as one,
        lmdb_open(compact) as two,
        one.begin() as mine,
        two.begin() as theirs,
    ):
        assert list(mine.cursor()) == list(theirs.cursor())


# Edges


@pytest.mark.parametrize(
    "spec", [TensorSpec("int64"), BYTES, NoneSpec(), TensorSpec("string", None)]
)
def test_no_records(tmp_path: pathlib.Path, spec: Any) -> None:
    path = tmp_path / "cache.mdb"
    with write(path, spec, []) as reader:
        assert len(reader) == 0
        assert [len(column) for column in reader.read_columns(np.array([], "i8"))] == [0]
        reader.verify()
    check_as_lmdb(path, [])


@pytest.mark.parametrize(
    ("spec", "record"),
    [
        (NoneSpec(), None),
        ((NoneSpec(), {"a": NoneSpec()}), (None, {"a": None})),
        (TensorSpec("float64", (0,)), np.zeros(0)),
        (TensorSpec("int8", (3, 0, 2)), np.zeros((3, 0, 2), "i1")),
        (TensorSpec("string", (0,)), np.zeros(0, object)),
        (TensorSpec("float32", (None,)), np.zeros(0, "f4")),
        (TensorSpec("string"), b""),
    ],
)
@pytest.mark.parametrize("count", [1, 600])
def test_records_without_bytes(tmp_path: pathlib.Path, spec: Any, record: Any, count: int) -> None:
    path = tmp_path / "cache.mdb"
    with write(path, spec, [record] * count) as reader:
        assert same([reader.read_record(at) for at in range(count)], [record] * count)
        for column in reader.read_columns(np.arange(count)):
            assert len(column) == count
        reader.verify()
        check_as_lmdb(path, values_of(reader))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)  # fmt: skip


@given(metadata=st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_metadata(folder: pathlib.Path, metadata: dict[str, Any]) -> None:
    with write(folder / "metadata.mdb", NoneSpec(), [None], metadata=metadata) as reader:
        assert reader.info.metadata == metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": object()},
        {"a": float("nan")},
        {1: "a"},
        {"a": {1, 2}},
        ["a"],
        "text",
        3,
        {"a": b""},
        {"a": [{1: 2}]},
    ],
)
def test_metadata_that_json_cannot_hold(tmp_path: pathlib.Path, metadata: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="metadata must be a dict"):
        CacheWriter(tmp_path / "cache.mdb", NoneSpec(), metadata)
    assert list(tmp_path.iterdir()) == []


def test_info(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    with mock.patch("time.time_ns", return_value=1_600_000_000_000_000_000):
        reader = write(path, BYTES, sized([1, 2]))
    info = reader.info
    assert info.created == datetime.datetime(2020, 9, 13, 12, 26, 40, tzinfo=datetime.timezone.utc)
    assert (info.format_version, info.record_count) == (1, 2)
    assert info.file_size == path.stat().st_size
    with write(path, BYTES, sized([1, 2])) as second:
        assert second.info.digest != info.digest


def test_errors_name_the_record_and_leave_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    for spec, wrong, error in [
        (TensorSpec("int8"), np.int16(1), SpecMismatchError),
        (TensorSpec("string", (1,)), np.array([3], object), UnsupportedTypeError),
    ]:
        good = np.int8(1) if error is SpecMismatchError else np.array([b""], object)
        with CacheWriter(path, spec) as writer:
            for _ in range(3):
                writer.append(good)
            with pytest.raises(error, match=r"^record 3: "):
                writer.append(wrong)
    assert list(tmp_path.iterdir()) == []


def test_columns_that_do_not_fit(tmp_path: pathlib.Path) -> None:
    with CacheWriter(tmp_path / "cache.mdb", TensorSpec("int64", (2,))) as writer:
        for column in (np.zeros((4, 3), "i8"), np.zeros((4, 2), "f8")):
            with pytest.raises(SpecMismatchError):
                writer.append_columns([column], 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spec", [TensorSpec("int64", (2,)), TensorSpec("int64", (None,))])
def test_arrays_may_be_used_again_once_appended(tmp_path: pathlib.Path, spec: Any) -> None:
    buffer = np.zeros(2, "i8")
    with CacheWriter(tmp_path / "cache.mdb", spec) as writer:
        for number in range(5):
            buffer[:] = number
            writer.append(buffer)
        writer.commit()
    with open_cache(tmp_path / "cache.mdb") as reader:
        assert [reader.read_record(at).tolist() for at in range(5)] == [[at, at] for at in range(5)]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (TensorSpec("int64", (2,)), 2500),
        (TensorSpec("uint8", (3000,)), 2500),
        (TensorSpec("float64", (60_000,)), 25),
        ({"x": TensorSpec("int16", (3,)), "y": (TensorSpec("bool"), TensorSpec("int64"))}, 1025),
    ],
)
def test_arrays_may_be_used_again_in_more_records_than_are_written_at_once(
    tmp_path: pathlib.Path, spec: Any, count: int
) -> None:
    """Records of fixed size wait for others, and the first to wait are not overwritten."""
    buffers = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves(spec)]
    record = unflatten(spec, buffers)
    with CacheWriter(tmp_path / "cache.mdb", spec) as writer:
        for number in range(count):
            for buffer in buffers:
                buffer[...] = number % 100
            writer.append(record)
        for buffer in buffers:
            buffer[...] = 101
        assert writer.commit() == count
    with open_cache(tmp_path / "cache.mdb") as reader:
        columns = reader.read_columns(np.arange(count))
        for column, buffer in zip(columns, buffers, strict=True):
            numbers = (np.arange(count) % 100).astype(buffer.dtype)
            assert (column.reshape(count, -1) == numbers[:, None]).all()
        reader.verify()
