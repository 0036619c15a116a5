"""Building a version with several threads or processes of this machine, of data that can be read by
position."""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from yogadl.adapters import ColumnsSource, MapSource, open_source
from yogadl.cache.columns import Column
from yogadl.cache.progress import Progress
from yogadl.dataref import StoredDataRef
from yogadl.errors import UnsupportedTypeError, YogadlError
from yogadl.storage._build import Build
from yogadl.storage._receipt import Receipt
from yogadl.storage._submission import Submission, merged

Array = np.ndarray[Any, Any]

# Of a data set, whatever the number of workers, so that any can go on. Enough to keep some dozen of
# them busy to the end.
_PIECES = 64
_FEWEST_RECORDS = 16

_inherited: list[Callable[[int, int], Receipt]] = []


class _Slice(MapSource):
    """Some records of a source, one after the other.

    Args:
        source: of all.
        start, count: which.
    """

    def __init__(self, source: MapSource, start: int, count: int) -> None:
        self.spec = source.spec
        self.count = count
        self._source = source
        self._start = start

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        return self._source.columns(positions + self._start, out)

    @property
    def chunk_size(self) -> int:
        return self._source.chunk_size


def build_with(
    build: Build, submission: Submission, workers: int, tensorflow_config: Any
) -> StoredDataRef:
    """Builds what is submitted; or returns what is stored when it is this one's turn.

    Raises:
        UnsupportedTypeError: the data can only be read one after the other.
        YogadlError: a worker was killed.
    """
    with build:
        if build.is_stored:
            return build.commit([])
        source = _by_position(submission, tensorflow_config)
        rows = max(_FEWEST_RECORDS, -(-source.count // _PIECES))
        made_by = submission.provenance
        # Of what was made by no function that is known, nobody can tell that it is the same.
        code = made_by.source or uuid.uuid4().hex
        recipe = [made_by.function, made_by.arguments, code, source.count, rows]
        build.fix(source.spec, merged(source.metadata, submission.metadata), repr(recipe))
        return build.commit(_written(build, source, rows, workers))


def _by_position(submission: Submission, tensorflow_config: Any) -> MapSource:
    source = open_source(submission.make(), submission.spec, tensorflow_config)
    try:
        return source.by_position()
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            "several workers need data that can be read by position: something with __len__ and "
            "__getitem__, arrays, a table; or storage.build, with a function for each piece"
        ) from error


def _written(build: Build, source: MapSource, rows: int, workers: int) -> list[Receipt]:
    """Has all pieces written; their receipts, in any order."""
    tasks = list(enumerate(range(0, source.count, rows)))
    progress = Progress(f"Writing {build.label} by {workers} workers", source.count)
    receipts, size = [], 0
    pool, write = _pool(build, source, rows, workers)
    try:
        futures = [pool.submit(write, *task) for task in tasks]
        for future in concurrent.futures.as_completed(futures):
            receipt = future.result()
            receipts.append(receipt)
            size += receipt.nbytes
            progress.update(receipt.record_count, size)
        progress.close(done=True)
    except BrokenProcessPool as error:
        raise YogadlError(
            f"a worker that builds {build.label} was killed, for want of memory, perhaps: use "
            "fewer workers; what was written is kept for the next time"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        progress.close(done=False)
    return receipts


def _pool(
    build: Build, source: MapSource, rows: int, workers: int
) -> tuple[concurrent.futures.Executor, Callable[[int, int], Receipt]]:
    """Who writes the pieces, and what they are called with: its number and first record."""
    task = functools.partial(_write, build, source, rows)
    # NumPy's copies, hashes and the disk let other threads run; what users wrote in Python may not.
    if isinstance(source, ColumnsSource):
        return concurrent.futures.ThreadPoolExecutor(workers, "yogadl-write"), task
    processes = concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context(), _begin, (task,)
    )
    return processes, _write_inherited


def _begin(task: Callable[[int, int], Receipt]) -> None:
    """Begins a worker, which may have been forked: then nothing was pickled."""
    _inherited[:] = [task]


def _write_inherited(number: int, start: int) -> Receipt:
    return _inherited[0](number, start)


def _write(build: Build, source: MapSource, rows: int, number: int, start: int) -> Receipt:
    count = min(rows, source.count - start)
    return build.write_source(number, lambda: _Slice(source, start, count))
