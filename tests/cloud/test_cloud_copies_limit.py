"""Downloads are named by their contents: what they take, and when they go."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from content_copies import (
    BOTH,
    COUNT,
    ONE,
    SIZE,
    WAYS,
    check,
    everything,
    files,
    limited,
    path,
    reads,
    submit,
    there,
    used,
)
from copies import KEY, LEGACY, records

from yogadl.dataref import RemoteDataRef
from yogadl.errors import CacheNotFoundError, StorageFullError
from yogadl.storage._buckets.local_copy import LocalCopy

# A limit


@pytest.fixture
def stored(s3: Any, local: pathlib.Path, request: Any) -> Any:
    """A bucket with versions 1 to 4."""
    storage = s3.make_storage(local)
    for version in "1234":
        submit(storage, "a", version, part_bytes=getattr(request, "param", 1 << 30))
    return s3


@BOTH
def test_versions_that_nobody_has_open_make_room(stored: Any, elsewhere: pathlib.Path) -> None:
    size = taken(stored, elsewhere)
    storage = stored.make_storage(elsewhere, local_cache_bytes=int(2.5 * size))
    for version in "12":
        check(storage.fetch("a", version, download=True), version=version)
    check(storage.fetch("a", "1", download=True))
    assert there(elsewhere, stored) == {"1", "2"}
    # That of 2 was opened before that of 1.
    check(storage.fetch("a", "3", download=True), version="3")
    assert there(elsewhere, stored) == {"1", "3"}
    assert used(elsewhere) <= 2.5 * size + 200_000
    # What went leaves nothing that leads nowhere, nor says that it is current.
    assert not os.path.lexists(path(elsewhere, "a", "2"))
    assert not path(elsewhere, "a", "2").with_name("local_metadata.json").exists()
    storage.local.pin("a", "1")
    with storage.fetch("a", "3", download=True) as reader:
        with pytest.raises(StorageFullError) as caught:
            storage.fetch("a", "4", download=True)
        for told in (str(elsewhere), "local_cache_bytes", "local_cache_dir", "download=False"):
            assert told in str(caught.value)
        # Of a table, that itself may be here.
        assert there(elsewhere, stored) >= {"1", "3"}
        reader.verify()
    check(storage.fetch("a", "4", download=True), version="4")
    assert there(elsewhere, stored) == {"1", "4"}
    with stored.counting() as requests:
        check(storage.fetch("a", "1"))
    assert not reads(requests)


@BOTH
def test_one_whose_room_others_take_before_it_is_opened(
    stored: Any, elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = taken(stored, elsewhere)
    storage = stored.make_storage(elsewhere, local_cache_bytes=int(1.2 * size))
    storage.fetch("a", "1", download=True).close()
    look = LocalCopy.has

    def look_and_lose(copy: LocalCopy, info: Any) -> bool:
        found = look(copy, info)
        monkeypatch.undo()
        others.append(storage.fetch("a", "2", download=True))
        return found

    others: list[Any] = []
    monkeypatch.setattr(LocalCopy, "has", look_and_lose)
    found = storage.fetch("a", "1")
    assert isinstance(found, RemoteDataRef)
    check(found)
    (other,) = others
    check(other, version="2")


def taken(rig: Any, local: pathlib.Path) -> int:
    """The bytes that a version takes on the disk."""
    storage = rig.make_storage(local)
    storage.fetch("a", "1", download=True).close()
    (found,) = storage.local.list()
    assert storage.local.prune() >= found.nbytes - 50_000
    assert everything(local) == []
    return int(found.nbytes)


def test_one_that_is_larger_than_the_limit(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = limited(stored, elsewhere, 0.1)
    with pytest.raises(StorageFullError, match=r"more than local_cache_bytes, .*download=False"):
        storage.fetch("a", "1", download=True)
    assert everything(elsewhere) == []
    check(storage.fetch("a", "1"))


def test_what_is_built_takes_no_more_than_the_limit(s3: Any, local: pathlib.Path) -> None:
    storage = limited(s3, local, 0.1)
    ref = storage.cacheable("a", "1")(lambda: np.arange(COUNT))()
    assert len(ref) == COUNT
    assert isinstance(ref, RemoteDataRef)
    ref.close()
    assert used(local) < 0.1 * ONE + 200_000


def test_a_copy_of_0_1_4_is_not_counted(s3: Any, local: pathlib.Path) -> None:
    s3.raw.put(KEY, LEGACY.read_bytes())
    storage = s3.make_storage(local, local_cache_bytes=1000)
    assert records(storage.fetch("a", "1", download=True)) == list(range(1000))
    assert not path(local).is_symlink()
    assert storage.local.list() == []


# To list, pin and prune


@BOTH
def test_list_pin_and_prune(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = stored.make_storage(elsewhere)
    with pytest.raises(CacheNotFoundError, match="fetch it first"):
        storage.local.pin("a", "1")
    ref = storage.fetch("a", "1", download=True)
    storage.fetch("a", "2", download=True).close()
    one, two = storage.local.list()
    assert one.names[0].endswith("/a/1/cache.mdb")
    assert two.opened >= one.opened
    assert SIZE < one.nbytes < 2 * ONE
    storage.local.pin("a", "2")
    # One is open, one is pinned.
    assert storage.local.prune() == 0
    ref.verify()
    again = pickle.loads(pickle.dumps(ref))
    ref.close()
    del ref
    assert storage.local.prune() == 0
    again.verify()
    pickled = pickle.dumps(again)
    again.close()
    del again
    assert storage.local.prune() > SIZE
    assert there(elsewhere, stored) == {"2"}
    storage.local.unpin("a", "2")
    assert storage.local.prune() > SIZE
    assert everything(elsewhere) == []
    assert used(elsewhere) < 200_000
    with pytest.raises(CacheNotFoundError, match=r"not on this machine any more.*fetch it again"):
        pickle.loads(pickled)
    check(storage.fetch("a", "1", download=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@BOTH
def test_what_another_process_has_open_stays(stored: Any, elsewhere: pathlib.Path) -> None:
    context = multiprocessing.get_context("fork")
    storage = stored.make_storage(elsewhere)
    has_opened, may_end = context.Event(), context.Event()

    def read() -> None:
        with stored.make_storage(elsewhere).fetch("a", "1", download=True) as ref:
            has_opened.set()
            assert may_end.wait(60)
            ref.verify()

    reader = context.Process(target=read)
    reader.start()
    assert has_opened.wait(60)
    assert storage.local.prune() == 0
    may_end.set()
    reader.join(60)
    assert reader.exitcode == 0
    assert storage.local.prune() > SIZE


@WAYS
def test_a_version_that_is_replaced_goes_when_nobody_reads_it(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    here, storage = rig.make_storage(local), rig.make_storage(elsewhere)
    submit(here, part_bytes=part_bytes)
    reader = storage.fetch("a", "1", download=True)
    storage.local.pin("a", "1")
    here.submit(np.arange(7), "a", "1")
    assert records(storage.fetch("a", "1", download=True)) == list(range(7))
    assert len(files(elsewhere)) == 2
    reader.verify()
    check(reader)
    del reader
    here.submit(np.arange(8), "a", "1")
    assert records(storage.fetch("a", "1", download=True)) == list(range(8))
    (left,) = everything(elsewhere)
    # That was asked of the version, not of what it was.
    (found,) = storage.local.list()
    assert found.is_pinned
    assert path(elsewhere).resolve() == left.resolve()


# Kills


class Victim:
    """A process that does something again and again until it is killed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                while True:
                    work()
            except BaseException:  # also what pytest raises, which must not go on in the child
                traceback.print_exc()
            finally:
                os._exit(1)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("stored", [1 << 30, 500_000], ids=["file", "parts"], indirect=True)
