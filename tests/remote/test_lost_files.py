"""What was kept and is lost, while what says that it is there is not: it comes in large pieces
again, and not record by record."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from processes_ready import READY
from remote_rig import Opener, Site
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl.remote._local.sparse_file import CELL, SparseFile, cells_of, open_sparse

ORDER = {"shuffle": True, "shuffle_seed": 1}
RECORDS = 400


def _delete(path: pathlib.Path) -> None:
    path.unlink()


def _truncate(path: pathlib.Path) -> None:
    os.truncate(path, 0)


def _halve(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: pathlib.Path) -> None:
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def _replace(path: pathlib.Path) -> None:
    size = path.stat().st_size
    path.unlink()
    path.touch()
    os.truncate(path, size)


def _requests(site: Site, wanted: list[tuple[int, bytes]], **order: Any) -> int:
    """How many it takes to read all records, which are right."""
    before = len(site.web.asked)
    with site.ref() as ref:
        assert everything(ref.stream(**{**ORDER, **order})) == wanted
    # Who has a file mapped dies if others cut it off.
    wait_until(lambda: all(thread.name != "yogadl check" for thread in threading.enumerate()))
    return len(site.web.asked) - before


@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("lose", [_delete, _truncate, _halve, _empty, _replace])
def test_what_is_lost_comes_in_large_pieces(
    site: Site, lose: Callable[[pathlib.Path], None], part_bytes: int
) -> None:
    near = site.store(records(RECORDS), spec=SPEC, part_bytes=part_bytes)
    wanted = everything(near.stream(**ORDER))
    at_first = _requests(site, wanted)
    for path in site.here():
        lose(path)
    assert _requests(site, wanted) <= at_first + 100 < RECORDS // 2
    assert _requests(site, wanted) < 20


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what of a file is there")
def test_a_folder_that_was_copied_is_used(site: Site) -> None:
    """Files have other inodes then, and what was not fetched is zero, or not there, as before."""
    near = site.store(records(RECORDS), spec=SPEC)
    order = {"num_shards": 16}
    wanted = everything(near.stream(**ORDER, **order))
    assert _requests(site, wanted, **order) > 10
    moved = site.folder.with_name("moved")
    site.folder.rename(moved)
    shutil.copytree(moved, site.folder)
    assert _requests(site, wanted, **order) == 1


def _read_on(opener: Opener, wanted: Any, told: Any, lost: Any) -> None:
    """In a process of its own."""
    with opener.ref() as ref:
        stream = iter(ref.stream(**ORDER))
        found = [next(stream) for _ in range(5)]
        told.set()
        assert lost.wait(60)
        found += list(stream)
        assert everything(found) == wanted
        assert everything(ref.stream(**ORDER)) == wanted


def test_who_has_the_lost_file_open_does_not_mark_what_is_in_the_new_one(site: Site) -> None:
    near = site.store(records(RECORDS), spec=SPEC)
    wanted = everything(near.stream(**ORDER))
    told, lost = READY.Event(), READY.Event()
    reader = READY.Process(target=_read_on, args=(site.opener(), wanted, told, lost))
    reader.start()
    assert told.wait(60)
    with site.ref() as old:
        assert everything([old[0]]) == everything([near[0]])
        for path in site.here():
            path.unlink()
        assert _requests(site, wanted) < 50
        lost.set()
        reader.join()
        assert reader.exitcode == 0
        assert everything(old.stream(**ORDER)) == wanted
    assert _requests(site, wanted) == 1


def _of_parts(site: Site) -> dict[pathlib.Path, pathlib.Path]:
    """The files of parts that are kept, and those that the server has."""
    stored = {path.name: path for path in site.web.folder.rglob("yogadl.parts/*.mdb")}
    return {path: stored[path.name] for path in site.here() if path.name in stored}


def test_parts_that_others_are_just_fetching_are_not_read_as_whole(site: Site) -> None:
    """Who reads a whole version maps its parts when they are first needed."""
    near = site.store(records(RECORDS), spec=SPEC, part_bytes=400_000)
    wanted = everything(near.stream())
    with site.ref() as ref:
        assert everything(ref.stream()) == wanted
    with site.ref() as ref:
        wait_until(lambda: ref.reader.is_here)
        assert everything([ref[0]]) == wanted[:1]
        for path, stored in _of_parts(site).items():
            # What is fetched first is there: the header and the index, which is at the end.
            data = stored.read_bytes()
            hole = slice(32 << 10, len(data) - (32 << 10))
            path.unlink()
            cells_of(path).unlink()
            path.write_bytes(data[: hole.start] + bytes(hole.stop - hole.start) + data[hole.stop :])
        assert everything(ref.stream()) == wanted
    assert _requests(site, everything(near.stream(**ORDER))) < 100


@pytest.mark.parametrize("lost", ["cells", "cut cells", "cells and note"])
def test_what_others_have_mapped_is_not_written_to(site: Site, lost: str) -> None:
    """Though nothing says any more what is there."""
    near = site.store(records(RECORDS), spec=SPEC)
    wanted = everything(near.stream(**ORDER))
    _requests(site, wanted)
    (path,) = site.here()
    with site.ref() as mapped:
        wait_until(lambda: mapped.reader.is_here)
        assert everything(mapped.stream(**ORDER)) == wanted
        if lost == "cut cells":
            os.truncate(cells_of(path), 10)
        else:
            cells_of(path).unlink()
        if lost == "cells and note":
            path.with_name(f"{path.name}.whole").unlink()
        before, mtime = path.stat().st_ino, path.stat().st_mtime_ns
        asked = _requests(site, wanted)
        assert (asked == 1) == (lost != "cells and note")
        is_same = path.stat().st_ino == before
        assert is_same == (lost != "cells and note")
        assert not is_same or path.stat().st_mtime_ns == mtime
        assert everything(mapped.stream(**ORDER)) == wanted
    assert _requests(site, wanted) == 1


def test_a_folder_that_is_removed_is_made_again(site: Site) -> None:
    near = site.store(records(RECORDS), spec=SPEC, part_bytes=400_000)
    wanted = everything(near.stream())
    with site.ref() as ref:
        assert everything([ref[0]]) == wanted[:1]
        shutil.rmtree(site.folder)
        assert everything(ref.stream()) == wanted
    assert site.here()


def _filled(path: pathlib.Path, cells: int) -> SparseFile:
    """A file with all of its cells there, of ones."""
    file = open_sparse(path, cells * CELL)
    file.write(0, memoryview(b"\1" * cells * CELL))
    file.mark(0, cells * CELL)
    return file


def test_of_a_new_file_nothing_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    old = _filled(path, 20)
    path.unlink()
    new = open_sparse(path, 20 * CELL)
    assert new.missing(0, 20 * CELL) == [(0, 20 * CELL)]
    old.discard(0, CELL)
    old.mark(0, CELL)
    assert new.missing(0, 20 * CELL) == [(0, 20 * CELL)]
    new.write(CELL, memoryview(bytes(CELL)))
    new.mark(CELL, 2 * CELL)
    assert old.is_kept(0, 20 * CELL)
    assert open_sparse(path, 20 * CELL) is new


def test_of_a_file_that_was_cut_off_the_beginning_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    file = _filled(path, 20)
    before = file.discarded()
    os.truncate(path, 7 * CELL + 5)
    assert open_sparse(path, 20 * CELL) is file
    assert file.missing(0, 20 * CELL) == [(7 * CELL, 20 * CELL)]
    assert file.discarded() != before
    del file
    os.truncate(path, 3 * CELL)
    assert open_sparse(path, 20 * CELL).missing(0, 20 * CELL) == [(3 * CELL, 20 * CELL)]


def test_who_finds_something_wrong_sees_that_the_file_was_cut_off(tmp_path: pathlib.Path) -> None:
    """So it does not find all that is lost bit by bit."""
    path = tmp_path / "a"
    one, other = (_filled(path, 20) for _ in range(2))
    os.truncate(path, 7 * CELL)
    one.discard(19 * CELL, 20 * CELL)
    for file in (one, other):
        file.forget()
        assert file.missing(0, 20 * CELL) == [(7 * CELL, 20 * CELL)]


def test_who_alone_has_the_deleted_cells_writes_no_more(tmp_path: pathlib.Path) -> None:
    """Others, who do not see what is marked there, may have fetched and compared all."""
    path = tmp_path / "a"
    old = _filled(path, 20)
    old.discard(0, CELL)
    cells_of(path).unlink()
    with pytest.raises(OSError, match="was deleted"):
        old.write(0, memoryview(b"\3" * CELL))
    new = open_sparse(path, 20 * CELL)
    assert new.missing(0, 20 * CELL) == [(0, 20 * CELL)]
    new.write(0, memoryview(b"\2" * CELL))
    new.mark(0, CELL)
    old.write(0, memoryview(b"\3" * CELL))
    assert path.read_bytes()[:CELL] == b"\2" * CELL
    # What is not there any more itself is its own.
    path.unlink()
    old.write(0, memoryview(b"\3" * CELL))
    assert open_sparse(path, 20 * CELL).missing(0, CELL) == [(0, CELL)]
