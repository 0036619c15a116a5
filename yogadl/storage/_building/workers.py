"""Building a version with several threads or processes of this machine, of data that is in pieces
or can be read by position."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import math
import multiprocessing
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from yogadl.adapters import MapSource, PiecesSource, Source, open_source
from yogadl.cache.progress import Progress
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import StoredDataRef
from yogadl.errors import UnsupportedTypeError, YogadlError
from yogadl.format.provenance import Provenance
from yogadl.recipes import recipe_or_nonce
from yogadl.storage._building.build import Build
from yogadl.storage._building.submission import Submission, merged
from yogadl.storage._building.worker_processes import WorkerProcesses, refuse_in_import
from yogadl.storage._receipt import Receipt

# Of a data set, whatever the number of workers, so that any can go on. Enough to keep some dozen of
# them busy to the end.
_PIECES = 64
_FEWEST_RECORDS = 16

_log = logging.getLogger(__name__)


class Divided(Protocol):
    """Data that several workers can write, each some pieces. Can be pickled if the data can.

    Attributes:
        source: all of it.
    """

    @property
    def source(self) -> Source: ...

    def __len__(self) -> int:
        """The number of pieces."""

    def open(self, number: int) -> Source:
        """The records of a piece."""

    def label(self, number: int) -> str:
        """What errors call a piece."""

    def recipe(self) -> list[Any]:
        """What tells it from other data, as far as that is known."""


class _Slice(Source):
    """Some records of a source, one after the other.

    Args:
        source: of all.
        start, stop: from which to which.
    """

    def __init__(self, source: MapSource, start: int, stop: int) -> None:
        self.spec = source.spec
        self.count = stop - start
        self.first = start
        self._source = source

    def feed(self, writer: CacheWriter) -> None:
        assert self.count is not None
        self._source.feed_some(writer, self.first, self.first + self.count)


class _Slices:
    """Data that can be read by position; see ``Divided``."""

    def __init__(self, data: Any, source: MapSource) -> None:
        self.source = source
        self._data_class = type(data)
        self._rows = max(_FEWEST_RECORDS, -(-source.count // _PIECES))

    def __len__(self) -> int:
        return math.ceil(self.source.count / self._rows)

    def _range(self, number: int) -> tuple[int, int]:
        return number * self._rows, min((number + 1) * self._rows, self.source.count)

    def open(self, number: int) -> Source:
        return _Slice(self.source, *self._range(number))

    def label(self, number: int) -> str:
        start, stop = self._range(number)
        return f"records {start:,} to {stop - 1:,}"

    def recipe(self) -> list[Any]:
        return [recipe_or_nonce(self._data_class), self.source.count, self._rows]


class _Made:
    """Pieces that are made by calls; see ``Divided``."""

    def __init__(self, source: PiecesSource) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source.data)

    def open(self, number: int) -> Source:
        return self.source.open(number)

    def label(self, number: int) -> str:
        return f"piece {number}, of {self.source.data.inputs[number]!r:.200}"

    def recipe(self) -> list[Any]:
        data = self.source.data
        return [recipe_or_nonce(data.make, tuple(data.inputs))]


def build_with(
    build: Build, submission: Submission, workers: int, tensorflow_config: Any
) -> StoredDataRef:
    """Builds what is submitted; or returns what is stored when it is this one's turn.

    Raises:
        UnsupportedTypeError: the data can only be read one after the other, or cannot be sent to
            the workers.
        YogadlError: a worker was killed; or what calls this is the import of a script by a worker.
    """
    refuse_in_import()
    with build:
        if build.is_stored:
            return build.commit([])
        data = _divided(submission, tensorflow_config)
        spec, known = data.source.spec, data.source.metadata
        recipe = _recipe(submission.provenance, data)
        build.fix(spec, merged(known, submission.metadata), recipe or uuid.uuid4().hex)
        try:
            return build.commit(_written(build, data, workers))
        except BaseException:
            if not recipe:
                # Nobody will go on with it.
                build.forget()
            raise


def _recipe(made_by: Provenance, data: Divided) -> str:
    """Empty for what was made by no function that is known: of that, nobody can tell that it is
    the same."""
    if not made_by.recipe:
        return ""
    return repr([made_by.recipe, *data.recipe()])


def _divided(submission: Submission, tensorflow_config: Any) -> Divided:
    data = submission.make()
    source = open_source(data, submission.spec, tensorflow_config)
    if isinstance(source, PiecesSource):
        return _Made(source)
    try:
        return _Slices(data, source.by_position())
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            "several workers need data that can be read by position: something with __len__ and "
            "__getitem__, arrays, a table; or a yogadl.Pieces, of a function for each piece"
        ) from error


def _written(build: Build, data: Divided, workers: int) -> list[Receipt]:
    """Has all pieces written; their receipts, in any order."""
    count = data.source.count
    progress = Progress(f"Writing {build.label} by {workers} workers", count)
    receipts, size = [], 0
    pool, hand_out = _pool(build, data, workers)
    try:
        futures = {hand_out(number): number for number in range(len(data))}
        for future in concurrent.futures.as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, BrokenProcessPool):
                _log.error("Building %s ends: %s failed", build.label, data.label(futures[future]))
            receipt = future.result()
            receipts.append(receipt)
            size += receipt.nbytes
            progress.update(receipt.record_count, size)
        progress.close(done=True)
    except BrokenProcessPool as error:
        raise YogadlError(_broken(build, receipts)) from error
    except Exception:
        raise
    except BaseException:
        # Who interrupts it does not wait for the pieces that are under way.
        if isinstance(pool, WorkerProcesses):
            pool.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        progress.close(done=False)
    return receipts


def _broken(build: Build, receipts: list[Receipt]) -> str:
    """What is said of workers that ended."""
    killed = f"a worker that builds {build.label} was killed, for want of memory, perhaps: use "
    killed += "fewer workers; what was written is kept for the next time"
    if receipts or multiprocessing.get_start_method() == "fork":
        return killed
    return (
        f"{killed}. Or it could not be started, and has printed why: its script's own work has to "
        'be behind if __name__ == "__main__":, and classes and functions at the top of a module'
    )


def _pool(
    build: Build, data: Divided, workers: int
) -> tuple[concurrent.futures.Executor, Callable[[int], concurrent.futures.Future[Receipt]]]:
    """Who writes the pieces, and what hands them one."""
    task = functools.partial(_write, build, data)
    workers = max(1, min(workers, len(data)))
    if not data.source.prefers_threads:
        if not multiprocessing.current_process().daemon:
            processes = WorkerProcesses(workers, task)
            return processes, processes.call
        # The data may not be for threads.
        workers = 1
        _log.info("Writing %s by one worker: a daemonic process has no children.", build.label)
    threads = concurrent.futures.ThreadPoolExecutor(workers, "yogadl-write")
    return threads, functools.partial(threads.submit, task)


def _write(build: Build, data: Divided, number: int) -> Receipt:
    try:
        return build.write_source(number, lambda: data.open(number))
    except Exception as error:
        worker = f"process {os.getpid()}, thread {threading.current_thread().name}"
        note = f"yogadl was writing {data.label(number)} in the worker {worker}"
        # Before Python 3.11 nobody shows it.
        error.__notes__ = [*getattr(error, "__notes__", []), note]
        raise
