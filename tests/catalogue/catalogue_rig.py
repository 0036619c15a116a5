"""What the tests of the catalogue share: a bucket in memory whose answers get lost, and entries."""

from __future__ import annotations

import pathlib
import sys

# The store in memory is that of the tests of storages.
sys.path.append(str(pathlib.Path(__file__).parent.parent / "storage"))

from memory_store import MemoryStore

from yogadl.catalogue import Catalogue, Entry, Key
from yogadl.errors import NetworkError
from yogadl.format.provenance import Provenance
from yogadl.storage._disk.kept_segment import KeptSegment
from yogadl.storage._objects.bucket_objects import BucketObjects

FOLDER = "data/yogadl.catalogue"
ROOT_KEY = f"{FOLDER}/root.json"
SPEC = '{"kind": "tensor", "dtype": "int64", "shape": []}'


class TryingStore(MemoryStore):
    """One that is asked again when an answer is lost, as real ones are."""

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        while True:
            try:
                return super().write(key, data, if_tag, patience)
            except NetworkError:
                continue


def objects(store: MemoryStore) -> BucketObjects:
    return BucketObjects(store, FOLDER, lambda: False, KeptSegment(lambda: None))


def catalogue(store: MemoryStore) -> Catalogue:
    return Catalogue(objects(store))


def entry(name: str, version: str, change: str = "", message: str = "") -> Entry:
    made = Provenance(host="host", user="user", change=change, message=message)
    return Entry(name, version, 4096, f"tag of {version}", 3, 4096, 4096, SPEC, "id", made)


def keys(found: Catalogue) -> list[Key]:
    return sorted(found.load().entries)
