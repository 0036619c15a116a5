"""What streams of a version that is far away would ask for, without asking for any record.

Expected values, by the sizes that its file or table names: what a stream really asks for differs
by chance, and by how the processes of a machine come between each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yogadl.remote._expected import (
    Asked,
    Streams,
    asked_by_itself,
    asked_in_bulk,
)
from yogadl.remote._fetching.bulk_queue import BULK_BYTES, TWICE
from yogadl.remote._limited import limited
from yogadl.remote._open import HEAD_BYTES
from yogadl.remote._pace import FirstBatch, Network, Pieces
from yogadl.remote._records import RemoteRecords


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
        epoch_seconds: of the first epoch, from opening on; ``later_seconds`` of each later one. As
            far as the bucket goes: a consumer may be slower.
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
    table, head, rest = _opened(reader)
    streams = Streams(
        kinds=reader.kinds,
        count=len(reader),
        num_shards=num_shards,
        shards_here=shards_here,
        batch_size=batch_size,
        window=window,
        head=0 if table else head,
        network=network,
    )
    records, opening = streams.records, network.request(head)
    if reader.is_here:
        # The rest of the table is, too.
        return Plan(records, shards_here, shards_here * head, 0, 0, 0, 0, 0, 0, opening, 0.0, 0.0)
    opening += network.request(rest) if rest else 0.0
    asked = asked_in_bulk(streams) if streams.is_bulk else asked_by_itself(streams)
    later = (0, 0)
    if local_bytes is not None:
        room = local_bytes - head - rest
        asked, later = limited(streams if room >= 0 else replace(streams, head=0), asked, room)
    first_batch = _first_batch(streams, asked)
    return Plan(
        records=records,
        opening_requests=shards_here + (rest > 0),
        opening_bytes=shards_here * head + rest,
        index_requests=asked.index[0],
        index_bytes=asked.index[1],
        record_requests=asked.records[0],
        record_bytes=asked.records[1],
        later_requests=later[0],
        later_bytes=later[1],
        first_batch_seconds=opening + first_batch,
        epoch_seconds=opening + max(first_batch, _epoch(streams, asked)),
        later_seconds=network.by_itself(*later, shards_here),
    )


def _first_batch(streams: Streams, asked: Asked) -> float:
    """How long it takes until it is here."""
    nbytes = streams.first_batch * streams.size
    first = FirstBatch(streams.first_batch, nbytes, min(asked.index[1], BULK_BYTES))
    if not streams.is_bulk or not (streams.is_by_file or streams.is_at_once):
        return first.alone(streams.network)
    # What other processes bring is not overtaken.
    is_alone = streams.are_small and streams.num_shards == 1
    may_be_twice = is_alone and nbytes <= TWICE * streams.nbytes
    pieces = Pieces(*asked.pieces, streams.largest_piece, streams.shards_here)
    return first.in_bulk(streams.network, pieces, may_be_twice)


def _epoch(streams: Streams, asked: Asked) -> float:
    """How long the first one takes."""
    network = streams.network
    if streams.is_bulk:
        pieces = Pieces(*asked.pieces, streams.largest_piece, streams.shards_here)
        return network.in_pieces(pieces) + network.by_itself(*asked.left, streams.shards_here)
    # Batch by batch, and then ahead.
    batches = streams.records / streams.shards_here / streams.first_batch
    ahead = 1 - streams.settling / batches if batches else 0.0
    left = round(ahead * asked.records[0]), round(ahead * asked.records[1])
    alone = streams.settling * streams.batch_seconds
    return alone + network.by_itself(*left, streams.shards_here)


def _opened(reader: RemoteRecords) -> tuple[int, int, int]:
    """Bytes of the table of parts, if it has one; by which each process opens it; and of the rest
    of the table, which one of them fetches."""
    files_bytes = sum(files.nbytes for files, _ in reader.kinds)
    # Of a table, what is opened has no records.
    table = reader.version.info.file_size - files_bytes
    head = min(HEAD_BYTES, table or files_bytes)
    return table, head, max(0, table - head)
