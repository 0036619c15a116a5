"""Trees of every number of leaves are such as LMDB can search."""

from __future__ import annotations

import itertools
import pathlib

import lmdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yogadl.format.pages import PAGE_SIZE, write_branches
from yogadl.storage import LFSStorage


def fan_out(key_size: int) -> int:
    """Children of a full branch page, of which the first has no key there."""
    return 1 + (4096 - 16 - 10) // (8 + key_size + key_size % 2 + 2)


def tree_below(pages: list[bytes], root: int, depth: int) -> list[tuple[bytes, int]]:
    """The keys and numbers of the leaves under a branch page, as its pages say."""
    page = pages[root]
    count = (int.from_bytes(page[12:14], "little") - 16) // 2
    assert count >= 2, "LMDB aborts"
    found: list[tuple[bytes, int]] = []
    for at in np.frombuffer(page[16 : 16 + 2 * count], "<u2").tolist():
        child = int.from_bytes(page[at : at + 6], "little")
        size = int.from_bytes(page[at + 6 : at + 8], "little")
        key = page[at + 8 : at + 8 + size]
        assert (key == b"") == (not found)
        below = [(key, child)] if depth == 2 else tree_below(pages, child, depth - 1)
        # What is searched for goes to the last child whose key is not greater.
        assert key in (b"", below[0][0]) or below[0][0] == b""
        found += below if key == b"" else [(key, below[0][1]), *below[1:]]
    return found


@settings(max_examples=8)
@given(
    key_size=st.sampled_from((2, 8, 9, 16, 200, 511)),
    full=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    more=st.integers(0, 2),
)
@example(key_size=8, full=[1], more=1)
@example(key_size=8, full=[0, 1], more=1)
@example(key_size=8, full=[1, 1], more=1)
@example(key_size=511, full=[3, 2, 1], more=1)
def test_every_branch_page_has_two_children(key_size: int, full: list[int], more: int) -> None:
    fan = fan_out(key_size)
    # Of each level, a few full pages: where there would be a last one of few.
    count = sum(times * fan**level for level, times in enumerate(full, 1)) + more
    count = min(max(count, 2), 256**2, 3 * fan**2 + 3 * fan)
    leaves = [(at.to_bytes(key_size, "big"), at) for at in range(count)]
    pages = [b""] * count
    root, depth, branches = write_branches(leaves, pages.append, lambda: len(pages))
    assert branches == len(pages) - count
    assert all(len(page) == PAGE_SIZE for page in pages[count:])
    found = tree_below(pages, root, depth)
    assert [page for _, page in found] == list(range(count))
    assert [key for key, _ in found[1:]] == [key for key, _ in leaves[1:]]


@pytest.mark.parametrize("columns", [False, True], ids=("records", "columns"))
def test_lmdb_finds_all_of_any_number_of_leaves(tmp_path: pathlib.Path, columns: bool) -> None:
    # With two records to a page, and what is not records behind them.
    for count in itertools.chain(range(442, 458, 2), range(894, 912, 2)):
        data = {"x": np.full((count, 1900), count % 251, "u1")}
        storage = LFSStorage(tmp_path)
        source = data if columns else ({"x": row} for row in data["x"])
        storage.submit(source, "a", str(count))
        assert len(storage.fetch("a", str(count))) == count
        path = tmp_path / "a" / str(count) / "cache.mdb"
        with (
            lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
            environment.begin() as transaction,
        ):
            keys = [key for key, _ in transaction.cursor()]
            assert len(keys) == count + 5
            assert all(transaction.get(key) is not None for key in keys)
