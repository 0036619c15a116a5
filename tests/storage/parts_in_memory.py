"""Parts of a bucket in memory: built, collected and looked at."""

from __future__ import annotations

import datetime
import functools
import pathlib
import tempfile

import numpy as np
from memory_store import MemoryStore

from yogadl.cache.files import make_folders
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of
from yogadl.cache.writer import CacheWriter
from yogadl.format.header import Header
from yogadl.spec import TensorSpec
from yogadl.storage._buckets.part_builder import PartBuilder
from yogadl.storage._buckets.part_collector import PartCollector
from yogadl.storage._buckets.part_control import Control, ControlObject
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._collected import CollectedParts

DAY = datetime.timedelta(days=1)
AT_ONCE = datetime.timedelta()
COUNT = 60
FOLDER = "data/a"


def bucket(store: MemoryStore) -> BucketParts:
    return BucketParts(store, FOLDER)


def build(
    store: MemoryStore,
    folder: pathlib.Path,
    version: str,
    first: int = 0,
    *,
    is_safe: bool = True,
    may_stamp: bool = True,
) -> None:
    """Builds a version, as the storages do."""
    path = folder / "a" / version / "cache.mdb"
    make_folders(path.parent)
    builder = PartBuilder(
        bucket(store), lambda: folder / "a" / "yogadl.parts", lambda: is_safe, may_stamp
    )

    def take(part: PartialFile, header: Header) -> bool:
        return not builder.store(part, header.digest)

    with (
        builder,
        CacheWriter(path, TensorSpec("int64"), part_bytes=400, take_part=take) as writer,
    ):
        writer.append_columns([np.arange(first, first + COUNT)], COUNT)
        file = writer.finish()
        builder.before_publishing()
        key = f"{FOLDER}/{version}/cache.mdb"
        store.upload(file.path, key, {}, None, builder.check)
        builder.may_publish = False


def collect(
    store: MemoryStore, folder: pathlib.Path, older_than: datetime.timedelta | None = AT_ONCE
) -> CollectedParts:
    folders = [folder / "a" / "yogadl.parts"]
    return PartCollector(store, bucket(store), "a", folders).collect(older_than)


def stored_parts(store: MemoryStore) -> set[bytes]:
    found = map(bucket(store).digest_of, list(store._objects))
    return {digest for digest in found if digest}


def needed_parts(store: MemoryStore) -> set[bytes]:
    """Of all tables that are there."""
    tables = [data for key, (data, _) in store._objects.items() if key.endswith("cache.mdb")]
    return set().union(*map(named_parts, tables))


@functools.lru_cache
def named_parts(table: bytes) -> frozenset[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name, "table")
        path.write_bytes(table)
        return frozenset(parts_of(path))


def dates(store: MemoryStore) -> Control:
    return ControlObject(store, f"{FOLDER}/yogadl.parts/yogadl.control").read()[0]
