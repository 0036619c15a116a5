"""WebDataset: tar files of some 64 MB by ``ShardWriter``, read over HTTP.

As WebDataset's documentation advises: shards in a new order in every epoch, and a shuffle in a
buffer of 1,000 records; nothing is kept on the machine. Its downloads are those of ``curl``. The
values are plain bytes, which decode faster than its ``.npy``, and a record's number is its key, as
every file in a tar costs a kilobyte. Ways differ in their worker processes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import webdataset
from loaders import BATCH
from workloads import NUMBER, Record, Workload

from far_loaders import RemoteLoader, collated

WORKERS = {"workers2": 2, "workers0": 0}
SHARD_BYTES = 64_000_000
BUFFER = 1000


def _decoded(sample: dict[str, Any], workload: Workload) -> Record:
    record: Record = {NUMBER: np.int64(sample["__key__"])}
    for name, field in workload.fields.items():
        if name == NUMBER:
            continue
        value = np.frombuffer(sample[f"{name}.bin"], field.dtype)
        record[name] = value if None in field.shape else value.reshape(field.shape)
    return record


class FarLoader(RemoteLoader):
    ways = tuple(WORKERS)

    @classmethod
    def version(cls) -> str:
        return f"WebDataset {metadata.version('webdataset')}"

    def write_generator(self) -> None:
        pattern = str(self.directory / "%05d.tar")
        with webdataset.ShardWriter(pattern, maxsize=SHARD_BYTES, verbose=0) as writer:
            for record in self.workload.records():
                number = record.pop(NUMBER)
                values = {f"{name}.bin": value.tobytes() for name, value in record.items()}
                writer.write({"__key__": f"{number:08d}", **values})

    def open(self) -> None:
        names = sorted(path.name for path in self.directory.glob("*.tar"))
        self._urls = [f"{self.place.url}/{name}" for name in names]

    def read(self, way: str, seed: int) -> Iterator[Any]:
        dataset = webdataset.WebDataset(
            self._urls, shardshuffle=len(self._urls), seed=seed, empty_check=False
        )
        dataset = dataset.shuffle(BUFFER, seed=seed).map(
            functools.partial(_decoded, workload=self.workload)
        )
        dataset = dataset.batched(
            BATCH, collation_fn=functools.partial(collated, workload=self.workload)
        )
        return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS[way]))
