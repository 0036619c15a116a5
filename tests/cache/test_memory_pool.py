"""Memory that is used again, and only when nobody has got it any more."""

from __future__ import annotations

import copy
import pathlib
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from yogadl.cache.memory import MemoryPool, returning


def address(array: Any) -> int:
    start: int = array.__array_interface__["data"][0]
    return start


def test_arrays_are_like_others() -> None:
    array = MemoryPool().empty((3, 0x1001), np.dtype("float32"))
    assert (array.shape, array.dtype) == ((3, 0x1001), np.dtype("float32"))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % 64 == 0
    array[...] = 1
    assert array.sum() == array.size


def test_memory_is_used_again() -> None:
    pool = MemoryPool()
    first = pool.empty((1000,), np.dtype("u1"))
    place = address(first)
    del first
    assert address(pool.empty((500,), np.dtype("i2"))) == place
    assert address(pool.empty((10,), np.dtype("u1"))) != place


HOLDERS: dict[str, Any] = {
    "view": lambda array: array[:1],
    "rows": list,
    "reshaped": lambda array: array.reshape(-1)[::3],
    "buffer": memoryview,
    "from buffer": lambda array: np.frombuffer(array, "u1"),
    "iterator": lambda array: iter(array[2:]),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_whoever_has_a_part_keeps_it(kind: str) -> None:
    pool = MemoryPool()
    array = pool.empty((10, 100), np.dtype("u1"))
    array[...] = 7
    held = HOLDERS[kind](array)
    del array
    for other in [pool.empty((10, 100), np.dtype("u1")) for _ in range(3)]:
        other[...] = 1
    values = list(held) if kind in ("rows", "iterator") else held
    assert (np.asarray(values) == 7).all()


def test_no_more_is_kept_than_the_limit() -> None:
    pool = MemoryPool(limit=2)
    held = [pool.empty((1000,), np.dtype("u1")) for _ in range(5)]
    places = {address(array) for array in held}
    held.clear()
    (unused,) = pool._unused.values()
    assert len(unused) == 2
    again = [pool.empty((1000,), np.dtype("u1")) for _ in range(2)]
    assert {address(array) for array in again} < places
    assert len(unused) == 0


def test_copies_share_nothing() -> None:
    pool = MemoryPool(limit=3)
    pool.empty((1000,), np.dtype("u1"))
    assert [len(unused) for unused in pool._unused.values()] == [1]
    for made in (copy.copy(pool), pickle.loads(pickle.dumps(pool))):
        assert (made._limit, made._unused) == (3, {})


def test_threads_never_get_the_same() -> None:
    pool = MemoryPool()
    failed = []

    def work(number: int) -> None:
        for _ in range(500):
            array = pool.empty((1000,), np.dtype("u1"))
            array[...] = number
            if not (array == number).all():
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("rows", [0, 1, 1000, 1 << 13])
def test_memory_that_returns_is_like_other(rows: int) -> None:
    array = returning((rows, 0x101), np.dtype("float64"))
    assert (array.shape, array.dtype) == ((rows, 0x101), np.dtype("float64"))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % 64 == 0
    array[...] = 1
    assert array.sum() == array.size


def own_bytes() -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs /proc")
def test_what_is_large_is_the_systems_again() -> None:
    """Of other memory, the C library keeps a heap for each of some threads."""
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        for _ in range(3):
            returning((20 << 20,), np.dtype("u1"))[...] = 1
        barrier.wait()
        barrier.wait()

    # The C library does so from the first such block on that is freed.
    np.empty(20 << 20, "u1")[...] = 1
    before = own_bytes()
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    barrier.wait()
    barrier.wait()
    after = own_bytes()
    barrier.wait()
    for thread in threads:
        thread.join()
    assert after - before < 20 << 20
