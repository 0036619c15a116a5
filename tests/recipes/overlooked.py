"""Programs that put something into libraries in ways that are seldom seen, and what is told of
them: by their texts, and by looking through libraries."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from made_once import made_once
from programs import Edit

HERE = pathlib.Path(__file__).parent
LONG_AGO = 1_000_000_000
PATCH = """
import json.encoder
def text(value): return "A"
json.encoder.encode_basestring_ascii = text
"""
DUMPS = """
def make(): return json.dumps({"key": "value"}, indent=1)
"""
TO_B: Edit = ('return "A"', 'return "B"')
CLASSES = """
import abc, collections.abc
class Mine: pass
"""
ASKED = """
def make(): return isinstance(Mine(), collections.abc.Sequence)
"""
CONFX = """=== ../site-packages/confx.py
import collections, functools, sys, types
__version__ = "1.0"
class Config:
    _encoder = str
    @property
    def encoder(self): return self._encoder
    @encoder.setter
    def encoder(self, value): self._encoder = value
class Named:
    def __set_name__(self, owner, name): self.private = "_" + name
    def __get__(self, owner, kind=None): return getattr(owner, self.private)
    def __set__(self, owner, value): setattr(owner, self.private, value)
class Field(property):
    def __set__(self, owner, value): owner._of_field = value
class Odd:
    def __getattr__(self, name): raise RuntimeError(name)
    def __get__(self, owner, kind=None): return owner._odd
    def __set__(self, owner, value): owner._odd = value
def checked(put):
    @functools.wraps(put)
    def checking(self, value): return put(self, value)
    return checking
class Checked(Config):
    named = Named()
    field = Field(lambda self: self._of_field)
    odd = Odd()
    @property
    def wrapped(self): return self._encoder
    @wrapped.setter
    @checked
    def wrapped(self, value): self._encoder = value
    @property
    def shared(self): return self._encoder
    @shared.setter
    def shared(self, value): type(self)._encoder = staticmethod(value)
class Keeper:
    @property
    def kept(self): return config._encoder
    @kept.setter
    def kept(self, value): config._encoder = value
kept = Keeper.kept
class Meta(type):
    @property
    def of_class(cls): return cls._of_class
    @of_class.setter
    def of_class(cls, value): cls._of_class = staticmethod(value)
class OfMeta(metaclass=Meta): pass
config, checked = Config(), Checked()
space = types.SimpleNamespace()
table = collections.OrderedDict()
class Setting:
    def __set_name__(self, owner, name): owner.kept = kept
def instrument(kind): kind.kept = kept
class KeepMeta(type):
    kept = kept
class OfKeepMeta(metaclass=KeepMeta): pass
def keep(value): config.taken = value
def promote(value): value.__class__ = type("Promoted", (type(value), Keeper), {})
def inject(name, value): sys._getframe(1).f_globals[name] = value
def keeper(*given): return config
def same(value): return value
def encode(value): return config._encoder(value)
def one(value): return getattr(config, "one", str)(value)
def called(value): return space.fn(value)
def made(value): return table.maker(value)
"""
"""A library; ``encode`` uses what ``config`` has, and so what ``Keeper`` keeps."""

Cases = dict[str, tuple[str, Edit]]
"""Programs of files below lines ``=== name``, ``main.py`` first, each with an edit that matters."""
Told = list[list[list[str]]]
"""Of two programs: by its text and by looking through libraries, the digest and the data."""


def write(folder: pathlib.Path, program: str) -> str:
    first, *others = program.split("=== ")
    files = {"__init__.py": "", "main.py": first}
    files |= {name: text for name, _, text in (it.partition("\n") for it in others)}
    for name, text in files.items():
        path = folder / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Not since the process began.
        os.utime(path, (LONG_AGO, LONG_AGO))
    return str(folder)


def run(folders: list[str], place: pathlib.Path) -> list[list[list[str]]]:
    """See ``run_forked``.

    Args:
        folders: of programs.
        place: where there may be a link to each.
    """
    link = str(place / "link")
    done = subprocess.run(
        [sys.executable, HERE / "run_forked.py", link],
        input="\n".join(folders),
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (f"{link}/site-packages", link, *sys.path))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        timeout=240,
    )
    found: list[list[list[str]]] = json.loads(done.stdout)
    return found


def told_of(cases: Cases, factory: pytest.TempPathFactory, name: str) -> dict[str, Told]:
    """Of each case, before and after its edit: the digest and the data, by what the text tells and
    by looking through libraries.

    Args:
        cases: programs.
        factory: of folders.
        name: of all of them, of its own.
    """
    folder = factory.mktemp("programs")
    folders = []
    for number, (program, (old, new)) in enumerate(cases.values()):
        assert program.count(old) == 1, (program, old)
        folders.append(write(folder / f"{number}-before", program))
        folders.append(write(folder / f"{number}-after", program.replace(old, new)))
    told = made_once(factory, name, lambda: run(folders, folder))
    pairs = zip(told[::2], told[1::2], strict=True)
    return {name: list(pair) for name, pair in zip(cases, pairs, strict=True)}


def check(found: Told) -> None:
    """Asserts that the edit changes the data, and so the digest, in both ways alike."""
    (by_text, looked), (changed_by_text, changed) = found
    assert by_text[1] != changed_by_text[1], "an edit that does not matter"
    assert by_text[0] != changed_by_text[0], "a false hit"
    assert (by_text, changed_by_text) == (looked, changed)
    assert not any("Error" in it[0] for it in (by_text, changed_by_text))
