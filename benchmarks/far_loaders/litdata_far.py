"""LitData: chunks of 64 MB made by ``optimize``, read by ``StreamingDataset``.

As LitData's documentation advises: ``shuffle=True``, which shuffles the chunks and the records of
each, a cache of up to its default size, its ``StreamingDataLoader``. Ways differ in their worker
processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming import downloader
from loaders import BATCH, litdata_loader

from far_loaders import KEYS, RemoteLoader

WORKERS = {"workers2": 2, "workers0": 0}


class FarLoader(RemoteLoader, litdata_loader.PeerLoader):
    ways = tuple(WORKERS)

    def open(self) -> None:
        # Else obstore, by which it fetches, refuses servers without TLS.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
        self._dataset = StreamingDataset(
            f"s3://{self.place.path}/optimized",
            cache_dir=str(self.place.cache),
            shuffle=True,
            drop_last=False,
            seed=0,
            storage_options={
                "endpoint_url": self.place.endpoint,
                "aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"],
                "region_name": KEYS["AWS_DEFAULT_REGION"],
            },
        )

    def read(self, way: str, seed: int) -> Iterator[Any]:  # noqa: ARG002
        loader = StreamingDataLoader(
            self._dataset,
            batch_size=BATCH,
            num_workers=WORKERS[way],
            collate_fn=litdata_loader._Collate(self.workload.fields),
        )
        return iter(loader)
