"""This tree's yogadl with torch's ``DataLoader``, as ``docs/pytorch.md`` advises.

A ``MapDataset`` by position in the batches of a ``BatchSampler``, and ``yogadl.torch.collate``. The
environment needs no TensorFlow. ``workers2`` has two persistent worker processes; ``sampler0`` has
torch make the batches of a ``Sampler``; ``plain0`` is a ``MapDataset`` with nothing of yogadl's
around it, shuffled and collated by torch.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch
import workloads
from torch.utils.data import DataLoader
from workloads import Workload

from loaders import ARRAYS, BATCH, Loader, Unsupported

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import yogadl
import yogadl.storage
import yogadl.torch

WORKERS = {"workers0": 0, "workers2": 2, "sampler0": 0, "plain0": 0}
_ID, _VERSION = "benchmark", "1"
_ORDER: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}


class TorchYogadl(Loader):
    ways = tuple(WORKERS)

    def __init__(self, workload: Workload, directory: pathlib.Path) -> None:
        super().__init__(workload, directory)
        if not workload.is_static:
            raise Unsupported("values of varying length are lists to a map-style dataset")
        self._loaders: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def version(cls) -> str:
        return f"yogadl {yogadl.__version__} (torch {metadata.version('torch')})"

    def write_generator(self) -> None:
        records = map(workloads.nest, self.workload.records())
        self._storage().submit(records, _ID, _VERSION)

    def prepare(self, way: str) -> None:
        super().prepare(way)
        if way in ARRAYS:
            tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
            self._tensors = workloads.nest(tensors)

    def write_arrays(self) -> None:
        """From tensors."""
        self._storage().submit(self._tensors, _ID, _VERSION)

    def open(self) -> None:
        self._dataref = self._storage().fetch(_ID, _VERSION)

    def epoch(
        self, way: str, *, seed: int, offset: int = 0, shard: int = 0, shards: int = 1
    ) -> Iterator[Any]:
        if way == "plain0":
            if offset or (shard, shards) != (0, 1):
                raise Unsupported("torch's own samplers begin at the start, and have no shards")
            return iter(self._plain(seed))
        if (shard, shards) != (0, 1):
            if offset:
                raise Unsupported("an offset in a shard is not measured")
            return iter(self._make(way, {"shard_rank": shard, "num_shards": shards})[1])
        # A training script makes its loader once. Every iteration has an order of its own.
        if way not in self._loaders:
            self._loaders[way] = self._make(way, {})
        sampler, loader = self._loaders[way]
        if offset:
            stream = self._dataref.stream(seed * self.workload.count + offset, **_ORDER)
            sampler.load_state_dict(stream.state_dict())
        else:
            sampler.set_epoch(seed)
        return iter(loader)

    def _make(self, way: str, shard: dict[str, int]) -> tuple[Any, Any]:
        """A sampler, and the loader that follows it."""
        sampler = yogadl.torch.Sampler(self._dataref, **_ORDER, **shard)
        batches: dict[str, Any] = {"batch_sampler": yogadl.torch.BatchSampler(sampler, BATCH)}
        if way == "sampler0":
            batches = {"sampler": sampler, "batch_size": BATCH}
        return sampler, DataLoader(
            yogadl.torch.MapDataset(self._dataref),
            **batches,
            num_workers=WORKERS[way],
            persistent_workers=WORKERS[way] > 0 and not shard,
            collate_fn=yogadl.torch.collate,
        )

    def _plain(self, seed: int) -> Any:
        return DataLoader(
            yogadl.torch.MapDataset(self._dataref),
            batch_size=BATCH,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
        )

    def to_records(self, way: str, batch: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        columns = {
            name: value.numpy() if isinstance(value, torch.Tensor) else value
            for name, value in workloads.flatten(batch).items()
        }
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def close(self) -> None:
        for _, loader in self._loaders.values():
            workers = getattr(loader, "_iterator", None)
            if workers is not None:
                workers._shutdown_workers()
        self._loaders = {}
        if hasattr(self, "_dataref"):
            self._dataref.close()

    def _storage(self) -> yogadl.storage.LFSStorage:
        configurations = yogadl.storage.LFSConfigurations(self.directory)
        return yogadl.storage.LFSStorage(configurations)
