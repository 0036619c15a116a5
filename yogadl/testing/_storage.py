"""What every storage promises, as tests."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from yogadl.core import DataRef, Storage
from yogadl.errors import SpecMismatchError, StaleCacheWarning, UnsupportedTypeError
from yogadl.spec import TensorSpec

_THREADS = 6
_PATIENCE = 120.0

# What must be refused before anything is touched.
_BAD_IDS = ("", ".", "..", "/absolute", "../outside", "a/../b", "a//b", "a/", "nul\0")
_BAD_VERSIONS = (*_BAD_IDS, "a/b")


def _records(ref: DataRef, **arguments: Any) -> list[Any]:
    return [int(record) for record in ref.stream(**arguments)]


class StorageConformance:
    """Derive from it, and supply the fixture ``storage``."""

    @pytest.fixture
    def storage(self) -> Storage:
        """An empty storage."""
        raise NotImplementedError(f"{type(self).__name__} has to supply the fixture 'storage'")

    # submit and fetch

    def test_what_is_submitted_is_fetched(self, storage: Storage) -> None:
        """Nests of dicts and tuples, arrays of numbers, and strings."""
        given = [{"x": np.full((2, 3), n, "float32"), "y": (n, b"%d" % n)} for n in range(20)]
        storage.submit(given, "team/records", "1.0")
        found = list(storage.fetch("team/records", "1.0").stream())
        assert len(found) == len(storage.fetch("team/records", "1.0")) == 20
        for number, record in enumerate(found):
            assert record["x"].dtype == np.float32
            assert np.array_equal(record["x"], np.full((2, 3), number))
            assert (int(record["y"][0]), record["y"][1]) == (number, b"%d" % number)

    def test_ids_and_versions_are_kept_apart(self, storage: Storage) -> None:
        """Also those of which one begins with the other, and names that URLs would mangle."""
        names = [("a", "1"), ("a", "1.0"), ("a/b", "1"), ("b", "1"), ("a b", "%31"), ("ü?#&+", "…")]
        for number, name in enumerate(names):
            storage.submit([number], *name)
        assert [_records(storage.fetch(*name)) for name in names] == [[n] for n in range(6)]

    def test_fetching_what_is_not_there_is_an_error(self, storage: Storage) -> None:
        """Whether nothing of that id is there, or another version."""
        storage.submit([1], "a", "1")
        for name, version in (("b", "1"), ("a", "2"), ("a/1", "1")):
            with pytest.raises(FileNotFoundError):
                storage.fetch(name, version)

    def test_submit_replaces_and_readers_keep_what_they_have(self, storage: Storage) -> None:
        """A reference to the old version goes on giving the old records."""
        storage.submit(np.arange(1000), "a", "1")
        old = storage.fetch("a", "1")
        stream = iter(old.stream())
        begun = [int(next(stream)) for _ in range(10)]
        storage.submit([7, 8], "a", "1")
        assert begun + [int(record) for record in stream] == list(range(1000))
        assert _records(old) == list(range(1000))
        assert _records(storage.fetch("a", "1")) == [7, 8]

    def test_an_empty_data_set(self, storage: Storage) -> None:
        """It is stored like any other."""
        storage.submit([], "a", "1", spec=TensorSpec("int64"))
        assert (len(storage.fetch("a", "1")), _records(storage.fetch("a", "1"))) == (0, [])

    def test_records_that_fail_leave_what_was_there(self, storage: Storage) -> None:
        """Nothing is half-written, whoever is to blame."""

        def failing() -> Iterator[Any]:
            yield from range(500)
            raise KeyError("broken source")

        storage.submit([1, 2], "a", "1")
        wrong: list[tuple[Callable[[], Any], type[Exception]]] = [
            (failing, KeyError),
            (lambda: [np.zeros(2), np.zeros(3)], SpecMismatchError),
            (lambda: 5, UnsupportedTypeError),
        ]
        for make, error in wrong:
            with pytest.raises(error):
                storage.submit(make(), "a", "1")
            with pytest.raises(error):
                storage.submit(make(), "b", "1")
            assert _records(storage.fetch("a", "1")) == [1, 2]
            with pytest.raises(FileNotFoundError):
                storage.fetch("b", "1")

    @pytest.mark.parametrize(
        ("name", "version"),
        [*((bad, "1") for bad in _BAD_IDS), *(("a", bad) for bad in _BAD_VERSIONS)],
    )
    def test_names_that_would_leave_the_storage(
        self, storage: Storage, name: str, version: str
    ) -> None:
        """They are refused before the data are looked at."""

        def touched() -> Iterator[int]:
            pytest.fail("the data were read before the name was refused")
            yield 1  # type: ignore[unreachable] # makes it a generator

        with pytest.raises(ValueError, match="dataset_"):
            storage.submit(touched(), name, version)
        with pytest.raises(ValueError, match="dataset_"):
            storage.fetch(name, version)
        with pytest.raises(ValueError, match="dataset_"):
            storage.cacheable(name, version)

    # Streams

    def test_the_order_is_the_frozen_one(self, storage: Storage) -> None:
        """Runs are resumed by it, so that every storage must give the same."""
        storage.submit(range(10), "a", "1")
        stream = storage.fetch("a", "1").stream(start_offset=5, shuffle=True, shuffle_seed=777)
        epochs = [[int(record) for record in stream] for _ in range(3)]
        assert epochs == [
            [5, 1, 9, 6, 7],
            [1, 7, 3, 9, 8, 2, 6, 0, 4, 5],
            [9, 5, 3, 0, 8, 6, 7, 4, 1, 2],
        ]

    @pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
    def test_shards_have_every_record_once(self, storage: Storage, num_shards: int) -> None:
        """Also when the count cannot be divided."""
        storage.submit(range(20), "a", "1")
        ref = storage.fetch("a", "1")
        shards = [
            _records(ref, shard_rank=rank, num_shards=num_shards, shuffle=True, shuffle_seed=3)
            for rank in range(num_shards)
        ]
        assert sorted(itertools.chain(*shards)) == list(range(20))
        for rank, shard in enumerate(shards):
            assert sorted(shard) == list(range(rank, 20, num_shards))

    def test_any_offset_gives_the_rest(self, storage: Storage) -> None:
        """An offset of a whole epoch or more begins in a later one."""
        storage.submit(range(7), "a", "1")
        ref = storage.fetch("a", "1")
        whole = ref.stream(shuffle=True, shuffle_seed=5)
        order = [int(record) for _ in range(4) for record in whole]
        for offset in range(15):
            stream = ref.stream(start_offset=offset, shuffle=True, shuffle_seed=5)
            found = [int(record) for _ in range(2) for record in stream]
            assert found == order[offset : offset + len(found)]
            assert len(found) == 14 - offset % 7

    # cacheable

    def test_the_function_runs_once(self, storage: Storage) -> None:
        """Its arguments are passed on, and are no part of the key; it keeps name and docstring."""
        calls = []

        @storage.cacheable("a", "1")
        def make(*args: int, **kwargs: int) -> Any:
            """Makes records."""
            calls.append((args, kwargs))
            return [*args, *kwargs.values()]

        assert (make.__name__, make.__doc__) == ("make", "Makes records.")
        assert _records(make(1, 2, x=3)) == [1, 2, 3]
        with warnings.catch_warnings():
            # Yogadl's own storages say that these are other arguments.
            warnings.simplefilter("ignore", StaleCacheWarning)
            assert _records(make(9)) == [1, 2, 3]
        assert _records(storage.fetch("a", "1")) == [1, 2, 3]
        assert calls == [((1, 2), {"x": 3})]

    def test_an_error_of_the_function_reaches_the_caller(self, storage: Storage) -> None:
        """And the next call tries again."""
        results: Iterator[Any] = iter([KeyError("broken"), [4, 5]])

        @storage.cacheable("a", "1")
        def make() -> Any:
            result = next(results)
            if isinstance(result, Exception):
                raise result
            return result

        with pytest.raises(KeyError, match="broken"):
            make()
        with pytest.raises(FileNotFoundError):
            storage.fetch("a", "1")
        assert _records(make()) == [4, 5]

    def test_of_many_threads_one_builds(self, storage: Storage) -> None:
        """And all get the same records."""
        calls: list[int] = []
        barrier = threading.Barrier(_THREADS)

        @storage.cacheable("a", "1")
        def make() -> Any:
            calls.append(1)
            return range(100)

        def call() -> list[Any]:
            barrier.wait(_PATIENCE)
            return _records(make())

        assert _in_threads(call) == [list(range(100))] * _THREADS
        assert len(calls) == 1

    def test_different_data_sets_are_built_at_once(self, storage: Storage) -> None:
        """Each builder waits for the other to have begun."""
        begun = threading.Barrier(2)

        def build(name: str) -> list[Any]:
            def make() -> Any:
                begun.wait(_PATIENCE)
                return [len(name)]

            return _records(storage.cacheable(name, "1")(make)())

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert list(pool.map(build, ("a", "bb"))) == [[1], [2]]

    def test_who_reads_while_others_submit_gets_one_version_whole(self, storage: Storage) -> None:
        """Never a mixture, and never nothing once there was something."""
        storage.submit(np.zeros(2000, "int64"), "a", "1")
        stop = threading.Event()

        def submit() -> None:
            for number in range(1, 6):
                storage.submit(np.full(2000, number), "a", "1")
            stop.set()

        def read() -> bool:
            good = True
            while good and not stop.is_set():
                found = _records(storage.fetch("a", "1"))
                good = len(found) == 2000 and len(set(found)) == 1
            return good

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                pool.submit(submit).result(_PATIENCE)
            finally:
                stop.set()
            assert [reader.result(_PATIENCE) for reader in readers] == [True, True]
        assert _records(storage.fetch("a", "1")) == [5] * 2000


def _in_threads(call: Callable[[], Any]) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return [future.result(_PATIENCE) for future in [pool.submit(call) for _ in range(_THREADS)]]
