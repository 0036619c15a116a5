"""``tf.data.Dataset.save`` and ``load``.

As TensorFlow's documentation of the two shows: saved in several shards by a ``shard_func``, which
a ``reader_func`` interleaves in parallel. The shuffle buffer has the data set's size, and batches
are prefetched. Shards of an epoch are taken by the shard that was saved, where those can be dealt
out evenly. The second way to write is plain ``save(path)``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_source
from workloads import NUMBER

from loaders import BATCH, Loader

METHODS = {"batches": "batch", "padded": "padded_batch", "ragged": "ragged_batch"}
SAVED_SHARDS = 64


class PeerLoader(Loader):
    writes = ("tf", "tf_one_shard")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        varies = any(None in field.shape for field in self.workload.fields.values())
        self.ways = ("padded", "ragged") if varies else ("batches",)

    @classmethod
    def version(cls) -> str:
        return f"tf.data save/load, TensorFlow {tf.__version__}"

    @property
    def _path(self) -> str:
        return str(self.directory / "saved")

    def write_tf(self) -> None:
        dataset = tf_source.tf_dataset(self.workload)
        dataset.save(self._path, shard_func=lambda record: record[NUMBER] % SAVED_SHARDS)
        (self.directory / "shards").write_text(str(SAVED_SHARDS))

    def write_tf_one_shard(self) -> None:
        tf_source.tf_dataset(self.workload).save(self._path)
        (self.directory / "shards").write_text("1")

    def open(self) -> None:
        self._shards = int((self.directory / "shards").read_text())

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        by_saved = self._shards % shards == 0

        def read(saved: Any) -> Any:
            return (saved.shard(shards, shard) if by_saved else saved).interleave(
                lambda one: one, cycle_length=os.cpu_count(), num_parallel_calls=tf.data.AUTOTUNE
            )

        dataset = tf.data.Dataset.load(self._path, reader_func=read)
        if not by_saved:
            dataset = dataset.shard(shards, shard)
        room = self.workload.count // shards + SAVED_SHARDS
        dataset = dataset.shuffle(room, seed=seed).skip(offset)
        dataset = getattr(dataset, METHODS[way])(BATCH)
        return iter(dataset.prefetch(tf.data.AUTOTUNE))

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        return tf_source.records_of_batch(self.workload, batch)
