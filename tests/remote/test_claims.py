"""What processes of one machine claim of a file: nobody fetches what another is fetching."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from yogadl.remote._local.sparse_file import CELL, SparseFile, open_sparse

FORK = multiprocessing.get_context("fork")


@contextlib.contextmanager
def claiming(path: pathlib.Path, size: int, act: Callable[[SparseFile], object]) -> Iterator[None]:
    """Another process has a file open, and has done something with it, until it is killed."""

    def run(ready: Any) -> None:
        pieces = open_sparse(path, size)
        act(pieces)
        ready.set()
        time.sleep(100)

    ready = FORK.Event()
    other = FORK.Process(target=run, args=(ready,))
    other.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        other.kill()
        other.join()


def test_bulk_and_others_of_two_processes(tmp_path: pathlib.Path) -> None:
    path, size = tmp_path / "file", 1 << 20

    little = size // 4 * 3

    def claim(pieces: SparseFile) -> None:
        assert pieces.claim_bulk(0, size // 2) == size // 2
        assert pieces.claim(little, little + 4096) == little + 4096

    with claiming(path, size, claim):
        pieces = open_sparse(path, size)
        # What comes in bulk is waited for.
        assert pieces.claim_bulk(size // 4, size) == size // 4
        assert pieces.claim(4096, 8192) == 4096
        # The little that comes otherwise is left out, unless it may come twice.
        assert pieces.claim_bulk(little, size) == little
        assert pieces.claim_bulk(size // 2, size) == little
        pieces.release(size // 2, little, is_bulk=True)
        assert pieces.claim_bulk(size // 2, size, bridge=4096) == size
        pieces.release(size // 2, size, is_bulk=True)
        assert pieces.claim(little, little + 4096) == little
    assert pieces.claim(4096, 8192) == 8192
    assert pieces.claim_bulk(0, size) == 4096
    pieces.release(0, 4096, is_bulk=True)
    pieces.release(4096, 8192)
    assert pieces.claim_bulk(0, size) == size
    # It has it itself.
    assert pieces.claim(8192, 16384) == 16384
    pieces.release(0, size, is_bulk=True)
    pieces.release(8192, 16384)


def test_nothing_is_claimed_twice(tmp_path: pathlib.Path) -> None:
    """Two processes claim at once, one in bulk; each notes what it has, and looks for the other."""
    path, cells, rounds = tmp_path / "file", 256, 4000
    held = np.frombuffer(mmap.mmap(-1, 2 * cells), "u1").reshape(2, cells)

    def run(own: int, start: Any) -> None:
        pieces, rng = open_sparse(path, cells * CELL), np.random.default_rng(own)
        start.wait(30)
        for first in rng.integers(0, cells - 64, rounds).tolist():
            begin, end = first * CELL, (first + 64) * CELL
            got = (pieces.claim_bulk if own else pieces.claim)(begin, end)
            held[own, first : got // CELL] = 1
            assert not held[1 - own, first : got // CELL].any()
            held[own] = 0
            if got > begin:
                pieces.release(begin, got, is_bulk=bool(own))

    start = FORK.Barrier(2)
    both = [FORK.Process(target=run, args=(own, start)) for own in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]


def test_shards_that_are_read_on_this_machine(tmp_path: pathlib.Path) -> None:
    path, size = tmp_path / "file", 1 << 20
    pieces = open_sparse(path, size)
    assert pieces.claims.shards_here(2, 4) == 1
    assert pieces.claims.shards_here(0, 1) == 1
    with claiming(path, size, lambda other: other.claims.shards_here(0, 4)):
        assert pieces.claims.shards_here(2, 4) == 2
        # Others of as many count, not processes, nor the same ranks of other numbers.
        assert pieces.claims.shards_here(0, 3) == 1
        with claiming(path, size, lambda other: other.claims.shards_here(0, 4)):
            assert pieces.claims.shards_here(2, 4) == 2
        with claiming(path, size, lambda other: [other.claims.shards_here(at, 4) for at in (1, 3)]):
            assert pieces.claims.shards_here(2, 4) == 4
        assert pieces.claims.shards_here(2, 4) == 2
        # They have many machines.
        assert pieces.claims.shards_here(2, 1_000_000) == 1
    assert pieces.claims.shards_here(2, 4) == 1
    # Its own are not lost by looking.
    with claiming(path, size, lambda other: _assert_shards(other, 2)):
        pass


def _assert_shards(pieces: SparseFile, count: int) -> None:
    assert pieces.claims.shards_here(1, 4) == count


def test_bulk_leaves_to_others_what_they_are_fetching(tmp_path: pathlib.Path) -> None:
    path, cells = tmp_path / "file", 100
    places = [[(70, 75), (10, 12)], [(40, 41), (11, 14)], [(0, 3), (99, 100)]]

    def claims(ranges: list[tuple[int, int]]) -> Callable[[SparseFile], object]:
        return lambda other: [other.claim(CELL * begin, CELL * end) for begin, end in ranges]

    with contextlib.ExitStack() as stack:
        for ranges in places:
            stack.enter_context(claiming(path, cells * CELL, claims(ranges)))
        pieces = open_sparse(path, cells * CELL)
        assert pieces.missing(0, cells * CELL) == [(0, cells * CELL)]
        found = pieces.missing(0, cells * CELL, for_bulk=True)
        told = [(begin // CELL, end // CELL) for begin, end in found]
        # Of two that overlap, the first one has what both wanted.
        assert told == [(3, 10), (12, 40), (41, 70), (75, 99)]
    assert pieces.missing(0, cells * CELL, for_bulk=True) == [(0, cells * CELL)]
