"""A submit that is killed at any moment leaves the old version or the new, whole."""

from __future__ import annotations

import os
import pathlib
import random
import select
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from yogadl.errors import CacheNotFoundError
from yogadl.storage import LFSConfigurations, LFSStorage

ROUNDS = 50
COUNT = 3000
# Around the border between records inside the tree and records on pages of their own.
SIZES = (900, 6000)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Fork with threads around: the child only writes files and is then killed or exits.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def _record(number: int, version: int, size: int) -> Any:
    return np.int64(number), np.full(size, (number + version) % 251, np.uint8)


def _records(version: int, size: int, count: int = COUNT) -> Iterator[Any]:
    return (_record(number, version, size) for number in range(count))


class _Writer:
    """A child process that submits a version, and says when it begins and when it is done."""

    def __init__(self, storage: LFSStorage, version: int, size: int) -> None:
        self._read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.write(write_end, b"b")
                storage.submit(_records(version, size), "team/a", "1")
                os.write(write_end, b"d")
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        assert os.read(self._read_end, 1) == b"b"
        self._begun = time.monotonic()

    def seconds(self) -> float:
        """Waits for the end; how long it took."""
        assert os.read(self._read_end, 1) == b"d", "the writer failed"
        taken = time.monotonic() - self._begun
        self._reap()
        return taken

    def kill_after(self, seconds: float) -> bool:
        """Kills the writer so long after it began; whether it was still at work."""
        left = max(0.0, self._begun + seconds - time.monotonic())
        # The pipe becomes readable when the writer is done: nothing to wait for then.
        select.select([self._read_end], [], [], left)
        os.kill(self.pid, signal.SIGKILL)
        done = os.read(self._read_end, 1) == b"d"
        self._reap()
        return not done

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._read_end)


def _version_of(storage: LFSStorage, size: int) -> int | None:
    """Which version is stored, complete; ``None`` if nothing is."""
    try:
        ref = storage.fetch("team/a", "1")
    except CacheNotFoundError:
        return None
    with ref:
        ref.verify()
        assert len(ref) == COUNT
        numbers, arrays = ref.read(np.arange(COUNT))
        version = int(arrays[0, 0])
        assert (numbers == np.arange(COUNT)).all()
        assert arrays.shape == (COUNT, size)
        assert (arrays == ((np.arange(COUNT) + version) % 251)[:, np.newaxis]).all()
        return version


def _names(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != "yogadl.lock")


def _moments(seconds: float, rounds: int, seed: int) -> list[float]:
    """Moments to kill at: all over the time a submit takes, and many around its end."""
    chance = random.Random(seed)
    ranges = [(0.0, 1.1), (0.7, 1.2)]
    return [seconds * chance.uniform(*ranges[number % 2]) for number in range(rounds)]


@pytest.mark.once
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.long_for(6000)
def test_a_killed_submit(size: int, storage_dir: pathlib.Path) -> None:
    folder = storage_dir / "team" / "a" / "1"
    storage = LFSStorage(LFSConfigurations(storage_dir))
    seconds = min(_Writer(storage, 0, size).seconds() for _ in range(2))
    assert _version_of(storage, size) == 0

    killed = leftovers = with_old = 0
    for number, moment in enumerate(_moments(seconds, ROUNDS // len(SIZES), seed=size)):
        old = number % 4 < 2
        if old:
            storage.submit(_records(1, size), "team/a", "1")
        else:
            (folder / "cache.mdb").unlink(missing_ok=True)
        with_old += old

        cut_short = _Writer(storage, 2, size).kill_after(moment)
        killed += cut_short
        found = _version_of(storage, size)
        allowed = {2} if not cut_short else {1 if old else None, 2}
        assert found in allowed, f"round {number}, killed after {moment:.4f} s"
        partial = [name for name in _names(folder) if name != "cache.mdb"]
        leftovers += len(partial)
        # The file, and what has its folder stay.
        assert len(partial) <= 2, "leftovers of earlier rounds were not removed"

        builds: list[int] = []

        def make(builds: list[int] = builds) -> Any:
            builds.append(1)
            return _records(3, size)

        with storage.cacheable("team/a", "1")(make)() as ref:
            assert len(ref) == COUNT
        assert _version_of(storage, size) == (3 if found is None else found)
        assert len(builds) == (found is None)

        storage.submit([0], "team/a", "1")
        assert _names(folder) == ["cache.mdb"]
        assert list(storage.fetch("team/a", "1").stream()) == [0]

    # Otherwise the moments were badly chosen, and all of the above says nothing.
    assert killed >= 5
    assert leftovers >= 3
    assert with_old >= 8
