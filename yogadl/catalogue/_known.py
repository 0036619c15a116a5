"""What a catalogue says, as it is asked."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from yogadl.catalogue._entry import Entry, Key
from yogadl.catalogue._going_to import GoingTo
from yogadl.catalogue._state import State


@dataclass(frozen=True)
class Known:
    """What a catalogue says, at one moment.

    Attributes:
        entries: of versions; what is damaged is left out.
        tags: of each id, and at which version each is.
        removed: what was about to be deleted not long ago, and the tag of the object that it was.
        identity: that no other catalogue has; empty before the first change.
        keys: of all entries, those that are left out, too; ``None`` if some are lost.
        state: of its root.
    """

    entries: Mapping[Key, Entry]
    tags: Mapping[str, Mapping[str, str]]
    removed: Mapping[Key, str] = field(default_factory=dict)
    identity: str = ""
    keys: Collection[Key] | None = ()
    state: State = field(default_factory=State, repr=False)

    @property
    def is_begun(self) -> bool:
        """Whether there is a catalogue, and not only what it would say."""
        return self.state.count > 0

    def is_uncommitted(self, key: Key, going_to: GoingTo | None) -> bool:
        """Whether a version was published by a commit that has not been carried out: it is under
        way, or was killed, or has come too late.

        Args:
            key: of the version.
            going_to: what its own file says.
        """
        if going_to is None or (going_to.catalogue, going_to.key) != (self.identity, key):
            return False
        # With entries lost, nothing can be said.
        return self.keys is not None and key not in self.keys and not self.tags_at(key)

    def with_age(self, entry: Entry, written: datetime.datetime) -> Entry:
        """What a version's own file says, and its place among the others, which the file alone does
        not say; and when it was stored, if it was written anew.

        Args:
            entry: of the file.
            written: when that was written.
        """
        before = self.entries.get(entry.key)
        if before is not None and before.is_of(entry.object_size, entry.object_tag):
            # Which was too long to be kept as a whole.
            return dataclasses.replace(entry, number=before.number, stored=before.stored)
        stored = self._before_it_was_renewed(entry)
        if stored is not None:
            return dataclasses.replace(entry, stored=(min(stored[0], written), stored[1]))
        if before is None or not before.is_told_by(entry):
            return entry
        # Another program has copied both.
        stored = before.stored and (min(before.stored[0], written), before.stored[1])
        return dataclasses.replace(entry, number=before.number, stored=stored)

    def _before_it_was_renewed(self, entry: Entry) -> tuple[datetime.datetime, int] | None:
        """When the version of a file that was written anew was stored, and its number then."""
        before, renewed = self.entries.get(entry.key), entry.renewed
        if renewed is None:
            return None
        if before is not None and before.object_tag == renewed.instead_of:
            return before.stored or (renewed.since, renewed.number)
        if self.removed.get(entry.key) in (entry.object_tag, renewed.instead_of):
            return renewed.since, renewed.number
        return None

    def tags_at(self, key: Key) -> tuple[str, ...]:
        """The tags that are at a version, sorted."""
        found = self.tags.get(key[0], {})
        return tuple(sorted(tag for tag, version in found.items() if version == key[1]))
