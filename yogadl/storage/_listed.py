"""What is stored under the name of a version."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from yogadl.catalogue import Entry, Key, Known

Age: TypeAlias = tuple[datetime.datetime, int, str]
"""The greater, the newer."""


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

    def is_doomed(self, known: Known) -> bool:
        """Whether somebody is deleting it, or was killed when he did so."""
        return known.removed.get(self.key) == self.tag


def ages_of(there: Iterable[tuple[Listed, Entry]]) -> dict[Key, Age]:
    """Of versions of one id, and what is known of them, how new they are.

    Those that were entered in the catalogue are in its order, whatever the times of their files:
    another program may have copied a storage, its files one after another in any order. The others
    are between them by their times.
    """
    found: dict[Key, Age] = {}
    newest: datetime.datetime | None = None
    for listed, entry in sorted(there, key=lambda it: it[0].stored(it[1])[1]):
        since, number = listed.stored(entry)
        if number:
            newest = since = since if newest is None else max(newest, since)
        found[listed.key] = since, number, listed.dataset_version
    return found


def oldest_first(there: Iterable[tuple[Listed, Entry]]) -> list[tuple[Listed, Entry]]:
    """Versions of any ids in their order, those of each id together; see :func:`ages_of`."""
    by_id: dict[str, list[tuple[Listed, Entry]]] = {}
    for pair in there:
        by_id.setdefault(pair[0].dataset_id, []).append(pair)
    found = []
    for pairs in by_id.values():
        ages = ages_of(pairs)
        found += sorted(pairs, key=lambda it: ages[it[0].key])
    return found
