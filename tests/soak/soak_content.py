"""Data sets whose every byte is known, and ways of reading them that compare it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from yogadl.errors import StateMismatchError
from yogadl.spec import TensorSpec

_COUNTS = (1, 7, 60, 400)
_BYTES = (40, 3_000, 30_000)
_LARGE = 300, 40_000
"""Records and bytes: more than what a bucket takes in one request."""

# Parts stay when versions are replaced, so those of large ones would soon fill a disk.
_LARGEST_IN_PARTS = 1 << 20


class Generation:
    """One state of a data set: its records follow from its number alone.

    Args:
        number: which one; odd ones have records of varying length.

    Attributes:
        number: as given.
        count: of its records.
        size: about so many bytes.
        part_bytes: of the parts that it is stored in; ``None`` for one file.
    """

    def __init__(self, number: int) -> None:
        chance = random.Random(f"generation {number}")
        self.number = number
        large = chance.random() < 0.1
        small = chance.choice(_COUNTS), chance.choice(_BYTES)
        self.count, self._bytes = _LARGE if large else small
        self.size = self.count * self._bytes
        in_parts = self.size <= _LARGEST_IN_PARTS and chance.random() < 0.5
        self.part_bytes = max(1, self.size // chance.choice((2, 5, 20))) if in_parts else None

    @property
    def spec(self) -> dict[str, TensorSpec]:
        """Of its records."""
        size = self._bytes if self.number % 2 == 0 else None
        return {
            "generation": TensorSpec("int64"),
            "at": TensorSpec("int64"),
            "payload": TensorSpec("uint8", (size,)),
            "text": TensorSpec("string"),
        }

    def record(self, at: int) -> dict[str, Any]:
        """The record of one position."""
        size = self._bytes if self.number % 2 == 0 else self._bytes * (at % 5) // 4
        return {
            "generation": np.int64(self.number),
            "at": np.int64(at),
            "payload": np.full(size, (31 * at + self.number) % 251, np.uint8),
            "text": b"%d of %d" % (at, self.number),
        }

    def records(self) -> Iterator[dict[str, Any]]:
        """All of them, in order."""
        return (self.record(at) for at in range(self.count))

    def submit(self, storage: Any, dataset_id: str, dataset_version: str) -> None:
        """Stores it."""
        options = {"spec": self.spec, "part_bytes": self.part_bytes}
        storage.submit(self.records(), dataset_id, dataset_version, **options)

    def check(self, record: Any) -> int:
        """Compares a record with what it should be, and returns its position."""
        at = int(record["at"])
        wanted = self.record(at)
        assert sorted(record) == sorted(wanted)
        assert int(record["generation"]) == self.number, f"{record['generation']} in {self.number}"
        assert bytes(record["text"]) == wanted["text"]
        assert np.array_equal(record["payload"], wanted["payload"]), f"the payload of record {at}"
        return at

    def check_all(self, found: list[int]) -> None:
        """Whether these positions are all there are, each once."""
        assert sorted(found) == list(range(self.count)), f"not every record once: {found}"


def generation_of(ref: Any) -> Generation:
    """Which generation a data set is, by its first record."""
    return Generation(int(ref[0]["generation"]))


def check(ref: Any, chance: random.Random) -> int:
    """Reads a data set in some way and compares every record; which generation it is."""
    generation = generation_of(ref)
    assert len(ref) == generation.count
    chance.choice(WAYS)(ref, generation, chance)
    return generation.number


def _in_order(ref: Any, generation: Generation, chance: random.Random) -> None:
    assert [generation.check(record) for record in ref] == list(range(generation.count))


def _shuffled(ref: Any, generation: Generation, chance: random.Random) -> None:
    stream = ref.stream(shuffle=True, shuffle_seed=chance.randrange(1000))
    for _ in range(2):
        generation.check_all([generation.check(record) for record in stream])


def _in_batches(ref: Any, generation: Generation, chance: random.Random) -> None:
    stream = ref.stream(shuffle=True, shuffle_seed=chance.randrange(1000))
    found = []
    for batch in stream.batches(chance.choice((1, 3, 32)), pad=0):
        for row, at in enumerate(batch["at"].tolist()):
            size = len(generation.record(at)["payload"])
            record = {name: column[row] for name, column in batch.items()}
            found.append(generation.check(record | {"payload": record["payload"][:size]}))
    generation.check_all(found)


def _in_shards(ref: Any, generation: Generation, chance: random.Random) -> None:
    ranks = chance.choice((1, 2, 3))
    options = {"shuffle": True, "shuffle_seed": chance.randrange(1000), "num_shards": ranks}
    options["shuffle_then_shard"] = chance.random() < 0.5
    streams = [ref.stream(shard_rank=rank, **options) for rank in range(ranks)]
    generation.check_all([generation.check(record) for stream in streams for record in stream])


def _resumed(ref: Any, generation: Generation, chance: random.Random) -> None:
    stream = ref.stream(shuffle=True, shuffle_seed=chance.randrange(1000))
    stop = chance.randrange(generation.count)
    records = iter(stream)
    found = [generation.check(next(records)) for _ in range(stop)]
    state = json.loads(json.dumps(stream.state_dict()))
    found += [generation.check(record) for record in ref.stream(state=state)]
    # Stopped before its first record, nothing was begun and nothing is missing either.
    generation.check_all(found)
    wrong = {**state, "records": generation.count + 1}
    try:
        ref.stream(state=wrong)
    except StateMismatchError:
        return
    raise AssertionError("the state of another data set was taken")


WAYS = (_in_order, _shuffled, _in_batches, _in_shards, _resumed)
