"""Files made to do harm: all of them are refused as such, in little time and memory."""

from __future__ import annotations

import os
import pathlib
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hostile
import hostile_damage
import hostile_originals
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_damage import intact, put, rebuilt, with_checksum

from yogadl.cache.opening import open_cache
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    ChecksumError,
    InvalidArgumentError,
    UnsupportedTypeError,
    YogadlError,
)
from yogadl.format.header import LARGEST_METADATA, LARGEST_SPEC
from yogadl.spec import MAX_RANK, OptionalSpec, RaggedSpec, SparseSpec, TensorSpec, normalize
from yogadl.storage import LFSConfigurations, LFSStorage

LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"


@settings(max_examples=300)
@given(seed=st.integers(0, 2**64))
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    original = rng.choice(hostile_originals.originals())
    path = tmp_path_factory.getbasetemp() / "damaged.mdb"
    put(path, hostile_damage.damage(rng, original))
    hostile.check_damaged(path, original)


@pytest.mark.once
@pytest.mark.parametrize("times", [500, 5000])
@pytest.mark.long_for(5000)
def test_much_damage_in_little_memory(times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", hostile.__file__, str(times)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-3000:]


# Sizes that nothing can have

SPARSE = """
import pathlib, resource, sys
from yogadl.cache.opening import open_cache
from yogadl.errors import CacheFormatError

statm = pathlib.Path("/proc/self/statm").read_text().split()[0]
used = int(statm) * resource.getpagesize()
size = pathlib.Path(sys.argv[1]).stat().st_size
# The map itself counts, and nothing else of the file's size.
resource.setrlimit(resource.RLIMIT_AS, (used + size + (256 << 20), resource.RLIM_INFINITY))
try:
    open_cache(pathlib.Path(sys.argv[1]))
except CacheFormatError as error:
    print(error)
else:
    raise AssertionError("it was opened")
# What rusage says of this process may be of the one that started it.
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
assert int(peak[0].split()[1]) < 400 << 10, peak
"""


def refused_in_little_memory(path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPARSE, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [3 << 30, 1 << 40])
@pytest.mark.parametrize("field", [8264, 8288, 8312, 8336])
def test_a_section_of_a_hole(tmp_path: pathlib.Path, field: int, size: int) -> None:
    data = bytearray(intact("fixed")[0])
    struct.pack_into("<QQ", data, field, 12288, size)
    struct.pack_into("<Q", data, 8248, size + (1 << 20))
    if field == 8312:
        struct.pack_into("<Q", data, 8224, size // 16)
    path = tmp_path / "cache.mdb"
    path.write_bytes(with_checksum(data))
    os.truncate(path, size + (1 << 20))
    refused_in_little_memory(path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_0_1_4_file_with_a_hole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    data = bytearray((LEGACY / "range.mdb").read_bytes())
    for page in (0, 4096):
        # As many entries as a terabyte has room for, and as many pages.
        struct.pack_into("<Q", data, page + 40 + 48 + 32, 1 << 35)
        struct.pack_into("<Q", data, page + 40 + 96, (1 << 28) - 1)
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    refused_in_little_memory(path)


@pytest.mark.once
def test_what_cannot_be_read_is_not_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    number = TensorSpec("int64")
    for metadata in ({"a": "x" * LARGEST_METADATA}, {"a": ["x"] * (LARGEST_METADATA // 4)}):
        with pytest.raises(InvalidArgumentError, match="above the format's limit"):
            CacheWriter(path, number, metadata)
    wide = {f"column {at}": number for at in range(LARGEST_SPEC // 64)}
    with pytest.raises(InvalidArgumentError, match="above the format's limit"):
        CacheWriter(path, wide)
    for spec in (
        TensorSpec("int8", (2**32,)),
        (TensorSpec("int64", (2**30,)), TensorSpec("string")),
        TensorSpec("string", (2**29,)),
    ):
        with pytest.raises(InvalidArgumentError, match="above the format's limit"):
            CacheWriter(path, spec)
    assert list(tmp_path.iterdir()) == []


# Specs of no array


@pytest.mark.parametrize(
    "make",
    [
        lambda: TensorSpec("int8", (1,) * (MAX_RANK + 1)),
        lambda: TensorSpec("int8", (None,) * (MAX_RANK + 1)),
        lambda: TensorSpec("int8", (None, 2**62, 2**62)),
        lambda: TensorSpec("int8", (0, 2**70)),
        lambda: TensorSpec("int8", (0, 2**32 + 1)),
        lambda: TensorSpec("string", (0, 2**62, None)),
        lambda: RaggedSpec("int8", None, 10**9),
        lambda: RaggedSpec("int8", (None, None, 2**62, 2**62), 1),
        lambda: SparseSpec("int8", (None,) * 100),
        lambda: SparseSpec("int8", (2**64,)),
    ],
)
def test_specs_of_no_array(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


def test_specs_nested_without_end() -> None:
    for wrap in (lambda spec: (spec,), lambda spec: {"a": spec}, OptionalSpec):
        spec: Any = TensorSpec("int8")
        for _ in range(64):
            spec = wrap(spec)
        normalize(spec)
        with pytest.raises(UnsupportedTypeError, match="nested"):
            normalize(wrap(spec))


def test_arrays_of_the_largest_rank(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    array = np.arange(2).reshape((1,) * (MAX_RANK - 1) + (2,))
    for shape in (array.shape, (None, *array.shape[1:]), (None,) * MAX_RANK, None):
        with CacheWriter(path, TensorSpec("int64", shape)) as writer:
            for _ in range(3):
                writer.append(array)
            writer.commit()
        with open_cache(path) as reader:
            assert (reader.read_record(1) == array).all()
            assert np.shape(reader.read_columns(np.arange(3))[0]) == (3, *array.shape)


def test_many_arrays_without_items_of_the_largest_shape(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    array = np.zeros((0, 2**32), np.complex128)
    for shape in (array.shape, (None, 2**32)):
        with CacheWriter(path, TensorSpec("complex128", shape)) as writer:
            for _ in range(3):
                writer.append(array)
            writer.commit()
        with LMDBDataRef(path) as dataref:
            positions = np.arange(10_000) % 3
            assert np.shape(dataref.read(positions)) == (10_000, *array.shape)
            assert [record.shape for record in dataref.stream()] == [array.shape] * 3
            (batch,) = dataref.stream().batches(3, pad=0)
            assert batch.shape == (3, *array.shape)


SPECS = [
    b'{"kind": "tensor", "dtype": "int8", "shape": [' + b"1, " * 64 + b"null]}",
    b'{"kind": "tensor", "dtype": "int8",'
    b' "shape": [null, 4611686018427387904, 4611686018427387904]}',
    b'{"kind": "tensor", "dtype": "int8", "shape": [0, 1180591620717411303424]}',
    b'{"kind": "tensor", "dtype": "string", "shape": [0, 4611686018427387904, null]}',
    b'{"kind": "ragged", "dtype": "int8", "shape": null, "ragged_rank": 999999999,'
    b' "row_splits_dtype": "int64"}',
    b'{"kind":"tuple","items":[' * 70 + b'{"kind":"none"}' + b"]}" * 70,
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_files_with_specs_of_no_array(tmp_path: pathlib.Path, spec: bytes) -> None:
    path = tmp_path / "cache.mdb"
    path.write_bytes(rebuilt(intact("variable")[0], {}, spec))
    with pytest.raises(ChecksumError):
        open_cache(path)


@pytest.mark.parametrize(
    "lengths", [(2**62, 2**62, 2**62, 2**62 + 2), (2**63 - 1, 2**63 - 1, 4, 0)]
)
def test_lengths_of_strings_that_wrap_around(
    tmp_path: pathlib.Path, lengths: tuple[int, ...]
) -> None:
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, TensorSpec("string", (4,))) as writer:
        writer.append([b"a", b"b", b"", b""])
        writer.commit()
    good = struct.pack("<4q", 1, 1, 0, 0)
    data = path.read_bytes()
    assert data.count(good) == 1
    put(path, data.replace(good, struct.pack("<4q", *lengths)))
    with open_cache(path) as reader:
        with pytest.raises(ChecksumError, match="length"):
            reader.read_record(0)
        with pytest.raises(ChecksumError, match="length"):
            reader.read_columns(np.array([0]))


@pytest.mark.parametrize("length", [0, 1, 7, 9, 16])
def test_index_checksums_of_another_length(path: pathlib.Path, length: int) -> None:
    data = bytearray(intact("fixed")[0])
    struct.pack_into("<Q", data, 8344, length)
    hostile_damage.sum_section(data, 8336)
    put(path, with_checksum(data))
    with pytest.raises(ChecksumError, match="index of the wrong size"):
        open_cache(path)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cache.mdb"


# What all decoders rely on


@pytest.mark.parametrize(
    ("kind", "move", "shrink"),
    [("fixed", 1, 0), ("fixed", 4, 0), ("large", 8, 0), ("large", 64, 0), ("variable", 2, 0)]
    + [("variable", 0, 10**9)],
)
def test_records_out_of_line(path: pathlib.Path, kind: str, move: int, shrink: int) -> None:
    """TensorFlow reads them in rows, which begin where the header's alignment says."""
    data, _, places = intact(kind)
    start, stop = places[1]
    put(path, rebuilt(data, {1: (start + move, max(stop - start - shrink, 1))}))
    with open_cache(path) as reader:
        for read in (reader.read_record, lambda at: reader.read_columns(np.array([at]))):
            with pytest.raises(ChecksumError, match="impossible entries"):
                read(1)


def test_records_in_the_last_page(path: pathlib.Path) -> None:
    data, _, places = intact("fixed")
    size = places[0][1] - places[0][0]
    put(path, rebuilt(data, {0: (len(data) - size - size % 8, size)}))
    with open_cache(path) as reader, pytest.raises(ChecksumError, match="impossible entries"):
        reader.read_record(0)


# Files of 0.1.4


def legacy_with(change: Callable[[bytearray], None], name: str = "range") -> bytes:
    data = bytearray((LEGACY / f"{name}.mdb").read_bytes())
    change(data)
    return bytes(data)


def _entries(number: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        for page in (0, 4096):
            struct.pack_into("<Q", data, page + 40 + 48 + 32, number)

    return change


def _dtype(data: bytearray) -> None:
    at = data.rindex(b"int64")
    data[at] ^= 1


DAMAGED = {
    "no entries": legacy_with(_entries(0)),
    "one entry": legacy_with(_entries(1)),
    "two entries": legacy_with(_entries(2)),
    "three entries": legacy_with(_entries(3)),
    "one more": legacy_with(_entries(1004)),
    "dtype": legacy_with(_dtype),
    "of an empty one": legacy_with(_entries(1), "empty"),
    "spec": rebuilt(intact("variable")[0], {}, SPECS[1]),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_cacheable_builds_again(storage_dir: pathlib.Path, how: str) -> None:
    path = storage_dir / "a" / "1" / "cache.mdb"
    path.parent.mkdir(parents=True)
    path.write_bytes(DAMAGED[how])
    storage = LFSStorage(LFSConfigurations(storage_dir))
    with pytest.raises(CacheFormatError, match=r"cache\.mdb"):
        storage.fetch("a", "1")
    with storage.cacheable("a", "1")(lambda: [5, 6])() as ref:
        assert list(ref.stream()) == [5, 6]


def test_every_bit_of_a_dtype_of_0_1_4(path: pathlib.Path) -> None:
    data = (LEGACY / "range.mdb").read_bytes()
    at = data.rindex(b"int64")
    for bit in range(8 * 5):
        changed = bytearray(data)
        changed[at + bit // 8] ^= 1 << bit % 8
        put(path, bytes(changed))
        try:
            with open_cache(path) as reader:
                reader.read_record(0)
        except CacheFormatError:
            continue
        except YogadlError as error:
            pytest.fail(f"{type(error).__name__}: {error}")
        pytest.fail(f"read as {bytes(changed[at : at + 5])!r}")
