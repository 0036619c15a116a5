"""The items that a walk finds, and the recipe that they make."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

from yogadl.recipes._document import Item, Recipe, digest_of, shown_text
from yogadl.recipes._sharing import Sharing
from yogadl.recipes._special import FLAGS, HINTS


class Ledger:
    """The items of one recipe. Each has a token, by which others say that they use it.

    Attributes:
        current: the token of the item that is described now.
        sharing: what was met in all of them.
    """

    def __init__(self) -> None:
        self.current = ""
        self.sharing = Sharing()
        self._contents: dict[str, list[str]] = {}
        self._shown: dict[str, tuple[str, str, Callable[[], str]]] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._libraries: dict[str, str] = {}
        self._inner: dict[Item, str] = {}
        self._later: dict[tuple[str, str], Callable[[], str]] = {}
        self._has_hints = False
        self._places: dict[tuple[int, str], int] = {}
        self._written: list[tuple[str, Any, str]] = []

    def new(self, kind: str, short: str, label: str, show: Callable[[], str]) -> str:
        """The token of a new item. It does not depend on the names of modules.

        Args:
            kind: see ``KINDS``.
            short: its name, without that of its module.
            label: for people.
            show: tells its text, for people.
        """
        count = self._counts[f"{kind} {short}"]
        self._counts[f"{kind} {short}"] += 1
        token = f"{kind} {short}#{count}"
        self._shown[token] = kind, label, show
        return token

    def begin(self, token: str) -> None:
        """What comes now is of an item."""
        self.current = token
        self.sharing.begin(token)

    def describe(self, token: str, parts: list[str]) -> None:
        """Says what an item is."""
        self._contents[token] = parts

    def add(self, token: str, part: str) -> None:
        """Says more of an item that was described."""
        self._contents[token].append(part)

    def library(self, distribution: str, version: str) -> None:
        """A library whose version counts."""
        self._libraries[distribution] = version

    def include(self, recipe: Recipe) -> None:
        """Shows what another recipe shows, whose digest counts."""
        self._inner.update(recipe.show())

    def met(self, space: object, name: str) -> None:
        """Takes note of the place of a name that code reads."""
        self._places.setdefault((id(space), name), len(self._places))

    def writes(self, space: object, name: str) -> None:
        """Says of the current item that it gives a value to a name."""
        self._written.append((self.current, space, name))

    def later(self, flag: str, make: Callable[[], str]) -> None:
        """What counts of the current item, too, if code asks for it; see ``FLAGS``."""
        self._later[self.current, flag] = make
        self._has_hints |= flag == HINTS

    def add_due(self, mentioned: set[str]) -> bool:
        """Adds what code asks for by some names; whether there was any."""
        flags = {flag for flag, names in FLAGS.items() if not names.isdisjoint(mentioned)}
        due = [key for key in self._later if key[1] in flags]
        if not due and self._has_hints and "annotations" not in flags:
            due = [key for key in self._later if key[1] == HINTS]
        for token, flag in due:
            make = self._later.pop((token, flag))
            self.begin(token)
            # What is met for that is told from all else of the item.
            self.sharing.begin(f"{token} {flag}")
            made = make()
            if made or flag != HINTS:
                self._contents[token].append(f"{flag}: {made}")
        return bool(due)

    def add_writes(self) -> None:
        """Adds which of the names that are read are written, when all that is read is known."""
        for token, space, name in self._written:
            place = self._places.get((id(space), name), "read by nobody")
            self._contents[token].append(f"writes {name}: {place}")
        self._written.clear()

    def recipe(self, more: Iterable[Item]) -> Recipe:
        """The recipe of all that was described, and of some items more."""
        items, lines = [], []
        shows: dict[Item, Callable[[], str]] = {}
        for token, parts in self._contents.items():
            kind, label, show = self._shown[token]
            item = Item(kind, label, digest_of(parts))
            items.append(item)
            lines.append(f"{token} {item.digest}")
            shows[item] = functools.partial(_show, label, show)
        for name, version in sorted(self._libraries.items()):
            items.append(Item("library", name, digest_of([version]), version))
        lines += [f"library {it.name} {it.digest}" for it in items[len(lines) :]]
        for number, it in enumerate(more):
            items.append(it)
            # Where an input is does not count.
            lines.append(f"{it.kind} {number if it.kind == 'input' else it.name} {it.digest}")

        known = set(items)
        items += [it for it in self._inner if it not in known]

        def show_all() -> dict[Item, str]:
            texts = {it: shows[it]() if it in shows else it.text for it in items}
            return {**texts, **self._inner}

        return Recipe(digest_of(sorted(lines)), tuple(items), show_all)


def _show(label: str, show: Callable[[], str]) -> str:
    return shown_text(label, show())
