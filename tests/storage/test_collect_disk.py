"""Parts on a disk that nobody needs are removed, and never one that somebody needs."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from killing import file_events, killed_amid

from yogadl.cache import held, opening
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.storage import LFSStorage
from yogadl.storage._disk.collector import LocalCollector
from yogadl.storage._disk.parts import LocalParts
from yogadl.storage._disk.tables import BUILDING_FILE, TABLE_ENDING, LocalTables

pytestmark = pytest.mark.once

AT_ONCE = datetime.timedelta()
COUNT = 400
PART_BYTES = 4000

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def submit(storage: LFSStorage, version: str, first: int = 0, count: int = COUNT) -> None:
    storage.submit(np.arange(first, first + count), "a", version, part_bytes=PART_BYTES)


def records(ref: Any) -> list[int]:
    return [int(record) for record in ref.stream()]


def parts(directory: pathlib.Path) -> set[str]:
    return {path.stem for path in (directory / "a" / PARTS_FOLDER).glob("*.mdb")}


def needed(storage: LFSStorage) -> set[str]:
    found = set()
    for stored in storage.list():
        with storage.fetch(stored.dataset_id, stored.dataset_version) as ref:
            found |= {digest.hex() for digest in ref.reader.parts_by_digest()}
    return found


class Disk(RuleBasedStateMachine):
    """Versions come and go while readers, which map parts when they first need them, stay."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self.folder.name)
        self.storage = LFSStorage(self.directory)
        self.stored: dict[str, list[int]] = {}
        self.readers: list[tuple[LMDBDataRef, list[int]]] = []

    def teardown(self) -> None:
        for ref, _ in self.readers:
            ref.close()
        self.readers.clear()
        self.storage.collect_parts(older_than=AT_ONCE)
        assert parts(self.directory) == needed(self.storage)
        self.folder.cleanup()

    @rule(version=st.sampled_from("xy"), first=st.sampled_from([0, 7]), large=st.booleans())
    def store(self, version: str, first: int, large: bool) -> None:
        count = COUNT if large else COUNT // 2
        submit(self.storage, version, first, count)
        self.stored[version] = list(range(first, first + count))

    @rule(version=st.sampled_from("xy"))
    def store_one_file(self, version: str) -> None:
        self.storage.submit([1, 2, 3], "a", version)
        self.stored[version] = [1, 2, 3]

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), by_hand=st.booleans())
    def delete(self, data: st.DataObject, by_hand: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.stored)))
        del self.stored[version]
        if by_hand:
            (self.directory / "a" / version / "cache.mdb").unlink()
        else:
            self.storage.delete("a", version)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.stored)))
        self.readers.append((self.storage.fetch("a", version), self.stored[version]))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def read_a_record(self, data: st.DataObject) -> None:
        ref, expected = data.draw(st.sampled_from(self.readers))
        at = data.draw(st.integers(0, len(expected) - 1))
        assert int(ref[at]) == expected[at]

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        ref, expected = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        assert records(ref) == expected
        ref.close()

    @rule(older_than=st.sampled_from([None, AT_ONCE]), dry_run=st.booleans())
    def collect(self, older_than: datetime.timedelta | None, dry_run: bool) -> None:
        before = parts(self.directory)
        done = self.storage.collect_parts(older_than=older_than, dry_run=dry_run)
        assert not done.skipped
        gone = set() if dry_run else {part.digest for part in done.removed}
        assert parts(self.directory) == before - gone

    @invariant()
    def all_is_there(self) -> None:
        for version, expected in self.stored.items():
            with self.storage.fetch("a", version) as ref:
                assert records(ref) == expected


