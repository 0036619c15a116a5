"""Tells the recipes of programs in folders, and the data that they make, each in a process of its
own that begins with nothing but yogadl. As it is a module of the user's, too, it does nothing of
what is told of the programs' text: the folder of each is where Python looks, by a link."""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from typing import Any

from yogadl.errors import YogadlError
from yogadl.recipes import _stores, recipe_of


def told(looks_through: bool) -> list[str]:
    """The digest of the recipe of a program, or why there is none, and its data."""
    if looks_through:
        # All libraries, as if the files had been edited since.
        _stores._BEGUN = -1.0
    make: Any = importlib.import_module("shop.main").make
    try:
        digest = recipe_of(make).digest
    except YogadlError as error:
        digest = f"{type(error).__name__}: {error}"
    return [digest, repr(make())]


def run(looks_through: bool) -> list[str]:
    """The same, of another process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = told(looks_through)
        except BaseException as error:
            found = [f"failed: {error!r}", ""]
        # The program may have changed how JSON is written.
        os.write(writing, repr(found).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as opened:
        text = opened.read()
    os.waitpid(child, 0)
    return list(ast.literal_eval(text.decode()))


def run_both(link: str, folder: str) -> list[list[str]]:
    """By what the text tells, and by looking through libraries."""
    os.symlink(folder, link)
    importlib.invalidate_caches()
    found = [run(False), run(True)]
    os.unlink(link)
    return found


if __name__ == "__main__":
    print(json.dumps([run_both(sys.argv[1], folder) for folder in sys.stdin.read().split()]))
