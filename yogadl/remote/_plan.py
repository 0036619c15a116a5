"""What streams of a version that is far away would ask for, without asking for any record.

Expected values, by the sizes that its file or table names: what a stream really asks for differs
by chance, and by how the processes of a machine come between each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.file_writer import record_bytes
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import ENTRY
from yogadl.format.header import BODY_OFFSET
from yogadl.format.layout import INLINE_LIMIT, LEAD
from yogadl.format.pages import PAGE_HEADER, PAGE_SIZE
from yogadl.remote._fetching.bulk_queue import (
    BRIDGED_BYTES,
    BULK_BYTES,
    BULK_CONNECTIONS,
    FEWEST_CONNECTIONS,
    HELD_CONNECTIONS,
    HELD_OF_MANY,
    LARGE_BYTES,
    MACHINE_CONNECTIONS,
    TWICE,
    comes_at_once,
)
from yogadl.remote._fetching.crew import CONNECTIONS
from yogadl.remote._fetching.planner import FIRST_RECORDS
from yogadl.remote._files import RemoteFiles
from yogadl.remote._index import BRIDGED_CELLS
from yogadl.remote._local.sparse_file import CELL
from yogadl.remote._open import HEAD_BYTES
from yogadl.remote._reader import SETTLING_SECONDS
from yogadl.remote._records import RemoteRecords, is_whole_cheaper

# Of a node, in the head of its page.
_POINTER_BYTES = 2

Array = np.ndarray[Any, Any]

_ROUND_TRIPS = 3
# What a process reads until it is seen that the others of its machine read the rest: one batch, and
# few of them more.
_SETTLING = 9 / 8
# What a batch takes beside the network: threads that wake each other.
_BATCH_SECONDS = 0.015
_MOST_STEPS = 10_000
# Of what is left to fetch, too little to count.
_NO_MORE = 1e-9
# So few cells of an index are gone through one by one.
_FEW_CELLS = 1024


@dataclass(frozen=True)
class Plan:
    """What one machine asks a bucket for. Bytes are of bodies; all are for the whole machine.

    Attributes:
        records: read in an epoch.
        opening_requests, opening_bytes: of opening the version, in each process; what is asked
            when a storage is made is not counted.
        index_requests, index_bytes: of the first epoch, to find the records and to check them.
        record_requests, record_bytes: of the first epoch, for the records.
        later_requests, later_bytes: of each later epoch.
        first_batch_seconds: from opening to the first batch.
        epoch_seconds: of the first epoch; ``later_seconds`` of each later one. As far as the
            bucket goes: a consumer may be slower.
    """

    records: int
    opening_requests: int
    opening_bytes: int
    index_requests: int
    index_bytes: int
    record_requests: int
    record_bytes: int
    later_requests: int
    later_bytes: int
    first_batch_seconds: float
    epoch_seconds: float
    later_seconds: float

    @property
    def requests(self) -> int:
        """Of opening and the first epoch."""
        return self.opening_requests + self.index_requests + self.record_requests

    @property
    def nbytes(self) -> int:
        """Of opening and the first epoch."""
        return self.opening_bytes + self.index_bytes + self.record_bytes

    def __str__(self) -> str:
        return (
            f"{self.records:,} records: {self.requests:,} requests and {self.nbytes / 1e9:,.3f} GB "
            f"({self.index_bytes / 1e9:,.3f} GB of them index) in {self.epoch_seconds:,.1f} s, the "
            f"first batch after {self.first_batch_seconds:.2f} s; later epochs "
            f"{self.later_requests:,} requests and {self.later_bytes / 1e9:,.3f} GB in "
            f"{self.later_seconds:,.1f} s"
        )


@dataclass(frozen=True)
class Network:
    """What a bucket is reached by.

    Attributes:
        latency: seconds from a request to the first byte of its answer.
        connection_bytes: a second, over one connection.
        machine_bytes: a second, over all connections of a machine.
    """

    latency: float
    connection_bytes: float
    machine_bytes: float

    def seconds(self, requests: float, nbytes: float, connections: int) -> float:
        """How long so many requests take over so many connections."""
        busy = requests * self.latency + nbytes / self.connection_bytes
        return max(busy / connections, nbytes / self.machine_bytes)


def plan_of_nothing(records: int) -> Plan:
    """Of a version that is on the machine as a whole."""
    return Plan(records, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)


def plan(
    reader: RemoteRecords,
    num_shards: int,
    shards_here: int,
    batch_size: int,
    local_bytes: int | None,
    network: Network,
    window: int,
) -> Plan:
    """See ``RemoteDataRef.plan``; ``window`` records are announced together."""
    kinds, count = reader.kinds, len(reader)
    files_bytes = sum(files.nbytes for files, _ in kinds)
    share = shards_here / num_shards
    records = round(count * share)
    # A shard may have no more.
    first_batch = min(batch_size, max(1, -(-records // max(1, shards_here))))
    size = sum(_fetched_bytes(files, codec) for files, codec in kinds)
    table, head, rest = _opened(reader)
    opening = shards_here + (rest > 0), shards_here * head + rest
    if reader.is_here:
        seconds = network.latency + head / network.connection_bytes
        # The rest of the table is, too.
        return Plan(records, shards_here, shards_here * head, 0, 0, 0, 0, 0, 0, seconds, 0.0, 0.0)
    sizes = [files.nbytes // max(count, 1) for files, _ in kinds]
    is_bulk = all(is_whole_cheaper(size, num_shards, shards_here) for size in sizes)
    if is_bulk:
        # Each process asks for the first records by themselves, unless they come in bulk already.
        is_by_file = all(_are_in_most(files, first_batch, num_shards) for files, _ in kinds)
        seconds = _alone_seconds(first_batch * size, network)
        come = min(_come_by_file(files, shards_here, seconds, network) for files, _ in kinds)
        alone = 0.0 if is_by_file else _alone(batch_size, come)
        are_small = all(size < LARGE_BYTES for size in sizes)
        is_at_once = comes_at_once(files_bytes, are_small, num_shards)
        early = 1.0 if is_at_once else _bulk_at_first(shards_here) / files_bytes
        if not all(is_whole_cheaper(size, num_shards) for size in sizes):
            # Before it sees that the others are here.
            alone, early = alone * _SETTLING, 0.0
        alone = min(alone * shards_here, float(records))
        asked = [1.0 if files.are_many_small else max(0.0, 1 - early) for files, _ in kinds]
        # Each byte once, whichever process asks for it, and each file by itself.
        index = _total(_index_in_bulk(files) for files, _ in kinds)
        of_index = index[0] + _looked_up(kinds, index[0], alone, shards_here, is_at_once), index[1]
        requests, nbytes = _total(
            _records_in_bulk(files, 0 if table else head) for files, _ in kinds
        )
        of_records = requests + round(alone * sum(asked)), nbytes
    else:
        windows = _windows(records, num_shards, first_batch, first_batch * size, window, network)
        of_index = _total(_of_index(files.counts, shards_here, windows) for files, _ in kinds)
        of_records = len(kinds) * records, round(records * size)
    connections = CONNECTIONS * shards_here
    if is_bulk:
        connections = min(BULK_CONNECTIONS * shards_here, MACHINE_CONNECTIONS)
    kept = 1.0
    if local_bytes is not None:
        room = local_bytes - head - rest
        if is_bulk and of_index[1] > room:
            # Nothing comes in bulk then.
            of_index = _total(
                _of_index(files.counts, shards_here, [(records, window)]) for files, _ in kinds
            )
        room = max(0, room - of_index[1])
        kept = min(1.0, room / max(1, of_records[1]))
    # What does not fit is asked for record by record.
    later = round((1 - kept) * len(kinds) * records), round((1 - kept) * records * size)
    of_records = round(kept * of_records[0]) + later[0], round(kept * of_records[1]) + later[1]
    requests = of_index[0] + of_records[0]
    first = first_batch * size
    return Plan(
        records=records,
        opening_requests=opening[0],
        opening_bytes=opening[1],
        index_requests=of_index[0],
        index_bytes=of_index[1],
        record_requests=of_records[0],
        record_bytes=of_records[1],
        later_requests=later[0],
        later_bytes=later[1],
        first_batch_seconds=_ROUND_TRIPS * network.latency
        + head / network.connection_bytes
        + first / min(network.machine_bytes, CONNECTIONS * network.connection_bytes),
        epoch_seconds=network.seconds(requests, of_index[1] + of_records[1], connections),
        later_seconds=network.seconds(*later, connections),
    )


def _opened(reader: RemoteRecords) -> tuple[int, int, int]:
    """Bytes of the table of parts, if it has one; by which each process opens it; and of the rest
    of the table, which one of them fetches."""
    files_bytes = sum(files.nbytes for files, _ in reader.kinds)
    # Of a table, what is opened has no records.
    table = reader.version.info.file_size - files_bytes
    head = min(HEAD_BYTES, table or files_bytes)
    return table, head, max(0, table - head)


def _are_in_most(files: RemoteFiles, count: int, sharing: int) -> bool:
    """What ``RemoteFiles.are_most_small`` likely says of so many records."""
    return files.are_many_small and _touched(files, count) * 2 * sharing > len(files)


def _alone(batch_size: int, come: float) -> float:
    """How many of the first records a process asks for by themselves.

    Args:
        batch_size: of these are asked for together.
        come: as a share, what comes by files while a batch is asked for.
    """
    batches = -(-FIRST_RECORDS // batch_size)
    return batch_size * sum(max(0.0, 1 - come * at) for at in range(batches))


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


def _total(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
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
            size = _fetched_bytes(files, codec) + CELL
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


def _windows(
    records: int, num_shards: int, batch: int, batch_bytes: float, window: int, network: Network
) -> list[tuple[int, int]]:
    """How many records a share asks for at a time: so many records by so many.

    Args:
        records: of the share.
        num_shards: of the data set.
        batch: records of one.
        batch_bytes: of these.
        window: records that are announced together.
        network: by which they come.
    """
    if num_shards == 1:
        return [(records, window)]
    # Batch by batch, entries and then records, until it is seen that nobody here reads the rest.
    seconds = _alone_seconds(batch_bytes, network)
    alone = min(records, math.ceil(SETTLING_SECONDS / seconds) * batch)
    return [(alone, batch), (records - alone, window)]


def _alone_seconds(batch_bytes: float, network: Network) -> float:
    """Until a batch is here that is asked for by itself: its entries, and then its records."""
    return _BATCH_SECONDS + 2 * network.latency + batch_bytes / network.machine_bytes


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


def _fetched_bytes(files: RemoteFiles, codec: RecordCodec) -> float:
    """Bytes that are fetched for a record by itself, on average."""
    known = codec.layout.value_size
    if known is None:
        spans = float((files.entries - BODY_OFFSET).sum()) / max(1, files.record_count)
        # Beside the value: what a leaf has of it, and half a page that is not used.
        beside = record_bytes(INLINE_LIMIT + 1) - PAGE_SIZE - ENTRY.itemsize
        length = spans - beside - (PAGE_SIZE / 2 if spans > PAGE_SIZE else 0)
    else:
        length = float(known)
    if length > INLINE_LIMIT + LEAD:
        # It begins right behind the head of a page; where it ends, anywhere in a cell.
        return math.ceil((PAGE_HEADER + length) / CELL) * CELL if known else length + CELL / 2
    return length + CELL if known is None else _inside_bytes(known)


def _inside_bytes(length: int) -> float:
    """The same of values of one length that lie inside leaf pages, which are filled from behind."""
    node = record_bytes(length) - ENTRY.itemsize
    stops = PAGE_SIZE - np.arange((PAGE_SIZE - PAGE_HEADER) // node) * (node - _POINTER_BYTES)
    cells = -(-stops // CELL) - (stops - length) // CELL
    return float(cells.mean()) * CELL
