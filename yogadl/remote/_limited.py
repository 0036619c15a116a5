"""What streams ask for if not all is kept on the machine.

Bulk ends at the first piece for which there is no room. Of the rest, what comes by itself is kept
as long as there is, in whole pages of the disk; and the remainder passes through memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.format.codec import RecordCodec
from yogadl.format.pages import PAGE_SIZE
from yogadl.remote._expected import Asked, Streams, Traffic, of_index_in_windows, total
from yogadl.remote._fetching.bulk_queue import BULK_BYTES
from yogadl.remote._fetching.passing import most_passing_bytes
from yogadl.remote._fetching.planner import STEP
from yogadl.remote._files import RemoteFiles
from yogadl.remote._local.sparse_file import CELL
from yogadl.remote._record_sizes import are_inside, fetched_bytes, leaf_cells

Array = np.ndarray[Any, Any]

# What is kept of a file takes so much, with what says that it is here; and a piece more than that.
_KEPT = 1 + 1 / CELL
_BESIDE_PIECE = 2 * PAGE_SIZE


def limited(streams: Streams, asked: Asked, room: int) -> tuple[Asked, Traffic]:
    """What is asked for in the first epoch, and in each later one.

    Args:
        streams: that ask for it.
        asked: by them in the first epoch if all is kept.
        room: bytes that may be.
    """
    room = max(0, room)
    share = [files.nbytes / max(1, streams.nbytes) for files, _ in streams.kinds]
    rooms = [room * each for each in share]
    if streams.is_bulk:
        bulk = [
            _bulk(streams, files, it) for (files, _), it in zip(streams.kinds, rooms, strict=True)
        ]
        if all(it.left == 0 for it in bulk):
            return asked, (0, 0)
    else:
        nbytes = asked.index[1] / len(rooms)
        bulk = [_Bulk((0, 0), (0, 0), 1.0, max(0.0, it - nbytes)) for it in rooms]
    both = [
        _by_itself(streams, files, codec, it)
        for (files, codec), it in zip(streams.kinds, bulk, strict=True)
    ]
    index = total(it.index for it in bulk) if streams.is_bulk else asked.index
    pieces, left = total(it.records for it in bulk), total(first for first, _ in both)
    asked = Asked(index, total((pieces, left)), pieces, left)
    return asked, total(later for _, later in both)


@dataclass(frozen=True)
class _Bulk:
    """What of the files of a kind comes in bulk, and is kept.

    Attributes:
        index, records: what is asked for to find all records, and what comes of these.
        left: the share of the records that does not.
        room: bytes that may still be kept.
    """

    index: Traffic
    records: Traffic
    left: float
    room: float


def _bulk(streams: Streams, files: RemoteFiles, room: float) -> _Bulk:
    """What comes in bulk before it ends."""
    large = ~files.are_small
    of_index = (files.sizes - files.entries)[large]
    ends = np.maximum(np.where(large, files.entries, files.sizes) - streams.head, 0)
    # What is here lies before the index.
    to_come = int(np.maximum(files.entries - streams.head, 0).sum()) / int(files.entries.sum())
    sizes = np.concatenate((of_index, ends))
    taken = np.cumsum(_taken(sizes))
    whole = int(np.searchsorted(taken, room, side="right"))
    room -= float(taken[whole - 1]) if whole else 0.0
    if whole < len(of_index):
        return _Bulk(of_index_in_windows(streams, files), (0, 0), to_come, room)
    found = (_pieces(of_index), int(of_index.sum()))
    kept = ends[: whole - len(of_index)]
    if len(kept) == len(ends):
        return _Bulk(found, (_pieces(kept), int(kept.sum())), 0.0, room)
    further = min(int(room / _taken(BULK_BYTES)), int(ends[len(kept)]) // BULK_BYTES)
    room -= further * float(_taken(BULK_BYTES))
    in_pieces = int(kept.sum()) + further * BULK_BYTES
    left = 1 - in_pieces / int(ends.sum())
    if not large.all():
        requests, size = of_index_in_windows(streams, files)
        found = found[0] + round(left * requests), found[1] + round(left * size)
    return _Bulk(found, (_pieces(kept) + further, in_pieces), left * to_come, room)


def _taken(sizes: Any) -> Any:
    """What ranges of these sizes take on the disk, at most."""
    return sizes * _KEPT + _BESIDE_PIECE * -(-sizes // BULK_BYTES)


def _pieces(sizes: Array) -> int:
    """Requests for ranges of these sizes."""
    return int((-(-sizes // BULK_BYTES)).sum())


def _by_itself(
    streams: Streams, files: RemoteFiles, codec: RecordCodec, bulk: _Bulk
) -> tuple[Traffic, Traffic]:
    """What is asked for of the rest, in the first epoch and in each later one."""
    count, size = streams.records * bulk.left, fetched_bytes(files, codec)
    if not are_inside(files, codec):
        on_disk = (math.ceil(size / PAGE_SIZE) * PAGE_SIZE) * _KEPT
        passing = count * (1 - min(1.0, bulk.room / max(1.0, count * on_disk)))
        return (round(count), round(count * size)), (round(passing), round(passing * size))
    memory = most_passing_bytes() / CELL / len(streams.kinds)
    cells = _Cells(leaf_cells(files, codec) * bulk.left, size / CELL)
    each = count / streams.shards_here
    kept = cells.kept(bulk.room, count)
    first, later = cells.passing(each * (1 - kept), 1 - kept, memory)
    once, _ = cells.passing(count * kept, kept, math.inf)
    here = streams.shards_here
    return (
        (round(here * first[0] + once[0]), round((here * first[1] + once[1]) * CELL)),
        (round(here * later[0]), round(here * later[1] * CELL)),
    )


@dataclass(frozen=True)
class _Cells:
    """Those of records that lie inside leaf pages.

    Attributes:
        count: of them.
        touched: by a record, on average.
    """

    count: float
    touched: float

    def kept(self, room: float, records: float) -> float:
        """The share that is kept: each takes a page of the disk, which others may be on, too."""
        cells = min(self.count, records * self.touched)
        share = min(1.0, room / max(1.0, cells * CELL * _KEPT))
        # Those of few records lie on pages of their own.
        beside = max(1.0, cells / max(1.0, self.count) * PAGE_SIZE / CELL)
        return float(1 - (1 - share) ** (1 / beside))

    def passing(
        self, records: float, share: float, memory: float
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Requests for some records in any order, and the cells that they bring; and again in each
        later epoch.

        Args:
            records: that a process reads.
            share: of the cells, in which they are.
            memory: how many cells it has room for.
        """
        cells = min(self.count * share, records * self.touched)
        if cells <= 0:
            return (0.0, 0.0), (0.0, 0.0)
        # The share that is not in memory, at last. A record in two cells is one request.
        lacking, second = max(0.0, 1 - memory / cells), min(1.0, self.touched - 1)
        alone = self._alone()
        brought = cells * (1 - lacking)
        requests = brought - cells * second / (1 + second) * (1 - lacking**2) / 2
        if self.count * share > records * self.touched or self.touched > 2:
            requests = min(records, brought / self.touched)
        again, cells_again = 0.0, 0.0
        if lacking:
            again = (1 + second) * lacking - second * lacking**2
            cells_again = (1 + second) * lacking
            so_far = min(records, cells / (1 + second) * -math.log(lacking))
            requests += (records - so_far) * again
            brought += (records - so_far) * cells_again
        first = min(records, requests * alone), brought
        return first, (records * again * alone, records * cells_again)

    def _alone(self) -> float:
        """Of those that are fetched, the share that is not asked for with one beside it."""
        return 1 - min(1.0, STEP * self.touched / max(1.0, self.count)) / 2
