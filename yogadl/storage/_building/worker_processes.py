"""Processes that call a function, and end when they should."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from yogadl.errors import UnsupportedTypeError, YogadlError

# How long a worker may outlive a parent of which another child holds the pipe.
_LOOK_SECONDS = 1.0

Function = Callable[[int], Any]

_inherited: list[Function] = []


class WorkerProcesses(concurrent.futures.ProcessPoolExecutor):
    """Processes that call one function, which those that are forked inherit.

    They end with the process that started them, whatever has ended it: with a fork they would wait
    for ever, and hold what it held. Interrupts are left to it.

    Args:
        count: of the processes.
        function: of a number.
    """

    def __init__(self, count: int, function: Function) -> None:
        context = multiprocessing.get_context()
        self._seen, self._end = context.Pipe(duplex=False)
        super().__init__(count, context, _begin, (function, self._seen, self._end))

    def call(self, number: int) -> concurrent.futures.Future[Any]:
        """Hands a number to the workers, of which the first call may start some.

        Raises:
            UnsupportedTypeError: the function cannot be sent to them.
        """
        try:
            return self.submit(_call, number)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UnsupportedTypeError(
                f"the data cannot be sent to worker processes: {error}; define its class and "
                "functions at the top of a module, or use one worker"
            ) from error

    def kill(self) -> None:
        """Ends the workers at once, in the middle of what they do."""
        # Nobody reads it, so all see it.
        self._end.send_bytes(b"end")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._seen.close()
            self._end.close()


def refuse_in_import() -> None:
    """Tells a script that a worker is importing, and that would start workers in its turn.

    Python tells it, too, but only who has the lock that the script's own process holds.

    Raises:
        YogadlError: it is one.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise YogadlError(
            "a worker process imports the script, and would build with several workers itself; "
            'have the script do its work behind if __name__ == "__main__":'
        )


def _begin(function: Function, seen: Connection, end: Connection) -> None:
    """Begins a worker, which may have been forked: then nothing was pickled."""
    _inherited[:] = [function]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end.close()
    watch = threading.Thread(
        target=_watch, args=(seen, os.getppid()), name="yogadl-watch", daemon=True
    )
    watch.start()


def _watch(seen: Connection, parent: int) -> None:
    """Ends this process when it is told to, or when its parent is gone."""
    while not seen.poll(_LOOK_SECONDS) and os.getppid() == parent:
        pass
    os._exit(1)


def _call(number: int) -> Any:
    try:
        return _inherited[0](number)
    except Exception as error:
        if _can_be_sent(error):
            raise
        told = "".join(traceback.format_exception_only(type(error), error)).strip()
        raise YogadlError(told) from error


def _can_be_sent(error: Exception) -> bool:
    """Whether another process gets what this one raises; many errors take other arguments than they
    keep."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)  # noqa: S301 # its own
    except Exception:
        return False
