"""Forked processes that can be killed, and that say whether they were at work."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from types import TracebackType

_BEGUN, _DONE, _FAILED = b"b", b"d", b"f"


class Child:
    """A process that does one thing. A context manager that kills it if it is still there.

    The process that makes it must have no other threads.

    Args:
        work: what; an error of it is raised where it is waited for.
    """

    def __init__(self, work: Callable[[], Counter[str] | None]) -> None:
        self._read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, write_end)
        os.close(write_end)
        self._is_over = False
        assert os.read(self._read_end, 1) == _BEGUN
        self._begun = time.monotonic()

    def kill_after(self, seconds: float) -> bool:
        """Kills it so long after it began; whether it was still at work.

        Raises:
            AssertionError: it had failed.
        """
        left = max(0.0, self._begun + seconds - time.monotonic())
        # The pipe becomes readable when the child is done: nothing to wait for then.
        select.select([self._read_end], [], [], left)
        os.kill(self.pid, signal.SIGKILL)
        return self._end() is None

    def wait(self) -> Counter[str]:
        """Waits for its end; what its work counted.

        Raises:
            AssertionError: it failed, or was killed by somebody else.
        """
        counted = self._end()
        assert counted is not None, "a process ended without a word"
        return counted

    @property
    def is_running(self) -> bool:
        """Whether it has neither failed nor ended."""
        return not select.select([self._read_end], [], [], 0)[0]

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun

    def _end(self) -> Counter[str] | None:
        """Waits for the end of the process; what it counted, or ``None`` if it was cut short."""
        said = b""
        while data := os.read(self._read_end, 1 << 16):
            said += data
        self._reap()
        assert not said.startswith(_FAILED), said[1:].decode(errors="replace")
        return Counter(json.loads(said[1:])) if said.startswith(_DONE) else None

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._read_end)
        self._is_over = True

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_over:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()


class Repeating(Child):
    """A process that does something again and again until it is stopped.

    Args:
        work: done again and again; what it counts is added up.
    """

    def __init__(self, work: Callable[[], Counter[str]]) -> None:
        stop_end, self._stop_end = os.pipe()

        def repeat() -> Counter[str]:
            counted: Counter[str] = Counter()
            while not select.select([stop_end], [], [], 0.02)[0]:
                counted.update(work())
            return counted

        super().__init__(repeat)
        os.close(stop_end)

    def stop(self) -> Counter[str]:
        """Ends it after what it is at; what it counted.

        Raises:
            AssertionError: something it did had failed.
        """
        # Not by closing: other children have this end, too.
        if self.is_running:
            os.write(self._stop_end, b"s")
        return self.wait()

    def _reap(self) -> None:
        super()._reap()
        os.close(self._stop_end)


def _run(work: Callable[[], Counter[str] | None], write_end: int) -> None:
    code = 1
    try:
        os.write(write_end, _BEGUN)
        counted = work()
        os.write(write_end, _DONE + json.dumps(counted or {}).encode())
        code = 0
    except Exception:
        os.write(write_end, _FAILED + traceback.format_exc()[-30_000:].encode())
    finally:
        os._exit(code)
