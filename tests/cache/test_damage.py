"""Files that are damaged, cut off, foreign, or made to do harm."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

import lmdb
import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import same

from yogadl.cache.opening import open_cache
from yogadl.cache.reader import CacheFile
from yogadl.cache.writer import CacheWriter
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    ChecksumError,
    ForeignFileError,
    TruncatedCacheError,
    UnsupportedFormatError,
    YogadlError,
)
from yogadl.format import header as headers
from yogadl.format.index import ENTRY
from yogadl.spec import OptionalSpec, TensorSpec

pytestmark = pytest.mark.once

FIXED = {"x": TensorSpec("int32", (3,)), "y": TensorSpec("bool")}
VARIABLE = {
    "a": TensorSpec("uint8", (None,)),
    "s": TensorSpec("string", (None,)),
    "o": OptionalSpec(TensorSpec("float32", None)),
}
LARGE = TensorSpec("int16", (1100,))
KINDS = ["fixed", "variable", "large"]
HEADER_CHECKSUM = 8432


def _records(kind: str) -> tuple[Any, list[Any]]:
    if kind == "fixed":
        return FIXED, [{"x": np.full(3, n, "i4"), "y": np.bool_(n % 2)} for n in range(300)]
    if kind == "large":
        return LARGE, [np.full(1100, n, "i2") for n in range(3)]
    return VARIABLE, [
        {
            "a": np.full(n * 700, n, "u1"),
            "s": np.array([b"x" * n] * 2, object),
            "o": np.ones((n, 1), "f4") if n % 2 else None,
        }
        for n in range(5)
    ]


@functools.cache
def intact(kind: str) -> tuple[bytes, list[Any], list[tuple[int, int]]]:
    """The bytes of a cache, its records and where their values lie."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cache.mdb")
        spec, found = _records(kind)
        with CacheWriter(path, spec) as writer:
            for record in found:
                writer.append(record)
            writer.commit()
        with open_cache(path) as reader:
            assert isinstance(reader, CacheFile)
            reader.verify()
            entries = reader.lookup(np.arange(len(found))).tolist()
        return path.read_bytes(), found, [(at, at + size) for at, size, _ in entries]


@pytest.fixture(scope="module")
def path() -> Iterator[pathlib.Path]:
    """Where every example of a property writes its file anew; open maps keep the old one."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder, "cache.mdb")


def put(path: pathlib.Path, data: bytes) -> None:
    """A new file, since cutting one that is mapped would end this process."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def read_all(reader: Any) -> list[Any]:
    """Every record that can be read; ``None`` for the others."""
    found = []
    for at in range(len(reader)):
        try:
            found.append(reader.read_record(at))
            reader.read_columns(np.array([at]))
        except CacheFormatError:
            found.append(None)
    return found


@settings(max_examples=300)
@given(kind=st.sampled_from(KINDS), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example("fixed", 0.0, 0)
@example("fixed", 0.99999, 7)
def test_one_bit_flipped(path: pathlib.Path, kind: str, place: float, bit: int) -> None:
    check_flip(path, kind, int(place * len(intact(kind)[0])), bit)


@settings(max_examples=200)
@given(
    kind=st.sampled_from(KINDS),
    at=st.integers(headers.HEADER_OFFSET, headers.HEADER_OFFSET + 240),
    bit=st.integers(0, 7),
)
def test_one_bit_of_the_header_flipped(path: pathlib.Path, kind: str, at: int, bit: int) -> None:
    check_flip(path, kind, at, bit)


@settings(max_examples=200)
@given(
    kind=st.sampled_from(KINDS), number=st.integers(0), within=st.integers(0), bit=st.integers(0, 7)
)
def test_one_bit_of_a_record_flipped(
    path: pathlib.Path, kind: str, number: int, within: int, bit: int
) -> None:
    places = intact(kind)[2]
    start, stop = places[number % len(places)]
    check_flip(path, kind, start + within % (stop - start), bit)


def check_flip(path: pathlib.Path, kind: str, at: int, bit: int) -> None:
    data, records, places = intact(kind)
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    put(path, bytes(damaged))
    try:
        reader = open_cache(path)
    except CacheFormatError:
        return
    with reader:
        with pytest.raises(CacheFormatError):
            reader.verify()
        assert len(reader) == len(records)
        for (start, stop), found, record in zip(places, read_all(reader), records, strict=True):
            if found is not None and not start <= at < stop:
                assert same(found, record)


@settings(max_examples=200)
@given(kind=st.sampled_from(KINDS), size=st.integers(0))
@example("fixed", 0)
@example("fixed", 8192)
@example("fixed", 8300)
@example("fixed", 12288)
def test_truncated_anywhere(path: pathlib.Path, kind: str, size: int) -> None:
    data = intact(kind)[0]
    put(path, data[: size % len(data)])
    with pytest.raises(CacheFormatError):
        open_cache(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 4096, 3 * 4096])
