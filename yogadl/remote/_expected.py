"""What streams would ask for, counted from the sizes that a file or table names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.format.codec import RecordCodec
from yogadl.format.entries import ENTRY
from yogadl.remote._fetching.bulk_queue import (
    BRIDGED_BYTES,
    BULK_BYTES,
    FEWEST_CONNECTIONS,
    HELD_CONNECTIONS,
    HELD_OF_MANY,
    LARGE_BYTES,
    TWICE,
    comes_at_once,
)
from yogadl.remote._fetching.planner import FIRST_RECORDS
from yogadl.remote._files import RemoteFiles
from yogadl.remote._index import BRIDGED_CELLS
from yogadl.remote._local.sparse_file import CELL
from yogadl.remote._pace import Network
from yogadl.remote._reader import SETTLING_SECONDS
from yogadl.remote._record_sizes import fetched_bytes
from yogadl.remote._records import is_whole_cheaper

Array = np.ndarray[Any, Any]
Traffic = tuple[int, int]
"""Requests, and bytes of their bodies."""

# What a process reads until it is seen that the others of its machine read the rest: one batch, and
# few of them more.
_SETTLING = 9 / 8
_MOST_STEPS = 10_000
# Of what is left to fetch, too little to count.
_NO_MORE = 1e-9
# So few cells of an index are gone through one by one.
_FEW_CELLS = 1024


@dataclass(frozen=True)
class Streams:
    """What the processes of one machine read.

    Attributes:
        kinds: of each column group, the files that have it, and what reads its records.
        count: records of the data set.
        num_shards: into which these are divided.
        shards_here: of them on this machine, in a process each.
        batch_size: records in a batch.
        window: records that are announced together.
        head: bytes of each file that are here.
        network: by which the rest comes.
    """

    kinds: Sequence[tuple[RemoteFiles, RecordCodec]]
    count: int
    num_shards: int
    shards_here: int
    batch_size: int
    window: int
    head: int
    network: Network

    @property
    def records(self) -> int:
        """That are read here in an epoch."""
        return round(self.count * (self.shards_here / self.num_shards))

    @property
    def first_batch(self) -> int:
        """Records of it: a shard may have no more."""
        return min(self.batch_size, max(1, -(-self.records // self.shards_here)))

    @property
    def size(self) -> float:
        """Bytes that are fetched for a record by itself."""
        return sum(fetched_bytes(files, codec) for files, codec in self.kinds)

    @property
    def nbytes(self) -> int:
        """Of all files."""
        return sum(files.nbytes for files, _ in self.kinds)

    @property
    def sizes(self) -> list[int]:
        """Bytes of a record in the files of each kind."""
        return [files.nbytes // max(self.count, 1) for files, _ in self.kinds]

    @property
    def are_small(self) -> bool:
        """Whether records are, of each kind."""
        return all(size < LARGE_BYTES for size in self.sizes)

    @property
    def is_bulk(self) -> bool:
        """Whether the files come as a whole."""
        shards = self.num_shards, self.shards_here
        return all(is_whole_cheaper(size, *shards) for size in self.sizes)

    @property
    def is_at_once(self) -> bool:
        """Whether all of that is asked for at once."""
        return comes_at_once(self.nbytes, self.are_small, self.num_shards)

    @property
    def largest_piece(self) -> int:
        """Bytes of it, in bulk."""
        return min(BULK_BYTES, max(int(files.sizes.max()) for files, _ in self.kinds))

    @property
    def is_by_file(self) -> bool:
        """Whether the first batch is in most of many small files."""
        return all(
            _are_in_most(files, self.first_batch, self.num_shards) for files, _ in self.kinds
        )

    @property
    def batch_seconds(self) -> float:
        """How long a process waits for a batch by itself."""
        return self.network.alone(self.first_batch, self.first_batch * self.size)

    @property
    def settling(self) -> float:
        """How many batches each process reads until it is seen that nobody here reads the rest."""
        if self.num_shards == 1:
            return 0.0
        batches = self.records / self.shards_here / self.first_batch
        return min(batches, SETTLING_SECONDS / self.batch_seconds)


@dataclass(frozen=True)
class Asked:
    """What streams ask for in an epoch.

    Attributes:
        index: to find the records and to check them.
        records: for these.
        pieces: of both, what comes in bulk.
        left: of records, what comes by itself once bulk has ended, if not all is kept.
    """

    index: Traffic
    records: Traffic
    pieces: Traffic = (0, 0)
    left: Traffic = (0, 0)


def asked_in_bulk(streams: Streams) -> Asked:
    """What streams ask for whose files come as a whole: each byte once, whoever asks for it."""
    kinds, shards_here = streams.kinds, streams.shards_here
    index = total(_index_in_bulk(files) for files, _ in kinds)
    records = total(_records_in_bulk(files, streams.head) for files, _ in kinds)
    # Each process asks for the first records by themselves, unless they come in bulk already.
    alone = 0.0 if streams.is_by_file else _alone(streams)
    early = 1.0 if streams.is_at_once else _bulk_at_first(shards_here) / streams.nbytes
    if not all(is_whole_cheaper(size, streams.num_shards) for size in streams.sizes):
        # Before it sees that the others are here.
        alone, early = alone * _SETTLING, 0.0
    alone = min(alone * shards_here, float(streams.records))
    asked = [1.0 if files.are_many_small else max(0.0, 1 - early) for files, _ in kinds]
    looked_up = _looked_up(kinds, index[0], alone, shards_here, streams.is_at_once)
    return Asked(
        index=(index[0] + looked_up, index[1]),
        records=(records[0] + round(alone * sum(asked)), records[1]),
        pieces=(index[0] + records[0], index[1] + records[1]),
    )


def asked_by_itself(streams: Streams) -> Asked:
    """What streams ask for of which each record comes by itself."""
    windows = _windows(streams)
    index = total(
        _of_index(files.counts, streams.shards_here, windows) for files, _ in streams.kinds
    )
    records = streams.records
    return Asked(index, (len(streams.kinds) * records, round(records * streams.size)))


def of_index_in_windows(streams: Streams, files: RemoteFiles) -> Traffic:
    """What processes ask for to find all records, as they are announced, each for itself."""
    each = -(-streams.records // streams.shards_here)
    requests, nbytes = _of_index(files.counts, 1, [(each, streams.window)])
    return requests * streams.shards_here, nbytes * streams.shards_here


def _are_in_most(files: RemoteFiles, count: int, sharing: int) -> bool:
    """What ``RemoteFiles.are_most_small`` likely says of so many records."""
    return files.are_many_small and _touched(files, count) * 2 * sharing > len(files)


def _alone(streams: Streams) -> float:
    """How many of the first records a process asks for by themselves."""
    seconds, here = streams.batch_seconds, streams.shards_here
    come = min(_come_by_file(files, here, seconds, streams.network) for files, _ in streams.kinds)
    batches = -(-FIRST_RECORDS // streams.batch_size)
    return streams.batch_size * sum(max(0.0, 1 - come * at) for at in range(batches))


def _come_by_file(files: RemoteFiles, processes: int, seconds: float, network: Network) -> float:
    """As a share, what comes in so many seconds of many small files while processes ask for their
    first records, one batch after another; nothing of others, of which less is here by then."""
    if not files.are_many_small:
        return 0.0
    connections = processes * max(HELD_OF_MANY // processes, FEWEST_CONNECTIONS)
    return seconds / network.seconds(len(files), files.nbytes, connections)


def _touched(files: RemoteFiles, count: float) -> float:
    """In how many files some records are, which are taken at random."""
    left = 1 - min(1.0, count / max(1, files.record_count))
    return float(len(files) * (1 - left ** (files.record_count / len(files))))


def _bulk_at_first(processes: int) -> int:
    """Bytes that are there, or on their way, when one of some processes, which begin together, asks
    for its first records, if not all come at once; what is small is left to bulk afterwards."""
    # By then about as much has come as they may have in flight, as measured.
    return 0 if processes == 1 else HELD_CONNECTIONS * BULK_BYTES


def total(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The sums of requests and of bytes."""
    requests, nbytes = zip(*parts, strict=True)
    return sum(requests), sum(nbytes)


