"""Entries of the catalogue for objects in a bucket, by a few small reads of each."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterator, Sequence

from yogadl.catalogue import Entry, Key
from yogadl.storage._buckets.told import bytes_of, told_of
from yogadl.storage._described import Parents, describe
from yogadl.storage._objects.metadata_keys import BYTES_KEY
from yogadl.storage._objects.store import ObjectGoneError, ObjectInfo, ObjectStore
from yogadl.storage._objects.transfer import in_parallel

_THREADS = 16
_ATTEMPTS = 5


def described_objects(
    store: ObjectStore, objects: Sequence[tuple[Key, ObjectInfo]]
) -> Iterator[tuple[ObjectInfo, Entry]]:
    """What the objects of versions say of them, and the state in which they were read.

    Args:
        store: the bucket.
        objects: id and version of each, and its object; what is gone is left out.

    Raises:
        StoreError: one cannot be read.
    """
    found: list[tuple[ObjectInfo, Entry] | None] = [None] * len(objects)

    def look(number: int, _stop: threading.Event) -> None:
        found[number] = _described(store, *objects[number])

    in_parallel([functools.partial(look, number) for number in range(len(objects))], _THREADS)
    return (each for each in found if each is not None)


def _described(store: ObjectStore, key: Key, info: ObjectInfo) -> tuple[ObjectInfo, Entry] | None:
    """``None`` if it is gone."""
    for _ in range(_ATTEMPTS):
        try:
            return info, _entry(store, key, info)
        except ObjectGoneError:
            now = store.head(info.key)
            if now is None:
                return None
            info = now
    size = info.size
    return info, Entry(*key, object_size=size, object_tag=info.tag, size=size, is_sure=False)


def _entry(store: ObjectStore, key: Key, info: ObjectInfo) -> Entry:
    is_told = True

    def read(offset: int, length: int) -> bytes:
        stop = min(offset + length, info.size)
        return bytes_of(store, info, offset, stop) if stop > offset else b""

    def sizes(parents: Parents) -> tuple[int, int | None]:
        # Where it was uploaded, it was told how much its parts are.
        head = store.head(info.key)
        if head is None or head.tag != info.tag:
            raise ObjectGoneError(info.key)
        nonlocal is_told
        told = told_of(store, head).metadata.get(BYTES_KEY, "")
        is_told = told.isdecimal()
        parts = max(0, int(told) - info.size) if is_told else 0
        return parts, None if parents else parts

    found = describe(key, info.size, info.tag, read, sizes)
    return found if is_told else dataclasses.replace(found, is_sure=False)
