"""Many who commit to one branch on a disk at once, and are killed."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import random
import time
from typing import Any

import pytest
from committing import COMMITS, IS_FULL_LENGTH, WRITERS, begin, check, watched, work_all

from yogadl.storage import LFSStorage

fork = multiprocessing.get_context("fork")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    # Of nothing here the version of Python makes a difference.
    pytest.mark.once,
]


def _work(folder: pathlib.Path, journals: pathlib.Path, writers: list[int], count: int) -> None:
    work_all(LFSStorage(folder), journals, writers, count)


def _started(folder: pathlib.Path, journals: pathlib.Path, writers: list[int], count: int) -> Any:
    process = fork.Process(target=_work, args=(folder, journals, writers, count))
    process.start()
    return process


def test_threads_and_processes(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    begin(LFSStorage(storage_dir), WRITERS)
    half = list(range(WRITERS))
    processes = [_started(storage_dir, tmp_path, half[at::4], COMMITS) for at in range(4)]
    with watched(lambda: LFSStorage(storage_dir)) as reads:
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert reads[0]
    check(LFSStorage(storage_dir), tmp_path, WRITERS, COMMITS, 0)


def test_killed_at_any_moment(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    begin(LFSStorage(storage_dir), WRITERS)
    chance = random.Random(1)
    kills, count = (100, COMMITS) if IS_FULL_LENGTH else (12, 2 * COMMITS)
    groups = [list(range(WRITERS))[at::4] for at in range(4)]
    processes = [_started(storage_dir, tmp_path, group, count) for group in groups]
    killed = 0
    with watched(lambda: LFSStorage(storage_dir)):
        while any(process.is_alive() for process in processes):
            time.sleep(chance.uniform(0.01, 0.12))
            at = chance.randrange(len(processes))
            if killed < kills and processes[at].is_alive():
                processes[at].kill()
                processes[at].join()
                killed += 1
                processes[at] = _started(storage_dir, tmp_path, groups[at], count)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert killed >= 3
    # Of each that was killed, one commit of each of its threads.
    check(LFSStorage(storage_dir), tmp_path, WRITERS, count, 4 * killed)
    storage = LFSStorage(storage_dir)
    storage.collect_parts("a")
    check(storage, tmp_path, WRITERS, count, 4 * killed)
