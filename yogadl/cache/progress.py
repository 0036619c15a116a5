"""Progress of long work: a bar on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yogadl.closing import Closing

_LINE_SECONDS = 30.0
"""Between two lines, and before the first: what is done sooner needs none."""

_BAR_SECONDS = 2.0
"""Before a bar is shown: who waits no longer need not look at one."""

_log = logging.getLogger(__name__)


def tell(message: str) -> None:
    """Says how long work is getting on: to the log, or to those who have not set up one."""
    if _log.hasHandlers():
        _log.info("%s", message)
    elif sys.stderr is not None:
        # In one go, so that lines of several threads are not mixed.
        sys.stderr.write(f"yogadl: {message}\n")
        sys.stderr.flush()


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Says now and then that this thread is waiting, for whom and for how long.

    Args:
        what: whom for, "for another builder", say.
    """
    done = threading.Event()
    started = time.monotonic()

    def talk() -> None:
        while not done.wait(_LINE_SECONDS):
            tell(f"Waiting {what} since {time.monotonic() - started:,.0f} s")

    thread = threading.Thread(target=talk, name="yogadl-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _is_notebook() -> bool:
    """Whether a Jupyter kernel shows what this process writes."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return getattr(get_shell(), "kernel", None) is not None


def _new_bar(title: str, total: int | None, **options: Any) -> Any:
    """A bar where somebody can look at it, else ``None``. It is shown when the work takes long."""
    options["delay"] = _BAR_SECONDS
    if _is_notebook():
        if importlib.util.find_spec("ipywidgets") is not None:
            from tqdm.notebook import tqdm as widget

            return widget(desc=title, total=total, **options)
    elif sys.stderr is None or not sys.stderr.isatty():
        return None
    # It takes as long to import as a tenth of yogadl.
    import tqdm

    return tqdm.tqdm(desc=title, total=total, **options)


class _Display:
    """A bar, or lines. For one thread at a time.

    Args:
        title: what is being done.
        total: how much there is to do, ``None`` if that is not known.
        summary: says in a line how far it got, given the seconds that took.
        options: of the bar.
    """

    def __init__(
        self, title: str, total: int | None, summary: Callable[[float], str], **options: Any
    ) -> None:
        self._title = title
        self._summary = summary
        self._started = self._last = time.monotonic()
        self.bar = _new_bar(title, total, **options)

    def advance(self, count: int) -> None:
        if self.bar is not None:
            self.bar.update(count)
        elif time.monotonic() - self._last > _LINE_SECONDS:
            self._last = time.monotonic()
            tell(self._line())

    def _line(self) -> str:
        return f"{self._title}: {self._summary(max(time.monotonic() - self._started, 1e-9))}"

    def close(self, done: bool) -> None:
        """Ends the bar, and says in the log if the work is done."""
        if self.bar is not None:
            self.bar.close()
        if done:
            _log.info("%s", self._line().replace(": ", ": done: ", 1))


def _shortened(count: int) -> str:
    """``"999"``, ``"3.00k"``."""
    if count < 1000:
        return str(count)
    import tqdm

    return str(tqdm.tqdm.format_sizeof(count))


class Progress:
    """Counts records and bytes, and tells somebody. Not thread-safe.

    Args:
        title: what is being done.
        total: number of records, or ``None`` where it is not known.
        is_shown: otherwise it counts, and tells nobody: somebody else does.
    """

    def __init__(self, title: str, total: int | None = None, is_shown: bool = True) -> None:
        self._total = total
        self._is_shown = is_shown
        self.records = 0
        self.size = 0
        self._closed = False
        bar = {"unit": " records", "unit_scale": True, "disable": not is_shown}
        self._display = _Display(title, total, self._summary, **bar)

    def update(self, records: int, size: int) -> None:
        """Adds ``records``; ``size`` is all bytes written so far."""
        self.records += records
        self.size = size
        if not self._is_shown:
            return
        if self._display.bar is not None:
            self._display.bar.bar_format = self._bar_format()
        self._display.advance(records)

    def _bar_format(self) -> str:
        """As tqdm's own, which has no whole numbers beside thousands that are shortened."""
        rate = f"{{rate_noinv_fmt}}, {self.size / 1e6:,.1f} MB"
        if self._total is None:
            return f"{{desc}}: {_shortened(self.records)} records [{{elapsed}}, {rate}]"
        count = f"{_shortened(self.records)}/{_shortened(self._total)} records"
        return f"{{l_bar}}{{bar}}| {count} [{{elapsed}}<{{remaining}}, {rate}]"

    def _summary(self, seconds: float) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return (
            f"{self.records:,}{of} records, {self.size / 1e6:,.1f} MB, "
            f"{self.records / seconds:,.0f} records/s, {self.size / 1e6 / seconds:,.1f} MB/s"
        )

    def close(self, done: bool) -> None:
        """Ends the bar; says so in the log if the work is ``done``. May be called twice."""
        self._display.close(done and self._is_shown and not self._closed)
        self._closed = True


class ByteProgress(Closing):
    """Counts the bytes of a transfer, and tells somebody. A context manager; thread-safe.

    Args:
        title: what is being done.
        total: bytes.
    """

    def __init__(self, title: str, total: int) -> None:
        self._total = total
        self._moved = 0
        self._mutex = threading.Lock()
        self._is_done = False
        self._display = _Display(
            title, total, self._summary, unit="B", unit_scale=True, unit_divisor=1024
        )

    def update(self, count: int) -> None:
        """Adds ``count`` bytes."""
        with self._mutex:
            self._moved += count
            self._display.advance(count)

    def done(self) -> None:
        """Tells that all of it was moved, which is said in the log at the end."""
        self._is_done = True

    def _summary(self, seconds: float) -> str:
        of = "" if self._moved == self._total else f" of {self._total / 1e6:,.1f}"
        moved = self._moved / 1e6
        return f"{moved:,.1f}{of} MB, {moved / seconds:,.1f} MB/s"

    def close(self) -> None:
        """Ends the bar; says in the log if all is done."""
        self._display.close(self._is_done)
