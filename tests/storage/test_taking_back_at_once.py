"""Commits are taken back while others move the branch."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_taking_back import numbers, rows

from yogadl.errors import ConflictError
from yogadl.storage import LFSStorage


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    begun = LFSStorage(str(storage_dir))
    begun.submit({"n": np.arange(6)}, "a", "1")
    begun.tag("a", "main", "1")
    return begun


def meanwhile(storage: LFSStorage, *acts: Callable[[], Any]) -> None:
    """Has others do this, each between one more look at the branch and the commit."""
    publish, left = storage._publish_new, iter(acts)

    def late(*given: Any) -> Any:
        next(left, lambda: None)()
        return publish(*given)

    storage._publish_new = late  # type: ignore[method-assign]


@pytest.mark.parametrize("order", list(itertools.permutations("234")), ids="".join)
def test_deletions_come_back_in_order_whoever_is_first(
    storage: LFSStorage, storage_dir: pathlib.Path, order: tuple[str, str, str]
) -> None:
    for version in "234":
        with storage.change("a", "main", version=version) as change:
            change.delete([0])
    there = LFSStorage(storage_dir)
    storage.revert("a", order[0], on="main")
    meanwhile(storage, lambda: there.revert("a", order[1], on="main"))
    storage.revert("a", order[2], on="main")
    assert numbers(there) == [*range(6)]


def test_nor_does_it_matter_how_often_the_branch_is_moved(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    with storage.change("a", "main", version="2") as change:
        change.delete([2, 4])
    there = LFSStorage(storage_dir)

    def append() -> None:
        with there.change("a", "main") as change:
            change.append(rows(len(change.base)))
            change.replace([0], rows(10))

    append()
    meanwhile(storage, append, append)
    storage.revert("a", "2", on="main")
    assert numbers(there) == [10, 1, 2, 3, 4, 5, 4, 5, 6]


def test_what_others_have_changed_meanwhile_is_told_as_ever(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    with storage.change("a", "main", version="2") as change:
        change.replace([2], rows(20))
    with storage.change("a", "main") as change:
        change.append(rows(7))
    there = LFSStorage(storage_dir)

    def replace() -> None:
        with there.change("a", "main", version="other") as change:
            change.replace([2], rows(21))

    meanwhile(storage, replace)
    with pytest.raises(ConflictError) as late:
        storage.revert("a", "2", on="main")
    with pytest.raises(ConflictError) as again:
        there.revert("a", "2", on="main")
    assert str(late.value) == str(again.value)
    assert "revert the commits in between first" in str(late.value)
