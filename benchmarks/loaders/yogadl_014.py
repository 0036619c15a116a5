"""yogadl 0.1.4, the last release before this tree's."""

from __future__ import annotations

import importlib.metadata
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_source
import workloads
from workloads import Workload

import yogadl
import yogadl.storage
import yogadl.tensorflow
from loaders import BATCH, Loader

_ID, _VERSION = "benchmark", "1"
_METHODS = {"tf_batch": "batch", "tf_padded": "padded_batch", "tf_ragged": "ragged_batch"}


class Yogadl014(Loader):
    writes = ("tf",)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        varies = any(None in field.shape for field in workload.fields.values())
        tf_ways = ("tf_padded", "tf_ragged") if varies else ("tf_batch",)
        self.ways = ("records", *tf_ways)
        self._pipelines: dict[str, Any] = {}

    @classmethod
    def version(cls) -> str:
        return f"yogadl {importlib.metadata.version('yogadl')} (TensorFlow {tf.__version__})"

    def write_tf(self) -> None:
        self._storage().submit(tf_source.tf_dataset(self.workload), _ID, _VERSION)

    def open(self) -> None:
        self._dataref = self._storage().fetch(_ID, _VERSION)

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        stream = self._dataref.stream(
            start_offset=offset,
            shuffle=True,
            shuffle_seed=seed,
            shard_rank=shard,
            num_shards=shards,
        )
        if way == "records":
            return tf_source.lists(stream)
        if offset or shards > 1:
            return iter(_pipeline(stream, way))
        # A training script makes its pipeline once. Every iteration has an order of its own.
        if way not in self._pipelines:
            self._pipelines[way] = _pipeline(stream, way)
        return iter(self._pipelines[way])

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:
        if way == "records":
            return [workloads.flatten(record) for record in batch]
        return tf_source.records_of_batch(self.workload, batch)

    def _storage(self) -> yogadl.storage.LFSStorage:
        configurations = yogadl.storage.LFSConfigurations(str(self.directory))
        return yogadl.storage.LFSStorage(configurations)


def _pipeline(stream: Any, way: str) -> Any:
    return getattr(yogadl.tensorflow.make_tf_dataset(stream), _METHODS[way])(BATCH)
