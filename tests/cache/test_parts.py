"""Data sets of many parts are read as one file of the same records is."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import check_alike
from strategies import data_sets, same

import yogadl
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER, part_path, parts_of, parts_of_sparse
from yogadl.cache.parts_reader import PartsReader
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheFormatError, ChecksumError, ForeignFileError, InvalidArgumentError
from yogadl.format import header as headers
from yogadl.format import table as tables
from yogadl.format.codec import RecordCodec
from yogadl.format.header import Header
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

BYTES = TensorSpec("uint8", (None,))


def write(path: pathlib.Path, spec: Any, records: list[Any], part_bytes: int) -> LMDBDataRef:
    def take(part: PartialFile, header: Header) -> None:
        target = part_path(path, header.digest)
        target.parent.mkdir(exist_ok=True)
        part.commit(target)

    path.parent.mkdir(parents=True, exist_ok=True)
    with CacheWriter(path, spec, part_bytes=part_bytes, take_part=take) as writer:
        for record in records:
            writer.append(record)
        assert writer.commit() == len(records)
    return LMDBDataRef(path)


def part_count(dataref: LMDBDataRef) -> int:
    return len(dataref.reader.parts_by_digest())


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    data_set=data_sets(max_size=12),
    part_bytes=st.sampled_from([1, 60, 200, 5000, 1 << 30]),
)
def test_parts_are_read_as_one_file_is(
    data: st.DataObject, data_set: tuple[Any, list[Any]], part_bytes: int
) -> None:
    spec, records = data_set
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one = write(folder / "a" / "one" / "cache.mdb", spec, records, 1 << 40)
        path = folder / "a" / "many" / "cache.mdb"
        many = write(path, spec, records, part_bytes)
        if part_bytes == 1:
            # Equal records are equal parts, of which one file is enough.
            assert part_count(many) <= len(records)
            is_fixed = RecordCodec(spec).layout.content_size is not None
            # Records of any size are counted when their page is full.
            assert isinstance(many.reader, PartsReader) == (len(records) > 1) or not is_fixed
        assert same(many.spec, spec)
        picked = data.draw(st.lists(st.integers(0, len(records) - 1))) if records else []
        check_alike(path, many, one, records, picked)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 30, 1984, 1992, 1993, 2000, 9000]), min_size=1))
def test_small_and_large_records_in_parts(sizes: list[int]) -> None:
    records = [np.full(size, number % 251, "u1") for number, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name, "a", "1", "cache.mdb")
        with write(path, BYTES, records, 6000) as dataref:
            assert same(list(dataref.stream()), records)
            assert dataref.reader.are_cached(np.arange(len(records)))
            dataref.reader.announce(range(len(records)))
            dataref.reader.forget(0, len(records))
            assert same([dataref[at] for at in range(len(records))], records)
            checking = LMDBDataRef(path, check_records=True)
            assert same(list(checking.stream()), records)


PADDED = """
import pathlib, sys
from yogadl.dataref import LMDBDataRef

# Behind the short record at the end of a part lies one that nobody has read yet.
for first in range(0, 40, 5):
    with LMDBDataRef(pathlib.Path(sys.argv[1])) as ref:
        (batch,) = ref.select([first, first + 4]).stream().batches(2, pad=-1)
        assert batch["x"].shape == (2, 30_000 - first)
        assert (batch["x"][0] == first).all() and (batch["x"][1, 1:] == -1).all()
