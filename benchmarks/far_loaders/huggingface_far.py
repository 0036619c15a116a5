"""Hugging Face ``datasets``: Parquet files over HTTP, ``load_dataset(…, streaming=True)``.

As its documentation advises: several files, so that workers have some each; ``shuffle`` with its
default buffer of 1,000 records; nothing is kept on the machine. Arrays of one shape are bytes, and
those of varying length are lists. The files are written by PyArrow with the row groups of
``datasets``, but without its compression, which no other loader has here, and without dictionaries,
which would keep each of the workload's repeated images once. It sleeps for five seconds when its
threads end, in every epoch and however short that is; this is switched off here. Ways differ in
their worker processes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import datasets
import numpy as np
import pyarrow
import torch.utils.data
from loaders import BATCH
from pyarrow import parquet
from workloads import Record, Workload

from far_loaders import RemoteLoader, collated

WORKERS = {"workers2": 2, "workers0": 0}
FILE_BYTES = 64_000_000
BUFFER = 1000
# What ``datasets`` itself writes: groups of 100 rows of images, and of 1,000 else.
ROW_GROUPS = {"images": 100}


def _features(workload: Workload) -> datasets.Features:
    found = {}
    for name, field in workload.fields.items():
        if not field.shape:
            found[name] = datasets.Value(field.dtype)
        elif None in field.shape:
            found[name] = datasets.List(datasets.Value(field.dtype))
        else:
            found[name] = datasets.Value("binary")
    return datasets.Features(found)


def _stored(record: Record, workload: Workload) -> Record:
    static = [name for name, field in workload.fields.items() if field.shape and field.is_static]
    return {**record, **{name: record[name].tobytes() for name in static}}


def _batch(records: list[Record], workload: Workload) -> dict[str, Any]:
    for record in records:
        for name, field in workload.fields.items():
            value = record[name]
            if isinstance(value, bytes):
                record[name] = np.frombuffer(value, field.dtype).reshape(field.shape)
            else:
                record[name] = np.asarray(value, field.dtype)
    return collated(records, workload)


class FarLoader(RemoteLoader):
    ways = tuple(WORKERS)

    @classmethod
    def version(cls) -> str:
        return f"Hugging Face datasets {metadata.version('datasets')}"

    def write_generator(self) -> None:
        rows = (_stored(record, self.workload) for record in self.workload.records())
        size = self.workload.record_bytes(self.workload.record(0))
        if not self.workload.is_static:
            size = self.workload.total_bytes() // self.workload.count
        features = _features(self.workload)
        for number in itertools.count():
            part = list(itertools.islice(rows, max(FILE_BYTES // size, 1)))
            if not part:
                break
            parquet.write_table(
                pyarrow.Table.from_pylist(part, schema=features.arrow_schema),
                self.directory / f"{number:05d}.parquet",
                row_group_size=ROW_GROUPS.get(self.workload.name, 1000),
                compression="none",
                use_dictionary=False,
            )

    def open(self) -> None:
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0
        names = sorted(path.name for path in self.directory.glob("*.parquet"))
        self._dataset = datasets.load_dataset(
            "parquet",
            data_files={"train": [f"{self.place.url}/{name}" for name in names]},
            split="train",
            streaming=True,
            cache_dir=str(self.place.cache),
        )
        if not self.workload.is_static:
            self._dataset = self._dataset.with_format("numpy")

    def read(self, way: str, seed: int) -> Iterator[Any]:
        loader = torch.utils.data.DataLoader(
            self._dataset.shuffle(seed=seed, buffer_size=BUFFER),
            batch_size=BATCH,
            num_workers=WORKERS[way],
            collate_fn=functools.partial(_batch, workload=self.workload),
        )
        return iter(loader)
