"""Entries as they are kept, and what they say, whatever is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from yogadl.catalogue._entry import Entry, Key
from yogadl.catalogue._state import Raw


def kept(entries: Iterable[Entry]) -> dict[Key, Raw]:
    """Entries as they are kept, but for those that could not be read again."""
    found: dict[Key, Raw] = {}
    for entry in entries:
        with contextlib.suppress(ValueError):
            raw = entry.to_json()
            found[Entry.from_json(raw).key] = raw
    return found


def is_another(raw: Raw | None, content_id: str) -> bool:
    """Whether an entry is surely of other records."""
    found = None if raw is None else raw.get("content_id")
    return bool(found and content_id) and found != content_id


def is_committed(raw: Raw | None, change: str) -> bool:
    """Whether an entry is that of a commit, and was not only made of its file by who found that.

    Args:
        raw: the entry.
        change: the id of the commit.
    """
    made = None if raw is None else raw.get("made")
    found = made.get("change") if isinstance(made, Mapping) else None
    return raw is not None and found == change and raw.get("number") != 0
