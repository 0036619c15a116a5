"""What the file of a version that was written anew says of when the version was stored."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from yogadl.catalogue._fields import count

_RENEWED = "renewed"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Renewed:
    """Since when a version is stored whose file was written anew.

    Its entry says so, too, which may not be there yet, or never, if who wrote the file was killed.
    The file may have been copied elsewhere, where it was stored later. So it is believed where the
    catalogue still has the entry of what it was written in place of.

    Attributes:
        since: when the version was stored, by the store's clock.
        number: that its entry had then, see ``Entry``.
        instead_of: the tag of the object that it was before.
    """

    since: datetime.datetime
    number: int
    instead_of: str

    def to_json(self) -> dict[str, Any]:
        """As it is kept in yogadl's own part of the metadata of the version's file."""
        return {_RENEWED: [*stored_to_json(self.since, self.number), self.instead_of]}

    @classmethod
    def of(cls, own: Any) -> Renewed | None:
        """What is noted in yogadl's own part of a file's metadata, whatever that is; ``None`` for
        nothing, or what makes no sense."""
        found = own.get(_RENEWED) if isinstance(own, dict) else None
        if not isinstance(found, list) or len(found) != 3 or not isinstance(found[2], str):
            return None
        try:
            return cls(*stored_of(found[:2]), found[2])
        except ValueError:
            return None


def stored_to_json(since: datetime.datetime, number: int) -> list[int]:
    """When something was stored, in microseconds since 1970, and the number that it had."""
    # Users may give files any time.
    return [max(0, (since - _EPOCH) // _MICROSECOND), number]


def stored_of(value: Any) -> tuple[datetime.datetime, int]:
    """The inverse of :func:`stored_to_json`.

    Raises:
        ValueError: it makes no sense.
    """
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r:.100} is no time and number")
    since, number = (count("stored", it) for it in value)
    try:
        return _EPOCH + since * _MICROSECOND, number
    except OverflowError:
        raise ValueError(f"stored {since} is no time") from None
