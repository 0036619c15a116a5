"""What a worker process of a ``DataLoader`` has to do that torch does not."""

from __future__ import annotations

import atexit
import functools
import pathlib
import threading

from yogadl.extras import require

torch = require("torch", "torch")

# The name that multiprocessing gives the thread which sends what is put into a queue.
_SENDER = "QueueFeederThread"
# Sending that takes none of the processor's time for that long waits for a reader, which may have
# left for good.
_IDLE_SECONDS = 1.0


def end_in_order() -> None:
    """Lets the process, if it is a worker, end in order even where its epoch was left early.

    As torch has it, a spawned worker does not wait for the thread that sends batches. Where this
    has released the GIL just then, as ``THPStorage_shareFd`` of torch 2.13 does to copy a tensor,
    it cannot get it back from an interpreter that is ending, and the process is aborted. Forked
    workers end without ending the interpreter.
    """
    if torch.utils.data.get_worker_info() is not None:
        _await_senders_at_exit()


@functools.cache
def _await_senders_at_exit() -> None:
    atexit.register(_await_senders)


def _await_senders() -> None:
    for thread in threading.enumerate():
        spent = None
        while thread.name == _SENDER and thread.is_alive() and spent != (now := _ticks(thread)):
            spent = now
            thread.join(_IDLE_SECONDS)


def _ticks(thread: threading.Thread) -> tuple[str, ...]:
    """The time that the processor has spent on a thread; where that is not told, nothing."""
    try:
        status = pathlib.Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:
        return ()
    # By proc(5), behind the name of the program, which ends with the last parenthesis.
    return tuple(status.rpartition(")")[2].split()[11:13])