def test_truncated_behind_the_header_is_said_to_be(path: pathlib.Path, kind: str, cut: int) -> None:
    data = intact(kind)[0]
    put(path, data[:-cut])
    with pytest.raises(TruncatedCacheError, match=f"has {len(data) - cut} bytes and should have"):
        open_cache(path)


@settings(max_examples=30)
@given(kind=st.sampled_from(KINDS), more=st.binary(min_size=1, max_size=50) | st.just(bytes(4096)))
def test_bytes_appended(path: pathlib.Path, kind: str, more: bytes) -> None:
    put(path, intact(kind)[0] + more)
    with pytest.raises(TruncatedCacheError):
        open_cache(path)


# Foreign files


def _zip(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a", bytes(20_000))


def _sqlite(path: pathlib.Path) -> None:
    made = sqlite3.connect(path)
    made.execute("create table t (x)")
    made.executemany("insert into t values (?)", [("x" * 100,)] * 300)
    made.commit()
    made.close()


def _lmdb(path: pathlib.Path, names: tuple[bytes, ...] = (b"a", b"b")) -> None:
    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        for name in names:
            txn.put(name, bytes(3000))


FOREIGN: dict[str, Any] = {
    "text": lambda path: path.write_text("These are no records.\n" * 1000),
    "zeros": lambda path: path.write_bytes(bytes(50_000)),
    "zip": _zip,
    "sqlite": _sqlite,
    "lmdb": _lmdb,
    "records without the rest": lambda path: _lmdb(path, (b"00000000", b"00000001")),
    "pickle": lambda path: path.write_bytes(b"\x80\x04]\x94." * 5000),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "cache.mdb"
    FOREIGN[name](path)
    with pytest.raises(ForeignFileError, match=r"cache\.mdb"):
        open_cache(path)


def test_an_empty_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    path.touch()
    with pytest.raises(CacheFormatError, match=r"cache.mdb.*empty"):
        open_cache(path)


def test_no_file(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "cache.mdb", tmp_path / "none" / "cache.mdb"):
        with pytest.raises(CacheNotFoundError, match=r"cache\.mdb"):
            open_cache(path)


@settings(max_examples=100)
@given(data=st.binary(max_size=60_000), start=st.sampled_from([0, 8192, 8208, 8216, 8220]))
def test_files_of_anything(path: pathlib.Path, data: bytes, start: int) -> None:
    put(path, intact("fixed")[0][:start] + data)
    with pytest.raises(CacheFormatError):
        open_cache(path)


# Headers whose checksum is right


def with_checksum(data: bytearray) -> bytes:
    digest = xxhash.xxh3_64_intdigest(bytes(data[8208:HEADER_CHECKSUM]))
    struct.pack_into("<Q", data, HEADER_CHECKSUM, digest)
    return bytes(data)


@pytest.mark.parametrize("version", [0, 2, 3, 2**32 - 1])
@pytest.mark.parametrize("sound", [True, False])
def test_other_versions(path: pathlib.Path, version: int, sound: bool) -> None:
    data = bytearray(intact("fixed")[0])
    struct.pack_into("<I", data, 8216, version)
    put(path, with_checksum(data) if sound else bytes(data))
    with pytest.raises(UnsupportedFormatError, match=f"cache format {version}"):
        open_cache(path)


FIELDS = [8224, 8232, 8240, 8248, 8256, *range(8264, 8360, 8)]
NUMBERS = st.sampled_from(
    [0, 1, 12287, 12288, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 1]
)


@settings(max_examples=300)
@given(
    kind=st.sampled_from(KINDS),
    changes=st.dictionaries(
        st.sampled_from(FIELDS), NUMBERS | st.integers(0, 100_000), min_size=1, max_size=3
    ),
)
@example("fixed", {8224: 2**64 - 1})
@example("fixed", {8224: 4096})
@example("large", {8256: 2**64 - 1})
def test_hostile_headers(path: pathlib.Path, kind: str, changes: dict[int, int]) -> None:
    data, records, _ = intact(kind)
    changed = bytearray(data)
    for at, number in changes.items():
        struct.pack_into("<Q", changed, at, number)
    put(path, with_checksum(changed))
    try:
        reader = open_cache(path)
    except CacheFormatError:
        return
    with reader:
        # More records than there are fail the check of the index, which covers whole blocks.
        assert len(reader) <= 4096
        for found in read_all(reader)[: len(records)]:
            assert found is None or isinstance(found, dict | np.ndarray)
        if bytes(changed) != data:
            with pytest.raises(CacheFormatError):
                reader.verify()


def rebuilt(data: bytes, entries: dict[int, tuple[int, int]], spec: bytes | None = None) -> bytes:
    """A file with other index entries or another spec, and every checksum that opening compares."""
    changed = bytearray(data)
    page = data[headers.HEADER_OFFSET : headers.BODY_OFFSET]
    header = headers.unpack(page, len(data), "file")
    for position, (offset, length) in entries.items():
        struct.pack_into("<QI", changed, header.index.offset + 16 * position, offset, length)
    place = header.index.offset
    block = bytes(changed[place : place + header.record_count * ENTRY.itemsize])
    sums = struct.pack("<Q", xxhash.xxh3_64_intdigest(block))
    start = header.index_checksums.offset
    changed[start : start + 8] = sums
    sections = {"index_checksums": headers.Section(start, 8, xxhash.xxh3_64_intdigest(sums))}
    if spec is not None:
        changed[headers.BODY_OFFSET + 16 : headers.BODY_OFFSET + 16 + len(spec)] = spec
        sections["spec"] = headers.Section(
            headers.BODY_OFFSET + 16, len(spec), xxhash.xxh3_64_intdigest(spec)
        )
    new = dataclasses.replace(header, **sections)
    found = headers.copied_sections(page, header)
    copies = b"" if found is None or spec is not None else b"".join(found)
    changed[headers.HEADER_OFFSET : headers.BODY_OFFSET] = new.pack(copies)
    return bytes(changed)


def test_rebuilding_as_it_was_changes_nothing() -> None:
    assert rebuilt(intact("fixed")[0], {}) == intact("fixed")[0]


@given(
    kind=st.sampled_from(KINDS),
    position=st.integers(0, 2),
    offset=NUMBERS | st.integers(0, 12287),
    length=st.sampled_from([0, 1, 20, 2**31, 2**32 - 1]),
)
def test_index_entries_that_point_outside(
    path: pathlib.Path, kind: str, position: int, offset: int, length: int
) -> None:
    data = intact(kind)[0]
    if 12288 <= offset <= len(data) - length:
        offset = len(data) + 1
    put(path, rebuilt(data, {position: (offset, length)}))
    with open_cache(path) as reader:
        for at in (position, 0):
            with pytest.raises(ChecksumError, match="index"):
                reader.read_record(at)
            with pytest.raises(ChecksumError, match="index"):
                reader.read_columns(np.array([at]))
        with pytest.raises(ChecksumError, match="index"):
            reader.verify()


@pytest.mark.parametrize("beyond", [1, 8, 2**31])
def test_an_index_entry_that_ends_outside(path: pathlib.Path, beyond: int) -> None:
    data = intact("variable")[0]
    put(path, rebuilt(data, {1: (len(data) - 100, 100 + beyond)}))
    with open_cache(path) as reader, pytest.raises(ChecksumError, match="outside the file"):
        reader.read_record(1)


@given(kind=st.sampled_from(KINDS), offset=st.integers(0), length=st.integers(0, 9000))
def test_index_entries_that_point_inside(
    path: pathlib.Path, kind: str, offset: int, length: int
) -> None:
    data = intact(kind)[0]
    offset = 12288 + offset % (len(data) - 12288 - length)
    put(path, rebuilt(data, {1: (offset, length)}))
    with open_cache(path) as reader:
        read_all(reader)
        with pytest.raises(CacheFormatError):
            reader.verify()


HOSTILE_SPECS = [
    b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"kind": "tensor"}', b'{"kind": "what"}',
    b'{"kind": "tensor", "dtype": "float1024", "shape": []}',
    b'{"kind": "tensor", "dtype": "int8", "shape": [1e999]}',
    b'{"kind": "tensor", "dtype": "int8", "shape": [4611686018427387904, 4611686018427387904]}',
    b'{"kind": "tensor", "dtype": "int8", "shape": [null, 4611686018427387904]}',
    b'{"kind": "tensor", "dtype": "string", "shape": [4611686018427387904]}',
    b'{"kind": "tensor", "dtype": "int8", "shape": [' + b"null, " * 99 + b"null]}",
    b'{"kind": "tensor", "dtype": "int8", "shape": [' + b"1, " * 99 + b"null]}",
    b"[" * 3000, b'{"a":' * 600,
]  # fmt: skip


@pytest.mark.parametrize("spec", HOSTILE_SPECS, ids=range(len(HOSTILE_SPECS)))
def test_hostile_specs(path: pathlib.Path, spec: bytes) -> None:
    put(path, rebuilt(intact("variable")[0], {}, spec))
    try:
        reader = open_cache(path)
    except CacheFormatError:
        return
    with reader:
        for at in range(len(reader)):
            with contextlib.suppress(YogadlError):
                assert reader.read_record(at).size == 0
            with contextlib.suppress(YogadlError):
                assert reader.read_columns(np.array([at]))[0][0].size == 0


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe.mdb"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ForeignFileError, match="no regular file"):
            open_cache(path)
