"""Limits of what is kept: broken files, processes that are killed, stopped or forked, and races."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from disk_use import disk_bytes
from killing import started
from remote_rig import Site
from test_remote_faults import everything
from waiting import wait_until

from yogadl.dataref import RemoteDataRef
from yogadl.remote import _near, _remembered
from yogadl.remote._local import collecting
from yogadl.remote._local import kept as kept_module
from yogadl.remote._local import ledger as ledger_module
from yogadl.remote._local import space as space_module
from yogadl.remote._local.collecting import remove_unused
from yogadl.remote._local.kept import kept_versions, set_pinned
from yogadl.remote._local.notes import note_opened
from yogadl.remote._local.space import LimitedSpace

pytestmark = pytest.mark.once

COUNT = 60
SIZE = 50_000
VERSION = COUNT * SIZE
ORDER = {"shuffle": True, "shuffle_seed": 1}
ALL = 1 << 60

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def numbered(version: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(version)
    for number in range(COUNT):
        yield {"x": rng.integers(0, 256, SIZE, dtype="u1"), "number": np.int64(number)}


@pytest.fixture
def stored(site: Site) -> Site:
    for version in (1, 2, 3):
        site.storage.submit(numbered(version), "a", str(version), part_bytes=1_000_000)
    return site


def limited(site: Site, limit: int) -> LimitedSpace:
    ledger = site.folder / "ledger"
    ledger.mkdir(exist_ok=True)
    return LimitedSpace(ledger / "space", limit, lambda: [site.folder])


def opened(site: Site, version: int, space: LimitedSpace) -> RemoteDataRef:
    return dataclasses.replace(site.opener(space), version=f"a/{version}").ref()


def read(site: Site, version: int, space: LimitedSpace) -> None:
    with opened(site, version, space) as ref:
        assert sorted(everything(ref.stream(**ORDER))) == everything(numbered(version))


def used(site: Site) -> int:
    return disk_bytes(site.folder.glob("yogadl.*/*"))


def remove_all(site: Site) -> int:
    """Removes what is kept, as soon as the threads that brought it have let go of it; its bytes."""
    freed = 0

    def is_gone() -> bool:
        nonlocal freed
        freed += remove_unused([site.folder], ALL)
        return used(site) < 100_000

    wait_until(is_gone)
    return freed


def is_let_go(site: Site) -> bool:
    """Whether the threads that brought what is kept have closed it, so that no child has it."""
    for path in site.folder.glob("yogadl.*/*.mdb"):
        with kept_module.alone(path) as is_alone:
            if not is_alone:
                return False
    return True


def is_kept(site: Site, version: int) -> bool:
    """Whether all of a version is here, but for what nobody has to read."""
    name = f"a/{version}/cache.mdb"
    found = [kept for kept in kept_versions(site.folder) if name in kept.names]
    return bool(found) and found[0].nbytes > 0.95 * VERSION


def keep(site: Site, version: int, space: LimitedSpace) -> None:
    """Reads a version until it is here, as it will be before long if there is room."""

    def read_again() -> bool:
        read(site, version, space)
        return is_kept(site, version)

    wait_until(read_again)


def the(site: Site) -> kept_module.KeptVersion:
    (version,) = kept_versions(site.folder)
    return version


# The number of bytes that are used


def test_what_was_removed_is_room_again(stored: Site) -> None:
    space = limited(stored, int(1.5 * VERSION))
    read(stored, 1, space)
    # By who does not tell: storage.local.prune(), or a person.
    assert remove_all(stored) > VERSION
    keep(stored, 2, space)


@fork
@forking
def test_what_killed_processes_had_taken_is_room_again(stored: Site) -> None:
    space = limited(stored, int(1.5 * VERSION) + (8 << 20))
    # Somebody has been there all the time.
    assert space.take(1)
    for _ in range(10):
        child = os.fork()
        if child == 0:
            taken = space.take(1)
            os.kill(os.getpid(), signal.SIGKILL if taken else signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    keep(stored, 1, space)
    assert len(list((stored.folder / "ledger").iterdir())) <= 3


@pytest.mark.parametrize("size", [300, 3000])
@pytest.mark.parametrize("shards", [1, 4])
def test_small_records_that_lie_apart_do_not_exceed_it(site: Site, size: int, shards: int) -> None:
    records = [{"x": np.full(size, n % 256, "u1"), "number": np.int64(n)} for n in range(1000)]
    near = site.store(records)
    limit = 300_000
    with site.ref(limited(site, limit)) as ref:
        for rank in range(shards):
            order = {**ORDER, "num_shards": shards, "shard_rank": rank}
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
            # But for notes.
            assert used(site) <= limit + 20_000
        if size > 300:
            # Nor is it far below it.
            assert used(site) >= limit // 2


@pytest.mark.parametrize("limit", [0, 1, 4096, 100_000])
def test_tiny_limits(stored: Site, limit: int) -> None:
    space = limited(stored, limit)
    for version in (1, 2):
        read(stored, version, space)
    assert used(stored) <= limit + 100_000


def test_a_limit_of_just_what_there_is(stored: Site) -> None:
    read(stored, 1, limited(stored, 1 << 40))
    size = used(stored)
    remove_all(stored)
    # With what may be noted beside each file.
    space = limited(stored, size + 100_000)
    for version in (1, 2, 1):
        read(stored, version, space)
        assert used(stored) <= size + 100_000
    keep(stored, 2, space)
    # A little of the other may still be here, if a thread had not let go of it yet.
    assert ("a/2/cache.mdb",) in [version.names for version in kept_versions(stored.folder)]
    assert used(stored) <= size + 100_000


def test_two_limits_on_one_folder(stored: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "_PAUSE_SECONDS", 0.0)
    small, large = limited(stored, VERSION // 2), limited(stored, 4 * VERSION)
    for version, space in ((1, large), (2, small), (3, large), (1, small), (2, large)):
        read(stored, version, space)
        assert used(stored) <= 4 * VERSION
    keep(stored, 2, large)
    read(stored, 3, small)
    # Of what was kept by the large one, all has gone but what is open.
    assert used(stored) <= 1.2 * VERSION


def _directory(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _pipe(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _link(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    target = path.parent.parent / "precious"
    target.write_bytes(b"precious")
    path.symlink_to(target)


def _holding(number: int) -> Callable[[pathlib.Path], None]:
    return lambda path: path.write_bytes(number.to_bytes(8, "little", signed=True)) and None


SPOILS: dict[str, Callable[[pathlib.Path], Any]] = {
    "directory": _directory,
    "pipe": _pipe,
    "link": _link,
    "gone": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(b"abc"),
    "huge": _holding(2**62),
    "negative": _holding(-(2**62)),
    "text": lambda path: path.write_text("not a number at all" * 1000),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
@pytest.mark.parametrize("is_in_use", [True, False])
def test_a_ledger_that_somebody_spoils(
    stored: Site, spoil: Callable[[pathlib.Path], None], is_in_use: bool
) -> None:
    limit = int(1.5 * VERSION)
    space = limited(stored, limit)
    if is_in_use:
        read(stored, 1, space)
    spoil(stored.folder / "ledger" / "space")
    for version in (2, 3):
        read(stored, version, space)
        assert used(stored) <= limit + 100_000
    if spoil is not _directory:
        # It goes on as if nothing had been.
        keep(stored, 3, space)
    precious = stored.folder / "precious"
    assert not precious.exists() or precious.read_bytes() == b"precious"


@fork
@forking
def test_a_child_does_not_keep_its_parents_lock(stored: Site) -> None:
    children: list[int] = []

    def folders() -> list[pathlib.Path]:
        # Now somebody starts workers, which stay.
        if not children:
            children.append(os.fork())
            if not children[0]:
                time.sleep(120)
                os._exit(0)
        return [stored.folder]

    ledger = stored.folder / "ledger"
    ledger.mkdir()
    space = LimitedSpace(ledger / "space", 20 * VERSION, folders)
    try:
        assert space.take(1000)
        assert LimitedSpace(ledger / "space", 20 * VERSION, folders).take(20 << 10)
        keep(stored, 1, space)
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


@fork
@forking
def test_a_process_that_is_stopped_while_it_has_the_ledger(
    stored: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_PATIENCE", 0.2)
    ledger = stored.folder / "ledger"
    ledger.mkdir()
    space = LimitedSpace(ledger / "space", 2 * VERSION, lambda: [stored.folder])
    child = os.fork()
    if child == 0:
        with ledger_module.exclusive(ledger / "space"):
            (ledger / "locked").touch()
            time.sleep(120)
        os._exit(0)
    try:
        wait_until((ledger / "locked").exists)
        os.kill(child, signal.SIGSTOP)
        # What passes through memory needs no room.
        read(stored, 1, space)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# Removing


@fork
@forking
def test_a_child_does_not_keep_what_its_parent_was_removing(
    stored: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = limited(stored, 2 * VERSION)
    read(stored, 1, space)
    wait_until(lambda: is_let_go(stored))
    children = []

    def fork_and_fail(_path: pathlib.Path) -> int:
        children.append(os.fork())
        if not children[-1]:
            time.sleep(120)
            os._exit(0)
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(kept_module, "_unlink", fork_and_fail)
        assert remove_unused([stored.folder], 1) == 0
    try:
        assert children
        read(stored, 1, space)
        assert remove_all(stored) > VERSION
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


NOTES = [
    "",
    "[]",
    "null",
    '{"names": [], "opened": 1e300, "pinned": false}',
    '{"names": [], "opened": -1e300, "pinned": false}',
    '{"names": [], "opened": NaN, "pinned": false}',
    '{"names": [], "opened": Infinity, "pinned": false}',
    '{"names": [], "opened": 1' + "0" * 400 + ', "pinned": false}',
    '{"names": {"a": 1}, "opened": 1, "pinned": false}',
    '{"names": 7, "opened": 1, "pinned": false}',
    '{"names": ["\\ud800", [[]], null], "opened": 1, "pinned": 7}',
    '{"names": [], "opened": [], "pinned": false}',
    "[" * 100_000,
    '{"names": ["' + "x" * 100_000 + '"], "opened": 1, "pinned": false}',
]


@pytest.mark.parametrize("text", NOTES, ids=range(len(NOTES)))
def test_notes_that_make_no_sense(stored: Site, text: str) -> None:
    limit = int(1.5 * VERSION)
    space = limited(stored, limit)
    read(stored, 1, space)
    (note,) = stored.here(".json")
    note.write_text(text)
    for version in kept_versions(stored.folder):
        json.dumps(version.names)
        assert not version.is_pinned
    # It can be opened, and what is noted makes sense again; and it can go.
    read(stored, 1, space)
    assert json.loads(note.read_text())["names"][0] == "a/1/cache.mdb"
    note.write_text(text)
    keep(stored, 2, space)
    assert [version.names for version in kept_versions(stored.folder)] == [("a/2/cache.mdb",)]


@pytest.mark.parametrize("suffix", [".cells", ".whole", ".json", ""])
def test_what_cannot_be_removed_does_not_keep_the_rest(stored: Site, suffix: str) -> None:
    limit = int(1.5 * VERSION)
    space = limited(stored, limit)
    read(stored, 1, space)
    (main,) = (stored.folder / "yogadl.objects").glob("*.mdb")
    spoilt = main.with_name(main.name + suffix)
    _directory(spoilt)
    (spoilt / "something").touch()
    keep(stored, 2, space)
    assert used(stored) <= limit + 100_000
    # Nor is it an error for who removes it by hand.
    remove_all(stored)


def test_what_is_logged_keeps_nothing(stored: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest keeps it until the end of a test, with the errors in it and their frames."""

    def fail(*_given: object) -> None:
        raise OSError("some error")

    monkeypatch.setattr(_near, "compare", fail)
    keep(stored, 1, limited(stored, 3 * VERSION))
    assert remove_all(stored) > VERSION


