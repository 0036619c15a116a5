"""What the tests of seeded transforms share: records, a transform, and what it has to make of each.

Whatever the framework, the same pixels are expected of a record in an epoch, so all are equal.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

import yogadl
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.seeding import SeededTransform, generator
from yogadl.spec import TensorSpec

COUNT = 23
SEED = 2**63 + 5
SPEC = {"n": TensorSpec("int64"), "x": TensorSpec("float32", (3,))}


def write(path: pathlib.Path, count: int = COUNT) -> LMDBDataRef:
    """Records that know their positions."""
    with CacheWriter(path, SPEC) as writer:
        for number in range(count):
            writer.append({"n": np.int64(number), "x": np.full(3, number, "float32")})
        writer.commit()
    return LMDBDataRef(path)


def augment(record: Any, rng: np.random.Generator) -> Any:
    return {"n": record["n"], "x": np.asarray(record["x"]) + rng.random(3, "float32")}


def augment_batch(batch: Any, rngs: list[np.random.Generator]) -> Any:
    noise = np.stack([rng.random(3, "float32") for rng in rngs])
    return {"n": np.asarray(batch["n"]), "x": np.asarray(batch["x"]) + noise}


def of_records(seed: int = SEED) -> SeededTransform:
    return yogadl.seeded(augment, seed)


def of_batches(seed: int = SEED) -> SeededTransform:
    return yogadl.seeded(augment_batch, seed)


def check(epoch: int, items: Iterable[Any], seed: int = SEED) -> list[int]:
    """Compares records or batches of an epoch with what is expected of them.

    Returns:
        Which records they are, in order.
    """
    numbers: list[int] = []
    for item in items:
        positions = np.atleast_1d(np.asarray(item["n"])).tolist()
        found = np.asarray(item["x"]).reshape(-1, 3)
        assert len(found) == len(positions)
        for position, pixels in zip(positions, found, strict=True):
            rng = generator(seed, epoch, position)
            wanted = np.full(3, position, "float32") + rng.random(3, "float32")
            np.testing.assert_array_equal(pixels, wanted)
        numbers.extend(positions)
    return numbers