print("read")
"""


def test_short_records_before_a_part_that_was_not_read(tmp_path: pathlib.Path) -> None:
    spec = {"x": TensorSpec("int32", (None,))}
    lengths = [30_000 - n if n % 5 == 0 else 1 for n in range(40)]
    records = [{"x": np.full(length, n, "i4")} for n, length in enumerate(lengths)]
    with write(tmp_path / "cache.mdb", spec, records, 120_000) as ref:
        assert part_count(ref) > 4
    assert run(PADDED, tmp_path / "cache.mdb") == "read\n"


def numbers(folder: pathlib.Path, count: int = 100, part_bytes: int = 200) -> pathlib.Path:
    path = folder / "a" / "1" / "cache.mdb"
    write(path, TensorSpec("int64"), list(range(count)), part_bytes).close()
    return path


def test_parts_of_as_many_records_each(tmp_path: pathlib.Path) -> None:
    with open_cache(numbers(tmp_path)) as reader:
        assert isinstance(reader, PartsReader)
        counts = reader._parts.entries["count"].tolist()
    assert len(counts) > 10
    assert set(counts[:-1]) == {counts[0]}
    assert 0 < counts[-1] <= counts[0]


def test_the_same_records_are_the_same_parts(tmp_path: pathlib.Path) -> None:
    numbers(tmp_path)
    folder = tmp_path / "a" / PARTS_FOLDER
    before = sorted(path.name for path in folder.iterdir())
    numbers(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_what_is_missing_or_cut_off_is_told_when_it_is_opened(tmp_path: pathlib.Path) -> None:
    path = numbers(tmp_path)
    parts = sorted((tmp_path / "a" / PARTS_FOLDER).iterdir())
    whole = parts[3].read_bytes()
    parts[3].write_bytes(whole[:-4096])
    with pytest.raises(CacheFormatError, match="cut off or added to"):
        LMDBDataRef(path)
    parts[3].unlink()
    with pytest.raises(CacheFormatError, match="is not there; rebuild the data set"):
        LMDBDataRef(path)
    parts[3].write_bytes(whole)
    LMDBDataRef(path).verify()


def test_what_is_cut_off_or_gone_after_it_was_opened(tmp_path: pathlib.Path) -> None:
    path = numbers(tmp_path)
    with LMDBDataRef(path) as dataref:
        parts = sorted((tmp_path / "a" / PARTS_FOLDER).iterdir())
        kept = [part.read_bytes() for part in parts]
        for wrong in (kept[0][:-4096], kept[0] + bytes(4096), b""):
            parts[0].write_bytes(wrong)
            with pytest.raises(CacheFormatError, match="cut off or added to"):
                list(dataref.stream())
        parts[0].unlink()
        with pytest.raises(CacheFormatError, match="is not there; rebuild the data set"):
            list(dataref.stream())
        # Nothing of that is remembered when it is whole again.
        parts[0].write_bytes(kept[0])
        assert [int(record) for record in dataref.stream()] == list(range(100))


FEW_FILES = """
import resource, sys
from yogadl.dataref import LMDBDataRef

resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
with LMDBDataRef(sys.argv[1]) as dataref:
    assert [int(record) for record in dataref.stream()] == list(range(400))
    dataref.verify()
"""

NO_MAPS = """
import ctypes, mmap, sys
from yogadl.dataref import LMDBDataRef
from yogadl.errors import FileSystemError

map = ctypes.CDLL(None).mmap
map.restype = ctypes.c_void_p
map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
taken = []
with LMDBDataRef(sys.argv[1]) as dataref:
    first = int(dataref[0])
    while (address := map(None, 4096, len(taken) % 2, flags, -1, 0)) != 2**64 - 1:
        taken.append(address)
    # For the interpreter, and a few parts.
    for address in taken[:40]:
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096))
    try:
        list(dataref.stream())
    except FileSystemError as error:
        print(error)
    assert int(dataref[0]) == first
