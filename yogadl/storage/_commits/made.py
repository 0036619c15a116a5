"""Of what a stored version is made, and what it says of how it came to be."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.content_id import TokenSums
from yogadl.cache.sections import section
from yogadl.cache.table_writer import ColumnGroup, StoredGroups, stored_groups
from yogadl.catalogue import GoingTo, Renewed
from yogadl.errors import CacheFormatError
from yogadl.format import header as headers
from yogadl.format import spec_json
from yogadl.format.provenance import METADATA_KEY, RECIPE_KEY, Provenance
from yogadl.format.run_columns import RUN
from yogadl.recipes import Recipe, parse
from yogadl.storage._commits.user_metadata import metadata_digest
from yogadl.versions.hunks import Hunks
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]

MOST_HUNKS = 1 << 16
"""Of a version that changes more places of its parent, it is not stored which: its runs tell."""

_HUNKS = "hunks"
_PARENT_CONTENT = "parent_content"
_PARENT_METADATA = "parent_metadata"
_YOUNG = "young"
_DIGITS = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Made:
    """A stored version.

    Attributes:
        dataset_version: its name.
        stored: of what it is made.
        spec: its element spec.
        sums: over the tokens of its records.
        digest: of its own file.
        is_table: of parts, and no plain file.
        metadata: the user's.
        document: that, and what yogadl keeps beside it, JSON as it is stored.
        created_ns: when it was made, nanoseconds since 1970.
        provenance: how it came to be.
        young: digests of parts that commits made, and that later ones may put together.
        parent_content: the content id that its first parent had; empty if that is not known.
        parent_metadata: see ``metadata_digest``, of the metadata that this had; likewise.
        hunks: as it is stored, what it changes of its first parent; ``None`` if that is not told.
        going_to: of a commit to a branch, where it was to be entered; else ``None``.
    """

    dataset_version: str
    stored: StoredGroups
    spec: specs.Structure
    sums: TokenSums
    digest: bytes
    is_table: bool
    metadata: dict[str, Any]
    document: bytes
    created_ns: int
    provenance: Provenance
    young: frozenset[bytes]
    parent_content: str
    parent_metadata: str
    hunks: Any
    going_to: GoingTo | None

    @property
    def count(self) -> int:
        """Number of records."""
        return self.sums.count

    @property
    def recipe(self) -> Recipe | None:
        """What determined the records, if it is known; of a version that was changed it is not."""
        return parse(json.loads(self.document).get(RECIPE_KEY))

    def renewed_since(self, since: datetime.datetime, number: int, tag: str) -> bytes:
        """Its document, of a file that is to be written in its place.

        Args:
            since: when the version was stored.
            number: see ``Renewed``.
            tag: of its own object.
        """
        return _longer(self.document, Renewed(since, number, tag).to_json())

    @property
    def digests(self) -> set[bytes]:
        """Of the parts; of a plain file its own."""
        return {*part_sizes(self.stored)}

    def has_spec_of(self, other: Made) -> bool:
        """Whether both have the same element spec, names of tuples included."""
        return same_specs(self.spec, other.spec)

    @property
    def content_id(self) -> str:
        """Of its records."""
        return self.sums.content_id(self.spec)


def same_specs(one: specs.Structure, other: specs.Structure) -> bool:
    """Whether two element specs are the same; Python takes a named tuple for any tuple."""
    return spec_json.canonical(one) == spec_json.canonical(other)


def part_sizes(stored: StoredGroups) -> dict[bytes, int]:
    """The digests of the parts of which a version is made, and their bytes."""
    found: dict[bytes, int] = {}
    for group in stored.groups:
        parts = group.parts.array
        digests = (digest.tobytes() for digest in parts["digest"])
        found.update(zip(digests, parts["size"].tolist(), strict=True))
    return found


def read_made(
    dataset_version: str, size: int, read: Callable[[int, int], bytes], buffer: Array, name: str
) -> Made:
    """What a version's own file says.

    Args:
        dataset_version: its name.
        size: of the file, in bytes.
        read: bytes of the file: from the first to before the second number.
        buffer: uint8 ``[size]``, which what is read is written to.
        name: of the file, for errors.

    Raises:
        CacheFormatError: it is damaged, or no file of format 1.
        YogadlError: what ``read`` raises.
    """
    page = read(headers.HEADER_OFFSET, min(headers.BODY_OFFSET, size))
    header = headers.unpack(page, size, name)
    places = [header.spec, header.metadata, header.index_checksums]
    if header.part_count:
        places.append(header.index)
    for place in places:
        stop = place.offset + place.length
        buffer[place.offset : stop] = np.frombuffer(read(place.offset, stop), "u1")
    stored = stored_groups(buffer, header, name)
    document = section(buffer, header.metadata, "metadata", name).tobytes()
    metadata, own = _metadata(document, name)
    return Made(
        dataset_version,
        stored,
        spec_json.from_json(json.loads(stored.spec)),
        TokenSums(header.record_count, header.token_sums),
        header.digest,
        header.part_count > 0,
        metadata,
        document,
        header.created_ns,
        Provenance.from_json(own),
        _young(own.get(_YOUNG)),
        _digest(own.get(_PARENT_CONTENT)),
        _digest(own.get(_PARENT_METADATA)),
        own.get(_HUNKS),
        GoingTo.of(own),
    )


def _metadata(data: bytes, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The user's metadata, and yogadl's own."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CacheFormatError(f"{name} has damaged metadata; rebuild it") from error
    if not isinstance(found, dict):
        raise CacheFormatError(f"{name} has metadata that are no dict; rebuild it")
    own = found.pop(METADATA_KEY, None)
    # What was changed was not made by it.
    found.pop(RECIPE_KEY, None)
    return found, own if isinstance(own, dict) else {}


def _young(found: Any) -> frozenset[bytes]:
    """Of what a file says, the digests; all else counts as none."""
    texts = found if isinstance(found, list) else []
    return frozenset(
        bytes.fromhex(text) for text in texts if isinstance(text, str) and _DIGITS.fullmatch(text)
    )


def _digest(found: Any) -> str:
    """Of what a file says, a digest of 128 bits in hex; all else counts as none."""
    return found if isinstance(found, str) and _DIGITS.fullmatch(found) else ""


def with_origin(
    document: bytes, parent: Made, hunks: Hunks | None, young: Collection[bytes]
) -> bytes:
    """A metadata document, JSON as it is stored, that says of what a version was made, as far as
    there is room.

    Args:
        document: without.
        parent: the first one.
        hunks: what is changed of the first parent; ``None`` if that cannot be told.
        young: see ``Made``.
    """
    # Without the one, the other might be taken for changes of another version.
    identity = {
        _PARENT_CONTENT: parent.content_id,
        _PARENT_METADATA: metadata_digest(parent.metadata),
    }
    document = _longer(document, identity)
    if hunks is not None and len(hunks) > MOST_HUNKS:
        hunks = hunks.joined()
    if hunks is not None and len(hunks) <= MOST_HUNKS:
        document = _longer(document, {**identity, _HUNKS: hunks.to_list()})
    if young:
        document = _longer(document, {_YOUNG: sorted(digest.hex() for digest in young)})
    return document


def _longer(document: bytes, told: dict[str, Any]) -> bytes:
    """A metadata document that also says something of yogadl's own, if there is room."""
    found = json.loads(document)
    found.setdefault(METADATA_KEY, {}).update(told)
    longer = json.dumps(found, allow_nan=False, sort_keys=True).encode()
    return longer if len(longer) <= headers.LARGEST_METADATA else document


def with_branch(document: bytes, going_to: GoingTo) -> bytes:
    """A metadata document, JSON as it is stored, that says where a commit is to be entered, if
    there is room; one that does not is kept whatever becomes of the commit."""
    found = json.loads(document)
    going_to.noted_in(found)
    longer = json.dumps(found, allow_nan=False, sort_keys=True).encode()
    return longer if len(longer) <= headers.LARGEST_METADATA else document


def runs_of(group: ColumnGroup) -> Runs:
    """The runs of a column group, whose sources are the numbers of its parts."""
    return runs_from(group.runs)


def runs_from(stored: Array) -> Runs:
    """The inverse of :func:`stored_runs`."""
    return Runs(*[stored[name].astype(np.int64) for name in ("part", "first", "count")])


def stored_runs(runs: Runs) -> Array:
    """Runs of parts as they are stored, ``RUN`` ``[n]``."""
    found = np.zeros(len(runs), RUN)
    found["part"], found["first"], found["count"] = runs.sources, runs.firsts, runs.counts
    return found
