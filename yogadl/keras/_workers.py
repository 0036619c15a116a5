"""Batches read in threads or processes before they are wanted.

Keras has workers of its own, but they lose their place: what they read ahead while a model is being
built stays in their queue and comes first when training begins, and those of an epoch that is
broken off never end.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

from yogadl.keras._batch_reader import BatchReader

Array = np.ndarray[Any, Any]

# Of a worker process.
_reader: BatchReader | None = None


class Workers:
    """Threads or processes that read the batches of an epoch ahead. Safe for threads.

    Processes are started as ``multiprocessing.set_start_method`` says. They keep nothing of an
    epoch, but are told its number and the positions of each batch. They end with this object, or
    with the process that started them, however it ends.

    Args:
        reader: reads a batch; pickled for processes that are not forked.
        count: how many.
        use_processes: processes instead of threads.
        depth: batches to read ahead.
    """

    def __init__(self, reader: BatchReader, count: int, use_processes: bool, depth: int) -> None:
        self._reader = reader
        self._count = count
        self._use_processes = use_processes
        self._depth = depth
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._pending: dict[int, Future[Any]] = {}

    def batch(self, number: int, stop: int, epoch: int, positions: Callable[[int], Array]) -> Any:
        """A batch, after which the next ones are read.

        Args:
            number: which batch of the epoch.
            stop: how many the epoch has.
            epoch: which one it is.
            positions: the positions of the records of a batch.
        """
        with self._lock:
            future = self._pending.pop(number, None) or self._submit(epoch, positions(number))
            for ahead in range(number + 1, min(number + 1 + self._depth, stop)):
                if ahead not in self._pending:
                    self._pending[ahead] = self._submit(epoch, positions(ahead))
        return future.result()

    def forget(self) -> None:
        """Drops what was read ahead: another epoch begins."""
        with self._lock:
            for future in self._pending.values():
                future.cancel()
            self._pending = {}

    def close(self) -> None:
        """Ends the threads or processes, which :meth:`batch` would start again."""
        self.forget()
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(cancel_futures=True)

    def _submit(self, epoch: int, positions: Array) -> Future[Any]:
        if self._executor is None:
            self._executor = self._start()
        if self._use_processes:
            return self._executor.submit(_read, epoch, positions)
        return self._executor.submit(self._reader.read, epoch, positions)

    def _start(self) -> Executor:
        if not self._use_processes:
            return ThreadPoolExecutor(self._count, "yogadl-keras")
        context = multiprocessing.get_context()
        return ProcessPoolExecutor(self._count, context, _begin, (self._reader,))


def _begin(reader: BatchReader) -> None:
    """The first thing that a worker process does."""
    global _reader  # noqa: PLW0603 # an executor gives its initializer no other place
    _reader = reader
    threading.Thread(target=_end_with_parent, name="yogadl-keras-parent", daemon=True).start()


def _end_with_parent() -> None:
    # Who was killed could not tell its workers to stop.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _read(epoch: int, positions: Array) -> Any:
    assert _reader is not None
    return _reader.read(epoch, positions)
