"""What of other libraries' things is easily overlooked, in programs that differ in one place."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TELL = """
from yogadl.recipes import recipe_of
print(recipe_of(make).digest)
print(recipe_of(make).digest)
print(make())
"""
MODEL = """
from typing import List
import pydantic
class Order(pydantic.BaseModel):
    items: List["Item"]
class Item(pydantic.BaseModel):
    x: int = {}
def make(): return Order(items=[{{}}])
"""

# A library: what is below a folder of this name is none of the user's.
SHELF = """
import functools
__version__ = "1"
STEPS = {
    "up": lambda it: it + 1,
    "down": lambda it: it - 1,
}
up, down = (lambda it: it + 1), (lambda it: it - 1)
def chosen(is_up, by):
    if is_up:
        def inner(it): return it + by
    else:
        def inner(it): return it - by
    return inner
def plain(is_up):
    def deeper():
        if is_up:
            return lambda it: it + 1
        return lambda it: it - 1
    return deeper()
@functools.singledispatch
def stepped(it): return it
@stepped.register
def _(it: int): return it + 1
@stepped.register
def _(it: str): return it * 2
def decorated(make):
    return lambda *given: make(*given)
@decorated
def hidden(is_up, by):
    if is_up:
        def inner(it): return it + by
    else:
        def inner(it): return it - by
    return inner
"""
STEP = """
import shelf
step = shelf.{}
def make(): return [step(3)]
"""


def told(folder: pathlib.Path, text: str) -> tuple[str, str]:
    """The digest of a program's recipe, at first and at a second call, and its data."""
    (folder / "program.py").write_text(text + TELL)
    library = folder / "site-packages" / "shelf.py"
    library.parent.mkdir(exist_ok=True)
    library.write_text(SHELF)
    paths = os.pathsep.join((str(ROOT), str(library.parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    first, second, *data = ended.stdout.splitlines()
    assert first == second
    return first, "\n".join(data)


@pytest.mark.parametrize(
    ("library", "program", "one", "other"),
    [
        ("pydantic", MODEL, "1", "2"),
        ("yogadl", STEP, "STEPS['up']", "STEPS['down']"),
        ("yogadl", STEP, "up", "down"),
        ("yogadl", STEP, "chosen(True, 1)", "chosen(False, 1)"),
        ("yogadl", STEP, "plain(True)", "plain(False)"),
        ("yogadl", STEP, "stepped.dispatch(int)", "stepped.dispatch(float)"),
        ("yogadl", STEP, "stepped.dispatch(int)", "stepped.dispatch(str)"),
        ("yogadl", STEP, "hidden(True, 1)", "hidden(False, 1)"),
    ],
)
def test_what_matters(
    tmp_path: pathlib.Path, library: str, program: str, one: str, other: str
) -> None:
    pytest.importorskip(library)
    before, after = (told(tmp_path, program.format(it)) for it in (one, other))
    assert before[1] != after[1], "an edit that does not matter"
    assert before[0] != after[0]