"""


def run(program: str, path: pathlib.Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_more_parts_than_files_can_be_open(tmp_path: pathlib.Path) -> None:
    run(FEW_FILES, numbers(tmp_path, 400))


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such limit")
def test_more_parts_than_maps_are_allowed(tmp_path: pathlib.Path) -> None:
    limit = pathlib.Path("/proc/sys/vm/max_map_count")
    if not limit.exists() or int(limit.read_text()) > 200_000:
        pytest.skip("takes long to reach")
    assert "fewer, larger parts" in run(NO_MAPS, numbers(tmp_path, 400))


def test_another_part_under_its_name_is_refused(tmp_path: pathlib.Path) -> None:
    path = numbers(tmp_path)
    parts = sorted((tmp_path / "a" / PARTS_FOLDER).iterdir(), key=lambda part: part.stat().st_size)
    alike = [part for part in parts if part.stat().st_size == parts[-1].stat().st_size]
    alike[0].write_bytes(alike[1].read_bytes())
    with LMDBDataRef(path) as dataref:
        with pytest.raises(ChecksumError, match="is not the part that"):
            list(dataref.stream())
        with pytest.raises(ChecksumError, match="is not the part that"):
            dataref.verify()


def test_a_damaged_part_is_found(tmp_path: pathlib.Path) -> None:
    path = numbers(tmp_path)
    part = sorted((tmp_path / "a" / PARTS_FOLDER).iterdir())[0]
    data = bytearray(part.read_bytes())
    with open_cache(part) as reader:
        offset = int(reader.lookup(np.array([0]))["offset"][0])  # type: ignore[attr-defined]
    data[offset] ^= 1
    part.write_bytes(data)
    with LMDBDataRef(path) as dataref, pytest.raises(ChecksumError):
        dataref.verify()
    with LMDBDataRef(path, check_records=True) as dataref, pytest.raises(ChecksumError):
        dataref.read(range(len(dataref)))


FIELDS = [name for name in tables.PART.names or () if name not in ("digest", "token_sums")]


@pytest.mark.once
@settings(max_examples=80, deadline=None)
@given(
    field=st.sampled_from(FIELDS),
    number=st.integers(0, 5),
    value=st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 4096, 2**46, 2**63, 2**64 - 1]),
)
def test_hostile_tables(field: str, number: int, value: int) -> None:
    """Its checksums are right; what it says is not."""
    with tempfile.TemporaryDirectory() as name:
        path = numbers(pathlib.Path(name), 60)
        with open_cache(path) as reader:
            assert isinstance(reader, PartsReader)
            parts, header = reader._parts.entries.copy(), reader.header
        was = int(parts[field][number])
        parts[field][number] = value
        data = bytearray(path.read_bytes())
        data[header.index.offset : header.index.offset + parts.nbytes] = parts.tobytes()
        path.write_bytes(data)
        try:
            with LMDBDataRef(path) as dataref:
                records = [int(record) for record in dataref.stream()]
        except CacheFormatError:
            assert value != was
        else:
            assert records == list(range(60))


def _told_or_refused(ask: Callable[[pathlib.Path], dict[bytes, int]], path: pathlib.Path) -> Any:
    try:
        return ask(path)
    except CacheFormatError as error:
        # Of yogadl 0.1.4 or of others, for one of the two.
        return {} if isinstance(error, ForeignFileError) else type(error)


def test_parts_are_named_as_long_as_what_names_them_is_there(tmp_path: pathlib.Path) -> None:
    path = numbers(tmp_path)
    data = bytearray(path.read_bytes())
    assert parts_of_sparse(path) == parts_of(path) != {}
    for at in range(0, len(data), 512):
        for damaged in (data[:at] + bytes(512) + data[at + 512 :], data[:at]):
            path.write_bytes(damaged)
            told = [_told_or_refused(ask, path) for ask in (parts_of, parts_of_sparse)]
            assert told[0] == told[1]
    # Nothing of it was written.
    path.write_bytes(b"")
    os.truncate(path, 1 << 43)
    with pytest.raises(CacheFormatError):
        parts_of_sparse(path)
    os.truncate(path, 0)
    with open(path, "r+b") as file:
        file.write(data[: headers.BODY_OFFSET])
        file.truncate(len(data))
    with pytest.raises(CacheFormatError):
        parts_of_sparse(path)


def test_parts_in_a_storage(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    x = np.arange(3000, dtype="f4").reshape(1000, 3)
    storage.submit({"x": x}, "a", "one", metadata={"made": 1})
    storage.submit({"x": x}, "a", "many", metadata={"made": 1}, part_bytes=5000)
    one, many = storage.fetch("a", "one"), storage.fetch("a", "many")
    assert (part_count(one), part_count(many) > 5) == (0, True)
    assert many.metadata == one.metadata == {"made": 1}
    assert [stored.dataset_version for stored in storage.list()] == ["many", "one"]
    joined = yogadl.concat([one, many[100:]])
    assert same(joined.read([999, 1000, 1899]), many.read([999, 100, 999]))

    @storage.cacheable("a", "cached", part_bytes=5000)
    def make() -> Any:
        return {"x": x}

    assert part_count(make()) == part_count(many)
    other = LFSStorage(tmp_path / "other")
    storage.copy("a", "many", other, new_id="b")
    copied = other.fetch("b", "many")
    copied.verify()
    assert copied.reader.content_id == many.reader.content_id
    with pytest.raises(InvalidArgumentError, match="a name of yogadl's own"):
        storage.submit([1], "a", PARTS_FOLDER)
    for wrong in (0, -1, 1.5, "1"):
        with pytest.raises(InvalidArgumentError, match="part_bytes"):
            storage.submit([1], "a", "1", part_bytes=wrong)  # type: ignore[arg-type]


def test_a_source_that_fails_leaves_no_version(tmp_path: pathlib.Path) -> None:
    def failing() -> Any:
        yield from range(1000)
        raise ValueError("broken")

    storage = LFSStorage(tmp_path)
    with pytest.raises(ValueError, match="broken"):
        storage.submit(failing(), "a", "1", part_bytes=100)
    assert storage.list() == []
    assert not (tmp_path / "a" / "1").exists()
    storage.submit(range(1000), "a", "1", part_bytes=100)
    assert [int(record) for record in storage.fetch("a", "1").stream()] == list(range(1000))