def test_killed_anywhere(stored: Any, elsewhere: pathlib.Path) -> None:
    """Downloads, and removals for them: what is left is right, and goes, or is used."""
    size = taken(stored, elsewhere)
    limit = int(2.5 * size)
    chance = random.Random(1)

    def work() -> None:
        storage = stored.make_storage(elsewhere, local_cache_bytes=limit)
        version = random.choice("1234")
        with storage.fetch("a", version, download=True) as ref:
            assert int(ref[10]) == int(ref[0]) + 10
        if random.random() < 0.3:
            storage.local.prune(random.randrange(size))

    broken = 0
    for _ in range(12):
        victim = Victim(work)
        end = time.monotonic() + 10
        while not list(elsewhere.rglob("*.partial")) and time.monotonic() < end:
            time.sleep(0.001)
        # While it downloads, or gives that its name, or somewhat later.
        time.sleep(chance.choice([0.0, 0.02, 0.1, 0.5]) * chance.random())
        victim.kill()
        broken += bool(list(elsewhere.rglob("*.partial")) + list(elsewhere.rglob("*.link")))
        storage = stored.make_storage(elsewhere, local_cache_bytes=limit)
        version = chance.choice("1234")
        with storage.fetch("a", version, download=True) as ref:
            ref.verify()
        check(storage.fetch("a", version), version=version)
        # What was left goes with the next download, or when room is made.
        storage.local.prune(0)
        assert not list(elsewhere.rglob("*.partial"))
        assert used(elsewhere) <= limit + 200_000
    storage.local.prune()
    assert everything(elsewhere) == []
    for version in "1234":
        check(storage.fetch("a", version, download=True), version=version)
    assert used(elsewhere) <= limit + 200_000
    assert not list(elsewhere.rglob("*.partial"))
    assert broken


def test_processes_that_download_and_remove_at_once(stored: Any, elsewhere: pathlib.Path) -> None:
    # Each process may have taken some more than it needs.
    limit = 3 * taken(stored, elsewhere) + 3 * (16 << 20)
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + 5
    works = [
        context.Process(target=download_until, args=(stored, elsewhere, seed, limit, until))
        for seed in range(3)
    ]
    for work in works:
        work.start()
    most = 0
    while any(work.is_alive() for work in works):
        most = max(most, used(elsewhere))
        time.sleep(0.05)
    assert [work.exitcode for work in works] == [0, 0, 0]
    assert most <= limit


def download_until(rig: Any, local: pathlib.Path, seed: int, limit: int, until: float) -> None:
    chance = random.Random(seed)
    storage = rig.make_storage(local, local_cache_bytes=limit)
    while time.monotonic() < until:
        version = chance.choice("1234")
        ref = storage.fetch("a", version, download=True)
        ref.verify()
        check(ref, version=version)
        if chance.random() < 0.3:
            storage.local.prune(chance.randrange(limit))
