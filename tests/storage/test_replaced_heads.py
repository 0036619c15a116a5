"""Changes of a version whose name another one has got meanwhile."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from yogadl.errors import ConflictError
from yogadl.storage import LFSStorage
from yogadl.storage._commits.change import Change


def rows(numbers: Any) -> list[dict[str, Any]]:
    return [{"x": number, "y": str(number)} for number in numbers]


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    found = LFSStorage(tmp_path)
    found.submit(rows(range(10)), "a", "1")
    found.tag("a", "main", "1")
    return found


def numbers(storage: LFSStorage) -> list[int]:
    with storage.fetch("a", "main") as ref:
        return [int(record["x"]) for record in ref.stream()]


def submit_anew(storage: LFSStorage) -> None:
    storage.submit(rows([50, 51]), "a", "2")


def commit_anew(storage: LFSStorage) -> None:
    storage.tag("a", "main", "1")
    storage.delete("a", "2")
    with storage.change("a", "main", version="2") as change:
        change.append(rows([50, 51]))


@pytest.mark.parametrize("replace", [submit_anew, commit_anew])
@pytest.mark.parametrize(
    "edit",
    [
        lambda change: change.append(rows([7])),
        lambda change: change.drop("y"),
        lambda change: change.metadata.update(k=1),
        lambda change: change.submit(rows([1, 2])),
    ],
)
def test_a_head_that_is_replaced_meanwhile_is_told(
    storage: LFSStorage, replace: Callable[[LFSStorage], None], edit: Callable[[Change], Any]
) -> None:
    """The name of the version that the branch is at is the same, and its records are not."""
    with storage.change("a", "main", version="2") as change:
        change.delete([0])
    change = storage.change("a", "main", version="3").__enter__()
    edit(change)
    replace(storage)
    with pytest.raises(ConflictError, match="'2' was stored anew, with other records"):
        change.__exit__(None, None, None)
    assert {50, 51} <= set(numbers(storage))
    assert not storage.exists("a", "3")
    # Begun anew, it is as ever.
    with storage.change("a", "main", version="3") as change:
        change.append(rows([7]))
    assert numbers(storage)[-1] == 7


def test_a_head_that_is_compacted_meanwhile_is_the_same(storage: LFSStorage) -> None:
    with storage.change("a", "main", version="2") as change:
        change.delete([0])
    with storage.change("a", "main", version="3") as change:
        change.append(rows([7]))
        storage.compact("a", "2")
    assert numbers(storage) == [*range(1, 10), 7]


def test_what_the_catalogue_has_not_heard_of_is_no_reason_to_refuse(
    storage: LFSStorage, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who replaced the version was killed before that was entered."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LFSStorage, "_enter", die)
        with pytest.raises(KeyboardInterrupt):
            storage.submit(rows([50, 51]), "a", "1")
    again = LFSStorage(tmp_path)
    with again.change("a", "main") as change:
        change.append(rows([7]))
    assert numbers(again) == [50, 51, 7]
    again.set_metadata("a", "main", {"k": 1})
    again.revert("a", again.log("a", "main")[1].dataset_version, on="main")
    assert numbers(again) == [50, 51]
