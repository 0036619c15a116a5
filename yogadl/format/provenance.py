"""How a file came to be, as it is kept beside the user's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

METADATA_KEY = "__yogadl__"
"""The key of the metadata document that users cannot have."""


@dataclass(frozen=True)
class Provenance:
    """By whom, where and from what a data set was stored. Empty strings are not known.

    Attributes:
        function: the name of the function that made the data set, ``module.name``.
        arguments: that it was called with, as Python writes them, long ones abbreviated.
        source: digest of its source, XXH3-128; comments and layout do not count.
        host: the name of the machine.
        user: the name of the user.
    """

    function: str = ""
    arguments: str = ""
    source: str = ""
    host: str = ""
    user: str = ""

    def to_json(self) -> dict[str, str]:
        """What is known of it."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, found: Any) -> Provenance:
        """What a file says; what makes no sense is not known."""
        given = found if isinstance(found, Mapping) else {}
        known = {field.name: given.get(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in known.items() if isinstance(value, str)})


UNKNOWN = Provenance()