def test_a_version_that_is_read_stays_whatever_else_is_opened(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all its files, few are open at a time."""
    monkeypatch.setattr(_remembered, "most_remembered", lambda: 2)
    refs = []
    for version in range(3):
        site.storage.submit(numbered(version), "a", str(version), part_bytes=1)
        refs.append(opened(site, version, limited(site, 1 << 30)))
    for ref in refs:
        ref.read(range(0, COUNT, 7))
    del ref
    there = used(site)
    assert remove_unused([site.folder], ALL) == 0
    refs.pop().close()
    wait_until(lambda: remove_unused([site.folder], ALL) > 0)
    assert there / 2 < used(site) < there
    for ref in refs:
        ref.close()


def test_nobody_waits_for_who_was_stopped_while_he_removes(
    stored: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_PATIENCE", 0.1)
    keep(stored, 1, limited(stored, 1 << 30))
    with kept_module.settled(stored.folder, fcntl.LOCK_SH):
        with pytest.raises(TimeoutError, match=r"another process has had the lock for 0\.1 s"):
            remove_unused([stored.folder], ALL)
        # For which there is no room then.
        read(stored, 2, limited(stored, used(stored) + 1000))
    assert is_kept(stored, 1)
    assert remove_all(stored) > 0


def test_a_pin_that_comes_while_room_is_made(stored: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    space = limited(stored, 3 * VERSION)
    read(stored, 1, space)
    find = collecting.kept_versions

    def find_and_pin(folder: pathlib.Path) -> Any:
        found = find(folder)
        assert all(set_pinned(version, True) for version in found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(collecting, "kept_versions", find_and_pin)
        assert remove_unused([stored.folder], ALL) == 0
    assert is_kept(stored, 1)
    # And one that comes too late says so.
    version = the(stored)
    assert set_pinned(version, False)
    assert remove_all(stored) > VERSION
    assert not set_pinned(version, True)
    assert not kept_versions(stored.folder)


def test_a_pin_is_not_lost_by_who_opens_it(stored: Site) -> None:
    read(stored, 1, limited(stored, 3 * VERSION))
    path = the(stored).path
    over = threading.Event()

    def open_again_and_again(number: int) -> None:
        while not over.is_set():
            note_opened(path, f"name {number}")
            time.sleep(0.001)

    threads = [threading.Thread(target=open_again_and_again, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(50):
            assert set_pinned(the(stored), number % 2 == 0)
            assert the(stored).is_pinned == (number % 2 == 0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert {"name 0", "name 1", "name 2", "name 3"} < set(the(stored).names)


@fork
@forking
def test_everybody_at_once(stored: Site) -> None:
    """Readers, some of them killed, who removes all, and who pins; with one limit for all."""
    limit = int(1.7 * VERSION)

    def read_on(number: int, until: float) -> None:
        space = limited(stored, limit)
        rng = np.random.default_rng(number)
        while time.monotonic() < until:
            read(stored, int(rng.integers(1, 4)), space)

    until = time.monotonic() + 4
    children = [started(lambda n=n: read_on(n, until)) for n in range(4)]  # type: ignore[misc]
    rng = np.random.default_rng(9)
    number = most = 0
    try:
        while time.monotonic() < until or number < 4:
            number += 1
            victim = started(lambda n=number: read_on(100 + n, until))  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.3))
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            most = max(most, used(stored))
            for version in kept_versions(stored.folder):
                if set_pinned(version, True):
                    set_pinned(version, False)
            if number % 4 == 0:
                remove_unused([stored.folder], ALL)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        children.clear()
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    assert most <= limit + 200_000
    space = limited(stored, limit)
    keep(stored, 1, space)