def _looked_up(
    kinds: Sequence[tuple[RemoteFiles, RecordCodec]],
    pieces: int,
    alone: float,
    processes: int,
    is_at_once: bool,
) -> int:
    """Requests for entries of the first records, by who looks for them before they come in bulk.

    Args:
        kinds: of files.
        pieces: in which the index comes in bulk.
        alone: how many records are asked for by themselves.
        processes: that do so.
        is_at_once: whether all comes at once.
    """
    at_first = processes * max(HELD_CONNECTIONS // processes, FEWEST_CONNECTIONS)
    later = pieces + sum(int(files.are_small.sum()) for files, _ in kinds)
    is_late = later > at_first and not is_at_once
    found = 0.0
    for files, codec in kinds:
        if files.are_many_small:
            # Of a file it is one request, whoever has asked. Its rest comes in three pieces, unless
            # what is between them may come twice.
            touched = _touched(files, alone)
            size = fetched_bytes(files, codec) + CELL
            bridged = TWICE * files.nbytes / size if size <= BRIDGED_BYTES else 0
            found += touched + 2 * max(0.0, touched - bridged)
        elif is_late:
            found += FIRST_RECORDS
    return round(found)


def _index_in_bulk(files: RemoteFiles) -> tuple[int, int]:
    """Requests and bytes for what finds the records; small files come with the records at once."""
    sizes = files.sizes - files.entries
    return _pieces(sizes[~files.are_small]), int(sizes.sum())


def _records_in_bulk(files: RemoteFiles, head: int) -> tuple[int, int]:
    """The same for the records, but for a head of each file that is here."""
    sizes = np.maximum(files.entries - head, 0)
    ends = np.where(files.are_small, np.maximum(files.sizes - head, 0), sizes)
    return _pieces(ends), int(sizes.sum())


def _pieces(sizes: Array) -> int:
    """Requests for ranges of these sizes."""
    return int((-(-sizes // BULK_BYTES)).sum())


def _windows(streams: Streams) -> list[tuple[int, int]]:
    """How many records are asked for at a time: so many records by so many."""
    records, batch = streams.records, streams.first_batch
    if streams.num_shards == 1:
        return [(records, streams.window)]
    # Batch by batch, entries and then records, until it is seen that nobody here reads the rest.
    alone = min(records, math.ceil(SETTLING_SECONDS / streams.batch_seconds) * batch)
    return [(alone, batch), (records - alone, streams.window)]


def _of_index(
    counts: Array, shards_here: int, windows: Iterable[tuple[int, int]]
) -> tuple[int, int]:
    """Requests and bytes for the entries of the records of some shards, in any order.

    Args:
        counts: records of each file.
        shards_here: so many records follow on one another, and then some of other shards.
        windows: so many records are wanted, so many of them at a time, and then others.
    """
    steps = [step for records, window in windows for step in _steps(records, window)]
    total = sum(steps)
    if not total:
        return 0, 0
    every = float((-(-counts * ENTRY.itemsize // CELL)).sum())
    if every <= _FEW_CELLS:
        return _of_few_cells(_cells_of_entries(counts, shards_here, total), steps)
    # The cells that have any of these entries, how far they are apart, and entries of each.
    groups = max(1.0, total / shards_here)
    cells = min(every, groups * (1 + (total / groups - 1) * ENTRY.itemsize / CELL))
    apart, each = every / cells, max(1.0, total / cells)
    near = int((1 + BRIDGED_CELLS) / apart)
    requests, fetched, left, seen = 0.0, 0.0, 1.0, 0
    for step in steps:
        # Of a cell that is not here: that it is needed now; and of the one before it, that it is
        # fetched now, or may be if that is between two.
        needed = 1 - ((total - seen - step) / (total - seen)) ** each
        comes, passed = left * needed, left * (1 - needed)
        # One goes on with what one near it has begun, but for the first ones of a file.
        goes_on = sum(comes * passed**gap for gap in range(near))
        goes_on *= max(0.0, 1 - near * len(counts) / cells)
        between = sum(needed * comes * gap * passed**gap for gap in range(1, near))
        taken = min(1.0, needed + between)
        requests += cells * comes * (1 - goes_on)
        # What is between cells that are not next to one another is of no use here.
        fetched += left * taken + comes * goes_on * (apart - 1)
        left, seen = left * (1 - taken), seen + step
        if left < _NO_MORE:
            break
    return math.ceil(requests), round(cells * fetched * CELL)


def _cells_of_entries(counts: Array, shards_here: int, total: int) -> Array:
    """The cells of the entries of some records, as numbers that are far apart for those of
    different files; see :func:`_of_index`."""
    groups = -(-total // shards_here)
    every = int(counts.sum())
    firsts = np.arange(groups) * every // groups
    places = (firsts[:, None] + np.arange(shards_here)).reshape(-1)[:total] % every
    ends = np.cumsum(counts)
    numbers = np.searchsorted(ends, places, side="right")
    within = (places - (ends - counts)[numbers]) * ENTRY.itemsize // CELL
    cells: Array = within + numbers * (2 * _FEW_CELLS)
    return cells


def _of_few_cells(cells: Array, steps: Iterable[int]) -> tuple[int, int]:
    """See :func:`_of_index`; goes through it, since what was fetched keeps apart what is left.

    Args:
        cells: of each record.
        steps: of how many records the entries are wanted at a time.
    """
    order = np.random.default_rng(0).permutation(cells)
    is_left, requests, at = np.zeros(int(cells.max()) + 2, bool), 0, 0
    is_left[cells] = True
    left, is_here = len(np.unique(cells)), np.zeros(len(is_left), bool)
    for step in steps:
        wanted = np.unique(order[at : at + step])
        at, wanted = at + step, wanted[~is_here[wanted]]
        left -= len(wanted)
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1 + BRIDGED_CELLS) + 1):
            if len(run):
                here = is_here[run[0] : run[-1] + 1]
                # What is here ends a request.
                requests += 1 + int((here[:-1] & ~here[1:]).sum())
                left -= int((is_left[run[0] : run[-1] + 1] & ~here).sum()) - len(run)
                here[:] = True
        if not left:
            break
    return requests, int(is_here.sum()) * CELL


def _steps(records: int, window: int) -> list[int]:
    """A number of records, so many at a time; more, where that would be very many steps."""
    window = max(window, records // _MOST_STEPS)
    whole, rest = divmod(records, window) if records else (0, 0)
    return [window] * whole + [rest] * (rest > 0)
