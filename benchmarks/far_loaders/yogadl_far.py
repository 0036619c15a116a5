"""yogadl as it is in this tree: ``fetch(…, download=False)``, and NumPy batches of its stream."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import boto3  # noqa: F401 # else its import would be measured
from loaders import BATCH

import yogadl
import yogadl.spec
import yogadl.storage
import yogadl.storage._objects.s3_store  # for the same reason
from far_loaders import KEYS, RemoteLoader

_ID, _VERSION = "far", "1"


class FarLoader(RemoteLoader):
    @classmethod
    def version(cls) -> str:
        return f"yogadl {yogadl.__version__}"

    def write_generator(self) -> None:
        self.store(self.workload.records())

    def store(self, records: Any, version: str = _VERSION, **options: Any) -> None:
        fields = self.workload.fields.items()
        spec = {name: yogadl.spec.TensorSpec(field.dtype, field.shape) for name, field in fields}
        storage = yogadl.storage.LFSStorage(self.directory)
        storage.submit(records, _ID, version, spec=spec, **options)

    def connect(self) -> None:
        """Makes the storage."""
        bucket, _, prefix = self.place.path.partition("/")
        self._storage = yogadl.storage.S3Storage(
            yogadl.storage.S3Configurations(
                bucket,
                prefix,
                access_key=KEYS["AWS_ACCESS_KEY_ID"],
                secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
                endpoint_url=self.place.endpoint,
                local_cache_dir=self.place.cache,
                region=KEYS["AWS_DEFAULT_REGION"],
                local_cache_bytes=self.place.local_bytes,
            )
        )

    def fetch(self, version: str = _VERSION, is_downloaded: bool = False) -> None:
        self.dataref = self._storage.fetch(_ID, version, download=is_downloaded)

    def open(self) -> None:
        self.fetch()

    def stream(self, seed: int, **options: Any) -> Any:
        return self.dataref.stream(shuffle=True, shuffle_seed=seed, **options)

    def batches(self, stream: Any) -> Iterator[Any]:
        return iter(stream.batches(BATCH, **({} if self.workload.is_static else {"pad": 0})))

    def read(self, way: str, seed: int) -> Iterator[Any]:  # noqa: ARG002
        return self.batches(self.stream(seed))

    def close(self) -> None:
        self.dataref.close()
