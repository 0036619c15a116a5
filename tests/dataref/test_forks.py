"""Forks at a bad moment: while another thread computes what is then kept."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import yogadl

# A thread is inside a property of one data set when the process forks, and never gets on; the
# child asks the same property of another data set.
FORK_INSIDE = """
import os, signal, threading
import numpy as np
import yogadl
from yogadl.spec import TensorSpec

inside, proceed = threading.Event(), threading.Event()

class Slow:
    def __init__(self, waits):
        self.waits = waits
    def __len__(self):
        return 2
    def __getitem__(self, position):
        if self.waits:
            inside.set()
            proceed.wait()
        return np.zeros(position + 3, "i4")

def made(waits):
    return yogadl.from_source(Slow(waits), spec=TensorSpec("int32", (None,)))

slow, quick = made(True), made(False)
thread = threading.Thread(target=lambda: slow.reader.record_bytes)
thread.start()
assert inside.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if quick.reader.record_bytes > 0 and quick.reader.content_id else 1)
status = os.waitpid(child, 0)[1]
proceed.set()
thread.join()
assert slow.reader.record_bytes == quick.reader.record_bytes
assert status == 0, f"the child ended with {status}"
"""


def test_a_fork_while_a_property_is_computed() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK_INSIDE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=pathlib.Path(yogadl.__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
