"""What was fetched is compared with its digest as it comes, and read like any other file then."""

from __future__ import annotations

import os
import pathlib
import threading
from typing import Any

import pytest
from remote_rig import Answer, Asked, Site, desk
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl.cache import noted
from yogadl.cache.mapping import Descriptor
from yogadl.dataref import RemoteDataRef
from yogadl.remote import _near
from yogadl.remote._fetching import bulk_queue, lateness
from yogadl.remote._local import sparse_file
from yogadl.remote._local.sparse_file import CELL, open_sparse

ORDER = {"shuffle": True, "shuffle_seed": 1}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_near, "_STEP_BYTES", 64 << 10)
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", 256 << 10)


def wait_until_whole(ref: RemoteDataRef) -> None:
    wait_until(lambda: ref.reader._whole() is not None)


@pytest.mark.parametrize("part_bytes", [1 << 30, 700_000], ids=["file", "parts"])
def test_some_is_compared_before_all_has_come(
    site: Site, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    has_compared, is_late = threading.Event(), []
    arrived = _near._arrived

    def noted(file: Any, start: int) -> int:
        end = arrived(file, start)
        if end > 300_000:
            has_compared.set()
        return end

    def late(asked: Asked, made: Answer) -> Answer:
        # A large piece at the end of a file.
        is_large = asked.stop - asked.start > 50_000
        if is_large and asked.start > max(asked.size - 700_000, 300_000) and not is_late:
            is_late.append(asked)
            made.stalls = 0.0 if has_compared.wait(20.0) else 60.0
        return made

    monkeypatch.setattr(_near, "_arrived", noted)
    with site.ref() as ref, site.twisting(late):
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
        assert has_compared.is_set()
        wait_until_whole(ref)
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))


def test_what_was_read_by_single_records_becomes_whole(site: Site) -> None:
    """With what no record has."""
    near = site.store(records(), spec=SPEC, part_bytes=700_000)
    with site.ref() as ref:
        for position in range(len(ref)):
            ref[position]
        files = ref.reader.files
        assert not files.are_complete()
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
        wait_until_whole(ref)
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))


@pytest.mark.parametrize("part_bytes", [1 << 30, 700_000], ids=["file", "parts"])
def test_what_came_damaged_is_compared_again(site: Site, part_bytes: int) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    damaged: set[int] = set()

    def flip(asked: Asked, made: Answer) -> Answer:
        # Every large piece, once.
        if len(made.body) > 50_000 and asked.start and asked.start not in damaged:
            damaged.add(asked.start)
            at = len(made.body) // 2
            made.body = made.body[:at] + bytes([made.body[at] ^ 1]) + made.body[at + 1 :]
        return made

    with site.ref() as ref, site.twisting(flip):
        for _ in range(2):
            assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    assert damaged
    # Also what no record has may be damaged of it now.
    with site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    stored = {path.stat().st_size: path for path in site.web.folder.rglob("*.mdb")}
    for path in site.folder.rglob("*.mdb"):
        same = path.read_bytes() == stored[path.stat().st_size].read_bytes()
        assert same or not noted.is_noted(path)


def test_what_is_fetched_again_is_compared_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it comes after it was compared, and before the rest was."""
    near = site.store(records(), spec=SPEC)
    wanted = everything(near.stream(**ORDER))
    compare, spoilt = _near.compare, []

    def compare_and_spoil(path: pathlib.Path, arrived: Any) -> Any:
        found = compare(path, arrived)
        if not spoilt:
            pieces = open_sparse(path, path.stat().st_size)
            start = pieces.size // 2 // CELL * CELL
            spoilt.append(start)
            pieces.discard(start, start + CELL)
            pieces.write(start, memoryview(bytes(CELL)))
            pieces.mark(start, start + CELL)
        return found

    monkeypatch.setattr(_near, "compare", compare_and_spoil)
    with site.ref() as ref:
        for _ in range(3):
            assert everything(ref.stream(**ORDER)) == wanted
        wait_until(lambda: bool(spoilt))
        for _ in range(3):
            assert everything(ref.stream(**ORDER)) == wanted
        (path,) = site.here()
        assert not noted.is_noted(path) or path.read_bytes() == site.path().read_bytes()


def test_what_comes_late_and_damaged_is_not_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for twice, when all of it has come and is read without checksums."""
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 0.1)
    near = site.store(records(), spec=SPEC)
    wanted = everything(near.stream(**ORDER))
    first: list[Asked] = []
    seconds: list[Asked] = []
    is_asked_again, is_near = threading.Event(), threading.Event()

    def twist(asked: Asked, made: Answer) -> Answer:
        if not first and asked.start <= 1_000_000 < asked.stop:
            first.append(asked)
            is_asked_again.wait(60.0)
        elif first and first[0].start <= asked.start < first[0].stop:
            seconds.append(asked)
            is_asked_again.set()
            if is_near.wait(60.0):
                made.body = bytes(len(made.body))
        return made

    with site.ref() as ref, site.twisting(twist):
        assert everything(ref.stream(**ORDER)) == wanted
        wait_until_whole(ref)
        is_near.set()
        wait_until(lambda: not desk(ref).queue.flying)
        assert seconds
        assert everything(ref.stream(**ORDER)) == wanted


