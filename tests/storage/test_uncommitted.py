"""What a commit has stored and not entered is no version, whatever is done with it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.errors import CacheNotFoundError, InvalidArgumentError, VersionExistsError
from yogadl.storage import LFSStorage


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    found = LFSStorage(tmp_path / "data")
    found.submit(np.arange(100), "a", "1")
    found.tag("a", "main", "1")
    return found


def commit_meanwhile(storage: Any, do: Callable[[], object]) -> None:
    """Commits version 2, and does something before it is entered."""
    enter = storage._catalogue.commit

    def commit(*args: Any) -> None:
        storage._catalogue.commit = enter
        do()
        enter(*args)

    storage._catalogue.commit = commit
    with storage.change("a", "main", version="2") as change:
        change.append([7])


@pytest.mark.parametrize("what", ["tag", "compact", "copy", "copy elsewhere"])
def test_it_is_not_used_and_the_commit_goes_on(
    storage: LFSStorage, what: str, tmp_path: pathlib.Path
) -> None:
    # With a storage of its own, as another process has it.
    there, other = LFSStorage(tmp_path / "data"), LFSStorage(tmp_path / "other")
    attacks: dict[str, Callable[[], object]] = {
        "tag": lambda: there.tag("a", "paper", "2"),
        "compact": lambda: there.compact("a", "2"),
        "copy": lambda: there.copy("a", "2", there, new_version="3"),
        "copy elsewhere": lambda: there.copy("a", "2", other),
    }

    def attack() -> None:
        assert [entry.dataset_version for entry in there.list()] == ["1"]
        with pytest.raises(CacheNotFoundError, match="is being committed or deleted"):
            attacks[what]()

    commit_meanwhile(storage, attack)
    assert [entry.dataset_version for entry in there.list()] == ["1", "2"]
    assert there.tags("a") == {"main": "2"}
    assert other.list() == []
    attacks[what]()


def test_what_is_copied_of_a_damaged_catalogue(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data" / "yogadl.catalogue" / "root.json").write_bytes(b"{}")
    other = LFSStorage(tmp_path / "other")
    storage.copy("a", "1", other)
    assert len(other.fetch("a", "1")) == 100


def test_a_revert_has_a_name_of_its_own(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.append([7])
    with pytest.raises(InvalidArgumentError, match="is a tag"):
        storage.revert("a", "2", on="main", version="main")
    with pytest.raises(VersionExistsError):
        storage.revert("a", "2", on="main", version="1")
    assert storage.tags("a") == {"main": "2"}
    assert [entry.dataset_version for entry in storage.list()] == ["1", "2"]
    assert storage.revert("a", "2", on="main", version="3") == "3"


def test_own_bytes_are_of_what_is_needed(storage: LFSStorage) -> None:
    for number in range(20):
        with storage.change("a", "main", version=f"c{number}") as change:
            change.append(np.full(1000, number))
    with storage.change("a", "main", version="ours") as change:
        change.append([1])
        storage.compact("a", "main")
        with storage.change("a", "main", version="theirs") as other:
            other.append([2])
    for entry in storage.list("a"):
        assert entry.own_size is not None
        assert entry.own_size <= entry.size
