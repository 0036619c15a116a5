"""Which epoch comes next, agreed upon by a process and the ``DataLoader`` workers it starts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any, NamedTuple, TypeVar

Begun = TypeVar("Begun")

# Claims that not all workers have made, because some were ended before they could.
_MOST_CLAIMS = 32


@dataclass(frozen=True)
class Worker:
    """One of the workers of a ``DataLoader``.

    Attributes:
        number, count: which of how many.
        seed: a number that all workers of one iterator have, and hardly ever those of another.
    """

    number: int
    count: int
    seed: int


class EpochOffset(NamedTuple):
    """An epoch, and the offset at which it begins."""

    epoch: int
    offset: int


class SharedEpochs:
    """Deals out epochs: each iterator of a ``DataLoader`` gets one, the same for all its workers.

    ``DataLoader`` does not tell a dataset that another iterator is made: it forks or pickles it,
    and the copies in the workers are iterated over. So the copies share an unlinked file with the
    process that they were made in. It says which epoch is next, and which ones were given to some
    of an iterator's workers and are due to the others.

    Every other process, such as a rank of a distributed run, deals out epochs of its own to itself
    and its workers, beginning where the process stood that it has the object from.

    Safe for threads, for forks, and for processes that are killed. Pickled for a child process, it
    shares the file; pickled otherwise, it becomes independent.

    Args:
        place: the first epoch to deal out.
    """

    def __init__(self, place: EpochOffset) -> None:
        self._initial = place
        self._maker = os.getpid()
        self._open(_new_file())

    def _open(self, file: int) -> None:
        self._file = file
        # Forks have descriptors of their own.
        weakref.finalize(self, os.close, file)
        self._reset_process()

    def _reset_process(self) -> None:
        self._process = os.getpid()
        # A lock of a file is that of a whole process. A fork may have left this one locked.
        self._threads = threading.Lock()
        self._turn = 0

    def claim(self, worker: Worker | None, begin: Callable[[EpochOffset], Begun]) -> Begun:
        """The next epoch, or the one that other workers of the same iterator have got.

        Args:
            worker: which worker asks; ``None`` in a process that is none.
            begin: called with the epoch before anybody else can claim the one after.

        Returns:
            What ``begin`` returned.
        """
        with self._changing(worker) as owner:
            if worker is None:
                return begin(_take_next(owner, False))
            # A persistent worker asks once in every iteration.
            key = [worker.seed, worker.count, self._turn]
            self._turn += 1
            claims = owner["claims"]
            claim = next((claim for claim in claims if claim["key"] == key), None)
            if claim is not None and worker.number in claim["by"]:
                # A later iterator with the same seed; the earlier one was ended too soon.
                claims.remove(claim)
                claim = None
            if claim is None:
                claim = {"key": key, "by": [], "place": _take_next(owner, True)}
                claims.append(claim)
            claim["by"].append(worker.number)
            if len(claim["by"]) == worker.count:
                claims.remove(claim)
            del claims[:-_MOST_CLAIMS]
            return begin(EpochOffset(*claim["place"]))

    def set_next(self, place: EpochOffset, worker: Worker | None) -> None:
        """Makes an epoch the next one, whatever was dealt out before."""
        with self._changing(worker) as owner:
            owner.update(next=place, claims=[], by_workers=False)

    def peek(self, worker: Worker | None = None) -> tuple[EpochOffset, bool]:
        """The next epoch, and whether workers have got the one before."""
        with self._changing(worker) as owner:
            return EpochOffset(*owner["next"]), owner["by_workers"]

    @contextlib.contextmanager
    def _changing(self, worker: Worker | None) -> Iterator[dict[str, Any]]:
        """What is known for this process, or for that which it works for, to be changed."""
        if self._process != os.getpid():
            self._reset_process()
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                size = os.fstat(self._file).st_size
                owners = json.loads(os.pread(self._file, size, 0)) if size else {}
                owner = owners.setdefault(str(self._owner(worker)), self._new_owner(owners))
                yield owner
                # In one step, filled up rather than cut off: whoever is killed leaves it whole.
                os.pwrite(self._file, json.dumps(owners).encode().ljust(size), 0)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    @staticmethod
    def _owner(worker: Worker | None) -> int:
        parent = multiprocessing.parent_process()
        if worker is None or parent is None or parent.pid is None:
            return os.getpid()
        return parent.pid

    def _new_owner(self, owners: dict[str, Any]) -> dict[str, Any]:
        maker = owners.get(str(self._maker))
        place = self._initial if maker is None else maker["next"]
        return {"next": place, "claims": [], "by_workers": False}

    def __getstate__(self) -> tuple[Any, ...]:
        if context.get_spawning_popen() is None:
            return self.peek()[0], None, None
        return self._initial, self._maker, reduction.DupFd(self._file)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        place, maker, file = state
        self._initial = EpochOffset(*place)
        self._maker = os.getpid() if maker is None else maker
        self._open(_new_file() if file is None else file.detach())


def _take_next(owner: dict[str, Any], by_workers: bool) -> EpochOffset:
    place = EpochOffset(*owner["next"])
    owner.update(next=EpochOffset(place.epoch + 1, 0), by_workers=by_workers)
    return place


def _new_file() -> int:
    """A descriptor of an empty file without a name."""
    file, path = tempfile.mkstemp(prefix="yogadl-epochs-")
    os.unlink(path)
    return file
