"""Forks while threads are at work."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.abc, os, sys, threading
import yogadl.storage

is_importing, is_forking = threading.Event(), threading.Event()


class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy.ma" and not is_importing.is_set():
            is_importing.set()
            is_forking.wait()
        return None


assert "numpy.ma" not in sys.modules
sys.meta_path.insert(0, Slow())
# As np.unique does, of some releases of NumPy.
thread = threading.Thread(target=importlib.import_module, args=("numpy.ma",))
thread.start()
is_importing.wait()
# What was registered last is called first.
os.register_at_fork(before=is_forking.set)
child = os.fork()
if not child:
    importlib.import_module("numpy.ma")
    os._exit(0)
thread.join()
assert os.waitpid(child, 0) == (child, 0)
"""


def test_a_thread_that_imports_what_numpy_imports_late() -> None:
    """A child that was forked meanwhile would wait for it for ever."""
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM], check=True, timeout=60
    )
