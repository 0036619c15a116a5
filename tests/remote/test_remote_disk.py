"""What is kept of versions that are read from afar: full disks, and files that others spoil."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from remote_rig import Always, Never, Site
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl.cache.parts import read_header
from yogadl.remote._fetching import passing
from yogadl.remote._local.collecting import collect
from yogadl.remote._local.kept import kept_versions
from yogadl.remote._local.space import FreeSpace
from yogadl.remote._local.sparse_file import CELL, SparseFile

pytestmark = pytest.mark.once

ORDER = {"shuffle": True, "shuffle_seed": 1}


@pytest.fixture
def small_disk(site: Site) -> Iterator[Site]:
    """What is fetched is kept on a disk of half a megabyte."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "none", site.folder], check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount")
    try:
        yield site
    finally:
        subprocess.run(["umount", "-l", site.folder], check=True)


is_root = os.geteuid() == 0 and sys.platform == "linux"


@pytest.mark.skipif(not is_root, reason="needs to mount a file system")
@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("watches", [True, False])
def test_a_full_disk(small_disk: Site, watches: bool, part_bytes: int) -> None:
    site = small_disk
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    space = FreeSpace(site.folder) if watches else Always()
    with site.ref(space) as ref:
        for order in ({}, ORDER):
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
    # Not even a page is left for what says what is there.
    for path in (*site.here(), *site.here(".whole")):
        path.unlink()
    _fill(site.folder / "others")
    with site.ref(space) as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    # What names no parts, as little of it was written.
    assert len(kept_versions(site.folder)) <= 1
    collect(site.folder)


@pytest.mark.skipif(not is_root, reason="needs to mount a file system")
def test_on_a_full_disk_what_was_kept_can_be_taken_back(small_disk: Site) -> None:
    """Whatever the pages are that say what is there; and others are told."""
    for number, count in enumerate((20, 4096, 4095)):
        path = small_disk.folder / str(number)
        one, size = SparseFile(path, count * CELL), count * CELL
        one.write(0, memoryview(b"\1" * CELL))
        one.mark(0, CELL)
        one.write(size - CELL, memoryview(b"\1" * CELL))
        one.mark(size - CELL, size)
    _fill(small_disk.folder / "others")
    for number, count in enumerate((20, 4096, 4095)):
        size = count * CELL
        one, other = (SparseFile(small_disk.folder / str(number), size) for _ in range(2))
        before = other.discarded()
        one.discard(0, CELL)
        one.discard(size - CELL, size)
        assert other.discarded() != before
        assert not other.kept(0, size)


