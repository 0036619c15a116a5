"""Readers, builders, commits, syncs and collectors at once, some of which are killed.

What is checked: what is stored is whole at any time; each commit that was told to be done is on the
branch once, and the others once at most; in the end, nothing is left that nobody needs. All
operations at random, and with a model of every version, are in ``tests/soak/kills.py``.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import pathlib
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from processes_ready import READY

from yogadl.errors import ConflictError, StoreError, YogadlError
from yogadl.storage import _kept_versions
from yogadl.storage._buckets import part_collector

SECONDS = float(os.environ.get("YOGADL_GC_SECONDS", "8"))
"""For which they are at work; ``make gc`` takes ten minutes."""

AT_ONCE = datetime.timedelta()
FIRST = 2000
_GRACE = datetime.timedelta(seconds=1)


@dataclass(frozen=True)
class Place:
    """Where they are at work.

    Attributes:
        storage: that is used by all of them.
        other: to which versions are copied.
        folder: in which they note down what they have done.
        seed: of what is random.
    """

    storage: Any
    other: Any
    folder: pathlib.Path
    seed: int

    @property
    def random(self) -> random.Random:
        return random.Random(self.seed)


def impatient() -> None:
    """Has what takes days take moments, in this process."""
    _kept_versions.GRACE = _GRACE
    part_collector.GRACE = _GRACE
    part_collector.DEAD_SECONDS = 0.0


@contextlib.contextmanager
def _forgiving(place: Place, *keys: tuple[Any, tuple[str, str]]) -> Iterator[None]:
    """An error is none if one of some versions was deleted or replaced meanwhile."""
    before = [(storage, key, _state(storage, key)) for storage, key in keys]
    try:
        yield
    except YogadlError:
        if all(_state(storage, key) == state is not None for storage, key, state in before):
            raise


def _state(storage: Any, key: tuple[str, str]) -> str | None:
    found = storage._look(storage._version(*key))
    return None if found is None else str(found.tag)


def check(ref: Any) -> None:
    """Compares every record with its checksum, and all with what the version is to have."""
    with ref:
        ref.verify()
        values = np.array(list(ref.stream()))
        assert len(values) == len(ref)
        # All versions are of numbers in order, and of some commits behind them.
        assert (np.diff(values[values < FIRST]) == 1).all()


# What they do, again and again


def read(place: Place) -> None:
    roll = place.random
    while True:
        storage = roll.choice([place.storage, place.other])
        listed = storage.list()
        if listed:
            entry = roll.choice(listed)
            key = entry.dataset_id, entry.dataset_version
            with _forgiving(place, (storage, key)):
                check(storage.fetch(*key))


def build(place: Place) -> None:
    roll = place.random
    while True:
        version = f"b{roll.randrange(4)}"
        first = roll.randrange(FIRST // 2)
        if roll.random() < 0.3 and place.storage.exists("data", version):
            with _forgiving(place, (place.storage, ("data", version))):
                place.storage.delete("data", version)
        else:
            values = np.arange(first, first + FIRST // 2)
            size = roll.choice([None, 6000])
            place.storage.submit(values, "data", version, part_bytes=size)


def commit(place: Place) -> None:
    roll = place.random
    for number in itertools.count():
        # No other commit has any of these.
        token = FIRST + roll.getrandbits(48)
        try:
            with place.storage.change("data", "main", version=f"c-{token}") as change:
                change.append(np.arange(token, token + 3))
                if number % 3 == 0:
                    time.sleep(roll.uniform(0, 0.3))
        except ConflictError:
            continue
        except YogadlError as error:
            # It took longer than it is given here.
            if "deleted before it was committed" not in str(error):
                raise
            continue
        (place.folder / f"{token}.done").touch()


def copy(place: Place) -> None:
    roll = place.random
    while True:
        try:
            place.storage.sync(place.other, force=True)
            entry = roll.choice(place.other.list())
            key = entry.dataset_id, entry.dataset_version
            with _forgiving(place, (place.other, key)):
                place.other.copy(*key, to=place.other, new_version=f"copy{roll.randrange(3)}")
        except StoreError as error:
            # In buckets, names of removed parts are not used again for two days.
            if "less than two days ago" not in str(error):
                raise
        except YogadlError as error:
            # Versions and tags come and go while they are copied.
            if "to tag in" not in str(error) and "meanwhile" not in str(error):
                raise


def collect(place: Place) -> None:
    roll = place.random
    while True:
        storage = roll.choice([place.storage, place.other])
        older_than = roll.choice([None, datetime.timedelta(seconds=0.5)])
        storage.gc(keep_last=roll.randrange(1, 5), older_than=older_than)
        time.sleep(roll.uniform(0, 0.1))


ROLES: tuple[Callable[[Place], None], ...] = (read, build, commit, commit, copy, collect)


def _run(role: Callable[[Place], None], place: Place) -> None:
    impatient()
    try:
        role(place)
    except BaseException:
        (place.folder / f"{role.__name__}-{place.seed}.failed").write_text(traceback.format_exc())
        raise


# All of them


def run(storage: Any, other: Any, folder: pathlib.Path, seed: int = 1) -> None:
    """Has all of them at work for some seconds, and kills one after another."""
    folder.mkdir()
    roll = random.Random(seed)
    storage.submit(np.arange(FIRST), "data", "0")
    storage.tag("data", "main", "0")
    storage.tag("data", "first", "0")
    seeds = itertools.count(seed)

    def start(role: Callable[[Place], None]) -> Any:
        place = Place(storage, other, folder, next(seeds))
        process = READY.Process(target=_run, args=(role, place), daemon=True)
        process.start()
        return process

    running = {number: (role, start(role)) for number, role in enumerate(ROLES)}
    end = time.monotonic() + SECONDS + 3
    time.sleep(3)
    try:
        # Where it takes long until the first commit is done, all of it takes longer.
        latest = end + 120
        while time.monotonic() < (end if any(folder.glob("*.done")) else latest):
            time.sleep(roll.uniform(0.5, 2.0))
            number = roll.randrange(len(ROLES))
            role, process = running[number]
            _kill(process)
            running[number] = role, start(role)
    finally:
        for _, process in running.values():
            _kill(process)
    failed = [path.read_text() for path in folder.glob("*.failed")]
    assert not failed, "\n".join(failed)


def _kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    process.close()


def check_end(storage: Any, other: Any, folder: pathlib.Path) -> None:
    """Nothing is lost, and, after collecting, nothing left over."""
    time.sleep(1.1)  # the clock of a bucket may have seconds for its finest unit
    for one in (storage, other):
        one.gc(older_than=AT_ONCE)
        done = one.gc(older_than=AT_ONCE)
        assert not done.parts.skipped
        assert not done.parts.waiting
        for entry in one.list():
            check(one.fetch(entry.dataset_id, entry.dataset_version))
        for version in one.tags("data").values():
            assert one.exists("data", version)
    values = np.array(list(storage.fetch("data", "main").stream()))
    assert (values[:FIRST] == np.arange(FIRST)).all()
    tokens = values[FIRST::3].tolist()
    assert (values[FIRST:].reshape(-1, 3) == np.array(tokens)[:, None] + np.arange(3)).all()
    assert len(set(tokens)) == len(tokens)
    acknowledged = {int(path.stem) for path in folder.glob("*.done")}
    assert acknowledged
    assert acknowledged <= set(tokens)
