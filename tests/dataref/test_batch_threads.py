"""``stream.batches`` for busy consumers, in threads and in forks."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
import time
from typing import Any
from unittest import mock

import pytest
from batch_rig import ONE_BATCH, always_in_a_thread, ended, in_batches, memory, threads
from strategies import same

from yogadl import chunk_sizes
from yogadl.cache.reader import CacheFile
from yogadl.dataref import LMDBDataRef


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("ahead", [None, 0, 1, 3])
def test_busy_consumers_get_the_same(wide: pathlib.Path, ahead: int | None, busy: bool) -> None:
    with LMDBDataRef(wide) as dataref:
        options: dict[str, Any] = {"start_offset": 7, "shuffle": True, "shuffle_seed": 5}
        plain = dataref.stream(**options)
        batches = dataref.stream(**options).batches(2, read_ahead=ahead)
        with mock.patch.object(chunk_sizes, "BATCHES", ONE_BATCH):
            for _epoch in range(2):
                found = []
                for batch in batches:
                    found.append(batch)
                    if busy:
                        time.sleep(0.001)  # longer than the next one takes to read
                assert same(found, in_batches(dataref.spec, list(plain), 2))


def test_a_busy_consumer_is_read_ahead_for_in_one_thread(wide: pathlib.Path) -> None:
    names = []
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        names.append(threading.current_thread().name)
        return plain(self, *arguments, **options)

    with (
        LMDBDataRef(wide) as dataref,
        mock.patch.object(CacheFile, "read_columns", read_columns),
        mock.patch.object(chunk_sizes, "BATCHES", ONE_BATCH),
    ):
        for _batch in dataref.stream().batches(6):
            time.sleep(0.01)  # longer than the next one takes to read
    assert len(names) == 10
    assert len({name for name in names if name.startswith("yogadl-read-ahead")}) == 1


def test_no_thread_is_left_running(wide: pathlib.Path) -> None:
    before = threads()
    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        batches = dataref.stream().batches(2, read_ahead=3)
        for at, _batch in enumerate(batches):
            if at == 4:
                assert threads() - before, "the test is of threads"
                break
        assert ended(before), "after break"
        iterator: Any = iter(batches)
        for _ in range(4):
            next(iterator)
        iterator.close()
        assert ended(before), "after close"
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        del iterator
        assert ended(before), "after the last reference"
        assert len(list(batches)) == 30
        assert ended(before), "after the end"


def test_threads_with_an_iterator_each(wide: pathlib.Path) -> None:
    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        stream = dataref.stream(shuffle=True, shuffle_seed=3)
        expected = [[int(record["y"]) for record in stream] for _ in range(6)]
        batches = dataref.stream(shuffle=True, shuffle_seed=3).batches(7)
        found: list[list[int]] = []

        def consume() -> None:
            for _ in range(2):
                found.append([int(y) for batch in batches for y in batch["y"]])

        consumers = [threading.Thread(target=consume) for _ in range(3)]
        for thread in consumers:
            thread.start()
        for thread in consumers:
            thread.join()
        assert sorted(found) == sorted(expected)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("taken", [1, 3, 9])
@pytest.mark.parametrize("given_memory", [False, True])
def test_a_fork_in_the_middle_of_an_epoch(
    wide: pathlib.Path, taken: int, given_memory: bool
) -> None:
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.003)  # so that the fork finds chunks under way
        return plain(self, *arguments, **options)

    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 2}
        expected = in_batches(dataref.spec, list(dataref.stream(**order)), 4)
        options: dict[str, Any] = (
            {"out": memory(dataref, 4, 4)} if given_memory else {"read_ahead": 3}
        )
        with mock.patch.object(CacheFile, "read_columns", read_columns):
            iterator = iter(dataref.stream(**order).batches(4, **options))
            for _ in range(taken):
                next(iterator)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(60)
                    rest = [same(batch, expected[taken + at]) for at, batch in enumerate(iterator)]
                    code = 0 if rest == [True] * (15 - taken) else 2
                finally:
                    os._exit(code)
            rest = [same(batch, expected[taken + at]) for at, batch in enumerate(iterator)]
            assert rest == [True] * (15 - taken)
        assert os.waitpid(child, 0)[1] == 0
