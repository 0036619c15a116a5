"""New records stored once more, for a version whose leaves are spread over other column groups.

That is so when what a commit is made of was compacted meanwhile, or since: the same version, laid
out otherwise.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import numpy as np

from yogadl import spec as specs
from yogadl.cache.grouped import JoinedLeaves, LeafMap
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import ColumnLayout, PartList, whole_runs
from yogadl.dataref import concat
from yogadl.dataref._indexed import UnstoredDataRef
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.storage._commits.made import runs_from
from yogadl.storage._commits.new_records import PartWriter
from yogadl.storage._commits.new_runs import NewRuns
from yogadl.versions.runs import Runs

OpenPart = Callable[[bytes], RecordReader]
"""Opens the stored part of a digest."""


def refitted(
    new: NewRuns,
    spec: specs.Structure,
    layout: ColumnLayout,
    open_part: OpenPart,
    writer: PartWriter,
) -> NewRuns:
    """The same records as parts of another layout, which are stored.

    Args:
        new: the records, one at least.
        spec: of the version.
        layout: of the version that they are to be of.
        open_part: opens the parts that they are in.
        writer: stores parts.

    Raises:
        YogadlError: they cannot be read or stored.
    """
    with contextlib.ExitStack() as stack:
        readers = [_reader(parts, runs, open_part, stack) for parts, runs in new.groups]
        joined = readers[0]
        if new.layout.leaves is not None:
            leaves = LeafMap(spec, [reader.spec for reader in readers], new.layout.leaves)
            joined = JoinedLeaves(leaves, readers, RecordCodec(spec), "records of a commit")
        theirs = [spec_json.from_json(json.loads(text)) for text in layout.specs]
        stored = writer.write(UnstoredDataRef(joined), spec, theirs, layout.leaves)
        return NewRuns(
            layout,
            tuple((parts, runs_from(whole_runs(parts))) for parts in stored.groups),
            stored.tokens,
            frozenset(digest for parts in stored.groups for digest in parts.digests),
        )


def _reader(
    parts: PartList, runs: Runs, open_part: OpenPart, stack: contextlib.ExitStack
) -> RecordReader:
    """Reads the records of some runs, until the end of a context."""
    digests = parts.digests
    used, numbers = np.unique(runs.sources, return_inverse=True)
    opened = [
        UnstoredDataRef(stack.enter_context(open_part(digests[number]))) for number in used.tolist()
    ]
    counts = np.array([len(ref) for ref in opened], np.int64)
    firsts = (np.cumsum(counts) - counts)[numbers] + runs.firsts
    steps = np.repeat(firsts - (np.cumsum(runs.counts) - runs.counts), runs.counts)
    return concat(opened).select(steps + np.arange(runs.record_count)).reader
