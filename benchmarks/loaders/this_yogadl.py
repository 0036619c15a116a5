"""yogadl as it is in this tree."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_source
import workloads
from workloads import Workload

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import yogadl
import yogadl.spec
import yogadl.storage
import yogadl.tensorflow
from loaders import BATCH, Loader, Unsupported

_ID, _VERSION = "benchmark", "1"

# Whole batches of make_tf_dataset, and its single records batched by TensorFlow.
_WHOLE: dict[str, dict[str, Any]] = {
    "tf_batch_size": {},
    "tf_padded": {"pad": 0},
    "tf_ragged": {"ragged": True},
}
_SINGLE = {
    "tf_batch": "batch",
    "tf_padded_batch": "padded_batch",
    "tf_ragged_batch": "ragged_batch",
}
_STATIC = ("batches", "tf_batch_size", "tf_batch")
_VARYING = ("batches", "padded", "tf_padded", "tf_ragged", "tf_padded_batch", "tf_ragged_batch")


class ThisYogadl(Loader):
    writes = ("tf", "generator", "arrays", "arrow")

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        self._pipelines: dict[str, Any] = {}
        varies = any(None in field.shape for field in workload.fields.values())
        self.ways = (*(_VARYING if varies else _STATIC), "records")

    @classmethod
    def version(cls) -> str:
        return f"yogadl {yogadl.__version__} (TensorFlow {tf.__version__})"

    def prepare(self, way: str) -> None:
        super().prepare(way)
        if way == "arrow":
            try:
                import pyarrow as pa
            except ImportError as error:
                raise Unsupported("pyarrow is not installed") from error
            self.table = pa.table(_nested(pa, workloads.nest(self.arrays)))

    def write_tf(self) -> None:
        self._storage().submit(tf_source.tf_dataset(self.workload), _ID, _VERSION)

    def write_generator(self) -> None:
        records = map(workloads.nest, self.workload.records())
        self._storage().submit(records, _ID, _VERSION, spec=self._spec())

    def write_arrays(self) -> None:
        arrays = workloads.nest(self.arrays)
        self._storage().submit(arrays, _ID, _VERSION, spec=self._spec())

    def write_arrow(self) -> None:
        """From a table of Arrow instead of NumPy's arrays."""
        self._storage().submit(self.table, _ID, _VERSION, spec=self._spec())

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
        if way in ("batches", "padded"):
            return iter(stream.batches(BATCH, **({"pad": 0} if way == "padded" else {})))
        if offset or shards > 1:
            return iter(_pipeline(stream, way))
        # A training script makes its pipeline once. Every iteration has an order of its own.
        if way not in self._pipelines:
            self._pipelines[way] = _pipeline(stream, way)
        return iter(self._pipelines[way])

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:
        if way == "records":
            return [workloads.flatten(record) for record in batch]
        if way.startswith("tf_"):
            return tf_source.records_of_batch(self.workload, batch)
        return tf_source.records_of_columns(self.workload, workloads.flatten(batch))

    def close(self) -> None:
        if hasattr(self, "_dataref"):
            self._dataref.close()

    def _storage(self) -> yogadl.storage.LFSStorage:
        configurations = yogadl.storage.LFSConfigurations(self.directory)
        return yogadl.storage.LFSStorage(configurations)

    def _spec(self) -> Any:
        """What ``submit`` cannot infer from the first record: dimensions that vary."""
        fields = self.workload.fields.items()
        return workloads.nest({name: _leaf(field) for name, field in fields})


def _leaf(field: workloads.Field) -> Any:
    dtype = "string" if field.dtype == "bytes" else field.dtype
    return yogadl.spec.TensorSpec(dtype, field.shape)


def _nested(pa: Any, nest: dict[str, Any]) -> dict[str, Any]:
    """A nest of arrays as columns of Arrow, nested ones as structs."""
    return {
        name: pa.StructArray.from_arrays(
            list((inner := _nested(pa, value)).values()), names=list(inner)
        )
        if isinstance(value, dict)
        else _arrow_array(pa, value)
        for name, value in nest.items()
    }


def _arrow_array(pa: Any, array: Any) -> Any:
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array)


def _pipeline(stream: Any, way: str) -> Any:
    make_tf_dataset = yogadl.tensorflow.make_tf_dataset
    if way in _WHOLE:
        return make_tf_dataset(stream, batch_size=BATCH, **_WHOLE[way])
    return getattr(make_tf_dataset(stream), _SINGLE[way])(BATCH)
