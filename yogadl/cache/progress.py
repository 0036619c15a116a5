"""Progress of long work: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import TracebackType
from typing import Any

import tqdm

_LOG_EVERY_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Progress:
    """Counts records and bytes, and tells somebody. A context manager; not thread-safe.

    Args:
        title: what is being done.
        total: number of records, or ``None`` where it is not known.
    """

    def __init__(self, title: str, total: int | None = None) -> None:
        self._title = title
        self._total = total
        self.records = 0
        self.size = 0
        self._started = self._last = time.monotonic()
        self._closed = False
        self._bar: Any = None
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = tqdm.tqdm(desc=title, total=total, unit=" records", unit_scale=True)

    def update(self, records: int, size: int) -> None:
        """Adds ``records``; ``size`` is all bytes written so far."""
        self.records += records
        self.size = size
        if self._bar is not None:
            self._bar.set_postfix_str(f"{size / 1e6:,.1f} MB", refresh=False)
            self._bar.update(records)
        elif time.monotonic() - self._last > _LOG_EVERY_SECONDS:
            self._last = time.monotonic()
            _log.info("%s: %s", self._title, self._summary())

    def _summary(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        of = "" if self._total is None else f" of {self._total:,}"
        return (
            f"{self.records:,}{of} records, {self.size / 1e6:,.1f} MB, "
            f"{self.records / seconds:,.0f} records/s, {self.size / 1e6 / seconds:,.1f} MB/s"
        )

    def close(self, done: bool) -> None:
        """Ends the bar; says so in the log if the work is ``done``. May be called twice."""
        if self._bar is not None:
            self._bar.close()
        if done and not self._closed:
            _log.info("%s: done: %s", self._title, self._summary())
        self._closed = True


class ByteProgress:
    """Counts the bytes of a transfer, and tells somebody. A context manager; thread-safe.

    Args:
        title: what is being done.
        total: bytes.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._moved = 0
        self._mutex = threading.Lock()
        self._started = self._last = time.monotonic()
        self._bar: Any = None
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                desc=title, total=total, unit="B", unit_scale=True, unit_divisor=1024
            )

    def update(self, count: int) -> None:
        """Adds ``count`` bytes."""
        with self._mutex:
            self._moved += count
            if self._bar is not None:
                self._bar.update(count)
            elif time.monotonic() - self._last > _LOG_EVERY_SECONDS:
                self._last = time.monotonic()
                _log.info("%s: %s", self._title, self._summary())

    def done(self) -> None:
        """Says in the log that all of it was moved."""
        _log.info("%s: done: %s", self._title, self._summary())

    def _summary(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        of = "" if self._moved == self._total else f" of {self._total / 1e6:,.1f}"
        moved = self._moved / 1e6
        return f"{moved:,.1f}{of} MB, {moved / seconds:,.1f} MB/s"

    def __enter__(self) -> ByteProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
