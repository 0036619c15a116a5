"""Recipes as documents: what determined a data set, as it is kept with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

_FORMAT = 1
_LARGEST = 64 << 10
_MOST_ITEMS = 2000
_LONGEST_NAME = 300
_LONGEST_TEXT = 4000
_CUT = "…"
_HEX = re.compile(r"[0-9a-f]{32}")
_SECRET = re.compile(r"secret|passw|token|api_?key|credential|private", re.IGNORECASE)

KINDS = {
    "function": "the code of",
    "class": "the class",
    "wrapper": "the wrapper",
    "argument": "the argument",
    "default": "the default",
    "closure": "the closure's",
    "global": "the global",
    "attribute": "the attribute",
    "constant": "the library's",
    "patch": "in a library, your",
    "environment": "the environment's",
    "file": "the compiled module",
    "input": "the input",
    "key": "the",
    "library": "the library",
    "spec": "the",
    "call": "the object:",
}
"""Of items, and how people call them."""


@dataclass(frozen=True)
class Item:
    """One thing that determines data.

    Attributes:
        kind: one of ``KINDS``.
        name: for people, such as ``package.module.function``.
        digest: of what it is, XXH3-128 in hex.
        text: a short value, or the source of code; empty if it is too long, or may be a secret.
    """

    kind: str
    name: str
    digest: str
    text: str = ""


@dataclass(frozen=True)
class Recipe:
    """What determines the data that a call of a function makes.

    Attributes:
        digest: of all of it, XXH3-128 in hex.
        items: what it is made of, in the order in which they were met.
        show: tells the texts of the items; they may be long to make.
        is_cut: whether it had more items than were kept.
    """

    digest: str
    items: tuple[Item, ...]
    show: Callable[[], dict[Item, str]] = field(default=dict, compare=False, repr=False)
    is_cut: bool = False

    def document(self) -> dict[str, Any]:
        """As JSON can hold it, in 64 KiB at most: texts are left out first, then items."""
        texts = self.show()
        rows = [
            [item.kind, _cut(item.name), item.digest, texts.get(item, "")] for item in self.items
        ]
        size = sum(len(json.dumps(row)) + 2 for row in rows)
        # The longest texts first; those of values are shorter than those of code.
        for row in sorted(rows, key=lambda row: -len(row[3])):
            if size <= _LARGEST - 200:
                break
            size -= len(json.dumps(row[3])) - 2
            row[3] = ""
        while size > _LARGEST - 200:
            size -= len(json.dumps(rows.pop())) + 2
        is_cut = len(rows) < len(self.items)
        return {"format": _FORMAT, "digest": self.digest, "items": rows, "cut": is_cut}


def parse(document: Any) -> Recipe | None:
    """A recipe as a file has it; ``None`` if it makes no sense, as a file may be anybody's."""
    if not isinstance(document, Mapping) or document.get("format") != _FORMAT:
        return None
    digest, rows = document.get("digest"), document.get("items")
    if not _is_digest(digest) or not isinstance(rows, list) or len(rows) > _MOST_ITEMS:
        return None
    items = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 4 or not all(isinstance(it, str) for it in row):
            return None
        kind, name, content, text = row
        is_short = len(name) <= _LONGEST_NAME and len(text) <= _LONGEST_TEXT
        if kind not in KINDS or not is_short or not _is_digest(content):
            return None
        items.append(Item(kind, name, content, text))
    texts = {item: item.text for item in items}
    return Recipe(str(digest), tuple(items), lambda: texts, bool(document.get("cut")))


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def is_secret(name: str) -> bool:
    """Whether a name says that what it names is a secret."""
    return _SECRET.search(name) is not None


def shown_text(name: str, text: str) -> str:
    """The text of an item as it is kept: nothing of what has a secret's name."""
    if is_secret(name) or len(text) > _LONGEST_TEXT:
        return ""
    return text


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + _CUT


def digest_of(parts: list[str]) -> str:
    """The digest of some texts, which end where they end."""
    found = xxhash.xxh3_128()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(f"{len(data)}:".encode())
        found.update(data)
    return found.hexdigest()
