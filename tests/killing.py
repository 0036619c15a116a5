"""Kills amid work, at the n-th thing that it does with files, on however slow a machine."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_FILES = ("open", "os.", "fcntl.", "mmap.")


def file_events(work: Callable[[], object]) -> int:
    """How many things ``work``, done in a child process, does with files."""
    read_end, write_end = os.pipe()

    def count() -> None:
        events = itertools.count()
        _at_each(lambda: next(events))
        work()
        os.write(write_end, str(next(events)).encode())

    assert _in_child(count) == 0
    os.close(write_end)
    with open(read_end) as told:
        return int(told.read())


def killed_amid(work: Callable[[], object], event: int) -> bool:
    """Does ``work`` in a child that is killed before its ``event``-th; whether it got there."""

    def kill() -> None:
        events = itertools.count(1)
        _at_each(lambda: next(events) == event and os.kill(os.getpid(), signal.SIGKILL))
        work()

    status = _in_child(kill)
    assert status in (0, -signal.SIGKILL), "the work failed"
    return status != 0


def _at_each(do: Callable[[], object]) -> None:
    """Calls ``do`` before each file event from now on, in this process and for good."""

    def hear(event: str, given: tuple[Any, ...]) -> None:
        if event.startswith(_FILES):
            do()

    sys.addaudithook(hear)


def _in_child(work: Callable[[], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(started(work), 0)[1])


def started(work: Callable[[], object]) -> int:
    """Does something in a child process, whose number it returns; its status is 0 if it could."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child
