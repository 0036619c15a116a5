"""Taking a commit back, and storing a version of many small commits anew."""

from __future__ import annotations

import numpy as np

from yogadl.cache.content_id import TokenSums
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import ColumnGroup, PartList, StoredGroups, sums_of_runs, whole_runs
from yogadl.cache.writer import encoded_spec
from yogadl.errors import ChecksumError
from yogadl.storage._commits.made import Made, runs_of
from yogadl.storage._commits.new_records import PartWriter
from yogadl.storage._commits.new_runs import NewRuns
from yogadl.versions.hunks import Hunks


def taken_back(hunks: Hunks, parent: Made, reader: RecordReader) -> NewRuns:
    """The records that a version has replaced, out of its parent's parts.

    Args:
        hunks: what the version changes of its parent.
        parent: that.
        reader: of it.
    """
    groups = tuple(
        (group.parts, runs_of(group).taken(hunks.starts, hunks.stops))
        for group in parent.stored.groups
    )
    gone = [np.arange(*ends) for ends in zip(hunks.starts, hunks.stops, strict=True)]
    positions = np.concatenate([np.empty(0, np.int64), *gone])
    tokens = reader.tokens(positions) if len(positions) else np.empty(0, "u8")
    return NewRuns(parent.stored.layout, groups, tokens, parent.young)


def stored_anew(made: Made, reader: RecordReader, writer: PartWriter) -> StoredGroups:
    """A version's records in parts that have them alone and in order.

    Args:
        made: the version.
        reader: of it.
        writer: stores parts.

    Raises:
        ChecksumError: they are not what was stored.
    """
    parts: PartList = writer.write_reader(reader)
    text = encoded_spec(made.spec)
    runs = whole_runs(parts)
    found = sums_of_runs(parts, runs, _no_tokens) if len(parts) else TokenSums(0, (0, 0))
    if found != made.sums:
        raise ChecksumError(
            f"the records of {made.dataset_version!r} are not what was stored, so it is left as it "
            "is; see verify"
        )
    return StoredGroups(text, (ColumnGroup(text, parts, runs),), None)


def _no_tokens(
    _number: int, _first: int, _count: int
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    raise AssertionError("all runs are of whole parts")