def _fill(path: pathlib.Path) -> None:
    """Leaves no room on the disk."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _truncate(path: pathlib.Path) -> None:
    os.truncate(path, 0)


def _halve(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _lengthen(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size + 10_000)


def _scramble(path: pathlib.Path) -> None:
    size = path.stat().st_size
    roll = random.Random(size)
    with open(path, "r+b") as file:
        for _ in range(20):
            file.seek(roll.randrange(size))
            file.write(roll.randbytes(roll.randrange(1, 5000)))
    os.truncate(path, size)


def _delete(path: pathlib.Path) -> None:
    path.unlink()


def _link(path: pathlib.Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"precious")
    path.unlink()
    path.symlink_to(target)


def _hard_link(path: pathlib.Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"precious")
    path.unlink()
    os.link(target, path)


def _pipe(path: pathlib.Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


def _ones(path: pathlib.Path) -> None:
    path.write_bytes(b"\1" * path.stat().st_size)


SPOILS = [_truncate, _halve, _lengthen, _scramble, _delete, _link, _hard_link, _pipe, _ones]


@pytest.mark.parametrize(
    ("suffix", "spoil"),
    [
        *[(suffix, spoil) for suffix in ("", ".cells", ".whole") for spoil in SPOILS],
        (".whole", _folder),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_files_that_others_spoil(
    site: Site, suffix: str, spoil: Callable[[pathlib.Path], None], is_whole: bool
) -> None:
    near = site.store(records(100), spec=SPEC, part_bytes=400_000)
    with site.ref() as ref:
        order = {**ORDER, "num_shards": 1 if is_whole else 4}
        assert everything(ref.stream(**order)) == everything(near.stream(**order))
        if is_whole:
            wait_until(lambda: (ref[0], len(site.here(".whole")) == len(site.here()))[-1])
    # Who has a file mapped dies if others cut it off.
    wait_until(lambda: all(thread.name != "yogadl check" for thread in threading.enumerate()))
    for path in site.here(suffix):
        spoil(path)
    for _ in range(2):
        with site.ref() as ref:
            assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    for target in site.folder.rglob("target"):
        assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", ["", ".cells"])
@pytest.mark.parametrize("spoil", [_truncate, _scramble, _delete, _link])
def test_files_that_others_spoil_meanwhile(
    site: Site, spoil: Callable[[pathlib.Path], None], suffix: str
) -> None:
    near = site.store(records(400), spec=SPEC, part_bytes=400_000)
    # A small shard, so that the files are never whole, and read like any other: who has a file
    # mapped dies if others cut it off.
    order = {**ORDER, "num_shards": 8}
    wanted = everything(near.stream(**order))
    with site.ref() as ref:
        for at, record in enumerate(ref.stream(**order)):
            assert everything([record]) == [wanted[at]]
            if at % 10 == 5:
                for path in site.here(suffix):
                    if path.is_file() and not path.is_symlink():
                        spoil(path)
        assert everything(ref.stream(**order)) == wanted
        assert not ref.reader.files.are_complete()


@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("way", ["records", "batches", "tokens"])
@pytest.mark.parametrize("what", ["index", "file"])
def test_what_is_lost_when_all_of_it_was_here(
    site: Site, part_bytes: int, way: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read like any other file then, and fetched again all the same."""
    near = site.store(records(200), spec=SPEC, part_bytes=part_bytes)
    with site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
        wait_until(lambda: (ref[0], ref.reader._near.reader())[-1] is not None)  # type: ignore[union-attr]
    with site.ref() as ref:
        for path in site.here():
            if what == "index":
                _overwrite(path, _entries_of(path))
            elif "yogadl.parts" in str(path):
                path.unlink()
        if way == "tokens":
            found = ref.reader.tokens(np.arange(200)).tolist()
            assert found == near.reader.tokens(np.arange(200)).tolist()
        elif way == "batches":
            batches = zip(
                ref.stream(**ORDER).batches(16, pad=0),
                near.stream(**ORDER).batches(16, pad=0),
                strict=True,
            )
            assert all((mine["number"] == known["number"]).all() for mine, known in batches)
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    is_harmless = what == "file" and part_bytes == 1 << 30
    assert ("not read as whole files" in caplog.text) != is_harmless


def _entries_of(path: pathlib.Path) -> int:
    header, _ = read_header(path)
    return 0 if header.part_count else header.index.offset


def _overwrite(path: pathlib.Path, at: int) -> None:
    """Damages some bytes, unless they are the first."""
    if at:
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"damaged!" * 4)


def test_a_folder_that_somebody_deletes(site: Site) -> None:
    near = site.store(records(), spec=SPEC)
    space = FreeSpace(site.folder)
    with site.ref(space) as ref:
        stream = iter(ref.stream(**ORDER, num_shards=2))
        found = [next(stream) for _ in range(5)]
        shutil.rmtree(site.folder)
        space.is_full()
        found += list(stream)
        assert everything(found) == everything(near.stream(**ORDER, num_shards=2))
    site.folder.mkdir()
    with site.ref() as ref:
        assert everything(ref.stream()) == everything(near.stream())


def test_a_file_system_without_locks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    near = site.store(records(), spec=SPEC)
    monkeypatch.setattr(fcntl, "lockf", lockf)
    with site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))


@pytest.mark.parametrize("size", [8, 3000, 400_000])
def test_without_any_room(site: Site, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", 100_000)
    rng = np.random.default_rng(size)
    made = [
        {"x": rng.integers(0, 256, size, dtype="u1"), "number": np.int64(number)}
        for number in range(40)
    ]
    near = site.store(made)
    with site.ref(Never()) as ref:
        for order in ({}, ORDER):
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
            batches = zip(
                ref.stream(**order).batches(32), near.stream(**order).batches(32), strict=True
            )
            assert all((found["x"] == known["x"]).all() for found, known in batches)