def test_what_is_there_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    file = open_sparse(tmp_path / "a", 20 * CELL)
    first, second = os.urandom(20 * CELL), os.urandom(20 * CELL)
    file.write(3 * CELL, memoryview(first)[3 * CELL : 6 * CELL])
    file.mark(3 * CELL, 6 * CELL)
    # As another process does, which this one has not seen.
    with open(tmp_path / "a.cells", "r+b") as cells:
        cells.seek(10)
        cells.write(b"\1\1")
    with open(tmp_path / "a", "r+b") as data:
        data.seek(10 * CELL)
        data.write(first[10 * CELL : 12 * CELL])
    file.write(CELL + 7, memoryview(second)[CELL + 7 : 15 * CELL - 3])
    expected = bytearray(20 * CELL)
    expected[CELL + 7 : 15 * CELL - 3] = second[CELL + 7 : 15 * CELL - 3]
    for begin, end in ((3, 6), (10, 12)):
        expected[begin * CELL : end * CELL] = first[begin * CELL : end * CELL]
    assert (tmp_path / "a").read_bytes() == expected
    file.write(0, memoryview(first)[: 8 * CELL])
    expected[: 3 * CELL] = first[: 3 * CELL]
    expected[6 * CELL : 8 * CELL] = first[6 * CELL : 8 * CELL]
    assert (tmp_path / "a").read_bytes() == expected


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_discards_are_seen_by_others(tmp_path: pathlib.Path) -> None:
    file = open_sparse(tmp_path / "a", 20 * CELL)
    seen = [file.discarded()]
    file.discard(0, 3 * CELL)
    # There was nothing.
    assert file.discarded() == seen[0]
    for at in (2, 2, 19):
        file.mark(at * CELL, (at + 1) * CELL)
        child = os.fork()
        if child == 0:
            try:
                open_sparse(tmp_path / "a", 20 * CELL).discard(0, 20 * CELL)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        seen.append(file.discarded())
    assert len(set(seen)) == len(seen)


def test_what_a_crash_may_have_taken_is_compared_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.store(records(), spec=SPEC)
    with site.ref() as ref:
        everything(ref.stream(**ORDER))
        wait_until_whole(ref)
    (path,) = site.here()
    assert noted.is_noted(path)
    monkeypatch.setattr(noted, "_start_of_machine", lambda: "another")
    assert not noted.is_noted(path)
    with site.ref() as ref:
        wait_until_whole(ref)
    assert noted.is_noted(path)


def test_only_who_has_claimed_bytes_writes_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has looked at what is there may write long afterwards, and what came may be damaged.

    Until then, nobody takes the file for whole.
    """
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 0.1)
    near = site.store(records(), spec=SPEC)
    wanted = everything(near.stream(**ORDER))
    write, held, may_write = sparse_file.write_all, threading.Event(), threading.Event()

    def write_late(file: Descriptor, start: int, data: memoryview) -> None:
        if start <= 1_000_000 < start + len(data) and not held.is_set():
            held.set()
            may_write.wait(60.0)
        write(file, start, data)

    monkeypatch.setattr(sparse_file, "write_all", write_late)
    with site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == wanted
        assert held.is_set()
        (path,) = site.here()
        assert not open_sparse(path, path.stat().st_size).is_kept(1_000_000, 1_000_001)
        assert not noted.is_noted(path)
        may_write.set()
        wait_until(lambda: not desk(ref).queue.flying)
        for _ in range(3):
            assert everything(ref.stream(**ORDER)) == wanted
        wait_until_whole(ref)
        assert everything(ref.stream(**ORDER)) == wanted
        assert path.read_bytes() == site.path().read_bytes()


def test_a_folder_of_two_names_has_one_file(tmp_path: pathlib.Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    assert open_sparse(folder / "a", 4 * CELL) is open_sparse(link / "a", 4 * CELL)
