"""How long it takes until what streams ask for is here, by the network alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from yogadl.remote._fetching.bulk_queue import (
    BULK_CONNECTIONS,
    FIRST_LATE_SECONDS,
    MACHINE_CONNECTIONS,
)
from yogadl.remote._fetching.crew import CONNECTIONS
from yogadl.remote._fetching.passing import AHEAD_BYTES
from yogadl.remote._fetching.urgency import OVERTAKE_SECONDS

# What a batch takes beside the network: threads that wake each other.
_BATCH_SECONDS = 0.015
# Of more rounds, connections have begun anew one by one.
_FEW_ROUNDS = 4


@dataclass(frozen=True)
class Pieces:
    """What comes in bulk.

    Attributes:
        count, nbytes: of all of it.
        largest: bytes of the largest of them.
        processes: that fetch it.
    """

    count: float
    nbytes: float
    largest: int
    processes: int


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

    def request(self, nbytes: float) -> float:
        """How long one request takes."""
        return self.latency + nbytes / min(self.connection_bytes, self.machine_bytes)

    def seconds(self, requests: float, nbytes: float, connections: int) -> float:
        """How long so many requests of about one size take over so many connections.

        Of fewer requests than connections, each takes as long as if it were alone.
        """
        if requests <= 0:
            return 0.0
        rounds = max(1.0, requests / connections)
        if requests <= _FEW_ROUNDS * connections:
            rounds = math.ceil(rounds)
        each = rounds * self.request(nbytes / requests)
        return max(each, self.latency + nbytes / self.machine_bytes)

    def in_pieces(self, pieces: Pieces) -> float:
        """How long it takes to have all of them."""
        if pieces.nbytes <= 0:
            return 0.0
        connections = min(BULK_CONNECTIONS * pieces.processes, MACHINE_CONNECTIONS)
        largest = self.request(min(pieces.largest, pieces.nbytes))
        return max(largest, self.seconds(pieces.count, pieces.nbytes, connections))

    def by_itself(self, requests: float, nbytes: float, processes: int) -> float:
        """How long it takes to have some records by themselves, with no more under way than may
        wait to be read."""
        each = nbytes / requests if requests > 0 else 0.0
        connections = max(1, int(min(CONNECTIONS, AHEAD_BYTES / max(each, 1.0))))
        return self.seconds(requests, nbytes, connections * processes)

    def alone(self, records: float, nbytes: float) -> float:
        """Until a batch is here of which a process asks for the entries, and then the records."""
        return _BATCH_SECONDS + self.latency + self.seconds(records, nbytes, CONNECTIONS)


@dataclass(frozen=True)
class FirstBatch:
    """The first one of a process, once its version is open.

    Attributes:
        records: of it.
        nbytes: of these, by themselves.
        index: bytes of the piece in which their entries come.
    """

    records: float
    nbytes: float
    index: float

    def alone(self, network: Network) -> float:
        """Until it is here, if its records are asked for by themselves."""
        records = network.seconds(self.records, self.nbytes, CONNECTIONS)
        return network.request(self.index) + records

    def in_bulk(self, network: Network, pieces: Pieces, may_be_twice: bool) -> float:
        """The same if it waits for bulk, all of which is asked for at once.

        Args:
            network: by which it comes.
            pieces: in which it does.
            may_be_twice: whether it is asked for by itself once bulk is late with it.
        """
        # The last piece that has any of its records.
        share = self.records / (self.records + 1)
        first = replace(pieces, count=share * pieces.count, nbytes=share * pieces.nbytes)
        seconds = network.in_pieces(first)
        if may_be_twice and seconds > OVERTAKE_SECONDS + FIRST_LATE_SECONDS:
            seconds = min(seconds, self.alone(network) + OVERTAKE_SECONDS)
        return seconds
