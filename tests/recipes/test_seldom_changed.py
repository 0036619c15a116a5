"""Methods that Python has made for classes and that were given other defaults, methods of
enumerations that something wraps, what protocols put into classes, and what a process of its own
has."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMED = """
import collections
P = collections.namedtuple("P", "x y", defaults=[5])
{}
def make(): return [P(1)]
"""
TYPED = """
import typing
class P(typing.NamedTuple):
    x: int = 1
    y: list = []
{}
def make(): return [P()]
"""
DATACLASS = """
import dataclasses, typing
@dataclasses.dataclass
class P:
    x: int = 0
    y: list = dataclasses.field(default_factory=list)
    z: dataclasses.InitVar[int] = 3
    c: typing.ClassVar[int] = 4
    d: int = dataclasses.field(init=False, default=9)
    k: int = dataclasses.field(kw_only=True, default=2)
{}
def make(): return [P()]
"""
MISSING = """
import enum, functools
class C(enum.Enum):
    A = 1
    B = 2
    @classmethod
    @functools.lru_cache
    def _missing_(cls, value): return cls.{}
def make(): return [C(9).value]
"""
# NumPy says that this class is of a module that nobody has imported.
ELSEWHERE = """
import numpy as np
import numpy.lib.recfunctions as rfn
def item(self, at): return (7.0,)
{}
def make():
    return [rfn.rec_append_fields(np.zeros(1, [("x", "f4")]), "y", np.ones(1))[0][0]]
"""
SAME = "pass"
TELL = """
from yogadl.recipes import recipe_of
print(recipe_of(make).digest)
"""


def digest(folder: pathlib.Path, text: str, *arguments: str) -> list[str]:
    (folder / "program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-W", "ignore", "program.py", *arguments]
    ended = subprocess.run(
        program, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("program", "one", "other"),
    [
        (NAMED, SAME, "P.__new__.__defaults__ = (6,)"),
        (NAMED, "P.__new__.__defaults__ = (0,) * 2", "P.__new__.__defaults__ = (1,) * 2"),
        (TYPED, SAME, "P.__new__.__defaults__ = (2, [])"),
        (DATACLASS, SAME, "P.__init__.__defaults__ = (1, [], 3)"),
        (DATACLASS, SAME, "P.__init__.__kwdefaults__['k'] = 4"),
        (DATACLASS, "P.__init__.__kwdefaults__['k'] = 5", "P.__init__.__kwdefaults__['k'] = 4"),
        (MISSING, "A", "B"),
        (ELSEWHERE, SAME, "np.recarray.__getitem__ = item"),
    ],
)
def test_what_matters(tmp_path: pathlib.Path, program: str, one: str, other: str) -> None:
    found = [digest(tmp_path, program.format(it) + TELL) for it in (one, other)]
    assert found[0] != found[1]


@pytest.mark.parametrize("program", [NAMED, TYPED, DATACLASS])
def test_defaults_that_follow_from_the_fields(tmp_path: pathlib.Path, program: str) -> None:
    plain = digest(tmp_path, program.format(SAME) + TELL)
    named = "P.__new__" if program != DATACLASS else "P.__init__"
    again = f"{named}.__defaults__ = ({named}.__defaults__ + (0,))[:-1]"
    assert digest(tmp_path, program.format(again) + TELL) == plain


LATER = """
import mimetypes, sys
def guess(name): return "mine"
def make(): return [mimetypes.guess_type("a.txt")]
def patch():
    mimetypes.init()
    mimetypes._db.guess_type = guess
if "first" in sys.argv: patch()
"""


def test_what_a_library_makes_when_it_is_first_needed(tmp_path: pathlib.Path) -> None:
    """Also if a recipe was made before."""
    before, after = digest(tmp_path, LATER + TELL + "patch()" + TELL)
    assert digest(tmp_path, LATER + TELL, "first") == [after]
    assert before != after


PROTOCOLS = """
import typing
class Sized(typing.Protocol):
    def size(self): return 3
class Base:
    def __init__(self): self.extra = 1
class Row(Sized): pass
class Longer(Sized, Base): pass
class Own(Sized):
    def __init__(self): self.extra = {}
def make(): return [Row().size(), Longer().extra, Own().extra]
"""


def test_what_a_protocol_keeps_of_a_class_that_was_used(tmp_path: pathlib.Path) -> None:
    before, after = digest(tmp_path, PROTOCOLS.format(2) + TELL + "make()" + TELL)
    assert before == after
    assert digest(tmp_path, PROTOCOLS.format(4) + TELL) != [before]


STARTED = """
import asyncio, multiprocessing, sys

def settings(arguments):  # for which libraries are looked through
    return dict(vars(arguments))

def make():
    return [1, 2, 3]

def tell(*_):
    from yogadl.recipes import recipe_of
    print(recipe_of(make).digest, flush=True)

class Process(multiprocessing.Process):
    def run(self): tell()

class Policy(asyncio.DefaultEventLoopPolicy): pass

if __name__ == "__main__":
    tell()
    for method in ("fork", "spawn", "forkserver"):
        for argument in (1, 2):
            process = multiprocessing.get_context(method).Process(target=tell, args=(argument,))
            process.start()
            process.join()
    process = Process()
    process.start()
    process.join()
    asyncio.set_event_loop_policy(Policy())
    tell()
"""


def test_processes_that_were_started(tmp_path: pathlib.Path) -> None:
    found = digest(tmp_path, STARTED)
    assert len(found) == 9
    assert len(set(found)) == 1
