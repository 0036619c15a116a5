"""Mapped files: what they take of the process, and what is asked about them."""

from __future__ import annotations

import collections
import gc
import mmap
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import yogadl
from yogadl.cache.address_space import AddressSpace
from yogadl.cache.mapping import (
    Descriptor,
    MappedFile,
    ReservedRange,
    _descriptors,
    _files,
    aligned_places,
    open_file,
)
from yogadl.cache.mapping._ranges import LARGEST_PAGE
from yogadl.cache.opening import open_cache
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.spec import TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"

MANY_OPEN = """
import resource, sys
from yogadl.dataref import LMDBDataRef, concat

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
paths = sys.argv[1:]
opened = [LMDBDataRef(paths[n % len(paths)]) for n in range(2000)]
for turn in range(2):
    for ref in opened:
        assert ref.read([2, 0]).tolist() == [2, 0]
        assert next(iter(ref.stream())) == 0
parts = [ref[:5] for ref in opened]
assert sum(concat(parts).stream(shuffle=True, shuffle_seed=1)) == 10 * len(opened)
"""


def made(path: pathlib.Path, numbers: list[int]) -> pathlib.Path:
    with CacheWriter(path, TensorSpec("int64")) as writer:
        writer.append_columns([np.array(numbers)], len(numbers))
        writer.commit()
    return path


@pytest.mark.once
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.long_for(True)
def test_thousands_of_open_caches(tmp_path: pathlib.Path, legacy: bool) -> None:
    paths = [made(tmp_path / f"{number:02}.mdb", list(range(5))) for number in range(20)]
    subprocess.run(
        [sys.executable, "-c", MANY_OPEN, *([GOLDEN] if legacy else paths)],
        check=True,
        timeout=280,
        cwd=pathlib.Path(yogadl.__file__).parent.parent,
    )


def mapped(path: pathlib.Path) -> MappedFile:
    return MappedFile(Descriptor(os.open(path, os.O_RDONLY)), path)


def test_what_is_asked_of_more_files_than_are_kept_open(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_descriptors, "_MOST_KEPT", 3)
    monkeypatch.setattr(_descriptors, "_kept", collections.OrderedDict())
    paths = [made(tmp_path / f"{number}.mdb", [number]) for number in range(8)]
    files = [mapped(path) for path in paths]
    for file in files * 2:
        assert file.is_cached(0) == bool(_files._NO_WAIT)
        assert len(_descriptors._kept) <= 3


def test_a_file_that_was_replaced_is_not_asked_for_another(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_descriptors, "_MOST_KEPT", 0)
    monkeypatch.setattr(_descriptors, "_kept", collections.OrderedDict())
    path = made(tmp_path / "cache.mdb", [1])
    file = mapped(path)
    made(path, [2])
    assert not file.is_cached(0)
    path.unlink()
    assert not file.is_cached(0)
    with open_cache(made(path, [3])) as reader:
        assert reader.read_record(0) == 3


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="Linux tells of pages")
def test_what_this_process_has_in_memory_is_known_without_opening_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_descriptors, "_MOST_KEPT", 0)
    monkeypatch.setattr(_descriptors, "_kept", collections.OrderedDict())
    path = made(tmp_path / "cache.mdb", list(range(10_000)))
    file = mapped(path)
    path.unlink()
    last = len(file.array) - 1
    assert not file.is_cached(last)
    file.array[last].item()
    assert file.is_cached(last)


@given(st.lists(st.integers(0, 1 << 23) | st.integers(0, 1 << 13), max_size=50))
def test_files_lie_behind_each_other_as_the_page_cache_has_them(sizes: list[int]) -> None:
    places, end = aligned_places(np.array(sizes, "i8"))
    reached = 0
    for place, size in zip(places.tolist(), sizes, strict=True):
        assert place >= reached
        assert place % mmap.PAGESIZE == 0
        # None lies across the end of a large page unless it begins at one.
        assert place % LARGEST_PAGE == 0 or place % LARGEST_PAGE + size <= LARGEST_PAGE
        reached = place + size
    assert reached <= end <= 3 * sum(sizes) + 2 * len(sizes) * mmap.PAGESIZE
    assert ReservedRange(end).array.ctypes.data % LARGEST_PAGE == 0


def test_many_files_have_no_gaps(tmp_path: pathlib.Path) -> None:
    """Which would take as many maps again, of the 65,530 that a process may have."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 20)

    def map_file(_number: int, place: ReservedRange, offset: int) -> MappedFile:
        return MappedFile(open_file(path), path, (place, offset, 5120))

    space = AddressSpace(np.full(3000, 5120), map_file)
    assert set(np.diff(space.bases).tolist()) == {-(-5120 // mmap.PAGESIZE) * mmap.PAGESIZE}
    for number in range(3000):
        space.file(number)
    assert space.array[space.bases + 255].tolist() == [255] * 3000


def test_advice_does_not_reach_beyond_the_map(tmp_path: pathlib.Path) -> None:
    """What lies behind a map may be the heap, which such advice would clear."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    files = [mapped(path) for _ in range(8)]
    others = [np.full(1 << 20, 7, "u1") for _ in range(8)]
    for file in files:
        file.forget(0, 1 << 34)
        file.forget(1 << 30, 1 << 34)
        file.will_need(np.array([0, 1 << 20]), np.array([1 << 34, 1 << 35]))
    assert all((other == 7).all() for other in others)
    assert all((file.array == np.tile(np.arange(256), 64)).all() for file in files)


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped"
)
def test_the_map_lives_as_long_as_the_last_view(tmp_path: pathlib.Path) -> None:
    def maps() -> int:
        gc.collect()
        return pathlib.Path("/proc/self/maps").read_text().count(str(path))

    path = made(tmp_path / "cache.mdb", list(range(9000)))
    ref = LMDBDataRef(path)
    view = memoryview(ref.reader.buffer[12288:])[100:]  # type: ignore[attr-defined]
    ref.close()
    assert maps() == 1
    assert len(bytes(view)) == path.stat().st_size - 12388
    del view
    assert maps() == 0


def test_a_map_is_read_only(tmp_path: pathlib.Path) -> None:
    array = mapped(made(tmp_path / "cache.mdb", [1])).array
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        array.flags.writeable = True
