"""Tells the recipes of programs in folders, and the data that they make."""

from __future__ import annotations

import email.message
import fractions
import gc
import importlib
import json
import math
import pathlib
import pkgutil
import string
import sys
from typing import Any

from yogadl.recipes import _stores, recipe_of

_PATCHED = (
    json,
    vars(json)["_default_encoder"],
    json.encoder,
    json.JSONEncoder,
    string,
    string.Formatter,
    fractions.Fraction,
    email.message.Message,
)
# What functools.singledispatch keeps cannot be given back otherwise.
_REGISTRY: dict[type, Any] = gc.get_referents(pkgutil.iter_importer_modules.registry)[0]
sys.dont_write_bytecode = True


def run(folder: str) -> list[str]:
    """The digest of the recipe of a program, and its data."""
    sys.path.insert(0, folder)
    # What programs put into modules of Python's goes again.
    kept = [(thing, dict(vars(thing))) for thing in _PATCHED]
    importlib.invalidate_caches()
    try:
        make: Any = importlib.import_module("shop.main").make
        digest = recipe_of(make).digest
        return [digest, repr(make())]
    finally:
        sys.path.remove(folder)
        for thing, names in kept:
            for name, value in names.items():
                if vars(thing).get(name) is not value:
                    setattr(thing, name, value)
            for name in vars(thing).keys() - names.keys():
                delattr(thing, name)
        for kind in [it for it in _REGISTRY if it.__module__.startswith("shop.")]:
            del _REGISTRY[kind]
        for name in [it for it in sys.modules if it.partition(".")[0] == "shop"]:
            del sys.modules[name]


def go_by_text() -> None:
    """Has recipes look only for what the texts of programs say that these put into libraries."""
    plain = _stores._told_in
    # They are younger than this process, and this file, which is above them, puts things back.
    _stores._BEGUN = math.inf
    own: Any = 0, _stores.Told({})
    _stores._told_in = lambda file: own if file == __file__ else plain(file)


def main() -> None:
    """Reads the names of folders, a line each, and writes what is found as JSON."""
    if sys.argv[1:] == ["by_text"]:
        go_by_text()
    found = {}
    for line in sys.stdin:
        folder = line.strip()
        try:
            found[pathlib.Path(folder).name] = run(folder)
        except Exception as error:
            raise RuntimeError(folder) from error
    print(json.dumps(found))


if __name__ == "__main__":
    main()
