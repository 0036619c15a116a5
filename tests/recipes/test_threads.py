"""Recipes are told by many threads at once, also the first ones of a process."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

MODULES = 12
MODULE = """
import collections.abc, fractions, json
class Box: pass
box = Box()
box.hook = lambda x: x + {number}
class Rows:
    def run(self): return [f(1) for f in (lambda x: x, lambda y: y + {number})]
fractions.Fraction.put{number} = lambda self: {number}
collections.abc.Sequence.register(Rows)
def make(): return Rows().run(), box.hook(1), json.dumps(fractions.Fraction(1).put{number}())
"""
RUN = """
import importlib, json, sys, threading
from yogadl.recipes import recipe_of
makes = [importlib.import_module(it).make for it in json.loads(sys.argv[1])]
told = {}
def tell(number): told[number] = recipe_of(makes[number]).digest
if sys.argv[2] == "at once":
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=tell, args=(it,)) for it in range(len(makes))]
    for each in threads: each.start()
    for each in threads: each.join()
else:
    for each in range(len(makes)): tell(each)
print(json.dumps([told[it] for it in range(len(makes))]))
"""


def test_threads_tell_at_once_what_one_tells(tmp_path: pathlib.Path) -> None:
    names = [f"module_{number}" for number in range(MODULES)]
    for number, name in enumerate(names):
        path = tmp_path / f"{name}.py"
        path.write_text(MODULE.format(number=number))
        # Not since the process began.
        os.utime(path, (1_000_000_000, 1_000_000_000))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), *sys.path))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    told = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", RUN, json.dumps(names), how],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
                timeout=120,
            ).stdout
        )
        for how in ("in turn", "at once")
    ]
    assert told[0] == told[1]
    assert len(set(told[0])) == MODULES
