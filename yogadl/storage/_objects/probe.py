"""Finding out whether a store's conditional writes can carry a lock.

Some stores refuse conditional writes, some ignore the condition, some heed it for objects that are
written at once and ignore it for those that come in parts, and some answer rightly one request at a
time but let all of several racing writers win. A lease on such a store would be a lock that is
none.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import pathlib
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TypeAlias

from yogadl.errors import StoreError, UnsafeStoreError
from yogadl.storage._objects.store import (
    ABSENT,
    ObjectGoneError,
    ObjectStore,
    PreconditionFailedError,
)

_NAME = "yogadl.probe-"
_RACERS = 16
_PATIENCE = 60.0

_Write: TypeAlias = Callable[[str, bytes, str], object]


def is_probe(key: str) -> bool:
    """Whether an object is one of those by which a store is tried out; who is killed leaves it."""
    return key.rpartition("/")[2].startswith(_NAME)


class _WrongError(Exception):
    """What a store does that it should not."""


def what_is_wrong(store: ObjectStore, prefix: str, *, races: bool = True) -> str:
    """Races creators of an object of its own, replaces it on conditions, and deletes it.

    All that in each of the ways in which leases and caches are written. Only creating is raced: a
    store that decides who creates an object where it writes it decides there who replaces it.

    Args:
        store: the bucket.
        prefix: what the object's key is to begin with.
        races: whether a race is to have one winner. A lease needs that; who has a lock of another
            kind, and may only have lost it without knowing, does not.

    Returns:
        That more than one won, none could, or a condition was ignored; else nothing.

    Raises:
        StoreError: the store cannot be tried out.
    """
    try:
        _try_out(store, prefix, races)
    except _WrongError as error:
        return str(error)
    return ""


def copies_what_was_meant(store: ObjectStore, prefix: str) -> bool:
    """Whether a store refuses to copy an object that was replaced since it was looked at.

    Args:
        store: the bucket.
        prefix: what the keys of objects of its own are to begin with.

    Raises:
        StoreError: the store cannot be tried out.
    """
    with _object(store, prefix) as key, _object(store, prefix) as copy:
        store.write(key, b"before")
        found = store.head(key)
        store.write(key, b"after")
        if found is None:
            return False
        try:
            store.copy(found, copy, {})
        except ObjectGoneError:
            return True
    return False


def _try_out(store: ObjectStore, prefix: str, races: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="yogadl") as folder:
        in_parts = functools.partial(_upload_in_parts, store, pathlib.Path(folder))
        for write in (store.write, in_parts):
            with _object(store, prefix) as key:
                if races:
                    _race(store, write, key)
                else:
                    _create(store, write, key)
                _replace(store, write, key)


def cannot_be_trusted(store: ObjectStore, what: str) -> UnsafeStoreError:
    """The error for a store whose conditional writes are not what a lease needs.

    Args:
        store: the bucket.
        what: it does.
    """
    return UnsafeStoreError(
        f"{store.url} cannot keep a lease, since its conditional writes cannot be trusted: {what}. "
        "Run a lock server instead, python -m yogadl.rw_coordinator, and give its address as url="
    )


@contextlib.contextmanager
def _object(store: ObjectStore, prefix: str) -> Iterator[str]:
    key = f"{prefix}{_NAME}{uuid.uuid4().hex}"
    try:
        yield key
    except BaseException:
        # Why it failed is to be told, not that deleting failed, too.
        with contextlib.suppress(StoreError):
            store.delete(key)
        raise
    store.delete(key)


def _upload_in_parts(
    store: ObjectStore, folder: pathlib.Path, key: str, data: bytes, if_tag: str
) -> object:
    path = folder / data.decode()
    path.write_bytes(data)
    return store.upload(path, key, {}, if_tag, in_parts=True)


def _race(store: ObjectStore, write: _Write, key: str) -> None:
    barrier = threading.Barrier(_RACERS)

    def create() -> bool:
        barrier.wait(_PATIENCE)
        return _succeeds(store, write, key, ABSENT)

    with concurrent.futures.ThreadPoolExecutor(_RACERS) as pool:
        racers = [pool.submit(create) for _ in range(_RACERS)]
        winners = sum(racer.result() for racer in racers)
    if winners != 1:
        raise _WrongError(f"of {_RACERS} racing creators, {winners} succeeded instead of 1")


def _create(store: ObjectStore, write: _Write, key: str) -> None:
    if not _succeeds(store, write, key, ABSENT):
        raise _WrongError("it refuses to create an object that is not there")


def _replace(store: ObjectStore, write: _Write, key: str) -> None:
    found = store.read(key)
    if found is None:
        raise _WrongError("an object that was just written is not there")
    if not _succeeds(store, write, key, found[1]):
        raise _WrongError("it refuses to replace an object that is as it was")
    if _succeeds(store, write, key, found[1]) or _succeeds(store, write, key, ABSENT):
        raise _WrongError("it ignores the condition of a write")


def _succeeds(store: ObjectStore, write: _Write, key: str, if_tag: str) -> bool:
    """Whether a conditional write succeeds."""
    data = uuid.uuid4().hex.encode()
    try:
        write(key, data, if_tag)
    except PreconditionFailedError:
        # It may have been sent twice, and the second have met the first.
        found = store.read(key)
        return found is not None and found[0] == data
    except UnsafeStoreError as error:
        raise _WrongError(str(error)) from error
    return True
