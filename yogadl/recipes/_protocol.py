"""What the rules of values need of the walk that they are used by, and how they write."""

from __future__ import annotations

import decimal
import fractions
import pathlib
import types
import typing
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

import xxhash

# What is longer is told by a digest.
LONGEST = 200
_PLAIN = frozenset(
    (int, float, complex, bool, str, bytes, decimal.Decimal, fractions.Fraction, type(None))
)
_CONTAINERS = frozenset((tuple, list, set, frozenset))
_MOST_PLAIN = 100_000
_DEEPEST_PLAIN = 8


class Walk(Protocol):
    """What rules need of the walk that they are used by.

    Attributes:
        texts: that code and values have, in which libraries may look for names.
        leaves_hints: whether what only annotations of functions that are handed to others name is
            left out, as some of that cannot be told.
        failed: how modules have failed to be imported, by name; empty if they are not there.
        annotated: fields of classes whose types are told with these, by where they are in memory.
    """

    texts: set[str]
    leaves_hints: bool
    failed: dict[str, str]
    annotated: dict[int, Any]

    def token(self, value: Any) -> str:
        """A value as text.

        Raises:
            UndeterminedError: it cannot be told what it is.
        """

    def inside(self, step: str, value: Any) -> str:
        """The same of a value inside of another; ``step`` says where, for errors."""

    def again(self, value: Any) -> str:
        """What was met before, so that what is shared is told from what is only equal, and rings
        come to an end; empty if it is new."""

    def alone(self, values: Iterable[Any]) -> list[str]:
        """Values that have no order, sorted."""

    def reference(self, value: Any) -> str:
        """A function or class, that has an item of its own."""

    def library(self, module: str, name: str) -> str:
        """Something of a library, whose version counts from now on."""

    def meet(self, kind: type) -> None:
        """Takes note of a class of a library, or of which a value is."""

    def meet_imported(self, kind: type) -> None:
        """The same of one that a function imports itself."""

    def meet_module(self, module: types.ModuleType) -> None:
        """Takes note of a module of a library that code has as a value."""

    def is_put(self, module: str, owner: str, name: str, value: Any) -> bool:
        """Whether the user may have given something in a module of a library a plain value; see
        ``is_written``."""

    def declared(self, path: pathlib.PurePath) -> str:
        """What a path is if it is a declared input; else empty."""

    def compiled(self, module: types.ModuleType, name: str) -> str:
        """Something of a module of the user's that was compiled: all of that counts."""

    def memory(self, owner: object, place: int, start: int, layout: str) -> str:
        """Where in the memory of an owner, which is at some place, a value begins, and how it and
        the first one that was met there are laid out; empty if it is the first."""

    def met(self, space: object, name: str) -> None:
        """Takes note of the place of a name that code reads."""

    def writes(self, space: object, name: str) -> None:
        """Says of what is described that it gives a value to a name, which others may read."""

    def refuse_module(self, module: types.ModuleType, name: str) -> typing.NoReturn:
        """Refuses a module that is more than the beginning of a name."""

    def refuse(self, what: str, name: str = "") -> typing.NoReturn:
        """Raises the error that says that a value cannot be told, and where that was met.

        Args:
            what: it is.
            name: by which it can be ignored, if that is not of where it was met.
        """

    def is_ignored(self, *names: str) -> bool:
        """Whether one of these is not to count."""

    def item(self, kind: str, owner: object, name: str, label: str, value: Any) -> str:
        """A value that has a name.

        Args:
            kind: see ``KINDS``.
            owner: what it is the name in.
            name: in that.
            label: for people.
            value: that it has.
        """

    def is_home(self, space: dict[str, Any]) -> bool:
        """Whether these are the globals of the function that the walk began with: of its names,
        those of modules need not be given."""

    def home(self, module: str) -> dict[str, Any] | None:
        """The globals of the function that the walk began with, if they are those of a module of
        this name; the main module may be that of a profiler, say, that runs the program."""

    def looks_up(self, function: types.FunctionType, cells: dict[str, Any]) -> None:
        """Takes note of a function that looks up names in a text that it is given."""

    def begin_again(self) -> None:
        """Has all of it described once more: a module was imported, which may have changed it."""

    def mention(self, names: Collection[str]) -> None:
        """Takes note of names that code uses, which may decide what counts, or be refused."""

    def restart(self, name: str) -> None:
        """Goes on from what has a name, for errors."""

    def later(self, flag: str, make: Callable[[], str]) -> None:
        """What counts, too, of what is described now, if code asks for it; see ``FLAGS``."""


Rule = Callable[[Walk, Any], str]


def digest(data: Any) -> str:
    """XXH3-128 of some bytes."""
    return xxhash.xxh3_128_hexdigest(data)


def text(value: str) -> str:
    """A string, by a digest if it is long."""
    if len(value) <= LONGEST:
        return f"s{value!a}"
    return f"s{len(value)}#{digest(value.encode('utf-8', 'surrogatepass'))}"


def is_plain(value: Any) -> bool:
    """Whether a value is of Python's own types through and through, and not large."""
    if type(value) in _PLAIN:
        return True
    level, count = [value], 0
    for _ in range(_DEEPEST_PLAIN):
        inner: list[Any] = []
        for it in level:
            kind = type(it)
            if kind in _PLAIN:
                continue
            if kind is not dict and kind not in _CONTAINERS:
                return False
            count += len(it)
            if count > _MOST_PLAIN:
                return False
            inner += [*it.keys(), *it.values()] if kind is dict else it
        if not inner:
            return True
        level = inner
    return False


def each(walk: Walk, values: Iterable[Any]) -> str:
    """Values in their order."""
    return ",".join(walk.inside(f"[{n}]", value) for n, value in enumerate(values))


def pairs(walk: Walk, items: Iterable[tuple[Any, Any]]) -> str:
    """Keys and values in their order, which may matter."""
    found = []
    for key, value in items:
        shown = f"[{key!r:.40}]" if type(key) in (str, int) else "[…]"
        found.append(f"{walk.inside(shown, key)}:{walk.inside(shown, value)}")
    return ",".join(found)