TestDisk = Disk.TestCase
TestDisk.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_deleting_and_replacing_give_the_room_back(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    submit(storage, "2", count=COUNT + 100)
    shared = needed(storage)
    assert parts(tmp_path) == shared
    submit(storage, "1", first=5)
    storage.delete("a", "2")
    assert parts(tmp_path) == needed(storage)
    storage.delete("a", "1")
    assert parts(tmp_path) == set()
    assert storage.collect_parts().removed == ()


def test_what_was_removed_is_told(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    (tmp_path / "a" / "1" / "cache.mdb").unlink()
    files = {path.stem: path.stat().st_size for path in tmp_path.rglob("yogadl.parts/*.mdb")}
    would = storage.collect_parts("a", dry_run=True)
    assert {part.digest: part.size for part in would.removed} == files
    done = storage.collect_parts("a")
    assert done == would
    assert done.size == sum(files.values())
    assert storage.collect_parts("nothing").removed == ()
    for wrong in (3, datetime.timedelta(-1)):
        with pytest.raises(InvalidArgumentError, match="older_than"):
            storage.collect_parts(older_than=wrong)  # type: ignore[arg-type]


def test_parts_without_a_table_stay_for_a_day(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    left = tmp_path / "a" / PARTS_FOLDER / f"{'ab' * 16}.mdb"
    left.write_bytes(bytes(4096))
    done = storage.collect_parts()
    assert ([part.digest for part in done.waiting], done.removed) == (["ab" * 16], ())
    done = storage.collect_parts(older_than=AT_ONCE)
    assert [part.digest for part in done.removed] == ["ab" * 16]
    assert parts(tmp_path) == needed(storage)


def test_nothing_is_collected_while_a_version_is_built(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    (tmp_path / "a" / "1" / "cache.mdb").unlink()
    skipped = []

    def slow() -> Any:
        for number in range(10 * COUNT):
            if number == 10 * COUNT - 1:
                skipped.append(storage.collect_parts(older_than=AT_ONCE).skipped)
            yield number

    storage.submit(slow(), "a", "2", part_bytes=PART_BYTES)
    assert [list(found) for found in skipped] == [["a"]]
    assert records(storage.fetch("a", "2")) == list(range(10 * COUNT))


@pytest.mark.parametrize("place", [8192 + 20, 8192 + 300, -5000])
def test_a_damaged_table_keeps_all_parts(
    place: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    submit(storage, "2", first=3)
    (tmp_path / "a" / "2" / "cache.mdb").unlink()
    before = parts(tmp_path)
    table = tmp_path / "a" / "1" / "cache.mdb"
    whole = table.read_bytes()
    data = bytearray(whole)
    data[place] ^= 1
    table.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        done = storage.collect_parts(older_than=AT_ONCE)
    assert list(done.skipped) == ["a"]
    assert "No parts of a are removed" in caplog.text
    assert parts(tmp_path) == before
    table.write_bytes(whole)
    assert storage.collect_parts(older_than=AT_ONCE).removed
    assert parts(tmp_path) == needed(storage)


def test_a_table_that_is_replaced_while_it_is_opened(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    hold = opening.hold
    late = iter([True, False])

    def too_late(*given: Any) -> bool:
        if next(late):
            submit(storage, "1", first=9)
        return hold(*given)

    monkeypatch.setattr(opening, "hold", too_late)
    assert records(storage.fetch("a", "1")) == list(range(9, 9 + COUNT))


READER = """
import sys
from yogadl.storage import LFSStorage
ref = LFSStorage(sys.argv[1]).fetch("a", "1")
print(int(ref[0]), flush=True)
sys.stdin.readline()
print(sum(int(record) for record in ref.stream(shuffle=True, shuffle_seed=1)), flush=True)
sys.stdin.readline()
"""


def test_a_reader_in_another_process_keeps_its_parts(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    old = parts(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", READER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "0\n"
        submit(storage, "1", first=1000)
        found = storage.collect_parts(older_than=AT_ONCE)
        assert not found.removed
        assert {part.digest for part in found.waiting} == old
        assert parts(tmp_path) > old
        storage.delete("a", "1")
        assert parts(tmp_path) == old
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert int(reader.stdout.readline()) == sum(range(COUNT))
        reader.kill()
        reader.wait()
    assert {part.digest for part in storage.collect_parts().removed} == old
    assert parts(tmp_path) == set()


@fork
@forking
def test_a_child_of_a_fork_keeps_what_it_inherited(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    ref = storage.fetch("a", "1")
    begin, go = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.read(begin, 1)
            code = int(records(ref) != list(range(COUNT)))
        os._exit(code)
    ref.close()
    del ref
    storage.delete("a", "1")
    assert len(parts(tmp_path)) > 2
    os.write(go, b"g")
    assert os.waitpid(child, 0)[1] == 0
    os.close(begin)
    os.close(go)
    storage.collect_parts()
    assert parts(tmp_path) == set()


@fork
@forking
def test_a_child_of_a_fork_does_not_take_the_lock_away(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    with storage.fetch("a", "1") as ref:
        child = os.fork()
        if child == 0:
            ref.close()
            os._exit(0)
        os.waitpid(child, 0)
        storage.delete("a", "1")
        assert records(ref) == list(range(COUNT))


@fork
@forking
@pytest.mark.parametrize(
    ("owner", "method"),
    [(LocalTables, "keep"), (LocalCollector, "_plan")],
    ids=["storing", "collecting"],
)
def test_a_child_that_is_born_meanwhile_keeps_nobody_waiting(
    tmp_path: pathlib.Path, owner: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    children: list[int] = []
    original = getattr(owner, method)

    def start_worker(*given: Any) -> Any:
        if not children:
            children.append(os.fork())
            if not children[0]:
                time.sleep(120)
                os._exit(0)
        return original(*given)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(owner, method, start_worker)
            submit(storage, "2", 500)
            storage.collect_parts()
        assert children
        # The worker lives on.
        submit(storage, "3", 1000)
        storage.delete("a", "1")
        assert not storage.collect_parts(older_than=AT_ONCE).skipped
        assert parts(tmp_path) == needed(storage)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@fork
@forking
def test_a_worker_that_lives_on_does_not_lock_what_it_helped_to_build(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(held, "_PATIENCE", 0.3)
    storage = LFSStorage(tmp_path)
    children: list[int] = []
    commit = PartialFile.commit

    def start_worker(*given: Any) -> None:
        children.append(os.fork())
        if not children[-1]:
            time.sleep(120)
            os._exit(0)
        commit(*given)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(PartialFile, "commit", start_worker)
            submit(storage, "1")
        assert children
        with storage.fetch("a", "1") as ref:
            assert records(ref) == list(range(COUNT))
        # Who opens it did not wait in vain for the lock.
        assert "is locked by somebody else" not in caplog.text
        storage.delete("a", "1")
        assert parts(tmp_path) == set()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_who_collected_was_killed_as_he_tried_links(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = LFSStorage(tmp_path)
    submit(storage, "kept")
    submit(storage, "1", COUNT)
    folder = tmp_path / "a" / PARTS_FOLDER
    os.link(folder / BUILDING_FILE, folder / f"{0:032x}{TABLE_ENDING}")
    os.link(folder / BUILDING_FILE, folder / f"{1:032x}{TABLE_ENDING}")
    everything = parts(tmp_path)
    assert not storage.collect_parts(older_than=AT_ONCE, dry_run=True).skipped
    (tmp_path / "a" / "1" / "cache.mdb").unlink()
    storage.collect_parts(older_than=AT_ONCE)
    assert parts(tmp_path) == needed(storage) < everything
    assert len(LocalTables(tmp_path / "a").links()) == 1
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    with storage.fetch("a", "kept") as ref:
        assert records(ref) == list(range(COUNT))


@fork
@forking
def test_builders_and_collectors_that_are_killed(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    chance = random.Random(1)
    submit(storage, "kept")
    events = file_events(lambda: submit(storage, "1"))
    orphans = killed = 0
    for number in range(24):
        with storage.fetch("a", "kept") as ref:
            first = 10_000 * (number + 1)
            if number % 2:
                work = functools.partial(submit, storage, "1", first)
                killed += killed_amid(work, chance.randint(1, events))
            else:
                # What it has to remove.
                submit(storage, f"{number}", first)
                (tmp_path / "a" / f"{number}" / "cache.mdb").unlink()
                work = functools.partial(LocalParts(tmp_path / "a", "a").collect, AT_ONCE)
                killed += killed_amid(work, chance.randint(1, events))
            orphans += len(parts(tmp_path) - needed(storage))
            for stored in storage.list():
                storage.fetch("a", stored.dataset_version).verify()
            assert records(ref) == list(range(COUNT))
    assert killed >= 12
    assert orphans > 0
    storage.collect_parts(older_than=AT_ONCE)
    assert parts(tmp_path) == needed(storage)
    names = {path.suffix for path in (tmp_path / "a" / PARTS_FOLDER).iterdir()}
    assert names == {".mdb", ".table", ".building"}
    tables = list((tmp_path / "a" / PARTS_FOLDER).glob("*.table"))
    assert len(tables) == len(storage.list())


def test_tables_that_were_put_there_by_hand(tmp_path: pathlib.Path) -> None:
    """Also they are kept for who reads them when they are removed by hand."""
    storage = LFSStorage(tmp_path)
    submit(storage, "1")
    for path in tmp_path.rglob("*.table"):
        path.unlink()
    storage.collect_parts(older_than=AT_ONCE)
    with storage.fetch("a", "1") as ref:
        (tmp_path / "a" / "1" / "cache.mdb").unlink()
        assert not storage.collect_parts(older_than=AT_ONCE).removed
        assert records(ref) == list(range(COUNT))
    assert storage.collect_parts().removed
