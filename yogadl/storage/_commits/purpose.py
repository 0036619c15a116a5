"""What is said of a commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.storage._commits.conflicts import advice


@dataclass(frozen=True)
class Purpose:
    """What is said of a commit.

    Attributes:
        message: the user's.
        metadata: the user's, of the whole version; ``None`` for that of its parent.
        change: the commit's id.
        started: when it was begun, as of ``time.monotonic``.
        reverts: the id of the commit that it takes back; empty for none.
    """

    message: str
    metadata: Mapping[str, Any] | None
    change: str
    started: float
    reverts: str = ""

    @property
    def advice(self) -> str:
        """What to do if others have changed the same."""
        return advice(bool(self.reverts))


def new_change() -> str:
    """The id of a commit."""
    return uuid.uuid4().hex
