"""How a file came to be, as it is kept beside the user's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

METADATA_KEY = "__yogadl__"
"""The key of the metadata document that users cannot have."""

RECIPE_KEY = "__yogadl_recipe__"
"""Another, of the document of the recipe."""


@dataclass(frozen=True)
class Provenance:
    """By whom, where and from what a data set was stored. Empty strings are not known.

    Attributes:
        function: the name of the function that made the data set, ``module.name``.
        arguments: that it was called with, as Python writes them, long ones abbreviated.
        source: digest of its source, XXH3-128; comments and layout do not count.
        host: the name of the machine.
        user: the name of the user.
        recipe: the digest of all that determined the data, see ``yogadl.recipes``.
        recipe_document: what that was, as JSON; in a file that was read, anything.
    """

    function: str = ""
    arguments: str = ""
    source: str = ""
    host: str = ""
    user: str = ""
    recipe: str = ""
    # It has a key of its own, and lists are no part of what can be hashed.
    recipe_document: Any = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, str]:
        """What is known of it."""
        known = {it.name: getattr(self, it.name) for it in fields(self) if it.compare}
        return {name: value for name, value in known.items() if value}

    @classmethod
    def from_json(cls, found: Any) -> Provenance:
        """What a file says; what makes no sense is not known."""
        given = found if isinstance(found, Mapping) else {}
        known = {it.name: given.get(it.name) for it in fields(cls) if it.compare}
        return cls(**{name: value for name, value in known.items() if isinstance(value, str)})


UNKNOWN = Provenance()
