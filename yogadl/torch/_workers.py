"""What a worker process of a ``DataLoader`` has to do that torch does not."""

from __future__ import annotations

import atexit
import functools
import threading
import time

from yogadl.extras import require

torch = require("torch", "torch")

# The name that multiprocessing gives the thread which sends what is put into a queue.
_SENDER = "QueueFeederThread"
# Far longer than sending takes. A sender whose pipe nobody reads any more never ends.
_SENDER_SECONDS = 1.0


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
    end = time.monotonic() + _SENDER_SECONDS
    for thread in threading.enumerate():
        if thread.name == _SENDER:
            thread.join(max(0.0, end - time.monotonic()))
