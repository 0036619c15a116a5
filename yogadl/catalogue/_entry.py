"""What the catalogue says of a version."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from yogadl import spec as specs
from yogadl.catalogue._fields import count, maybe_count, text
from yogadl.catalogue._going_to import GoingTo
from yogadl.catalogue._renewed import Renewed, stored_of, stored_to_json
from yogadl.errors import YogadlError
from yogadl.format import spec_json
from yogadl.format.provenance import UNKNOWN, Provenance

Key: TypeAlias = tuple[str, str]
"""An id and a version."""

LARGEST_ENTRY = 32 << 10
"""Bytes of JSON; of a version that needs more, the file's own header is read."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One stored version of a data set. ``storage.list`` makes it.

    What is not known is ``None``, ``()`` or an empty string: of a file that is damaged or that
    yogadl 0.1.4 wrote, all but its names, size and time.

    Attributes:
        dataset_id: as it was submitted.
        dataset_version: likewise.
        record_count: number of records.
        size: bytes of all its files, parts that other versions have, too, among them.
        own_size: of these, bytes that its parents do not have; all, if it has none.
        spec: the element spec.
        content_id: tells what the records are, however they are stored: equal for equal records.
        parents: id and version of each that it was made from by a commit.
        tags: that are at it, sorted.
        created: when it was stored, in UTC, by the clock of the disk or the bucket.
        user: who stored it.
        host: on which machine.
        function: the name of the function that made it.
        recipe: digest of all that determines the records.
        message: what the user said of the commit.
        change: the id of the commit that made it.
        duration: seconds that it took to build.
    """

    dataset_id: str
    dataset_version: str
    record_count: int | None
    size: int
    own_size: int | None
    spec: specs.Structure
    content_id: str
    parents: tuple[tuple[str, str], ...]
    tags: tuple[str, ...]
    created: datetime.datetime
    user: str
    host: str
    function: str
    recipe: str
    message: str
    change: str
    duration: float | None


@dataclass(frozen=True)
class Entry:
    """What is kept of a version.

    Attributes:
        dataset_id, dataset_version: of it.
        object_size: bytes of the version's own file or object.
        object_tag: of it; another one is no longer what the entry is about.
        record_count: ``None`` if not known.
        size: bytes of all files.
        own_size: of these, bytes that the parents do not have; ``None`` if not known.
        spec: the element spec as JSON; empty if not known.
        content_id: empty if not known.
        provenance: from what and by whom, without the function's arguments and source.
        is_whole: whether that is all that the file says; the rest was too long.
        number: of the change by which it was entered, the later, the greater; 0 if that was by none
            of its own, as its file was found without an entry.
        stored: if its file was written anew since, when the version was stored, by the store's
            clock, and the number that it had then; else ``None``.
        going_to: of a commit whose file was asked, where it was to be entered. It is not kept.
        renewed: of a file that was asked, and had been written anew, what it says of that. It is
            not kept.
        is_sure: whether a file that was asked will always say the same, and not only because it is
            damaged, or could not be read as a whole. It is not kept.
    """

    dataset_id: str
    dataset_version: str
    object_size: int
    object_tag: str
    record_count: int | None = None
    size: int = 0
    own_size: int | None = None
    spec: str = ""
    content_id: str = ""
    provenance: Provenance = UNKNOWN
    is_whole: bool = True
    number: int = 0
    stored: tuple[datetime.datetime, int] | None = None
    going_to: GoingTo | None = None
    renewed: Renewed | None = None
    is_sure: bool = True

    @property
    def key(self) -> Key:
        """Its id and version."""
        return self.dataset_id, self.dataset_version

    def is_of(self, size: int, tag: str) -> bool:
        """Whether it is about this state of the version's object."""
        return (self.object_size, self.object_tag) == (size, tag)

    def is_told_by(self, other: Entry) -> bool:
        """Whether what is kept is about a file of which a copy was asked: it says all the same."""
        made = dataclasses.replace(other.provenance, arguments="", source="")
        if not self.is_whole:
            made = Provenance(change=made.change)
        ours, theirs = (
            (it.key, it.object_size, it.record_count, it.content_id) for it in (self, other)
        )
        return bool(self.content_id) and ours == theirs and self.provenance == made

    def to_json(self) -> dict[str, Any]:
        """As it is kept, in 32 KiB at most."""
        made = dataclasses.replace(self.provenance, arguments="", source="")
        found: dict[str, Any] = {
            "dataset_id": self.dataset_id,
            "dataset_version": self.dataset_version,
            "object": [self.object_size, self.object_tag],
            "records": self.record_count,
            "size": self.size,
            "own_size": self.own_size,
            "spec": self.spec,
            "content_id": self.content_id,
            "made": made.to_json(),
            "is_whole": self.is_whole,
            "number": self.number,
        }
        if self.stored is not None:
            found["stored"] = stored_to_json(*self.stored)
        if self.is_whole and len(json.dumps(found)) > LARGEST_ENTRY:
            made = Provenance(change=self.provenance.change)
            return dataclasses.replace(self, spec="", provenance=made, is_whole=False).to_json()
        return found

    @classmethod
    def from_json(cls, found: Any) -> Entry:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: it makes no sense.
        """
        if not isinstance(found, Mapping):
            raise ValueError(f"{found!r:.100} is no entry")
        place = found.get("object")
        if not isinstance(place, list) or len(place) != 2:
            raise ValueError(f"{place!r:.100} is no object")
        entry = cls(
            *key_of(found),
            object_size=count("object", place[0]),
            object_tag=text("object", place[1]),
            record_count=maybe_count("records", found.get("records")),
            size=count("size", found.get("size")),
            own_size=maybe_count("own_size", found.get("own_size")),
            spec=text("spec", found.get("spec")),
            content_id=text("content_id", found.get("content_id")),
            provenance=Provenance.from_json(found.get("made")),
            is_whole=found.get("is_whole") is True,
            number=count("number", found.get("number")),
            stored=None if found.get("stored") is None else stored_of(found["stored"]),
        )
        if entry.spec:
            parsed_spec(entry.spec)
        return entry

    def shown_spec(self) -> specs.Structure:
        """The element spec; ``None`` if it is not known.

        Raises:
            ValueError: there is no such spec.
        """
        return _fresh(parsed_spec(self.spec)) if self.spec else None

    def shown(self, created: datetime.datetime, tags: tuple[str, ...]) -> CatalogueEntry:
        """As users see it.

        Args:
            created: since when it is stored.
            tags: that are at the version.
        """
        made = self.provenance
        return CatalogueEntry(
            dataset_id=self.dataset_id,
            dataset_version=self.dataset_version,
            record_count=self.record_count,
            size=self.size,
            own_size=self.own_size,
            spec=self.shown_spec(),
            content_id=self.content_id,
            parents=made.parents,
            tags=tags,
            created=created,
            user=made.user,
            host=made.host,
            function=made.function,
            recipe=made.recipe,
            message=made.message,
            change=made.change,
            duration=made.duration,
        )


def key_of(found: Mapping[str, Any]) -> Key:
    """The id and the version of an entry.

    Raises:
        ValueError: it has none.
    """
    return text("id", found.get("dataset_id")), text("version", found.get("dataset_version"))


# Most versions of a data set have the same.
@functools.lru_cache(maxsize=512)
def parsed_spec(spec: str) -> specs.Structure:
    """An element spec of its JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return spec_json.from_json(json.loads(spec))
    except (YogadlError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _fresh(spec: specs.Structure) -> specs.Structure:
    """The same in dicts of its own, so that who changes one changes no other."""
    if isinstance(spec, dict):
        return {key: _fresh(child) for key, child in spec.items()}
    if isinstance(spec, tuple):
        children = [_fresh(child) for child in spec]
        return type(spec)(*children) if specs.is_namedtuple(spec) else tuple(children)
    return spec
