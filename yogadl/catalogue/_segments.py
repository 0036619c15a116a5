"""Reading, writing and removing the objects that have the older entries of a catalogue."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

from yogadl.catalogue import _segment
from yogadl.catalogue._entry import Key, key_of
from yogadl.catalogue._root import READS, ROOT, CatalogueObjects
from yogadl.catalogue._state import Raw, SegmentName
from yogadl.errors import CatalogueError

SEGMENT_ENDING = ".entries"

_ORPHAN_SECONDS = 86400.0

_log = logging.getLogger(__name__)


class Segments:
    """Those of one catalogue, of which the last one is remembered. Safe for threads.

    Args:
        objects: that the catalogue is kept in.
    """

    def __init__(self, objects: CatalogueObjects) -> None:
        self._objects = objects
        self._last: tuple[str, dict[Key, Raw]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def read(self, segment: SegmentName) -> dict[Key, Raw] | None:
        """The entries of a segment, none if it is damaged; ``None`` if it is not there."""
        known = self._last
        if known is not None and known[0] == segment.name:
            return known[1]
        key = _key(segment.name)
        for _ in range(READS):
            found = self._objects.read(key, largest=segment.size)
            if found is None:
                return None
            try:
                older = _segment.decode(found[0], segment, f"{self._objects.where}/{key}")
            except CatalogueError as error:
                # It may be the answer that is damaged.
                failure = error
            else:
                self._last = segment.name, older
                return older
        # Each entry can be made anew.
        _log.warning("%s. What is stored is found by its own files.", failure)
        return {}

    def write(self, entries: Iterable[Raw], change: str, patience: float | None) -> SegmentName:
        """Writes a segment; how it is referred to.

        Args:
            entries: the oldest first.
            change: the id of the change that makes it.
            patience: seconds after which it is given up.

        Raises:
            YogadlError: it cannot be written.
        """
        listed = list(entries)
        data, segment = _segment.encode(listed, change)
        self._objects.write(_key(segment.name), data, None, patience)
        self._last = segment.name, {key_of(raw): raw for raw in listed}
        return segment

    def tidy(self, needed: Collection[str], retired: Collection[str]) -> None:
        """Deletes segments that nobody needs: of those who were killed, and those retired long ago.

        Who is reading one that is gone reads the root again.

        Args:
            needed: the names of those that are.
            retired: the names of those that need not be old to go.
        """
        times = self._objects.times()
        now = times.get(ROOT, 0.0)
        for key, written in times.items():
            is_old = now - written > _ORPHAN_SECONDS or key in map(_key, retired)
            if key.endswith(SEGMENT_ENDING) and key not in map(_key, needed) and is_old:
                self._objects.delete(key)


def _key(name: str) -> str:
    return f"{name}{SEGMENT_ENDING}"
