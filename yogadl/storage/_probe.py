"""Finding out whether a store's conditional writes can carry a lock.

Some stores refuse conditional writes, some ignore the condition, and some answer it rightly one
request at a time but let all of several racing writers win. A lease on such a store would be a lock
that is none.
"""

from __future__ import annotations

import concurrent.futures
import threading
import uuid

from yogadl.errors import UnsafeStoreError
from yogadl.storage._object_store import ABSENT, ObjectStore, PreconditionFailedError

_RACERS = 16
_PATIENCE = 60.0


def check_conditional_writes(store: ObjectStore, prefix: str) -> None:
    """Races creators of an object of its own, replaces it on conditions, and deletes it.

    Only creating is raced: a store that decides who creates an object where it writes it decides
    there who replaces it.

    Args:
        store: the bucket.
        prefix: what the object's key is to begin with.

    Raises:
        UnsafeStoreError: more than one won, none could, or a condition was ignored.
    """
    key = f"{prefix}yogadl.probe-{uuid.uuid4().hex}"
    try:
        _race(store, key)
        _replace(store, key)
    finally:
        store.delete(key)


def _race(store: ObjectStore, key: str) -> None:
    barrier = threading.Barrier(_RACERS)

    def create() -> bool:
        barrier.wait(_PATIENCE)
        return _write(store, key, ABSENT)

    with concurrent.futures.ThreadPoolExecutor(_RACERS) as pool:
        racers = [pool.submit(create) for _ in range(_RACERS)]
        winners = sum(racer.result() for racer in racers)
    if winners != 1:
        raise UnsafeStoreError(
            _told(store, f"of {_RACERS} racing creators, {winners} succeeded instead of 1")
        )


def _replace(store: ObjectStore, key: str) -> None:
    found = store.read(key)
    if found is None:
        raise UnsafeStoreError(_told(store, "an object that was just written is not there"))
    if not _write(store, key, found[1]):
        raise UnsafeStoreError(_told(store, "it refuses to replace an object that is as it was"))
    if _write(store, key, found[1]) or _write(store, key, ABSENT):
        raise UnsafeStoreError(_told(store, "it ignores the condition of a write"))


def _write(store: ObjectStore, key: str, if_tag: str) -> bool:
    """Whether a conditional write succeeds."""
    data = uuid.uuid4().hex.encode()
    try:
        store.write(key, data, if_tag)
    except PreconditionFailedError:
        # The SDK may have sent it twice, and the second have met the first.
        found = store.read(key)
        return found is not None and found[0] == data
    except UnsafeStoreError as error:
        raise UnsafeStoreError(_told(store, str(error))) from error
    return True


def _told(store: ObjectStore, what: str) -> str:
    return (
        f"{store.url} cannot keep a lease, since its conditional writes cannot be trusted: {what}. "
        "Run a lock server instead, python -m yogadl.rw_coordinator, and give its address as url="
    )
