"""MosaicML Streaming: MDS shards of its default size, 64 MB, read by ``StreamingDataset``.

As Streaming's documentation advises: ``remote=`` and an empty ``local=``, which keeps what has
come; ``shuffle=True`` with its default algorithm, the ``batch_size`` told to it, its
``StreamingDataLoader``. ``workers2`` has two worker processes, which fetch beside one another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from loaders import BATCH, mosaic

from far_loaders import KEYS, RemoteLoader

WORKERS = {"workers2": 2, "workers0": 0}


class FarLoader(RemoteLoader, mosaic.PeerLoader):
    ways = tuple(WORKERS)

    def open(self) -> None:
        os.environ.update(KEYS, S3_ENDPOINT_URL=self.place.endpoint)
        mosaic.streaming.base.util.clean_stale_shared_memory()
        self._dataset = mosaic.streaming.StreamingDataset(
            remote=f"s3://{self.place.path}/mds",
            local=str(self.place.cache),
            shuffle=True,
            batch_size=BATCH,
            shuffle_seed=0,
        )

    def read(self, way: str, seed: int) -> Iterator[Any]:  # noqa: ARG002
        loader = mosaic.streaming.StreamingDataLoader(
            self._dataset,
            batch_size=BATCH,
            num_workers=WORKERS[way],
            collate_fn=mosaic._Collate(self.workload.fields),
        )
        return iter(loader)
