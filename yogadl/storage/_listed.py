"""What is stored under the name of a version."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from yogadl.catalogue import Entry, Key, Known


@dataclass(frozen=True)
class Listed:
    """A version's own file or object, as it was at one moment.

    Attributes:
        dataset_id, dataset_version: of it.
        size: bytes.
        tag: differs whenever the contents do.
        created: when it was written, by the store's clock, in UTC.
        source: what it is read by.
    """

    dataset_id: str
    dataset_version: str
    size: int
    tag: str
    created: datetime.datetime
    source: Any

    @property
    def key(self) -> Key:
        """Its id and version."""
        return self.dataset_id, self.dataset_version

    def entry_in(self, known: Known) -> Entry | None:
        """The entry that is about it."""
        entry = known.entries.get(self.key)
        return entry if entry is not None and entry.is_of(self.size, self.tag) else None

    def stored(self, entry: Entry) -> tuple[datetime.datetime, int]:
        """When the version was stored, whose file may have been written anew since, and the number
        of the change by which it was entered in the catalogue then; 0 if it was not.

        Args:
            entry: that is about it.
        """
        return entry.stored or (self.created, entry.number)

    def age(self, entry: Entry) -> tuple[datetime.datetime, int, str]:
        """The greater, the newer; see :meth:`stored`."""
        return *self.stored(entry), self.dataset_version

    def is_doomed(self, known: Known) -> bool:
        """Whether somebody is deleting it, or was killed when he did so."""
        return known.removed.get(self.key) == self.tag
