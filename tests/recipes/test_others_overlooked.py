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


def told(folder: pathlib.Path, text: str) -> tuple[str, str]:
    """The digest of a program's recipe, at first and at a second call, and its data."""
    (folder / "program.py").write_text(text + TELL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
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
    ],
)
def test_what_matters(
    tmp_path: pathlib.Path, library: str, program: str, one: str, other: str
) -> None:
    pytest.importorskip(library)
    before, after = (told(tmp_path, program.format(it)) for it in (one, other))
    assert before[1] != after[1], "an edit that does not matter"
    assert before[0] != after[0]
