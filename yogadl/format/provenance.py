"""How a file came to be, as it is kept beside the user's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

METADATA_KEY = "__yogadl__"
"""The key of the metadata document that users cannot have."""

RECIPE_KEY = "__yogadl_recipe__"
"""Another, of the document of the recipe."""

MOST_PARENTS = 1000

_LONGEST_SECONDS = 1e12


@dataclass(frozen=True)
class Provenance:
    """By whom, where and from what a data set was stored. What is empty, or ``None``, is not known.

    Attributes:
        function: the name of the function that made the data set, ``module.name``.
        arguments: that it was called with, as Python writes them, long ones abbreviated.
        source: digest of its source, XXH3-128; comments and layout do not count.
        host: the name of the machine.
        user: the name of the user.
        parents: id and version of each that it was made from by a commit.
        message: what the user says of the commit.
        change: the id of the commit; no other has it.
        reverts: that of the commit that it takes back.
        recipe: the digest of all that determined the data, see ``yogadl.recipes``.
        duration: seconds that it took to build.
        recipe_document: what the recipe was, as JSON; in a file that was read, anything.
    """

    function: str = ""
    arguments: str = ""
    source: str = ""
    host: str = ""
    user: str = ""
    parents: tuple[tuple[str, str], ...] = ()
    message: str = ""
    change: str = ""
    reverts: str = ""
    recipe: str = ""
    duration: float | None = None
    # It has a key of its own, and lists are no part of what can be hashed.
    recipe_document: Any = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """What is known of it."""
        known = {it.name: getattr(self, it.name) for it in fields(self) if it.compare}
        # As they are read again.
        known["parents"] = [list(pair) for pair in self.parents]
        return {name: value for name, value in known.items() if value not in ("", [], None)}

    @classmethod
    def from_json(cls, found: Any) -> Provenance:
        """What a file says; what makes no sense is not known."""
        given = found if isinstance(found, Mapping) else {}
        known: dict[str, Any] = {}
        for it in fields(cls):
            value = _sane(it.name, given.get(it.name)) if it.compare else None
            if value is not None:
                known[it.name] = value
        return cls(**known)


UNKNOWN = Provenance()


def with_duration(document: bytes, seconds: float) -> bytes:
    """A metadata document, JSON as it is stored, that says how long it took to build."""
    found = json.loads(document)
    if METADATA_KEY not in found:
        return document
    found[METADATA_KEY]["duration"] = round(seconds, 6)
    return json.dumps(found, allow_nan=False, sort_keys=True).encode()


def _sane(name: str, value: Any) -> Any:
    """A value of a field, ``None`` if it can be none."""
    if name == "duration":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value <= _LONGEST_SECONDS else None
    if name == "parents":
        return _sane_parents(value)
    return value if is_text(value) else None


def _sane_parents(value: Any) -> tuple[tuple[str, str], ...] | None:
    if not isinstance(value, list) or len(value) > MOST_PARENTS:
        return None
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_text, pair)):
            return None
    return tuple((pair[0], pair[1]) for pair in value)


def is_text(value: Any) -> bool:
    """Whether it is a string that UTF-8 can hold."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
