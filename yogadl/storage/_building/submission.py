"""What is submitted to be stored, and the cache files that are made of it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from yogadl.adapters import open_source
from yogadl.cache.partial import PartialFile, claimed, remove_leftovers
from yogadl.cache.writer import CacheWriter
from yogadl.format.provenance import Provenance
from yogadl.storage._version import Version

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submission:
    """What is to be stored.

    Attributes:
        make: returns the data; called when it is known that it is to be stored.
        spec: as users give it.
        metadata: likewise.
        provenance: of the data.
        part_bytes: bytes from which on a part is full.
    """

    make: Callable[[], Any]
    spec: Any
    metadata: Mapping[str, Any] | None
    provenance: Provenance
    part_bytes: int | None


class Parts(Protocol):
    """Where a builder stores the parts of a version.

    Attributes:
        removed: digests of parts that may not be stored, once it has begun.
    """

    @property
    def removed(self) -> frozenset[bytes]: ...

    def begin(self) -> None:
        """Has no part collected that is stored from now on; so does the first :meth:`store`."""

    def adopt(self, digests: Iterable[bytes]) -> None:
        """Takes for its own what others stored on its behalf, after it began."""

    def store(self, file: PartialFile, digest: bytes) -> bool:
        """Stores a part of this digest, for all versions of the id.

        What is there by this name already is the same. ``False`` if there can be no part of this
        name, so that another one has to be made.
        """


@contextlib.contextmanager
def staged(
    submission: Submission,
    version: Version,
    adding: contextlib.AbstractContextManager[Parts],
    tensorflow_config: Any,
) -> Iterator[tuple[PartialFile, Any]]:
    """A whole cache file of what is submitted, beside its path, and the parts of it, if it is a
    table; gone at the end.

    Args:
        submission: to make it of.
        version: that it is to be.
        adding: what its parts are stored by.
        tensorflow_config: to read a data set of TensorFlow's with.
    """
    made_by = submission.provenance.function
    began = time.monotonic()
    if made_by:
        _log.info("Building %s by %s, since it is not stored.", version.label, made_by)
    source = open_source(submission.make(), submission.spec, tensorflow_config)
    with claimed(version.claim) as path:
        remove_leftovers(path)
        with (
            adding as parts,
            CacheWriter(
                path,
                source.spec,
                merged(source.metadata, submission.metadata),
                source.count,
                provenance=submission.provenance,
                part_bytes=submission.part_bytes,
                take_part=lambda part, header: not parts.store(part, header.digest),
                label=version.label,
                began=began,
            ) as writer,
        ):
            source.feed(writer)
            yield writer.finish(), parts


def merged(known: Mapping[str, Any], given: Any) -> Any:
    """What a source knows, and what the user gave, which counts; if that is anything at all."""
    if given is None:
        return known
    return {**known, **given} if isinstance(given, Mapping) else given
