"""What the root of a catalogue says, and how changes change it. Nothing here reads or writes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, TypeAlias

from yogadl.catalogue._entry import Entry, Key, key_of
from yogadl.catalogue._fields import text
from yogadl.conditional import sealed, unsealed
from yogadl.errors import (
    CatalogueError,
    InvalidArgumentError,
    TagMovedError,
    UnsupportedFormatError,
)

FORMAT = 1

FEWEST_MERGED = 64
"""Entries that the root has before they are merged into the segment."""

KEPT_CHANGES = 512
"""Ids of changes that the root has: who is overtaken by more does not know what became of its."""

_DIGEST = re.compile("[0-9a-f]{32}")
_KEPT_REMOVED = 64
_KEPT_DIGITS = 16
_MOST = 1 << 63

Raw: TypeAlias = Mapping[str, Any]
"""An entry as it is kept."""


Expected: TypeAlias = "str | EllipsisType | None"
"""The version that a tag is to be at: ``None`` for none, ``...`` for any or none."""


class NameTakenError(InvalidArgumentError):
    """What is to be entered has the name of a tag that was set since that was looked for."""


@dataclass(frozen=True)
class SegmentName:
    """Where the older entries are.

    Attributes:
        name: XXH3-128 of the segment's bytes, in hexadecimal.
        size: its bytes.
        raw_size: bytes of its JSON.
        count: of the entries.
    """

    name: str
    size: int
    raw_size: int
    count: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> SegmentName | None:
        if found is None:
            return None
        name = text("segment", found["name"])
        if not _DIGEST.fullmatch(name):
            raise ValueError(f"{name!r:.100} is no digest")
        sizes = [found[it] for it in ("size", "raw_size", "count")]
        return cls(name, *(_number(size) for size in sizes))


@dataclass(frozen=True)
class State:
    """What the root says.

    Attributes:
        count: of all changes that it was ever made.
        changes: ids of the last ones, abbreviated, one behind the other.
        entries: the newest, in the order in which they came.
        removed: what was taken out, and the tag of the object that it was.
        segment: where older entries are.
        retired: names of segments that were replaced not long ago.
        tags: of each id, and at which version each is.
        identity: that no other catalogue has, nor this one before entries were lost; empty before
            the first change.
    """

    count: int = 0
    changes: str = ""
    entries: Mapping[Key, Raw] = field(default_factory=dict)
    removed: Mapping[Key, str] = field(default_factory=dict)
    segment: SegmentName | None = None
    retired: tuple[str, ...] = ()
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    identity: str = ""

    # Asking

    def has(self, change: str) -> bool:
        """Whether a change was carried out, as far as is remembered."""
        name = _abbreviated(change)
        found = self.changes.find(name)
        while found >= 0 and found % _KEPT_DIGITS:
            found = self.changes.find(name, found + 1)
        return found >= 0

    def remembers(self, count: int) -> bool:
        """Whether all changes are remembered since there were so many."""
        return self.count - count <= KEPT_CHANGES

    def tags_of(self, dataset_id: str) -> Mapping[str, str]:
        """Its tags, and at which version each is."""
        return self.tags.get(dataset_id, {})

    def tags_at(self, key: Key) -> tuple[str, ...]:
        """The tags that are at a version, sorted."""
        found = self.tags_of(key[0])
        return tuple(sorted(tag for tag, version in found.items() if version == key[1]))

    def is_tag(self, key: Key) -> bool:
        """Whether a version has the name of a tag."""
        return key[1] in self.tags_of(key[0])

    def check_name(self, key: Key) -> None:
        """Sees that a version to be entered does not have the name of a tag.

        Raises:
            NameTakenError: it has.
        """
        if self.is_tag(key):
            raise NameTakenError(
                f"{key[1]!r} became a tag of data set {key[0]!r} meanwhile, so nothing was stored "
                "as a version of that name; choose another, or remove the tag (untag), and do it "
                "again"
            )

    def tag_of(self, key: Key) -> str:
        """The tag of the object that a version's entry is about; empty if it is not among the
        newest."""
        return tag_of_object(self.entries.get(key)) or ""

    def fitting(self, found: Mapping[Key, Raw], before: State) -> dict[Key, Raw]:
        """Those entries of what was found without that can be added by now.

        What was entered or removed meanwhile is not among them, nor what has the name of a tag.

        Args:
            found: the entries.
            before: the state when they were looked for; since then, the older entries must be the
                same.
        """
        return {
            key: raw
            for key, raw in found.items()
            if self.entries.get(key) == before.entries.get(key)
            and key not in self.removed
            and not self.is_tag(key)
        }

    @property
    def is_full(self) -> bool:
        """Whether there are more entries, and more of what was removed, than the root should have.

        To write all older ones costs more the more there are, and is the rarer for that.
        """
        older = 0 if self.segment is None else self.segment.count
        newer = len(self.entries) + max(0, len(self.removed) - _KEPT_REMOVED)
        return newer > max(FEWEST_MERGED, math.isqrt(2 * older))

    # Changing

    def after(self, change: str, **new: Any) -> State:
        """The same after a change.

        Args:
            change: its id.
            **new: what is another then.
        """
        changes = (self.changes + _abbreviated(change))[-KEPT_CHANGES * _KEPT_DIGITS :]
        identity = self.identity or change[:_KEPT_DIGITS]
        return dataclasses.replace(
            self, count=self.count + 1, changes=changes, identity=identity, **new
        )

    def with_entry(self, entry: Entry, change: str) -> State:
        """With an entry, in place of any other of its version."""
        entries = {key: raw for key, raw in self.entries.items() if key != entry.key}
        entries[entry.key] = dataclasses.replace(entry, number=self.count + 1).to_json()
        removed = {key: tag for key, tag in self.removed.items() if key != entry.key}
        return self.after(change, entries=entries, removed=removed)

    def with_found(self, found: Mapping[Key, Raw], change: str) -> State:
        """With entries of what was found without; see :meth:`fitting`."""
        rest = {key: raw for key, raw in self.entries.items() if key not in found}
        return self.after(change, entries={**rest, **found})

    def without_entry(self, key: Key, object_tag: str, is_forced: bool, change: str) -> State:
        """Without the entry of a version that is about to be deleted; nobody tags it any more.

        Args:
            key: of the version.
            object_tag: of what is to be deleted; empty if it stays after all.
            is_forced: also if it is tagged.
            change: the id of the change.

        Raises:
            InvalidArgumentError: it is tagged.
        """
        tags = self.tags_at(key)
        if tags and not is_forced:
            shown = " and ".join(map(repr, tags))
            raise InvalidArgumentError(
                f"version {key[1]!r} of data set {key[0]!r} has the tag {shown}; move or remove "
                "it (untag), or delete with force (force=True, --force), which leaves it at nothing"
            )
        if not object_tag:
            return self.after(change)
        entries = {it: raw for it, raw in self.entries.items() if it != key}
        removed = {it: tag for it, tag in self.removed.items() if it != key}
        removed[key] = object_tag
        return self.after(change, entries=entries, removed=removed)

    def with_tag(self, key: Key, tag: str, expect: Expected, change: str) -> State:
        """With a tag at a version.

        Args:
            key: of the version.
            tag: to set or to move.
            expect: the version that it is to be at now; ``None`` if there is to be none.
            change: the id of the change.

        Raises:
            TagMovedError: it is somewhere else.
        """
        name, version = key
        self._check(name, tag, expect)
        return self.after(change, tags=self._with_tags(name, {**self.tags_of(name), tag: version}))

    def committed(self, entry: Entry, branch: str, expect: Expected) -> State:
        """With the entry of a commit, and a branch moved to it.

        Raises:
            NameTakenError: there is a tag of its name.
            TagMovedError: the branch is not where it was expected.
        """
        name, version = entry.key
        self.check_name(entry.key)
        self._check(name, branch, expect)
        tags = self._with_tags(name, {**self.tags_of(name), branch: version})
        # In one change.
        return dataclasses.replace(self.with_entry(entry, entry.provenance.change), tags=tags)

    def without_tag(self, dataset_id: str, tag: str, expect: Expected, change: str) -> State:
        """Without a tag.

        Raises:
            TagMovedError: it is not where it should be.
        """
        self._check(dataset_id, tag, expect)
        rest = {it: version for it, version in self.tags_of(dataset_id).items() if it != tag}
        return self.after(change, tags=self._with_tags(dataset_id, rest))

    def _check(self, dataset_id: str, tag: str, expect: Expected) -> None:
        found = self.tags_of(dataset_id).get(tag)
        if expect is not ... and found != expect:
            at = "is not there" if found is None else f"is at version {found!r}"
            wanted = "absent" if expect is None else f"at {expect!r}"
            raise TagMovedError(
                f"the tag {tag!r} of data set {dataset_id!r} {at}, and was to be {wanted}", found
            )

    def _with_tags(self, dataset_id: str, found: Mapping[str, str]) -> Mapping[str, Any]:
        rest = {name: tags for name, tags in self.tags.items() if name != dataset_id}
        return {**rest, dataset_id: found} if found else rest

    def merged(
        self, before: State, segment: SegmentName, change: str, has_lost: bool = False
    ) -> State:
        """With the newest entries of an earlier state in a segment, which has all its older ones.

        Args:
            before: that state; its segment is still this one's.
            segment: the new one.
            change: the id of the change.
            has_lost: whether some older entries could not be read. It is another catalogue then.
        """
        entries = {key: raw for key, raw in self.entries.items() if before.entries.get(key) != raw}
        removed = {key: tag for key, tag in self.removed.items() if before.removed.get(key) != tag}
        # Their objects may be about to be deleted still.
        for key, tag in list(before.removed.items())[-_KEPT_REMOVED:]:
            if self.removed.get(key) == tag:
                removed.setdefault(key, tag)
        retired = () if self.segment is None else (self.segment.name,)
        found = self.after(
            change, entries=entries, removed=removed, segment=segment, retired=retired
        )
        return dataclasses.replace(found, identity=change[:_KEPT_DIGITS]) if has_lost else found

    # Bytes

    def to_json(self, nonce: str) -> bytes:
        """The root's bytes."""
        found = {
            "format": FORMAT,
            "nonce": nonce,
            "count": self.count,
            "changes": self.changes,
            "entries": list(self.entries.values()),
            "removed": [[*key, tag] for key, tag in self.removed.items()],
            "segment": None if self.segment is None else self.segment.to_json(),
            "retired": self.retired,
            "tags": self.tags,
            "identity": self.identity,
        }
        return sealed(found)

    @staticmethod
    def parse(data: bytes, name: str) -> tuple[State, str]:
        """What the root says, whatever is in it, and its nonce.

        Args:
            data: its bytes.
            name: of it, for errors.

        Raises:
            UnsupportedFormatError: a newer yogadl wrote it.
            CatalogueError: it is damaged.
        """
        try:
            found = unsealed(data)
            version = found["format"]
            if version != FORMAT:
                raise UnsupportedFormatError(
                    f"{name} is of format {version!r:.20}, and this yogadl knows {FORMAT}; use a "
                    "newer yogadl"
                )
            removed = {
                (text("id", it), text("version", at)): text("tag", tag)
                for it, at, tag in found["removed"]
            }
            state = State(
                count=_number(found["count"]),
                changes=text("changes", found["changes"]),
                entries={key_of(raw): raw for raw in found["entries"]},
                removed=removed,
                segment=SegmentName.from_json(found["segment"]),
                retired=tuple(text("retired", it) for it in found["retired"]),
                tags={text("id", it): _tags(tags) for it, tags in found["tags"].items()},
                identity=text("identity", found.get("identity", "")),
            )
            return state, text("nonce", found["nonce"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, UnsupportedFormatError):
                raise
            raise CatalogueError(
                f"{name} is damaged: {error}. Delete it: what is stored is then found by its own "
                "files; tags are lost"
            ) from error


def tag_of_object(raw: Raw | None) -> Any:
    """The tag of the object that an entry is about; ``None`` if there is none."""
    place = None if raw is None else raw.get("object")
    return place[1] if isinstance(place, list) and len(place) == 2 else None


def _abbreviated(change: str) -> str:
    return change[:_KEPT_DIGITS].ljust(_KEPT_DIGITS)


def _tags(found: Any) -> dict[str, str]:
    return {text("tag", tag): text("version", at) for tag, at in found.items()}


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise ValueError(f"{value!r:.100} is no number")
    return value
