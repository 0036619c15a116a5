"""What records take in the files of a version, from what is known before any of them is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from yogadl.cache.file_writer import record_bytes
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import ENTRY
from yogadl.format.header import BODY_OFFSET
from yogadl.format.layout import INLINE_LIMIT, LEAD
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE
from yogadl.remote._files import RemoteFiles
from yogadl.remote._local.sparse_file import CELL

Array = np.ndarray[Any, Any]

# Of a node, in the head of its page.
_POINTER_BYTES = 2
# Between the records and the index: its checksums, the metadata and the spec, mostly a page each.
_SECTION_BYTES = 3 * PAGE_SIZE


def are_inside(files: RemoteFiles, codec: RecordCodec) -> bool:
    """Whether records lie inside leaf pages, on average, and not on pages of their own."""
    return _length(files, codec) <= INLINE_LIMIT + LEAD


def fetched_bytes(files: RemoteFiles, codec: RecordCodec) -> float:
    """Bytes that are fetched for a record by itself, on average."""
    known, length = codec.layout.value_size, _length(files, codec)
    if length > INLINE_LIMIT + LEAD:
        # It begins right behind the head of a page; where it ends, anywhere in a cell.
        return math.ceil((PAGE_HEADER + length) / CELL) * CELL if known else length + CELL / 2
    return length + CELL if known is None else _inside_bytes(known)


def leaf_cells(files: RemoteFiles, codec: RecordCodec) -> float:
    """How many cells have any bytes of records that lie inside leaf pages."""
    known = codec.layout.value_size
    if known is None:
        return float(_body(files).sum()) / CELL
    node = record_bytes(known) - ENTRY.itemsize
    each = (PAGE_SIZE - PAGE_HEADER) // node
    full, rest = np.divmod(files.counts, each)
    of_full = min(PAGE_SIZE // CELL, math.ceil(each * node / CELL))
    return float((full * of_full + np.ceil(rest * node / CELL)).sum())


def _body(files: RemoteFiles) -> Array:
    """Bytes of each file that are mostly of its records, int64 ``[n]``."""
    body: Array = np.maximum(files.entries - BODY_OFFSET - _SECTION_BYTES, 0)
    return body


def _length(files: RemoteFiles, codec: RecordCodec) -> float:
    """Bytes of a value, on average."""
    known = codec.layout.value_size
    if known is not None:
        return float(known)
    spans = float(_body(files).sum()) / max(1, files.record_count)
    # Beside the value: what a leaf has of it, and half a page that is not used.
    beside = record_bytes(INLINE_LIMIT + 1) - PAGE_SIZE - ENTRY.itemsize
    return max(1.0, spans - beside - (PAGE_SIZE / 2 if spans > PAGE_SIZE else 0))


def _inside_bytes(length: int) -> float:
    """The same of values of one length that lie inside leaf pages, which are filled from behind."""
    node = record_bytes(length) - ENTRY.itemsize
    stops = PAGE_SIZE - np.arange((PAGE_SIZE - PAGE_HEADER) // node) * (node - _POINTER_BYTES)
    cells = -(-stops // CELL) - (stops - length) // CELL
    return float(cells.mean()) * CELL
